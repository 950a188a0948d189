"""From frequencies to clock words: rates as 64-bit fractions of a turn, made once for an encoding, exactly."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
from fastpos_kernels import numpy_clock
from numpy.typing import NDArray

from .encodings import Rotary, Sinusoidal

TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563281257241799725606965068423414")
TURN = 1 << 64
# A word needs 20 digits before the point and its residual 17 after; the rest pays for 32768 rounded multiplications.
# A frequency of 10**n radians a token, which wraps that often, wants n more.
DIGITS = 80


@dataclass(frozen=True, eq=False)
class Rates:
    """The clock of an encoding, one entry a pair.

    Attributes
    ----------
    words
        Turns a token, modulo one, as ``int64`` in units of 2**-64 turn: ``position * words``, wrapping, is the phase.
    residuals
        What rounding to words lost, ``float64`` in turns.
    factor
        What cosines and sines are multiplied with.
    """

    words: NDArray[np.int64]
    residuals: NDArray[np.float64]
    factor: float = 1.0

    def sincos(self, positions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sines and cosines at integer positions, ``(..., pairs)``, without ``factor``."""
        return numpy_clock.sincos(positions, self.words, self.residuals)

    def reversed(self) -> "Rates":
        """The clock that runs backwards: what takes a gradient back through a rotation (its transpose, same factor)."""
        return replace(self, words=-self.words, residuals=-self.residuals)

    def without_factor(self) -> "Rates":
        """The same clock with factor 1: what shifts a row that has the factor already."""
        return self if self.factor == 1.0 else replace(self, factor=1.0)


def _geometric(base: float, width: int) -> Iterable[Decimal]:
    """``base ** (-2 i / width)`` for every pair, by repeated multiplication in 80 digits."""
    ratio = (Decimal(base).ln() * -2 / width).exp()
    frequency = Decimal(1)
    for _ in range(width // 2):
        yield frequency
        frequency *= ratio


def _two_pi(digits: int) -> Decimal:
    if digits < len(str(TWO_PI)) - 2:
        return TWO_PI
    import mpmath

    with mpmath.workdps(digits + 5):
        return Decimal(mpmath.nstr(2 * mpmath.pi, digits + 3))


def _magnitude(encoding: Rotary | Sinusoidal) -> int:
    """Digits before the point of the largest frequency."""
    given = encoding.inv_freq if isinstance(encoding, Rotary) else None
    scaling = encoding.scaling if isinstance(encoding, Rotary) else None
    if given is None:
        largest = -math.log10(min(encoding.base, 1.0))
    else:
        largest = math.log10(max(1.0, *map(abs, given)))
    return max(0, math.ceil(largest - (0.0 if scaling is None else math.log10(scaling.factor))))


@lru_cache(maxsize=64)
def rates(encoding: Rotary | Sinusoidal) -> Rates:
    """The clock of a rotary or sinusoidal encoding."""
    words, residuals = [], []
    digits = DIGITS + _magnitude(encoding)
    with localcontext(Context(prec=digits)):
        divisor = _two_pi(digits)
        if isinstance(encoding, Rotary) and encoding.scaling is not None:
            divisor *= Decimal(encoding.scaling.factor)
        if isinstance(encoding, Rotary) and encoding.inv_freq is not None:
            frequencies: Iterable[Decimal] = map(Decimal, encoding.inv_freq)
        else:
            frequencies = _geometric(encoding.base, 2 * encoding.pairs)
        for frequency in frequencies:
            turns = frequency / divisor * TURN
            word = int(turns.to_integral_value())
            words.append((word + TURN // 2) % TURN - TURN // 2)
            residuals.append(float((turns - word) / TURN))
    return Rates(np.array(words, np.int64), np.array(residuals, np.float64))
