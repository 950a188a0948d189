"""What goes with a rotation: channels that do not turn, and queries scaled by where they stand.

A scale is ``max(1, constant + slope * ln(1 + floor((p + offset) / length)))``, and 1 before position 0: one form for all
that are in use. It multiplies the whole head, with one rounding; in the rounded form (as transformers does) it is made in
float32, in some models rounded to the storage, and multiplied with what has been rounded already.
"""

import math

import numpy as np
from numba import njit

from .numba_bytes import copy_bytes, read_float, write_float
from .numba_form import ROUNDED, by_form
from .numba_lanes import computed, fill, itemsize, lanes
from .numba_memory import (
    load_computed,
    load_two,
    load_two_part,
    rounded,
    store_computed,
    store_two,
    store_two_part,
)
from .numba_record import IN_PLACE, LEAD, PAIRS, QUERY, WIDTH, WORD, field


@njit
def _scale(record, position):
    constant, slope = read_float(record + QUERY * WORD), read_float(record + (QUERY + 1) * WORD)
    length, offset = read_float(record + (QUERY + 2) * WORD), read_float(record + (QUERY + 3) * WORD)
    steps = math.floor((float(position) + offset) / length)
    return max(1.0, constant + slope * math.log(max(1.0, 1.0 + steps)))


@njit
def _single_scale(record, position):
    constant, slope = read_float(record + QUERY * WORD), read_float(record + (QUERY + 1) * WORD)
    length, offset = read_float(record + (QUERY + 2) * WORD), read_float(record + (QUERY + 3) * WORD)
    place = np.float32(np.float32(position) + np.float32(offset))
    steps = np.float32(math.floor(np.float32(place / np.float32(length))))
    logarithm = np.float32(math.log(max(1.0, float(np.float32(np.float32(1) + steps)))))
    product = np.float32(np.float32(slope) * logarithm)
    return max(1.0, float(np.float32(np.float32(constant) + product)))


def _no_scales(form, storage, record, positions, count, cos, sin, pitch, scales):
    return 0


def _scales(form, storage, record, positions, count, cos, sin, pitch, scales):
    if not field(record, QUERY + 2):
        return 0
    size, at = itemsize(computed(storage)), 0
    for i in range(count):
        number = _scale(record, field(positions, i))
        write_float(scales + i * WORD, number)
        scale = fill(storage, number)
        for _ in range(0, pitch // size, lanes(storage)):
            store_computed(storage, cos + at, load_computed(storage, cos + at) * scale)
            store_computed(storage, sin + at, load_computed(storage, sin + at) * scale)
            at += lanes(storage) * size
    return scales


def _rounded_scales(form, storage, record, positions, count, cos, sin, pitch, scales):
    if not field(record, QUERY + 2):
        return 0
    for i in range(count):
        write_float(scales + i * WORD, _single_scale(record, field(positions, i)))
    return scales


# Multiply the table by the scales of its positions and keep them; their address, or 0 where there are none.
scale_table = by_form(
    lambda form: (_rounded_scales if form.clock == ROUNDED else _scales) if form.scaled else _no_scales
)


@njit
def _multiply(storage, x, y, count, scale):
    """``count`` elements times a vector, with one rounding."""
    step, size = 2 * lanes(storage), itemsize(storage)
    whole = max(count, 0) // step * step
    for i in range(0, whole, step):
        a, b = load_two(storage, x + i * size)
        store_two(storage, False, y + i * size, a * scale, b * scale)
    if whole < count:
        a, b = load_two_part(storage, x + whole * size, count - whole)
        store_two_part(storage, y + whole * size, a * scale, b * scale, count - whole)


def _copied(form, storage, record, scales, x, y, heads, tokens, xh, xt, yh, yt):
    lead, end = field(record, LEAD), field(record, LEAD) + 2 * field(record, PAIRS) * itemsize(storage)
    rest = field(record, WIDTH) - end
    if not field(record, IN_PLACE) and lead + rest:
        for token in range(tokens):
            for head in range(heads):
                at, to = x + token * xt + head * xh, y + token * yt + head * yh
                if lead:
                    copy_bytes(to, at, lead)
                if rest:
                    copy_bytes(to + end, at + end, rest)


_copy_over = njit(_copied)


def _scaled(form, storage, record, scales, x, y, heads, tokens, xh, xt, yh, yt):
    if not scales:
        _copy_over(form, storage, record, scales, x, y, heads, tokens, xh, xt, yh, yt)
        return
    size, lead = itemsize(storage), field(record, LEAD)
    end = lead + 2 * field(record, PAIRS) * size
    for token in range(tokens):
        scale = fill(storage, read_float(scales + token * WORD))
        for head in range(heads):
            at, to = x + token * xt + head * xh, y + token * yt + head * yh
            _multiply(storage, at, to, lead // size, scale)
            _multiply(storage, at + end, to + end, (field(record, WIDTH) - end) // size, scale)


def _scaled_after(form, storage, record, scales, x, y, heads, tokens, xh, xt, yh, yt):
    _copy_over(form, storage, record, scales, x, y, heads, tokens, xh, xt, yh, yt)
    if not scales:
        return
    narrow = read_float(record + (QUERY + 4) * WORD) != 0
    for token in range(tokens):
        scale = fill(storage, read_float(scales + token * WORD))
        if narrow:
            scale = rounded(storage, scale)
        for head in range(heads):
            to = y + token * yt + head * yh
            _multiply(storage, to, to, field(record, WIDTH) // itemsize(storage), scale)


# Bring the channels that do not turn, and for queries the scale, to the rows of a tile that have been rotated.
carry_over = by_form(lambda form: (_scaled_after if form.clock == ROUNDED else _scaled) if form.scaled else _copied)
