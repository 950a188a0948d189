"""What goes through PyTorch's own engines: gradients, and compiled graphs."""

from typing import Any

import numpy as np
import torch
from gpu_machine import Machine, array_of
from gpu_truth import Wrong, check_same

import fastpos
from fastpos import Learned, Rotary, Sinusoidal


def check_gradients(machine: Machine) -> str:
    """Gradients of every encoding against those that the CPU's kernels give, in float64 (dry: float32)."""
    dtype, allowed = machine.pick(("float64", 1e-13), ("float32", 2e-6))
    cases: list[tuple[Any, tuple[int, ...]]] = [
        (Rotary(64, rotary_dim=48, interleaved=True), (2, 3, 2, 64)),
        (Sinusoidal(64, embedding_scale=3.0), (2, 3, 64)),
    ]
    table = machine.normals((9, 64), dtype, 3)
    ids = torch.tensor([[8, 1, 1], [0, 3, 8]], device=machine.device)

    def gradients(encoding: Any, x: torch.Tensor, ids: torch.Tensor, backend: str) -> list[torch.Tensor]:
        leaves = [x.clone().requires_grad_()]
        if encoding is None:
            leaves.append(table.to(x.device).clone().requires_grad_())
            encoding = Learned(leaves[1])
        result = fastpos.apply(encoding, leaves[0], positions=ids, backend=backend)
        (
            result * torch.linspace(-1, 2, result.numel(), dtype=x.dtype, device=x.device).view_as(result)
        ).sum().backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    for encoding, shape in (*cases, (None, (2, 3, 64))):
        x = machine.normals(shape, dtype, 1)
        for mine, its in zip(
            gradients(encoding, x, ids, "triton"), gradients(encoding, x.cpu(), ids.cpu(), "numba"), strict=True
        ):
            error = float(np.abs(array_of(mine) - array_of(its)).max())
            if not error <= allowed:
                raise Wrong(f"gradient of {encoding or 'Learned'}: {error:.2g} from that of the CPU")
    return "rotation, sinusoids, and a learned table with its own"


def check_compiled(machine: Machine) -> str:
    """``torch.compile(fullgraph=True)`` with positions as a tensor: the bits of the eager call, no second compilation."""
    rope = Rotary(64)
    torch.compiler.reset()
    compiler = machine.pick("inductor", "aot_eager")

    def both(q: torch.Tensor, k: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k = fastpos.apply(rope, q, k, positions=at, backend="triton")
        return q + 1, k

    compiled = torch.compile(both, fullgraph=True, backend=compiler)
    q, k = machine.normals((2, 1, 4, 64), "float32"), machine.normals((2, 1, 2, 64), "float32")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for position in (0, 1, 17, 2**20):
            at = torch.full((2, 1), position, device=machine.device)
            for one, other in zip(compiled(q, k, at), both(q, k, at), strict=True):
                check_same(f"compiled, position {position}", one, other)
    return f"4 positions, one graph ({compiler})"
