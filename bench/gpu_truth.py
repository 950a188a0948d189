"""What results are judged by: the formulas in 50-digit arithmetic, results of the CPU, and other results of the GPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gpu_machine import Array, array_of

from fastpos import Learned, Rotary, Sinusoidal
from fastpos.commands.oracle import expected, spacing

# What arithmetic may lose before the result is rounded, over |a| + |b| (rotation) or |x| + 1; see fastpos/commands/checks.py.
ROTATED, ADDED = 1.8e-7, 3.6e-7
# Sinusoids added to 16-bit data are the hardware's own: two absolute errors of 2**-20.5 at most.
HARDWARE = 1.4e-6
WIDE = 1e-14


class Wrong(Exception):
    """A result is not what it has to be."""


def size_of(encoding: Any, x: Array) -> Array:
    """What is added up for each element."""
    size = np.abs(x.astype(np.float64))
    if not isinstance(encoding, Rotary):
        return size * getattr(encoding, "embedding_scale", 1.0) + 1
    pairs = encoding.pairs
    halves = slice(0, pairs), slice(pairs, 2 * pairs)
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if encoding.interleaved else halves
    total = size[..., first] + size[..., second]
    size[..., first], size[..., second] = total, total
    size[..., 2 * pairs :] = 0
    return size


def slack_of(encoding: Any, dtype: str) -> float:
    """What arithmetic may lose, over ``size_of``."""
    if dtype == "float64":
        return WIDE
    if isinstance(encoding, Sinusoidal) and dtype in ("float16", "bfloat16"):
        return HARDWARE
    return ROTATED if isinstance(encoding, Rotary) else ADDED


def check_truth(what: str, encoding: Any, x: Array, positions: Array, got: torch.Tensor, ulps: float) -> float:
    """Refuse results farther from the exact ones than rounding explains; the largest share of that that was used.

    ``x``: (n, ..., d), at ``positions`` (n,); ``ulps``: what the rounding of the result may cost.
    """
    name = x.dtype.name
    exact = expected(encoding, x, positions)
    allowed = ulps * spacing(exact, name) * (1 + 1e-9) + slack_of(encoding, name) * size_of(encoding, x)
    return _worst(what, np.abs(array_of(got).astype(np.float64) - exact), allowed, exact)


def check_near(what: str, encoding: Any, x: Array, got: torch.Tensor, cpu: torch.Tensor) -> float:
    """Refuse results more than 1 ulp from those of the CPU; 16-bit and float64 sines may differ, which size counts for."""
    name = x.dtype.name
    mine, its = (array_of(result).astype(np.float64) for result in (got, cpu))
    allowed = spacing(np.maximum(np.abs(mine), np.abs(its)), name)
    if name != "float32" and not isinstance(encoding, Learned):
        allowed = allowed + 2 * slack_of(encoding, name) * size_of(encoding, x)
    return _worst(f"{what}, against the CPU", np.abs(mine - its), allowed, its)


def _worst(what: str, error: Array, allowed: Array, right: Array) -> float:
    # NaN is above nothing, so what passes is asked for.
    passed = error <= allowed
    if not passed.all():
        at = tuple(int(place) for place in np.argwhere(~passed)[0])
        raise Wrong(
            f"{what}: {int((~passed).sum())} of {passed.size} elements are off; first at {at}: error {error[at]:.3g}, "
            f"expected at most {allowed[at]:.3g} from {right[at]:.6g}"
        )
    shares = np.divide(error, allowed, out=np.zeros_like(error), where=allowed > 0)
    return float(shares.max(initial=0.0))


def check_same(what: str, got: torch.Tensor, want: torch.Tensor) -> None:
    """Refuse results that differ in one bit."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise Wrong(f"{what}: expected {want.dtype} {tuple(want.shape)}, got {got.dtype} {tuple(got.shape)}")
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[got.element_size()]
    differ = got.contiguous().view(words) != want.contiguous().view(words)
    if differ.any():
        count, first = int(differ.sum()), differ.nonzero()[0].tolist()
        raise Wrong(f"{what}: {count} of {got.numel()} elements differ, the first at {first}")


def poisoned(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Memory for results, full of NaN: what is not written shows."""
    return tuple(torch.full_like(x, float("nan")) for x in tensors)
