"""Additive reference: plain NumPy in float64, one rounding at the end."""

import numpy as np

from .numpy_clock import sincos
from .numpy_round import rounded


def sinusoid(positions, words, residuals, interleaved: bool) -> np.ndarray:
    """The sinusoidal table at ``positions``, ``(..., width)`` in float64."""
    sine, cosine = sincos(positions[..., None], words, residuals)
    if interleaved:
        return np.stack([sine, cosine], axis=-1).reshape(*sine.shape[:-1], -1)
    return np.concatenate([sine, cosine], axis=-1)


def add_sinusoid(x, y, positions, words, residuals, interleaved: bool, scale: float) -> None:
    """Write ``x * scale`` plus the sinusoids at ``positions`` (b, t) into ``y``; both (b, t, d)."""
    y[...] = rounded(x.astype(np.float64) * scale + sinusoid(positions, words, residuals, interleaved), y.dtype)


def add_rows(x, y, positions, table, offset: int) -> None:
    """Write ``x`` plus the rows ``positions + offset`` of ``table`` (rows, d) into ``y``; both (b, t, d)."""
    y[...] = rounded(x.astype(np.float64) + table[positions + offset].astype(np.float64), y.dtype)
