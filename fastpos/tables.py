"""Materialised tables, in float64 from the reference clock."""

from typing import Any

import numpy as np
from fastpos_kernels import numpy_add, numpy_rotate
from fastpos_kernels.numpy_positions import Place
from numpy.typing import NDArray

from .encodings import Encoding, Learned, Rotary, coordinates
from .frequencies import rates
from .places import HIGHEST, LOWEST, integers, parts

Parts = tuple[NDArray[np.int64], NDArray[np.float64] | None]


def _positions(start: Any, length: Any, positions: Any, axes: int, real: bool) -> Parts:
    if (start is None) == (positions is None):
        raise TypeError("table: expected either start= and length=, or positions=")
    if positions is None:
        if length is None:
            raise TypeError("length: expected how many rows, beside start=")
        for name, value in (("start", start), ("length", length)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise TypeError(f"{name}: expected an integer, got {value!r}")
        if length < 0:
            raise ValueError(f"length: expected 0 or more, got {length}")
        if not LOWEST <= start <= HIGHEST:
            raise ValueError(f"start: expected within +-2**62, got {start}")
        return int(start) + np.arange(length, dtype=np.int64), None
    if length is not None:
        raise TypeError("length: expected none beside positions=")
    rows, fractions = parts(positions) if real else (integers("positions", positions), None)
    if rows.ndim != 1 and not (axes > 1 and rows.ndim == 2 and len(rows) == axes):
        several = f" or (axes, n) = ({axes}, n)" if axes > 1 else ""
        raise ValueError(f"positions: expected shape (n,){several}, got {rows.shape}")
    return rows.astype(np.int64), fractions


def _as_batch(fractions: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    return None if fractions is None else fractions[:, None]


def table_at(encoding: Encoding, start: Any, length: Any, positions: Any, dtype: np.dtype[Any]) -> Any:
    """The rows of ``fastpos.table``."""
    rows, fractions = _positions(start, length, positions, *coordinates(encoding))
    if isinstance(encoding, Rotary):
        clock = rates(encoding)
        place = Place(rows, fractions) if rows.ndim == 1 else Place(rows[:, None], _as_batch(fractions))
        sine, cosine = (wave.reshape(rows.shape[-1], encoding.pairs) for wave in numpy_rotate.waves(place, clock))
        return cosine.astype(dtype), sine.astype(dtype)
    if isinstance(encoding, Learned):
        count = len(encoding.table) - encoding.offset
        outside = (rows < 0) | (rows >= count)
        if outside.any():
            at = int(np.argmax(outside))
            raise IndexError(
                f"position {rows[at]} (row {at}): expected 0 to {count - 1}, for the learned table has "
                f"{len(encoding.table)} rows and offset {encoding.offset}"
            )
        return encoding.table[rows + encoding.offset].astype(dtype)
    clock = rates(encoding)
    return numpy_add.sinusoid(Place(rows, fractions), clock, encoding.waves).astype(dtype)
