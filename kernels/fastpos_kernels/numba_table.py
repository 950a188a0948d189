"""Cosines and sines of a block of tokens, a row each, times the encoding's factor, as each form's clock makes them."""

from numba import njit

from .numba_bytes import read_float
from .numba_clock import sincos, sincos_of_angles, sincos_of_axes
from .numba_form import AXIAL, EXACT, ROUNDED, by_form
from .numba_lanes import FLOAT64, computed, fill, itemsize, lanes, single
from .numba_memory import load_computed, store_computed, store_single
from .numba_positions import POSITION_BYTES
from .numba_record import AXES, BLOCK, FACTOR, FREQUENCIES, REAL, RESIDUALS, WORD, WORDS, field


def _exact(form, storage, record, positions, count, cos, sin, pitch):
    words, residuals = field(record, WORDS), field(record, RESIDUALS)
    factor = fill(storage, read_float(record + FACTOR * WORD))
    size, at = itemsize(computed(storage)), 0
    for i in range(count):
        position = field(positions, i)
        for pair in range(0, pitch // size, lanes(storage)):
            sine, cosine = sincos(storage, position, words, residuals, pair)
            store_computed(storage, cos + at, cosine * factor)
            store_computed(storage, sin + at, sine * factor)
            at += lanes(storage) * size


def _axial(form, storage, record, positions, count, cos, sin, pitch):
    words, residuals, turns = field(record, WORDS), field(record, RESIDUALS), field(record, FREQUENCIES)
    axes, real, apart = field(record, AXES), field(record, REAL), field(record, BLOCK) * WORD
    factor = fill(storage, read_float(record + FACTOR * WORD))
    size, at = itemsize(computed(storage)), 0
    for i in range(count):
        place = positions + i * WORD
        for pair in range(0, pitch // size, lanes(storage)):
            sine, cosine = sincos_of_axes(
                storage, axes, real, place, apart, words, residuals, turns, pitch // size, pair
            )
            store_computed(storage, cos + at, cosine * factor)
            store_computed(storage, sin + at, sine * factor)
            at += lanes(storage) * size


@njit
def _position(record, place):
    whole = float(field(place, 0))
    return whole + read_float(place + POSITION_BYTES) if field(record, REAL) else whole


def _rounded(form, storage, record, positions, count, cos, sin, pitch):
    """Position, frequency, their product, sine, cosine and factor each rounded to float32, then to the storage.

    In float64 a product of two float32 numbers is exact, so that one rounding of it is what float32 would give.
    """
    frequencies, axes, apart = field(record, FREQUENCIES), field(record, AXES), field(record, BLOCK) * WORD
    factor = single(fill(FLOAT64, read_float(record + FACTOR * WORD)))
    size, at = itemsize(computed(storage)), 0
    for i in range(count):
        for pair in range(0, pitch // size, lanes(FLOAT64)):
            angle = fill(FLOAT64, 0.0)
            for axis in range(axes):
                position = single(fill(FLOAT64, _position(record, positions + axis * apart + i * WORD)))
                angle = angle + position * load_computed(FLOAT64, frequencies + (axis * (pitch // size) + pair) * 8)
            sine, cosine = sincos_of_angles(single(angle))
            store_single(storage, cos + at, single(cosine) * factor)
            store_single(storage, sin + at, single(sine) * factor)
            at += lanes(FLOAT64) * size


fill_table = by_form(lambda form: {EXACT: _exact, AXIAL: _axial, ROUNDED: _rounded}[form.clock])
