"""Rotary reference: plain NumPy in float64, one rounding at the end."""

import numpy as np

from .numpy_clock import sincos
from .numpy_round import put


def rotate(x, y, positions, words, residuals, factor: float, interleaved: bool) -> None:
    """Write the rotation of ``x`` (b, t, h, d) by ``positions`` (b, t) into ``y``, which may be ``x`` itself."""
    sine, cosine = (factor * wave[:, :, None, :] for wave in sincos(positions, words, residuals))
    rotated = 2 * len(words)
    halves = slice(0, rotated // 2), slice(rotated // 2, rotated)
    first, second = (slice(0, rotated, 2), slice(1, rotated, 2)) if interleaved else halves
    a, b = x[..., first].astype(np.float64), x[..., second].astype(np.float64)
    y[..., rotated:] = x[..., rotated:]
    put(y[..., first], a * cosine - b * sine)
    put(y[..., second], b * cosine + a * sine)
