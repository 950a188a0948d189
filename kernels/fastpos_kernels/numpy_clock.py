"""The clock in NumPy: sines and cosines of ``position * frequency`` in float64, exact at any position."""

import numpy as np


def sincos(
    positions: np.ndarray, words: np.ndarray, residuals: np.ndarray, fractions=None, turns=None
) -> tuple[np.ndarray, np.ndarray]:
    """Sines and cosines, ``(..., pairs)`` in float64, at ``positions`` of shape ``(...)``, or ``(..., pairs)`` of them.

    ``words`` are the pairs' rates in units of 2**-64 turn, ``residuals`` what their rounding lost, in turns. Real-valued
    positions are whole ones and ``fractions`` in [0, 1), which turn by ``turns`` a unit.
    """
    steps = np.asarray(positions).astype(np.int64)
    phase = steps.view(np.uint64) * words.view(np.uint64)
    rest = steps * residuals
    if fractions is not None:
        more = fractions * turns
        more -= np.rint(more)
        phase += (more * 2.0**62).astype(np.int64).view(np.uint64) << np.uint64(2)
    quarters = (phase + np.uint64(1 << 61)) >> np.uint64(62)
    near = (phase << np.uint64(2)).view(np.int64) >> np.int64(2)
    angle = 2 * np.pi * (near * 2.0**-64 + rest)
    sine, cosine = np.sin(angle), np.cos(angle)
    turned = np.stack([sine, cosine, -sine, -cosine])
    index = quarters.astype(np.intp)[None]
    return (
        np.take_along_axis(turned, index, axis=0)[0],
        np.take_along_axis(turned, (index + 1) % 4, axis=0)[0],
    )
