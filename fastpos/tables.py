"""Materialised tables, in float64 from the reference clock."""

from typing import Any

import numpy as np
from fastpos_kernels import numpy_add
from numpy.typing import NDArray

from .encodings import Encoding, Learned, Rotary
from .frequencies import rates
from .positions import HIGHEST, LOWEST, integers


def _positions(start: Any, length: Any, positions: Any) -> NDArray[np.int64]:
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
        return int(start) + np.arange(length, dtype=np.int64)
    if length is not None:
        raise TypeError("length: expected none beside positions=")
    rows = integers("positions", positions)
    if rows.ndim != 1:
        raise ValueError(f"positions: expected shape (n,), got {rows.shape}")
    return rows.astype(np.int64)


def table_at(encoding: Encoding, start: Any, length: Any, positions: Any, dtype: np.dtype[Any]) -> Any:
    """The rows of ``fastpos.table``."""
    rows = _positions(start, length, positions)
    if isinstance(encoding, Rotary):
        clock = rates(encoding)
        sine, cosine = clock.sincos(rows)
        return (clock.factor * cosine).astype(dtype), (clock.factor * sine).astype(dtype)
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
    return numpy_add.sinusoid(rows, clock.words, clock.residuals, encoding.interleaved).astype(dtype)
