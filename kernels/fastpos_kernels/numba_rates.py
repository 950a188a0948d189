"""The rates of an encoding as kernels read them: padded to whole double vectors, in the order of the channels they meet.

One copy serves all plans of an encoding.
"""

from functools import lru_cache

import numpy as np

from .numba_add import NEAR, is_carried
from .numba_lanes import STORAGES
from .numba_memory import double_order


def _padded(values: np.ndarray, storage, permuted: bool) -> np.ndarray:
    """A row padded with zeros to whole double vectors, in the order in which ``load_two`` gives its elements."""
    unit = 2 * storage.lanes
    row = np.zeros(-(-len(values) // unit) * unit, values.dtype)
    row[: len(values)] = values
    return row[double_order(storage, len(row))] if permuted else row


@lru_cache(maxsize=64)
def clock(rates, dtype: str, permuted: bool, sections: tuple[int, ...] = (), axes: int = 1):
    """Words, residuals and frequencies; of ``axes`` rows, each zero for the pairs that another axis drives.

    ``sections``: pairs of each block of channels that is padded by itself; all in one when empty. The frequencies are
    ``float64``: turns a unit, or where arithmetic is rounded as transformers does, radians.
    """
    storage = STORAGES[dtype]
    frequencies = rates.turns if rates.inv_freq is None else rates.inv_freq.astype(np.float64)
    ends = np.cumsum(sections or (len(rates.words),))[:-1]
    found = []
    for values in (rates.words, rates.residuals.astype(storage.compute), frequencies):
        driven = [values if axes == 1 else np.where(rates.axis == axis, values, 0) for axis in range(axes)]
        rows = [_padded(part, storage, permuted) for row in driven for part in np.split(row, ends)]
        found.append(np.concatenate(rows).astype(values.dtype, copy=False))
    return tuple(found)


@lru_cache(maxsize=64)
def near(rates, dtype: str, permuted: bool) -> np.ndarray:
    """Cosines and sines of the first positions, a row each, by which sinusoids are carried from their anchors."""
    storage = STORAGES[dtype]
    sine, cosine = rates.sincos(np.arange(NEAR if is_carried(dtype) else 0))
    waves = [wave.astype(storage.compute) for pair in zip(cosine, sine, strict=True) for wave in pair]
    return np.array([_padded(wave, storage, permuted) for wave in waves], storage.compute)
