"""Checks of the numbers and flags that descriptions are made of: refused with the field's name and the value."""

import sys

import numpy as np

MAX_WIDTH = 8192


def integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name}: expected {low} to {high}, got {value}")
    return int(value)


def even(name: str, value: object, high: int) -> int:
    number = integer(name, value, 2, high)
    if number % 2:
        raise ValueError(f"{name}: expected an even number, for channels turn in pairs, got {number}")
    return number


def positive(name: str, value: object, high: float = sys.float_info.max) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not 0 < value <= high:
        limit = "" if high == sys.float_info.max else f" and at most {high:g}"
        raise ValueError(f"{name}: expected a finite number above 0{limit}, got {value}")
    return float(value)


def flag(name: str, value: object) -> None:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
