"""Additive kernels: ``y = x * scale + encoding``, with sinusoids made on the fly or rows of a learned table.

Read and written: each element of x once. Rows that share their position over the batch share the sinusoid.

A float32 sinusoid costs about 30 instructions a pair. For 16-bit results it is made exactly for the rows whose position
is a multiple of NEAR, and carried to the next NEAR - 1 rows by one small rotation (4 multiply-adds a pair; error 1e-7,
a thousandth of the result's rounding). Anchors lie at absolute positions, so a row's bits do not depend on the cut.
"""

from functools import cache

from numba import njit

from .numba_bytes import fetch_add, read_float, stack, stream_bytes, stream_fence
from .numba_clock import sincos
from .numba_jit import FINGERPRINT, compile_entry
from .numba_lanes import STORAGES, computed, fill, fma, itemsize, lanes, negate
from .numba_memory import (
    load_computed,
    load_pairs,
    load_pairs_part,
    load_two,
    load_two_part,
    store_pairs,
    store_pairs_part,
    store_two,
    store_two_part,
)
from .numba_positions import fill_positions
from .numba_record import (
    BATCH,
    BLOCK,
    FACTOR,
    GRAB,
    HEADS,
    INTERLEAVED,
    NEIGHBOURS,
    PAIRS,
    RESIDUALS,
    STREAM,
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
    CHECK_ONLY,
    CHECKED,
    check,
    data_address,
    field,
    operand_of,
)
from .rules import DONE

NEAR = 8
MAX_BLOCK = 64
POSITION_BYTES = MAX_BLOCK * WORD
STAGE_BYTES = 32768
CHUNK_BYTES = 2048
EXACT, CARRIED, LEARNED = range(3)


@njit
def _wave(storage, kind, record, pitch, position, sine, cosine, pair):
    """The sinusoid of a row: made on the spot, or carried from its anchor's."""
    if kind == EXACT:
        return sincos(storage, position, field(record, WORDS), field(record, RESIDUALS), pair)
    near = field(record, NEIGHBOURS) + (position & (NEAR - 1)) * 2 * pitch + pair * itemsize(computed(storage))
    c, s = load_computed(storage, near), load_computed(storage, near + pitch)
    return fma(sine, c, cosine * s), fma(cosine, c, negate(sine * s))


@njit
def _anchor(storage, kind, record, position, pair):
    if kind == EXACT:
        return fill(storage, 0.0), fill(storage, 0.0)
    return sincos(storage, position & -NEAR, field(record, WORDS), field(record, RESIDUALS), pair)


@njit
def _add_pairs(storage, x, y, sine, cosine, scale, count):
    if count >= 2 * lanes(storage):
        a, b = load_pairs(storage, x)
        store_pairs(storage, y, fma(a, scale, sine), fma(b, scale, cosine))
    else:
        a, b = load_pairs_part(storage, x, count)
        store_pairs_part(storage, y, fma(a, scale, sine), fma(b, scale, cosine), count)


@njit
def _add_two(storage, x, y, first, second, scale, count):
    if count >= 2 * lanes(storage):
        a, b = load_two(storage, x)
        store_two(storage, y, fma(a, scale, first), fma(b, scale, second))
    else:
        a, b = load_two_part(storage, x, count)
        store_two_part(storage, y, fma(a, scale, first), fma(b, scale, second), count)


@njit
def _interleaved(storage, kind, record, x, y, rows, xt, yt, heads, xh, yh, positions, first, last):
    """Even channels sine, odd channels cosine; ``y`` is where the pair ``first`` goes."""
    size, step = itemsize(storage), lanes(storage)
    scale = fill(storage, read_float(record + FACTOR * WORD))
    pitch = _pitch(storage, record)
    for pair in range(first, last, step):
        sine, cosine = _anchor(storage, kind, record, field(positions, 0), pair)
        count = 2 * (last - pair)
        for row in range(rows):
            s, c = _wave(storage, kind, record, pitch, field(positions, row), sine, cosine, pair)
            at, to = x + row * xt + 2 * pair * size, y + row * yt + 2 * (pair - first) * size
            for head in range(heads):
                _add_pairs(storage, at + head * xh, to + head * yh, s, c, scale, count)


@njit
def _halves(storage, kind, record, x, y, rows, xt, yt, heads, xh, yh, positions, first, last, y_half):
    """Sines in the first half of the channels, cosines in the second, ``y_half`` bytes further in ``y``."""
    size, step = itemsize(storage), lanes(storage)
    scale = fill(storage, read_float(record + FACTOR * WORD))
    pitch, x_half = _pitch(storage, record), field(record, PAIRS) * size
    for pair in range(first, last, 2 * step):
        sine0, cosine0 = _anchor(storage, kind, record, field(positions, 0), pair)
        sine1, cosine1 = _anchor(storage, kind, record, field(positions, 0), pair + step)
        for row in range(rows):
            position = field(positions, row)
            s0, c0 = _wave(storage, kind, record, pitch, position, sine0, cosine0, pair)
            s1, c1 = _wave(storage, kind, record, pitch, position, sine1, cosine1, pair + step)
            at, to = x + row * xt + pair * size, y + row * yt + (pair - first) * size
            for head in range(heads):
                _add_two(storage, at + head * xh, to + head * yh, s0, s1, scale, last - pair)
                _add_two(storage, at + x_half + head * xh, to + y_half + head * yh, c0, c1, scale, last - pair)


@njit
def _learned(storage, stored, record, x, y, rows, xt, yt, heads, xh, yh, positions, first, last):
    """Rows of a table that lies in memory as ``stored``; ``first`` and ``last`` count channels."""
    size, step = itemsize(storage), 2 * lanes(storage)
    scale = fill(storage, read_float(record + FACTOR * WORD))
    for row in range(rows):
        line = field(positions, row) + field(record, TABLE_OFFSET)
        table = field(record, TABLE) + line * field(record, TABLE_STRIDE)
        for channel in range(first, last, step):
            source, count = table + channel * itemsize(stored), last - channel
            if count >= step:
                even, odd = load_pairs(stored, source)
            else:
                even, odd = load_pairs_part(stored, source, count)
            at, to = x + row * xt + channel * size, y + row * yt + (channel - first) * size
            for head in range(heads):
                _add_pairs(storage, at + head * xh, to + head * yh, even, odd, scale, count)


@njit
def _pitch(storage, record):
    """Bytes of one row of pairs in the compute type, padded to double vectors."""
    step = 2 * lanes(storage)
    return (field(record, PAIRS) + step - 1) // step * step * itemsize(computed(storage))


@njit
def _part(storage, stored, kind, record, x, y, rows, xt, yt, heads, xh, yh, positions, first, last, y_half):
    if kind == LEARNED:
        _learned(storage, stored, record, x, y, rows, xt, yt, heads, xh, yh, positions, first, last)
    elif field(record, INTERLEAVED):
        _interleaved(storage, kind, record, x, y, rows, xt, yt, heads, xh, yh, positions, first, last)
    else:
        _halves(storage, kind, record, x, y, rows, xt, yt, heads, xh, yh, positions, first, last, y_half)


@njit
def _group(storage, stored, kind, record, x, y, rows, xt, yt, heads, xh, yh, positions, stage):
    """All channels of a few rows; beyond the last-level cache by chunks that are staged and streamed."""
    size = itemsize(storage)
    columns = field(record, WIDTH) // size if kind == LEARNED else field(record, PAIRS)
    if not field(record, STREAM):
        _part(storage, stored, kind, record, x, y, rows, xt, yt, heads, xh, yh, positions, 0, columns, columns * size)
        return
    # Channels that one column of a chunk writes side by side: a pair, half a pair in each of two places, or one channel.
    wide = 2 if kind != LEARNED and field(record, INTERLEAVED) else 1
    places = 2 if kind != LEARNED and not field(record, INTERLEAVED) else 1
    chunk = CHUNK_BYTES // (wide * places * size)
    some = max(1, STAGE_BYTES // (rows * CHUNK_BYTES))
    for head in range(0, heads, some):
        now = min(some, heads - head)
        for first in range(0, columns, chunk):
            last = min(first + chunk, columns)
            run = (last - first) * wide * size
            line = run * places
            at = x + head * xh
            _part(
                storage, stored, kind, record, at, stage, rows, xt, line, now, xh, rows * line, positions, first, last, run
            )
            for place in range(places):
                to = y + head * yh + (place * columns + first * wide) * size
                for h in range(now):
                    for row in range(rows):
                        stream_bytes(to + h * yh + row * yt, stage + (h * rows + row) * line + place * run, run)


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
def _add(storage, stored, kind, record, x0, y0, where, starts, counter, checked):
    if checked != CHECKED:
        status = check(record, x0, y0, 0, 0)
        if status != DONE or checked == CHECK_ONLY:
            return status
    stage, positions = stack(STAGE_BYTES), stack(POSITION_BYTES)
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
                _group(storage, stored, kind, record, at, to, rows, xt, yt, heads, xh, yh, stand, stage)
                row += rows
        first = fetch_add(counter, grab) if counter else units
    if field(record, STREAM):
        stream_fence()
    return DONE


def _entry(storage, stored, kind, fingerprint):
    def add(record, x0, y0, x1, y1, where, starts, counter, checked):
        return _add(storage, stored, kind, record, x0, y0, where, starts, counter, checked)

    return add


def is_carried(dtype: str) -> bool:
    """Whether sinusoids of this type are carried from anchors: a float32 value near zero would lose its accuracy."""
    return STORAGES[dtype].itemsize == 2


@cache
def sinusoidal_kernel(dtype: str):
    kind = CARRIED if is_carried(dtype) else EXACT
    return compile_entry(_entry(STORAGES[dtype], STORAGES[dtype], kind, FINGERPRINT), 9)


@cache
def learned_kernel(dtype: str, table_dtype: str):
    return compile_entry(_entry(STORAGES[dtype], STORAGES[table_dtype], LEARNED, FINGERPRINT), 9)
