"""Sinusoids of the rarer kinds: odd widths, cosines first, a factor, a row of padding, real-valued positions.

Every row is exact, of 16-bit types as well, so one loop serves all of them, at twice the time of the common kind in
float32 and four times in 16-bit types (``numba_add``; 512 x 1024: 2.4 copies and 4.8; 2.2 and 8.6).
"""

from functools import cache

from numba import njit

from .numba_bytes import fetch_add, read_float, stack
from .numba_clock import sincos_of_axes
from .numba_jit import compile_entry
from .numba_lanes import STORAGES, fill, fma, itemsize, lanes
from .numba_memory import (
    load_pairs,
    load_pairs_part,
    load_two,
    load_two_part,
    store_pairs,
    store_pairs_part,
    store_two,
    store_two_part,
)
from .numba_positions import PLACE_BYTES, fill_coordinates
from .numba_record import (
    BATCH,
    BLOCK,
    CHECK_ONLY,
    CHECKED,
    COMPARE,
    COSINE_AT,
    COSINES,
    EMBEDDING_SCALE,
    FACTOR,
    FREQUENCIES,
    GRAB,
    HEADS,
    PADDING,
    PADDING_INDEX,
    PAIRS,
    REAL,
    RESIDUALS,
    SINE_AT,
    STRIDE_B,
    STRIDE_H,
    STRIDE_T,
    TOKENS,
    WIDTH,
    WORD,
    WORDS,
    check,
    data_address,
    field,
    operand_of,
)
from .rules import DONE


@njit
def _put_two(storage, x, y, heads, xh, yh, first, second, scale, count):
    """Add a double vector of consecutive channels, ``count`` of which exist, to the same channels of every head."""
    if count >= 2 * lanes(storage):
        for head in range(heads):
            a, b = load_two(storage, x + head * xh)
            store_two(storage, False, y + head * yh, fma(a, scale, first), fma(b, scale, second))
    else:
        for head in range(heads):
            a, b = load_two_part(storage, x + head * xh, count)
            store_two_part(storage, y + head * yh, fma(a, scale, first), fma(b, scale, second), count)


@njit
def _put_pairs(storage, x, y, heads, xh, yh, first, second, scale, count):
    """The same for even and odd channels."""
    if count >= 2 * lanes(storage):
        for head in range(heads):
            a, b = load_pairs(storage, x + head * xh)
            store_pairs(storage, False, y + head * yh, fma(a, scale, first), fma(b, scale, second))
    else:
        for head in range(heads):
            a, b = load_pairs_part(storage, x + head * xh, count)
            store_pairs_part(storage, y + head * yh, fma(a, scale, first), fma(b, scale, second), count)


@njit
def _row(storage, interleaved, record, x, y, heads, xh, yh, place):
    """All channels of one token, in every head (or batch row that stands alike)."""
    words, residuals, turns = field(record, WORDS), field(record, RESIDUALS), field(record, FREQUENCIES)
    pairs, cosines, real, size = field(record, PAIRS), field(record, COSINES), field(record, REAL), itemsize(storage)
    scale = fill(storage, read_float(record + EMBEDDING_SCALE * WORD))
    padded = field(record, PADDING) and field(place, 0) == field(record, PADDING_INDEX)
    factor = fill(storage, 0.0 if padded else read_float(record + FACTOR * WORD))
    step, sine_at, cosine_at = lanes(storage), field(record, SINE_AT), field(record, COSINE_AT)
    for pair in range(0, pairs, 2 * step):
        s0, c0 = sincos_of_axes(storage, 1, real, place, 0, words, residuals, turns, 0, pair)
        s1, c1 = sincos_of_axes(storage, 1, real, place, 0, words, residuals, turns, 0, pair + step)
        s0, c0, s1, c1 = s0 * factor, c0 * factor, s1 * factor, c1 * factor
        if interleaved:
            i, left = 2 * pair * size, pairs + cosines - 2 * pair
            _put_pairs(storage, x + i, y + i, heads, xh, yh, s0, c0, scale, left)
            i, left = i + 2 * step * size, left - 2 * step
            _put_pairs(storage, x + i, y + i, heads, xh, yh, s1, c1, scale, left)
        else:
            i, j = sine_at + pair * size, cosine_at + pair * size
            _put_two(storage, x + i, y + i, heads, xh, yh, s0, s1, scale, pairs - pair)
            _put_two(storage, x + j, y + j, heads, xh, yh, c0, c1, scale, cosines - pair)
    end, nothing = (pairs + cosines) * size, fill(storage, 0.0)
    if end < field(record, WIDTH):
        _put_two(
            storage,
            x + end,
            y + end,
            heads,
            xh,
            yh,
            nothing,
            nothing,
            scale,
            field(record, WIDTH) // size - pairs - cosines,
        )


@njit
def _add(storage, interleaved, record, x0, y0, where, starts, counter, checked):
    if checked != CHECKED:
        status = check(record, x0, y0, 0, 0, checked == COMPARE)
        if status != DONE or checked == CHECK_ONLY:
            return status
    places = stack(PLACE_BYTES)
    source, target = operand_of(record, 0, 0), operand_of(record, 0, 1)
    xt, yt, xh, yh = (
        field(source, STRIDE_T),
        field(target, STRIDE_T),
        field(source, STRIDE_H),
        field(target, STRIDE_H),
    )
    heads, block, tokens = field(source, HEADS), field(record, BLOCK), field(record, TOKENS)
    blocks = (tokens + block - 1) // block
    units = field(record, BATCH) * blocks
    grab = field(record, GRAB) if counter else units
    first = fetch_add(counter, grab) if counter else 0
    while first < units:
        for unit in range(first, min(first + grab, units)):
            batch, token = unit // blocks, unit % blocks * block
            count = min(block, tokens - token)
            fill_coordinates(record, where, starts, batch, token, count, places)
            x = data_address(record, x0) + batch * field(source, STRIDE_B) + token * xt
            y = data_address(record, y0) + batch * field(target, STRIDE_B) + token * yt
            for row in range(count):
                _row(storage, interleaved, record, x + row * xt, y + row * yt, heads, xh, yh, places + row * WORD)
        first = fetch_add(counter, grab) if counter else units
    return DONE


def _entry(storage, interleaved):
    def add(record, x0, y0, x1, y1, where, starts, counter, checked):
        return _add(storage, interleaved, record, x0, y0, where, starts, counter, checked)

    return add


@cache
def kernel(dtype: str, interleaved: bool, streamed: bool):
    """The compiled kernel; it streams nothing, whatever is asked for."""
    return compile_entry(_entry(STORAGES[dtype], interleaved), 9)
