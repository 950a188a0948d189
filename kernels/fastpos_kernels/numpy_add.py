"""Additive reference: plain NumPy in float64, one rounding at the end."""

import numpy as np

from .numpy_clock import sincos
from .numpy_round import rounded


def sinusoid(place, rates, waves) -> np.ndarray:
    """The sinusoidal table at ``place`` (...), ``(..., width)`` in float64."""
    whole, fractions = place.of_pairs(None)
    sine, cosine = sincos(whole, rates.words, rates.residuals, fractions, rates.turns)
    table = np.zeros((*place.whole.shape, waves.sines + waves.cosines + waves.zeros))
    first, second = slice(waves.sines), slice(waves.sines, waves.sines + waves.cosines)
    if waves.interleaved:
        first, second = slice(0, 2 * waves.sines, 2), slice(1, 2 * waves.cosines, 2)
    elif waves.cosine_first:
        first, second = slice(waves.cosines, waves.cosines + waves.sines), slice(waves.cosines)
    table[..., first], table[..., second] = rates.factor * sine, rates.factor * cosine[..., : waves.cosines]
    if waves.padding_index is not None:
        table[place.whole == waves.padding_index] = 0
    return table


def add_sinusoid(x, y, place, rates, waves, scale: float) -> None:
    """Write ``x * scale`` plus the sinusoids at ``place`` (b, t) into ``y``; both (b, t, d)."""
    y[...] = rounded(x.astype(np.float64) * scale + sinusoid(place, rates, waves), y.dtype)


def add_rows(x, y, positions, table, offset: int) -> None:
    """Write ``x`` plus the rows ``positions + offset`` of ``table`` (rows, d) into ``y``; both (b, t, d)."""
    y[...] = rounded(x.astype(np.float64) + table[positions + offset].astype(np.float64), y.dtype)
