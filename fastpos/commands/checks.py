"""What ``fastpos verify`` checks: results of one backend against 50-digit arithmetic. Bounds follow from the dtypes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api import apply
from ..encodings import Encoding, Learned, Rotary, Sinusoidal
from .oracle import expected, sincos, spacing
from .workloads import normals

FAR, NEAR = 1 << 31, 1 << 20
WIDTHS = {128: 10_000.0, 64: 500_000.0, 80: 1_000_000.0, 34: 2.0}
CLOCKS = [Rotary(width, base=WIDTHS[width], interleaved=pairs) for width, pairs in product(WIDTHS, (False, True))]
TABLES = [Sinusoidal(512), Sinusoidal(80, interleaved=False), Sinusoidal(250, base=100.0)]


@dataclass(frozen=True)
class Finding:
    """What a check measured, and what is allowed: at most ``bound``, or at least ``bound`` where ``least``."""

    measured: float
    bound: float
    unit: str
    least: bool = False

    @property
    def passed(self) -> bool:
        """False for NaN, too."""
        return self.measured >= self.bound if self.least else self.measured <= self.bound


@dataclass(frozen=True)
class Check:
    """One line of the report: ``positions`` says up to which."""

    what: str
    positions: str
    dtype: str
    measure: Callable[[str], Finding]


def _positions(limit: int) -> NDArray[np.int64]:
    """Both ends, the neighbourhood of 0, and random ones."""
    return np.concatenate([[-limit, -1, 0, 1, limit - 1], _random(limit, 24)])


def _random(limit: int, count: int) -> NDArray[np.int64]:
    return np.random.default_rng(limit).integers(-limit, limit, count)


def _run(encoding: Encoding, x: NDArray[Any], positions: NDArray[np.int64], backend: str) -> NDArray[np.float64]:
    layout = "thd" if x.ndim == 3 else "td"
    return np.asarray(apply(encoding, x, positions=positions, layout=layout, backend=backend), np.float64)


def _sincos(dtype: str, bound: float, backend: str) -> Finding:
    """Rotations of (1, 0) are the cosines and sines themselves."""
    positions, worst = _positions(FAR), []
    for clock in CLOCKS:
        first = slice(0, None, 2) if clock.interleaved else slice(0, clock.pairs)
        second = slice(1, None, 2) if clock.interleaved else slice(clock.pairs, None)
        x = np.zeros((len(positions), 1, clock.width), dtype)
        x[..., first] = 1
        result = _run(clock, x, positions, backend)[:, 0]
        sine, cosine = sincos(clock, positions)
        worst += [np.abs(result[:, first] - cosine).max(), np.abs(result[:, second] - sine).max()]
    return Finding(float(np.max(worst)), bound, "absolute error")


def _arithmetic(numerics: str, limit: int, bound: float, backend: str) -> Finding:
    """Sines and cosines of the last 64 positions before ``limit``, where float32 angles are off most."""
    rope, positions = Rotary(128, numerics=numerics), np.arange(limit - 64, limit)
    x = np.zeros((len(positions), 1, 128), np.float32)
    x[..., :64] = 1
    exact = np.concatenate(sincos(rope, positions)[::-1], axis=1)
    return Finding(float(np.abs(_run(rope, x, positions, backend)[:, 0] - exact).max()), bound, "absolute error")


def _sinusoids(dtype: str, backend: str) -> Finding:
    """Added to zeros, sinusoids are the table itself."""
    positions, worst = _positions(NEAR), []
    for encoding in TABLES:
        x = np.zeros((len(positions), encoding.width), dtype)
        exact = expected(encoding, x, positions)
        worst.append((np.abs(_run(encoding, x, positions, backend) - exact) / spacing(exact, dtype)).max())
    return Finding(float(np.max(worst)), 3.0, "error in ulp")


def _unit_data(encoding: Encoding, backend: str) -> Finding:
    """float64 data in [-1, 1] at positions up to 2**31."""
    positions = _positions(FAR)
    heads = () if isinstance(encoding, Sinusoidal) else (4,)
    x = np.random.default_rng(0).uniform(-1, 1, (len(positions), *heads, encoding.width))
    error = np.abs(_run(encoding, x, positions, backend) - expected(encoding, x, positions)).max()
    return Finding(float(error), 1e-14, "absolute error")


def _rounded(encoding: Encoding, dtype: str, share: float, backend: str) -> Finding:
    """The share of results that are the number of ``dtype`` nearest to the exact one.

    Positions next to 0 are left to ``_excess``: slow channels have cosines within 2**-25 of one there, and float32 takes
    such a sum for a tie (0.4 % of the sums at position 1 go to the wrong side, by 1e-5 ulp).
    """
    positions = _random(NEAR, 64)
    if isinstance(encoding, Learned):
        positions = positions % len(encoding.table)
    x, exact = _normal(encoding, dtype, positions)
    # float64 stands for the exact result, so what is a tie to it may be a little off: hence the last factor.
    nearest = np.abs(_run(encoding, x, positions, backend) - exact) <= spacing(exact, dtype) / 2 * (1 + 1e-9)
    return Finding(100 * float(nearest.mean()), 100 * share, "% nearest", least=True)


def _excess(encoding: Rotary | Sinusoidal, dtype: str, bound: float, backend: str) -> Finding:
    """What the error has beyond the rounding of the result, in units of what was added up: |a| + |b|, or |x| + 1."""
    positions = _positions(FAR)
    x, exact = _normal(encoding, dtype, positions)
    size = np.abs(x.astype(np.float64))
    size = size + (np.roll(size, encoding.pairs, axis=-1) if isinstance(encoding, Rotary) else 1)
    error = np.abs(_run(encoding, x, positions, backend) - exact) - spacing(exact, dtype) / 2
    return Finding(max(0.0, float((error / size).max())), bound, "beyond rounding")


def _normal(encoding: Encoding, dtype: str, positions: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    heads = (32,) if isinstance(encoding, Rotary) else ()
    x = normals(0, (len(positions), *heads, encoding.width), dtype)
    return x, expected(encoding, x, positions)


def checks(narrow: tuple[str, ...] = ("float16", "bfloat16")) -> list[Check]:
    """All checks; ``narrow`` are the 16-bit types."""
    rope, added = Rotary(128, base=500_000.0), Sinusoidal(512)
    far, near = "2^31", "2^20"
    found = [
        Check("sine and cosine", far, "float32", partial(_sincos, "float32", 1.2e-7)),
        Check("sine and cosine", far, "float64", partial(_sincos, "float64", 1e-14)),
        Check("sinusoids alone", near, "float32", partial(_sinusoids, "float32")),
        Check("rotation", far, "float64", partial(_unit_data, rope)),
        Check("sinusoids added", far, "float64", partial(_unit_data, added)),
    ]
    for limit, bound in ((1 << 12, 2.5e-4), (1 << 17, 8e-3), (1 << 20, 6.3e-2)):
        for numerics, least in (("exact", 1.2e-7), ("hf", bound)):
            measure = partial(_arithmetic, numerics, limit, least)
            found.append(Check(f'sine and cosine, numerics="{numerics}"', f"{limit:,}", "float32", measure))
    for dtype in ("float32", *narrow):
        # Sine and cosine within 1.2e-7, 2**-24 for a rounded product, and as much for a neighbour by angle addition.
        found.append(Check("rotation", far, dtype, partial(_excess, rope, dtype, 1.8e-7)))
        found.append(Check("sinusoids added", far, dtype, partial(_excess, added, dtype, 3.6e-7)))
        table = Learned(normals(1, (64, 512), dtype))
        # float32 rounds the sum once; a 16-bit result is rounded from float32, a second time in rare ties.
        share = 1.0 if dtype == "float32" else 0.999
        found.append(Check("learned rows", "table", dtype, partial(_rounded, table, dtype, share)))
    for dtype in narrow:
        found.append(Check("rotation", near, dtype, partial(_rounded, rope, dtype, 0.999)))
        found.append(Check("sinusoids added", near, dtype, partial(_rounded, added, dtype, 0.999)))
    return found
