"""From frequencies to clock words: rates as 64-bit fractions of a turn, made once for an encoding, exactly."""

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


def _plain(encoding: Rotary | Sinusoidal) -> list[Decimal]:
    if isinstance(encoding, Rotary) and encoding.inv_freq is not None:
        return [Decimal(frequency) for frequency in encoding.inv_freq]
    return list(_geometric(encoding.base, 2 * encoding.pairs))


def _frequencies(encoding: Rotary | Sinusoidal, two_pi: Decimal) -> list[Decimal]:
    """Radians a token of every pair, in the current context."""
    plain = _plain(encoding)
    if not isinstance(encoding, Rotary) or encoding.scaling is None:
        return plain
    base = Decimal(encoding.base) if encoding.inv_freq is None else None
    return encoding.scaling.scaled(plain, base, two_pi)


@lru_cache(maxsize=64)
def rates(encoding: Rotary | Sinusoidal) -> Rates:
    """The clock of a rotary or sinusoidal encoding."""
    two_pi = TWO_PI
    with localcontext(Context(prec=DIGITS)):
        frequencies = _frequencies(encoding, two_pi)
        magnitude = max(frequency.adjusted() for frequency in frequencies)
    digits = DIGITS + max(0, magnitude)
    words, residuals = [], []
    with localcontext(Context(prec=digits)):
        if digits > DIGITS:
            two_pi = _two_pi(digits)
            frequencies = _frequencies(encoding, two_pi)
        for frequency in frequencies:
            turns = frequency / two_pi * TURN
            word = int(turns.to_integral_value())
            words.append((word + TURN // 2) % TURN - TURN // 2)
            residuals.append(float((turns - word) / TURN))
    scaling = encoding.scaling if isinstance(encoding, Rotary) else None
    factor = 1.0 if scaling is None else scaling.attention_scaling
    return Rates(np.array(words, np.int64), np.array(residuals, np.float64), factor)
