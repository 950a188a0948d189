"""What a field of a description may be: one place for each rule, so that every refusal reads alike."""

import sys
from collections.abc import Sequence

import numpy as np

LARGEST = sys.float_info.max
MAX_WIDTH = 8192


class Spelled:
    """What has itself in words, for traced graphs: made once, since a call has no time for it."""

    spelling: str

    def _spell(self) -> None:
        object.__setattr__(self, "spelling", repr(self))


def integer(name: str, value: object, low: int, high: int) -> int:
    """An integer within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name}: expected {low} to {high}, got {value}")
    return int(value)


def even(name: str, value: object, high: int) -> int:
    """An even integer from 2."""
    number = integer(name, value, 2, high)
    if number % 2:
        raise ValueError(f"{name}: expected an even number, for channels turn in pairs, got {number}")
    return number


def positive(name: str, value: object, high: float = LARGEST) -> float:
    """A finite number above zero."""
    number = _number(name, value)
    if not 0 < number <= high:
        limit = "" if high == LARGEST else f" and at most {high:g}"
        raise ValueError(f"{name}: expected a finite number above 0{limit}, got {value}")
    return number


def at_least(name: str, value: object, low: float) -> float:
    """A finite number not below another."""
    number = _number(name, value)
    if not low <= number <= LARGEST:
        raise ValueError(f"{name}: expected a finite number of at least {low:g}, got {value}")
    return number


def positives(name: str, values: object) -> tuple[float, ...]:
    """A row of finite numbers above zero."""
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str) or len(values) == 0:
        raise TypeError(f"{name}: expected a list of numbers, got {values!r}")
    return tuple(positive(f"{name}[{index}]", value) for index, value in enumerate(values))


def flag(name: str, value: object) -> bool:
    """True or False, as Python's own: NumPy's are spelled otherwise, and spellings go into traced graphs."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected a finite number, got an integer of {len(str(value))} digits") from None
