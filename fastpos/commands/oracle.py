"""The formulas in 50-digit arithmetic: what results are judged by."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from ..encodings import Encoding, Learned, Rotary, Sinusoidal

Array = NDArray[Any]
Exact = NDArray[np.float64]

# Digits after the first bit, and the exponent of the smallest normal number.
FORMATS = {"float64": (52, -1022), "float32": (23, -126), "float16": (10, -14), "bfloat16": (7, -126)}

_digits = mpmath.MPContext()
_digits.dps = 50


@lru_cache(maxsize=64)
def _frequencies(encoding: Rotary | Sinusoidal) -> tuple[Any, ...]:
    """Radians a token of every pair."""
    if isinstance(encoding, Rotary):
        assert encoding.scaling is None, "no check of the command has a scaling"
        if encoding.inv_freq is not None:
            return tuple(_digits.mpf(frequency) for frequency in encoding.inv_freq)
    base, pairs = _digits.mpf(encoding.base), encoding.pairs
    return tuple(base ** (_digits.mpf(-pair) / pairs) for pair in range(pairs))


@lru_cache(maxsize=2048)
def _waves(encoding: Rotary | Sinusoidal, position: int) -> tuple[Exact, Exact]:
    waves = [_digits.cos_sin(position * frequency) for frequency in _frequencies(encoding)]
    return np.array([float(sine) for _, sine in waves]), np.array([float(cosine) for cosine, _ in waves])


def sincos(encoding: Rotary | Sinusoidal, positions: Iterable[int]) -> tuple[Exact, Exact]:
    """Sines and cosines at ``positions``, each ``(n, pairs)``, rounded to float64 once."""
    rows = [_waves(encoding, int(position)) for position in positions]
    return np.stack([sine for sine, _ in rows]), np.stack([cosine for _, cosine in rows])


def expected(encoding: Encoding, x: Array, positions: NDArray[np.integer[Any]]) -> Exact:
    """What ``apply`` would give without rounding, to 15 digits: rows of ``x``, ``(n, ..., d)``, at ``positions`` (n,)."""
    data: Exact = x.astype(np.float64)
    if isinstance(encoding, Learned):
        data += encoding.table[positions + encoding.offset].astype(np.float64)
        return data
    between = (slice(None), *(None,) * (x.ndim - 2))
    sine, cosine = (wave[between] for wave in sincos(encoding, positions))
    pairs = encoding.pairs
    halves = slice(0, pairs), slice(pairs, 2 * pairs)
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if encoding.interleaved else halves
    result = data.copy()
    if isinstance(encoding, Rotary):
        result[..., first] = data[..., first] * cosine - data[..., second] * sine
        result[..., second] = data[..., second] * cosine + data[..., first] * sine
    else:
        result *= encoding.embedding_scale
        result[..., first] += sine
        result[..., second] += cosine
    return result


def spacing(exact: Exact, dtype: str) -> Exact:
    """The distance of neighbouring numbers of ``dtype`` around each exact value: one ulp."""
    digits, lowest = FORMATS[dtype]
    size: Exact = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 1, lowest) - digits)
    return size
