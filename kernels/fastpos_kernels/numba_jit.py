"""How kernels are compiled: one policy, in one place.

Only entries, the functions that Python calls, are cached; what they call is compiled into them. An entry takes integers
alone. What it is specialised for are its closure variables, which are part of the cache's key. Numba looks for changes in
the entry's own file alone, so its name carries a digest of all kernel sources.
"""

import hashlib
import warnings
from functools import cache
from pathlib import Path

import llvmlite.binding
from numba import njit, types
from numba.core.registry import cpu_target


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("numba_*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


FINGERPRINT = _fingerprint()
# The error model of C: Python's would test every division of two integers.
OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


@cache
def converts_float16() -> bool:
    """Whether the target has instructions for float16; where it has none, LLVM calls a function that is not there."""
    source = """
    define <16 x float> @widen(<16 x half> %x) {
        %y = fpext <16 x half> %x to <16 x float>
        ret <16 x float> %y
    }"""
    machine = cpu_target.target_context.codegen()._tm
    return "__extendhfsf2" not in machine.emit_assembly(llvmlite.binding.parse_assembly(source))


@cache
def _warn_once() -> None:
    warnings.warn(
        "fastpos: no folder for compiled kernels is writable (package folder, home, NUMBA_CACHE_DIR), so every process "
        "compiles its own: set NUMBA_CACHE_DIR to a writable folder",
        RuntimeWarning,
        stacklevel=3,
    )


def compile_entry(function, arguments: int):
    """Compile ``function`` of so many integers, from the cache where there is one."""
    function.__qualname__ += f"_{FINGERPRINT}"
    try:
        compiled = njit(cache=True, **OPTIONS)(function)
    except RuntimeError:
        _warn_once()
        compiled = njit(**OPTIONS)(function)
    compiled.compile((types.int64,) * arguments)
    compiled.disable_compile()
    return compiled
