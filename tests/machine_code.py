"""Kernels as a launch would have them, compiled for a GPU that is not there, and what their machine code holds."""

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import triton
import triton.language as tl
from fastpos_kernels.triton_jit import OPTIONS
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
KINDS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "int64": "i64", "int32": "i32"}
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"


@dataclass
class Code:
    """Instructions (without padding), registers of a thread, bytes that it keeps in memory, bytes it shares."""

    opcodes: list[str]
    registers: int
    spilled: int
    shared: int

    def count(self, *starts: str) -> Counter:
        """How many instructions of each kind begin with one of ``starts``."""
        return Counter(opcode for opcode in self.opcodes if opcode.startswith(starts))

    @property
    def stores(self) -> Counter:
        """Stores to the arrays."""
        return self.count("STG", "global_store", "buffer_store", "flat_store")

    @property
    def loads(self) -> Counter:
        """Loads from arrays and tables."""
        return self.count("LDG", "global_load", "buffer_load", "flat_load")

    @property
    def local(self) -> Counter:
        """Accesses to a thread's own memory."""
        return self.count("LDL", "STL", "scratch")


def compiled(piece, target: GPUTarget, pointers: dict[str, str]):
    """The binary of a launch's piece, and its program's arguments by name; ``pointers`` gives what each points to."""
    constants = piece.arguments(target.backend, target.warp_size)[2]
    names, kernel = piece.kernel.arg_names, piece.kernel
    types = kernel.fn.__annotations__
    constant = [name for name in names if types.get(name) is tl.constexpr]
    values = dict(zip(constant, (piece.rule.kind, piece.rule.real, piece.rule.axes > 1, *constants), strict=True))
    signature, fixed, aligned = {}, {}, {}
    for index, name in enumerate(names):
        if name in values:
            signature[name], fixed[index,] = "constexpr", values[name]
        elif name in types:
            signature[name] = KINDS[types[name].name]
        else:
            signature[name] = "*" + KINDS[pointers.get(name, "int64")]
            if name not in ("where", "starts"):
                aligned[index,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs=aligned)
    return triton.compile(source, target=target, options=OPTIONS), values


def code(binary, target: GPUTarget) -> Code:
    """What lies in a binary."""
    return _cuda(binary.asm["cubin"]) if target.backend == "cuda" else _hip(binary.asm["amdgcn"])


def _cuda(cubin: bytes) -> Code:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [TOOLS / "cuobjdump", "-res-usage", "-sass", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", text)
    registers, stack, shared, local = map(int, found.groups())
    lines = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]+)", text, re.MULTILINE)
    # The exit is followed by a jump to itself and by padding.
    opcodes = [line.replace(".E", "", 1) for line in lines if line != "NOP"][:-1]
    return Code(opcodes, registers, stack + local, shared)


def _hip(text: str) -> Code:
    def number(name: str) -> int:
        return int(re.search(rf"\.{name}:\s+(\d+)", text)[1])

    opcodes = re.findall(r"^\s+((?:v|s|ds|global|buffer|flat|scratch)_\w+)", text, re.MULTILINE)
    spilled = number("vgpr_spill_count") + number("sgpr_spill_count") + number("private_segment_fixed_size")
    return Code(opcodes, number("vgpr_count"), spilled, number("group_segment_fixed_size"))
