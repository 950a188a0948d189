"""Rows of a rotation: one for each way in which channels pair.

Loads stand before stores inside a row's step, so the same code serves in place and out of place. Heads of 128 channels
keep cosines and sines in registers over all heads of a token (512 tokens float32 in place: 0.87 copies -> 0.65). With
heads before tokens, where the table's rows come from level-2 cache, four heads share each load (4096 tokens float32: 1.0
-> 0.7).
"""

from numba import njit

from .numba_bytes import copy_bytes, stack
from .numba_form import BLOCKS, DEINTERLEAVED, INTERLEAVED, ROUNDED, SPLIT, by_form
from .numba_lanes import computed, fma, itemsize, lanes, negate
from .numba_memory import (
    in_double_order,
    load_computed,
    load_pairs,
    load_pairs_part,
    load_two,
    load_two_part,
    rounded,
    store_pairs,
    store_pairs_part,
    store_two,
    store_two_part,
)
from .numba_record import PAIRS, SECTIONS, field

GROUP = 4
# Half a row of the widest head (8192 channels) in float64. With the tables it fits a thread's stack of 128 KiB.
HALF_ROW_BYTES = 32768


def _turn_once(form, storage, a, b, c, s):
    return fma(a, c, negate(b * s)), fma(b, c, a * s)


def _turn_rounding(form, storage, a, b, c, s):
    """Products and sums each rounded to the storage, the last of them at the store."""
    first = rounded(storage, a * c) - rounded(storage, b * s)
    return first, rounded(storage, b * c) + rounded(storage, a * s)


_turn = by_form(lambda form: _turn_rounding if form.clock == ROUNDED else _turn_once)


@njit
def _split_step(form, storage, streamed, x, y, half, c0, c1, s0, s1):
    a0, a1 = load_two(storage, x)
    b0, b1 = load_two(storage, x + half)
    p0, q0 = _turn(form, storage, a0, b0, c0, s0)
    p1, q1 = _turn(form, storage, a1, b1, c1, s1)
    store_two(storage, streamed, y, p0, p1)
    store_two(storage, streamed, y + half, q0, q1)


@njit
def _split_tail(form, storage, x, y, half, cos, sin, count):
    vector = lanes(storage) * itemsize(computed(storage))
    a0, a1 = load_two_part(storage, x, count)
    b0, b1 = load_two_part(storage, x + half, count)
    p0, q0 = _turn(form, storage, a0, b0, load_computed(storage, cos), load_computed(storage, sin))
    p1, q1 = _turn(form, storage, a1, b1, load_computed(storage, cos + vector), load_computed(storage, sin + vector))
    store_two_part(storage, y, p0, p1, count)
    store_two_part(storage, y + half, q0, q1, count)


@njit
def _split_row(form, storage, streamed, x, y, pairs, cos, sin):
    """Rotate pairs (i, i + pairs) of one row."""
    size, step = itemsize(storage), 2 * lanes(storage)
    vector = lanes(storage) * itemsize(computed(storage))
    half, whole, at = pairs * size, pairs // step * step, 0
    for pair in range(0, whole, step):
        c0, c1 = load_computed(storage, cos + at), load_computed(storage, cos + at + vector)
        s0, s1 = load_computed(storage, sin + at), load_computed(storage, sin + at + vector)
        _split_step(form, storage, streamed, x + pair * size, y + pair * size, half, c0, c1, s0, s1)
        at += 2 * vector
    if whole < pairs:
        _split_tail(form, storage, x + whole * size, y + whole * size, half, cos + at, sin + at, pairs - whole)


@njit
def split_group(form, storage, x, y, xs, ys, pairs, cos, sin):
    """Rotate pairs (i, i + pairs) of GROUP rows that share their position and the loads of its cosines and sines."""
    size, step = itemsize(storage), 2 * lanes(storage)
    vector = lanes(storage) * itemsize(computed(storage))
    half, whole, at = pairs * size, pairs // step * step, 0
    for pair in range(0, whole, step):
        c0, c1 = load_computed(storage, cos + at), load_computed(storage, cos + at + vector)
        s0, s1 = load_computed(storage, sin + at), load_computed(storage, sin + at + vector)
        i = pair * size
        _split_step(form, storage, False, x + i, y + i, half, c0, c1, s0, s1)
        _split_step(form, storage, False, x + xs + i, y + ys + i, half, c0, c1, s0, s1)
        _split_step(form, storage, False, x + 2 * xs + i, y + 2 * ys + i, half, c0, c1, s0, s1)
        _split_step(form, storage, False, x + 3 * xs + i, y + 3 * ys + i, half, c0, c1, s0, s1)
        at += 2 * vector
    if whole < pairs:
        i = whole * size
        for row in range(GROUP):
            _split_tail(form, storage, x + row * xs + i, y + row * ys + i, half, cos + at, sin + at, pairs - whole)


@njit
def _pairs_row(form, storage, streamed, x, y, pairs, cos, sin):
    """Rotate pairs (2i, 2i + 1) of one row."""
    size, step = itemsize(storage), lanes(storage)
    whole, at = pairs // step * step, 0
    for pair in range(0, whole, step):
        a, b = load_pairs(storage, x + 2 * pair * size)
        p, q = _turn(form, storage, a, b, load_computed(storage, cos + at), load_computed(storage, sin + at))
        store_pairs(storage, streamed, y + 2 * pair * size, p, q)
        at += step * itemsize(computed(storage))
    if whole < pairs:
        i, count = 2 * whole * size, 2 * (pairs - whole)
        a, b = load_pairs_part(storage, x + i, count)
        p, q = _turn(form, storage, a, b, load_computed(storage, cos + at), load_computed(storage, sin + at))
        store_pairs_part(storage, y + i, p, q, count)


@njit
def _deinterleaved_row(form, storage, streamed, x, y, pairs, cos, sin):
    """Rotate pairs (2i, 2i + 1) of one row to the places (i, i + pairs).

    First channels go where all has been read already, second ones by way of a room on the stack: ``y`` may be ``x``.
    """
    size, step, unit = itemsize(storage), 2 * lanes(storage), 2 * lanes(storage) * itemsize(storage)
    vector, at = lanes(storage) * itemsize(computed(storage)), 0
    second = stack(HALF_ROW_BYTES)
    for pair in range(0, pairs, step):
        i, left = x + 2 * pair * size, pairs - pair
        a0, b0 = load_pairs_part(storage, i, 2 * left)
        a1, b1 = load_pairs_part(storage, i + unit, 2 * left - step)
        p0, q0 = _turn(form, storage, a0, b0, load_computed(storage, cos + at), load_computed(storage, sin + at))
        at += vector
        p1, q1 = _turn(form, storage, a1, b1, load_computed(storage, cos + at), load_computed(storage, sin + at))
        at += vector
        p0, p1 = in_double_order(storage, p0, p1)
        q0, q1 = in_double_order(storage, q0, q1)
        store_two_part(storage, y + pair * size, p0, p1, left)
        store_two_part(storage, second + pair * size, q0, q1, left)
    copy_bytes(y + pairs * size, second, pairs * size)


def _rotated_split(form, storage, streamed, x, y, half, i, c0, c1, s0, s1):
    size = itemsize(storage)
    _split_step(form, storage, streamed, x + i * size, y + i * size, half, c0, c1, s0, s1)


def _rotated_interleaved(form, storage, streamed, x, y, half, i, c0, c1, s0, s1):
    size = itemsize(storage)
    x, y, next_to = x + 2 * i * size, y + 2 * i * size, 2 * lanes(storage) * size
    a, b = load_pairs(storage, x)
    p, q = _turn(form, storage, a, b, c0, s0)
    store_pairs(storage, streamed, y, p, q)
    a, b = load_pairs(storage, x + next_to)
    p, q = _turn(form, storage, a, b, c1, s1)
    store_pairs(storage, streamed, y + next_to, p, q)


# Two vectors of pairs, half-split from the i-th pair on or interleaved from the 2 i-th channel on.
_rotated = by_form(lambda form: _rotated_interleaved if form.pairing == INTERLEAVED else _rotated_split)


@njit
def _fixed_rows(form, storage, streamed, x, y, count, xs, ys, cos, sin):
    """Rotate ``count`` rows of one position and 4 vectors of pairs (128 channels), cosines and sines in registers."""
    vector = lanes(storage) * itemsize(computed(storage))
    half, step = 4 * lanes(storage) * itemsize(storage), 2 * lanes(storage)
    c0, c1 = load_computed(storage, cos), load_computed(storage, cos + vector)
    c2, c3 = load_computed(storage, cos + 2 * vector), load_computed(storage, cos + 3 * vector)
    s0, s1 = load_computed(storage, sin), load_computed(storage, sin + vector)
    s2, s3 = load_computed(storage, sin + 2 * vector), load_computed(storage, sin + 3 * vector)
    for row in range(count):
        at, to = x + row * xs, y + row * ys
        _rotated(form, storage, streamed, at, to, half, 0, c0, c1, s0, s1)
        _rotated(form, storage, streamed, at, to, half, step, c2, c3, s2, s3)


_row = by_form(
    lambda form: {SPLIT: _split_row, INTERLEAVED: _pairs_row, DEINTERLEAVED: _deinterleaved_row}[form.pairing].py_func
)


def _rows(form, storage, streamed, record, x, y, count, xs, ys, cos, sin, pitch):
    pairs = field(record, PAIRS)
    if pitch == 0 and pairs == 4 * lanes(storage):
        _fixed_rows(form, storage, streamed, x, y, count, xs, ys, cos, sin)
        return
    for row in range(count):
        _row(form, storage, streamed, x + row * xs, y + row * ys, pairs, cos + row * pitch, sin + row * pitch)


def _rows_one_by_one(form, storage, streamed, record, x, y, count, xs, ys, cos, sin, pitch):
    pairs = field(record, PAIRS)
    for row in range(count):
        _row(form, storage, streamed, x + row * xs, y + row * ys, pairs, cos + row * pitch, sin + row * pitch)


def _rows_of_blocks(form, storage, streamed, record, x, y, count, xs, ys, cos, sin, pitch):
    """Each section of pairs is split inside its own block of channels, and has its own part of the table's rows."""
    sections, first, at = field(record, SECTIONS), 0, 0
    size, step = itemsize(storage), 2 * lanes(storage)
    for section in range(field(sections, 0)):
        pairs = field(sections, 1 + section)
        for row in range(count):
            c, s = cos + at + row * pitch, sin + at + row * pitch
            _split_row(form, storage, streamed, x + first + row * xs, y + first + row * ys, pairs, c, s)
        first += 2 * pairs * size
        at += (pairs + step - 1) // step * step * itemsize(computed(storage))


# Rotate ``count`` rows, ``pitch`` bytes of the table apart.
rotate_rows = by_form(lambda form: {BLOCKS: _rows_of_blocks, DEINTERLEAVED: _rows_one_by_one}.get(form.pairing, _rows))
