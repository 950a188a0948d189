"""Additive kernels: ``y = x * scale + encoding``, with sinusoids made on the fly or rows of a learned table.

Read and written: each element of x once. Rows that share their position over the batch share the sinusoid.

A float32 sinusoid costs about 30 instructions a pair. For 16-bit results it is made exactly for the rows whose position
is a multiple of NEAR, and carried to the next NEAR - 1 rows by one small rotation (4 multiply-adds a pair; error 1e-7,
a thousandth of the result's rounding). Anchors lie at absolute positions, so a row's bits do not depend on the cut.
"""

from functools import cache

from numba import njit

from .numba_bytes import fetch_add, prefetch, read_float, stack, stream_fence
from .numba_clock import sincos
from .numba_jit import compile_entry
from .numba_lanes import STORAGES, computed, fill, fma, itemsize, lanes, negate
from .numba_memory import (
    load_computed,
    load_pairs,
    load_pairs_part,
    load_two,
    load_two_part,
    store_computed,
    store_pairs,
    store_pairs_part,
    store_two,
    store_two_part,
)
from .numba_positions import fill_positions
from .numba_record import (
    BATCH,
    BLOCK,
    CHECK_ONLY,
    CHECKED,
    COMPARE,
    EMBEDDING_SCALE,
    GRAB,
    HEADS,
    NEIGHBOURS,
    PAIRS,
    RESIDUALS,
    STRIDE_B,
    STRIDE_H,
    STRIDE_T,
    TABLE,
    TABLE_OFFSET,
    TABLE_STRIDE,
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

NEAR = 8
MAX_BLOCK = 64
POSITION_BYTES = MAX_BLOCK * WORD
# Anchors of a chunk of channels stay in level-1 cache while they are carried to the rows: 512 pairs.
CHUNK_BYTES = 2048
ANCHOR_BYTES = 2 * CHUNK_BYTES
EXACT, CARRIED, LEARNED = range(3)
# The arithmetic of a row outlasts what the hardware fetches ahead, above all at the end of a page: asked for this far
# ahead, 4096 x 4096 float32 in place went from 7.2 to 5.0 ms.
AHEAD = 8192


@njit
def _put_pairs(storage, streamed, x, y, heads, xh, yh, first, second, scale):
    """Add a double vector of channels, as even and odd ones, to the same channels of every head."""
    a, b = load_pairs(storage, x)
    store_pairs(storage, streamed, y, fma(a, scale, first), fma(b, scale, second))
    for head in range(1, heads):
        a, b = load_pairs(storage, x + head * xh)
        store_pairs(storage, streamed, y + head * yh, fma(a, scale, first), fma(b, scale, second))


@njit
def _put_pairs_part(storage, x, y, heads, xh, yh, first, second, scale, count):
    for head in range(heads):
        a, b = load_pairs_part(storage, x + head * xh, count)
        store_pairs_part(storage, y + head * yh, fma(a, scale, first), fma(b, scale, second), count)


@njit
def _put_two(storage, streamed, x, y, heads, xh, yh, first, second, scale):
    """Add a double vector of channels, in ``double_order``, to the same channels of every head."""
    a, b = load_two(storage, x)
    store_two(storage, streamed, y, fma(a, scale, first), fma(b, scale, second))
    for head in range(1, heads):
        a, b = load_two(storage, x + head * xh)
        store_two(storage, streamed, y + head * yh, fma(a, scale, first), fma(b, scale, second))


@njit
def _put_two_part(storage, x, y, heads, xh, yh, first, second, scale, count):
    for head in range(heads):
        a, b = load_two_part(storage, x + head * xh, count)
        store_two_part(storage, y + head * yh, fma(a, scale, first), fma(b, scale, second), count)


@njit
def _wave(storage, kind, position, clock, anchors, near, at, pair):
    """Sines and cosines of a vector of pairs: made on the spot, or carried from the anchor's."""
    words, residuals, pitch = clock
    if kind == EXACT:
        return sincos(storage, position, words, residuals, pair)
    beside = pair * itemsize(computed(storage))
    sine, cosine = load_computed(storage, anchors + at), load_computed(storage, anchors + CHUNK_BYTES + at)
    c, s = load_computed(storage, near + beside), load_computed(storage, near + pitch + beside)
    return fma(sine, c, cosine * s), fma(cosine, c, negate(sine * s))


@njit
def _interleaved_row(storage, kind, streamed, x, y, heads, xh, yh, position, clock, anchors, near, scale, first, last):
    """Even channels sine, odd channels cosine, for the pairs ``first .. last`` of one row."""
    size, step, vector = itemsize(storage), lanes(storage), lanes(storage) * itemsize(computed(storage))
    whole, at = first + (last - first) // step * step, 0
    if heads == 1:
        for pair in range(first, whole, step):
            prefetch(x + 2 * pair * size + AHEAD)
            if itemsize(storage) >= 4:
                prefetch(x + 2 * pair * size + AHEAD + 64)
            s, c = _wave(storage, kind, position, clock, anchors, near, at, pair)
            a, b = load_pairs(storage, x + 2 * pair * size)
            store_pairs(storage, streamed, y + 2 * pair * size, fma(a, scale, s), fma(b, scale, c))
            at += vector
    else:
        for pair in range(first, whole, step):
            s, c = _wave(storage, kind, position, clock, anchors, near, at, pair)
            _put_pairs(storage, streamed, x + 2 * pair * size, y + 2 * pair * size, heads, xh, yh, s, c, scale)
            at += vector
    if whole < last:
        s, c = _wave(storage, kind, position, clock, anchors, near, at, whole)
        i = 2 * whole * size
        _put_pairs_part(storage, x + i, y + i, heads, xh, yh, s, c, scale, 2 * (last - whole))


@njit
def _halves_row(storage, kind, streamed, x, y, heads, xh, yh, position, clock, anchors, near, scale, half, first, last):
    """Sines in the first half of the channels, cosines ``half`` bytes further."""
    size, step, vector = itemsize(storage), lanes(storage), lanes(storage) * itemsize(computed(storage))
    whole, at = first + (last - first) // (2 * step) * 2 * step, 0
    if heads == 1:
        for pair in range(first, whole, 2 * step):
            i, j = pair * size, half + pair * size
            prefetch(x + i + AHEAD)
            prefetch(x + j + AHEAD)
            s0, c0 = _wave(storage, kind, position, clock, anchors, near, at, pair)
            s1, c1 = _wave(storage, kind, position, clock, anchors, near, at + vector, pair + step)
            a0, a1 = load_two(storage, x + i)
            b0, b1 = load_two(storage, x + j)
            store_two(storage, streamed, y + i, fma(a0, scale, s0), fma(a1, scale, s1))
            store_two(storage, streamed, y + j, fma(b0, scale, c0), fma(b1, scale, c1))
            at += 2 * vector
    else:
        for pair in range(first, whole, 2 * step):
            i = pair * size
            s0, c0 = _wave(storage, kind, position, clock, anchors, near, at, pair)
            s1, c1 = _wave(storage, kind, position, clock, anchors, near, at + vector, pair + step)
            _put_two(storage, streamed, x + i, y + i, heads, xh, yh, s0, s1, scale)
            _put_two(storage, streamed, x + half + i, y + half + i, heads, xh, yh, c0, c1, scale)
            at += 2 * vector
    if whole < last:
        s0, c0 = _wave(storage, kind, position, clock, anchors, near, at, whole)
        s1, c1 = _wave(storage, kind, position, clock, anchors, near, at + vector, whole + step)
        i, count = whole * size, last - whole
        _put_two_part(storage, x + i, y + i, heads, xh, yh, s0, s1, scale, count)
        _put_two_part(storage, x + half + i, y + half + i, heads, xh, yh, c0, c1, scale, count)


@njit
def _fill_anchors(storage, clock, position, anchors, first, last):
    """Sines, then cosines, of the pairs ``first .. last`` (by whole double vectors) at the anchor of a position."""
    words, residuals, _ = clock
    step, at = 2 * lanes(storage), 0
    for pair in range(first, first + (last - first + step - 1) // step * step, lanes(storage)):
        sine, cosine = sincos(storage, position & -NEAR, words, residuals, pair)
        store_computed(storage, anchors + at, sine)
        store_computed(storage, anchors + CHUNK_BYTES + at, cosine)
        at += lanes(storage) * itemsize(computed(storage))


@njit
def _sine_rows(storage, kind, interleaved, streamed, record, x, y, rows, xt, yt, heads, xh, yh, positions, anchors):
    """All channels of a few rows that share an anchor."""
    pairs, step = field(record, PAIRS), 2 * lanes(storage)
    scale, half = fill(storage, read_float(record + EMBEDDING_SCALE * WORD)), pairs * itemsize(storage)
    pitch = (pairs + step - 1) // step * step * itemsize(computed(storage))
    clock = (field(record, WORDS), field(record, RESIDUALS), pitch)
    chunk = CHUNK_BYTES // itemsize(computed(storage)) if kind == CARRIED else pairs
    for first in range(0, pairs, chunk):
        last = min(first + chunk, pairs)
        if kind == CARRIED:
            _fill_anchors(storage, clock, field(positions, 0), anchors, first, last)
        for row in range(rows):
            at, to, p = x + row * xt, y + row * yt, field(positions, row)
            near = field(record, NEIGHBOURS) + (p & (NEAR - 1)) * 2 * pitch
            if interleaved:
                _interleaved_row(
                    storage, kind, streamed, at, to, heads, xh, yh, p, clock, anchors, near, scale, first, last
                )
            else:
                _halves_row(
                    storage, kind, streamed, at, to, heads, xh, yh, p, clock, anchors, near, scale, half, first, last
                )


@njit
def _learned_row(storage, stored, streamed, record, x, y, heads, xh, yh, position):
    """Add one row of a table that lies in memory as ``stored``."""
    table = field(record, TABLE) + (position + field(record, TABLE_OFFSET)) * field(record, TABLE_STRIDE)
    scale = fill(storage, read_float(record + EMBEDDING_SCALE * WORD))
    size, step = itemsize(storage), 2 * lanes(storage)
    width = field(record, WIDTH) // size
    whole = width // step * step
    for channel in range(0, whole, step):
        even, odd = load_pairs(stored, table + channel * itemsize(stored))
        _put_pairs(storage, streamed, x + channel * size, y + channel * size, heads, xh, yh, even, odd, scale)
    if whole < width:
        even, odd = load_pairs_part(stored, table + whole * itemsize(stored), width - whole)
        _put_pairs_part(storage, x + whole * size, y + whole * size, heads, xh, yh, even, odd, scale, width - whole)


@njit
def _group(storage, stored, kind, interleaved, streamed, record, x, y, rows, xt, yt, heads, xh, yh, positions, anchors):
    if kind == LEARNED:
        for row in range(rows):
            at, to = x + row * xt, y + row * yt
            _learned_row(storage, stored, streamed, record, at, to, heads, xh, yh, field(positions, row))
    else:
        _sine_rows(storage, kind, interleaved, streamed, record, x, y, rows, xt, yt, heads, xh, yh, positions, anchors)


@njit
def _run_length(kind, positions, first, count):
    """How many rows from ``first`` on share an anchor."""
    if kind != CARRIED:
        return 1
    anchor, end = field(positions, first) & -NEAR, first + 1
    while end < count and field(positions, end) & -NEAR == anchor:
        end += 1
    return end - first


@njit
def _add(storage, stored, kind, interleaved, streamed, record, x0, y0, where, starts, counter, checked):
    if checked != CHECKED:
        status = check(record, x0, y0, 0, 0, checked == COMPARE)
        if status != DONE or checked == CHECK_ONLY:
            return status
    anchors, positions = stack(ANCHOR_BYTES), stack(POSITION_BYTES)
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
            fill_positions(record, where, starts, batch, token, count, positions)
            x = data_address(record, x0) + batch * field(source, STRIDE_B) + token * xt
            y = data_address(record, y0) + batch * field(target, STRIDE_B) + token * yt
            row = 0
            while row < count:
                rows = _run_length(kind, positions, row, count)
                at, to, stand = x + row * xt, y + row * yt, positions + row * WORD
                _group(
                    storage,
                    stored,
                    kind,
                    interleaved,
                    streamed,
                    record,
                    at,
                    to,
                    rows,
                    xt,
                    yt,
                    heads,
                    xh,
                    yh,
                    stand,
                    anchors,
                )
                row += rows
        first = fetch_add(counter, grab) if counter else units
    if streamed:
        stream_fence()
    return DONE


def _entry(storage, stored, kind, interleaved, streamed):
    def add(record, x0, y0, x1, y1, where, starts, counter, checked):
        return _add(storage, stored, kind, interleaved, streamed, record, x0, y0, where, starts, counter, checked)

    return add


def is_carried(dtype: str) -> bool:
    """Whether sinusoids of this type are carried from anchors: a float32 value near zero would lose its accuracy."""
    return STORAGES[dtype].itemsize == 2


@cache
def sinusoidal_kernel(dtype: str, interleaved: bool, streamed: bool):
    """The compiled kernel; a streamed one needs outputs whose rows and halves begin at multiples of 16 bytes."""
    kind = CARRIED if is_carried(dtype) else EXACT
    return compile_entry(_entry(STORAGES[dtype], STORAGES[dtype], kind, interleaved, streamed), 9)


@cache
def learned_kernel(dtype: str, table_dtype: str, streamed: bool):
    """The compiled kernel; a streamed one needs outputs whose rows begin at multiples of 16 bytes."""
    return compile_entry(_entry(STORAGES[dtype], STORAGES[table_dtype], LEARNED, False, streamed), 9)
