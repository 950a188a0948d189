"""The clock in NumPy: sines and cosines of ``position * frequency`` in float64, exact at any position."""

import numpy as np


def sincos(positions: np.ndarray, words: np.ndarray, residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sines and cosines, ``(..., pairs)`` in float64.

    ``words`` are the pairs' rates in units of 2**-64 turn, ``residuals`` what their rounding lost, in turns.
    """
    steps = np.asarray(positions).astype(np.int64)[..., None]
    phase = steps.view(np.uint64) * words.view(np.uint64)
    quarters = (phase + np.uint64(1 << 61)) >> np.uint64(62)
    rest = (phase << np.uint64(2)).view(np.int64) >> np.int64(2)
    angle = 2 * np.pi * (rest * 2.0**-64 + steps * residuals)
    sine, cosine = np.sin(angle), np.cos(angle)
    turned = np.stack([sine, cosine, -sine, -cosine])
    index = quarters.astype(np.intp)[None]
    return (
        np.take_along_axis(turned, index, axis=0)[0],
        np.take_along_axis(turned, (index + 1) % 4, axis=0)[0],
    )
