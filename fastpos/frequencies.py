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
from .queries import Terms

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
    turns
        The frequencies in turns, ``float64``: what fractions of real-valued positions are multiplied with.
    factor
        What cosines and sines are multiplied with.
    axis
        Which coordinate of a position drives the pair, where positions have several; None where they never have.
    inv_freq
        None, or the frequencies in radians a token as ``float32``: then sines and cosines are made as transformers makes
        them, and products and sums rounded to the data's dtype.
    query
        None, or the ``terms`` of the scale of the first array of a call (``fastpos.queries``).
    """

    words: NDArray[np.int64]
    residuals: NDArray[np.float64]
    turns: NDArray[np.float64]
    factor: float = 1.0
    axis: NDArray[np.intp] | None = None
    inv_freq: NDArray[np.float32] | None = None
    query: Terms | None = None

    def sincos(self, positions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sines and cosines at integer positions, ``(..., pairs)``, without ``factor``."""
        return numpy_clock.sincos(positions[..., None], self.words, self.residuals)

    def reversed(self) -> "Rates":
        """The clock that runs backwards: what takes a gradient back through a rotation (its transpose, same factor)."""
        single = None if self.inv_freq is None else -self.inv_freq
        return replace(self, words=-self.words, residuals=-self.residuals, turns=-self.turns, inv_freq=single)

    def for_shift(self) -> "Rates":
        """The same clock for rows that were rotated before and move on: they have factor and scale already."""
        return replace(self, factor=1.0, inv_freq=None, query=None)


def _geometric(base: float, divisor: float, count: int, first: float = 1.0) -> Iterable[Decimal]:
    """``first * base ** (-i / divisor)`` for ``count`` pairs, by repeated multiplication in 80 digits."""
    ratio = (-Decimal(base).ln() / Decimal(divisor)).exp()
    frequency = Decimal(first)
    for _ in range(count):
        yield frequency
        frequency *= ratio


def _two_pi(digits: int) -> Decimal:
    if digits < len(str(TWO_PI)) - 2:
        return TWO_PI
    import mpmath

    with mpmath.workdps(digits + 5):
        return Decimal(mpmath.nstr(2 * mpmath.pi, digits + 3))


def _sections(encoding: Rotary) -> tuple[int, ...]:
    """Pairs of each run of frequencies that begins with 1."""
    axes = encoding.axes
    return axes.sections if axes is not None and axes.own_frequencies else (encoding.pairs,)


def _plain(encoding: Rotary | Sinusoidal) -> list[Decimal]:
    if isinstance(encoding, Sinusoidal):
        assert encoding.divisor is not None
        return list(_geometric(encoding.base, encoding.divisor, encoding.pairs, encoding.frequency_scale))
    if encoding.inv_freq is not None:
        return [Decimal(frequency) for frequency in encoding.inv_freq]
    return [w for section in _sections(encoding) if section for w in _geometric(encoding.base, section, section)]


def _scaled(encoding: Rotary | Sinusoidal, plain: list[Decimal], two_pi: Decimal) -> list[Decimal]:
    """Radians a token of every pair from the plain ones, in the current context."""
    if not isinstance(encoding, Rotary) or encoding.scaling is None:
        return plain
    base = Decimal(encoding.base) if encoding.inv_freq is None else None
    return encoding.scaling.scaled(plain, base, two_pi)


def _radians(encoding: Rotary | Sinusoidal, two_pi: Decimal) -> list[Decimal]:
    """The frequency of every pair, exactly what sines and cosines are made from."""
    if isinstance(encoding, Rotary) and encoding.numerics == "hf":
        return [Decimal(float(frequency)) for frequency in single_frequencies(encoding)]
    return _scaled(encoding, _plain(encoding), two_pi)


def _single_powers(encoding: Rotary) -> NDArray[np.float32]:
    """The plain frequencies: exponent, power and reciprocal each rounded to float32."""
    if encoding.inv_freq is not None:
        return np.array(encoding.inv_freq, np.float32)
    runs = []
    for section in _sections(encoding):
        exponents = np.arange(0, 2 * section, 2).astype(np.float32) / np.float32(2 * section)
        with localcontext(Context(prec=40)):
            logarithm = Decimal(float(np.float32(encoding.base))).ln()
            powers = [float((logarithm * Decimal(float(exponent))).exp()) for exponent in exponents]
        runs.append(np.float32(1) / np.array(powers, np.float32))
    return np.concatenate(runs)


@lru_cache(maxsize=64)
def single_frequencies(encoding: Rotary) -> NDArray[np.float32]:
    """The frequencies as transformers computes them, in float32: exponent, power and reciprocal rounded, then scaled.

    The power is rounded correctly, and a scaling rounded once; PyTorch's own power is another float32 for about one
    frequency in 300, and so may be a scaled one. A model's own ``inv_freq`` repeats either to the bit.
    """
    single = _single_powers(encoding)
    with localcontext(Context(prec=DIGITS)):
        plain = [Decimal(float(frequency)) for frequency in single]
        return np.array([float(frequency) for frequency in _scaled(encoding, plain, TWO_PI)], np.float32)


@lru_cache(maxsize=64)
def rates(encoding: Rotary | Sinusoidal) -> Rates:
    """The clock of a rotary or sinusoidal encoding."""
    two_pi = TWO_PI
    with localcontext(Context(prec=DIGITS)):
        frequencies = _radians(encoding, two_pi)
        magnitude = max((frequency.adjusted() for frequency in frequencies), default=0)
    digits = DIGITS + max(0, magnitude)
    words, residuals, whole = [], [], []
    with localcontext(Context(prec=digits)):
        if digits > DIGITS:
            two_pi = _two_pi(digits)
            frequencies = _radians(encoding, two_pi)
        for frequency in frequencies:
            turns = frequency / two_pi * TURN
            word = int(turns.to_integral_value())
            words.append((word + TURN // 2) % TURN - TURN // 2)
            residuals.append(float((turns - word) / TURN))
            whole.append(float(turns / TURN))
    clock = Rates(np.array(words, np.int64), np.array(residuals, np.float64), np.array(whole, np.float64))
    return _fitted(clock, encoding) if isinstance(encoding, Rotary) else replace(clock, factor=encoding.scale)


def _fitted(clock: Rates, encoding: Rotary) -> Rates:
    """What only rotations have: a factor, direction, axes, another arithmetic, the scale of queries."""
    factor = 1.0 if encoding.scaling is None else encoding.scaling.attention_scaling
    single = single_frequencies(encoding) if encoding.numerics == "hf" else None
    if encoding.clockwise:
        clock = replace(clock, words=-clock.words, residuals=-clock.residuals, turns=-clock.turns)
        single = None if single is None else -single
    axis = None if encoding.axes is None else encoding.axes.of_pairs()
    query = None if encoding.query_scale is None else encoding.query_scale.terms
    return replace(clock, factor=factor, axis=axis, inv_freq=single, query=query)
