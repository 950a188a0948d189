"""Rotary kernel: sines and cosines of a block of tokens once, into level-1 cache, then every head of q and k past them.

Read and written: each element of each input once. Four heads at a time share the loaded cosines and sines (with heads
before tokens this halves the time, for there the rows of the table come from level-2 cache). Loads stand before stores
inside a row's step, so the same code serves in place and out of place. Beyond the last-level cache, outputs are staged
in level-1 cache and streamed, which spares reading them first.
"""

from functools import cache

from numba import njit

from .numba_bytes import copy_bytes, fetch_add, read_float, stack, stream_bytes, stream_fence
from .numba_clock import sincos
from .numba_jit import FINGERPRINT, compile_entry
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
    ARRAYS,
    BATCH,
    BLOCK,
    FACTOR,
    GRAB,
    HEADS,
    IN_PLACE,
    INTERLEAVED,
    PAIRS,
    RESIDUALS,
    STREAM,
    STRIDE_B,
    STRIDE_H,
    STRIDE_T,
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

TABLE_BYTES = 32768
STAGE_BYTES = 32768
MAX_BLOCK = 128
POSITION_BYTES = MAX_BLOCK * WORD
GROUP = 4


@njit
def _fill_table(storage, record, positions, count, cos, sin, pitch):
    """Cosines and sines of ``count`` positions, a row each, times the encoding's factor."""
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


@njit
def _turn(a, b, c, s):
    return fma(a, c, negate(b * s)), fma(b, c, a * s)


@njit
def _split_step(storage, x, y, half, c0, c1, s0, s1):
    a0, a1 = load_two(storage, x)
    b0, b1 = load_two(storage, x + half)
    p0, q0 = _turn(a0, b0, c0, s0)
    p1, q1 = _turn(a1, b1, c1, s1)
    store_two(storage, y, p0, p1)
    store_two(storage, y + half, q0, q1)


@njit
def _split_step_part(storage, x, y, half, c0, c1, s0, s1, count):
    a0, a1 = load_two_part(storage, x, count)
    b0, b1 = load_two_part(storage, x + half, count)
    p0, q0 = _turn(a0, b0, c0, s0)
    p1, q1 = _turn(a1, b1, c1, s1)
    store_two_part(storage, y, p0, p1, count)
    store_two_part(storage, y + half, q0, q1, count)


@njit
def _split_rows(storage, x, y, rows, xs, ys, pairs, cos, sin):
    """Rotate pairs (i, i + pairs) of ``rows`` rows that share their position."""
    size, step = itemsize(storage), 2 * lanes(storage)
    vector = lanes(storage) * itemsize(computed(storage))
    half, whole = pairs * size, pairs // step * step
    at = 0
    for pair in range(0, whole, step):
        c0, c1 = load_computed(storage, cos + at), load_computed(storage, cos + at + vector)
        s0, s1 = load_computed(storage, sin + at), load_computed(storage, sin + at + vector)
        i = pair * size
        if rows == GROUP:
            _split_step(storage, x + i, y + i, half, c0, c1, s0, s1)
            _split_step(storage, x + xs + i, y + ys + i, half, c0, c1, s0, s1)
            _split_step(storage, x + 2 * xs + i, y + 2 * ys + i, half, c0, c1, s0, s1)
            _split_step(storage, x + 3 * xs + i, y + 3 * ys + i, half, c0, c1, s0, s1)
        else:
            for row in range(rows):
                _split_step(storage, x + row * xs + i, y + row * ys + i, half, c0, c1, s0, s1)
        at += 2 * vector
    if whole < pairs:
        c0, c1 = load_computed(storage, cos + at), load_computed(storage, cos + at + vector)
        s0, s1 = load_computed(storage, sin + at), load_computed(storage, sin + at + vector)
        i = whole * size
        for row in range(rows):
            _split_step_part(storage, x + row * xs + i, y + row * ys + i, half, c0, c1, s0, s1, pairs - whole)


@njit
def _pairs_step(storage, x, y, c, s):
    a, b = load_pairs(storage, x)
    p, q = _turn(a, b, c, s)
    store_pairs(storage, y, p, q)


@njit
def _pairs_step_part(storage, x, y, c, s, count):
    a, b = load_pairs_part(storage, x, count)
    p, q = _turn(a, b, c, s)
    store_pairs_part(storage, y, p, q, count)


@njit
def _pairs_rows(storage, x, y, rows, xs, ys, pairs, cos, sin):
    """Rotate pairs (2i, 2i + 1) of ``rows`` rows that share their position."""
    size, step = itemsize(storage), lanes(storage)
    vector = lanes(storage) * itemsize(computed(storage))
    whole = pairs // step * step
    at = 0
    for pair in range(0, whole, step):
        c, s = load_computed(storage, cos + at), load_computed(storage, sin + at)
        i = 2 * pair * size
        if rows == GROUP:
            _pairs_step(storage, x + i, y + i, c, s)
            _pairs_step(storage, x + xs + i, y + ys + i, c, s)
            _pairs_step(storage, x + 2 * xs + i, y + 2 * ys + i, c, s)
            _pairs_step(storage, x + 3 * xs + i, y + 3 * ys + i, c, s)
        else:
            for row in range(rows):
                _pairs_step(storage, x + row * xs + i, y + row * ys + i, c, s)
        at += vector
    if whole < pairs:
        c, s = load_computed(storage, cos + at), load_computed(storage, sin + at)
        i = 2 * whole * size
        for row in range(rows):
            _pairs_step_part(storage, x + row * xs + i, y + row * ys + i, c, s, 2 * (pairs - whole))


@njit
def _rows(storage, record, x, y, rows, xs, ys, cos, sin):
    """Rotate ``rows`` rows of one position and carry over the channels that no rotation touches."""
    pairs = field(record, PAIRS)
    if field(record, INTERLEAVED):
        _pairs_rows(storage, x, y, rows, xs, ys, pairs, cos, sin)
    else:
        _split_rows(storage, x, y, rows, xs, ys, pairs, cos, sin)
    rotated, width = 2 * pairs * itemsize(storage), field(record, WIDTH)
    if rotated < width and not field(record, IN_PLACE):
        for row in range(rows):
            copy_bytes(y + row * ys + rotated, x + row * xs + rotated, width - rotated)


@njit
def _tile(storage, record, x, y, heads, tokens, xh, xt, yh, yt, cos, sin, pitch):
    """Rotate ``heads`` x ``tokens`` rows, the nearer axis inside."""
    if abs(xh) <= abs(xt):
        for token in range(tokens):
            for head in range(0, heads, GROUP):
                rows = min(GROUP, heads - head)
                at, to = x + token * xt + head * xh, y + token * yt + head * yh
                _rows(storage, record, at, to, rows, xh, yh, cos + token * pitch, sin + token * pitch)
    else:
        for head in range(0, heads, GROUP):
            rows = min(GROUP, heads - head)
            for token in range(tokens):
                at, to = x + token * xt + head * xh, y + token * yt + head * yh
                _rows(storage, record, at, to, rows, xh, yh, cos + token * pitch, sin + token * pitch)


@njit
def _stream_rows(target, source, rows, stride, width):
    if stride == width:
        stream_bytes(target, source, rows * width)
    else:
        for row in range(rows):
            stream_bytes(target + row * stride, source + row * width, width)


@njit
def _streamed_tiles(storage, record, x, y, heads, tokens, xh, xt, yh, yt, cos, sin, pitch, stage):
    width = field(record, WIDTH)
    room = max(GROUP, STAGE_BYTES // width)
    if abs(yh) <= abs(yt):
        some_heads, some_tokens = min(heads, room), 1
    else:
        some_heads, some_tokens = min(heads, GROUP), max(1, min(8, room // GROUP))
    for head in range(0, heads, some_heads):
        h = min(some_heads, heads - head)
        for token in range(0, tokens, some_tokens):
            t = min(some_tokens, tokens - token)
            at, to = x + token * xt + head * xh, y + token * yt + head * yh
            if some_tokens == 1:
                _tile(storage, record, at, stage, h, t, xh, xt, width, h * width, cos + token * pitch, sin + token * pitch, pitch)
                _stream_rows(to, stage, h, yh, width)
            else:
                _tile(storage, record, at, stage, h, t, xh, xt, t * width, width, cos + token * pitch, sin + token * pitch, pitch)
                for row in range(h):
                    _stream_rows(to + row * yh, stage + row * t * width, t, yt, width)


@njit
def _block(storage, record, array_in, array_out, pair, batch, token, count, cos, sin, pitch, stage):
    """Rotate the tokens ``token .. token + count`` of one batch row of one array."""
    source, target = operand_of(record, pair, 0), operand_of(record, pair, 1)
    xt, xh, yt, yh = (
        field(source, STRIDE_T),
        field(source, STRIDE_H),
        field(target, STRIDE_T),
        field(target, STRIDE_H),
    )
    x = data_address(record, array_in) + batch * field(source, STRIDE_B) + token * xt
    y = data_address(record, array_out) + batch * field(target, STRIDE_B) + token * yt
    heads = field(source, HEADS)
    if field(record, STREAM):
        _streamed_tiles(storage, record, x, y, heads, count, xh, xt, yh, yt, cos, sin, pitch, stage)
    else:
        _tile(storage, record, x, y, heads, count, xh, xt, yh, yt, cos, sin, pitch)


@njit
def _rotate(storage, record, x0, y0, x1, y1, where, starts, counter, checked):
    if checked != CHECKED:
        status = check(record, x0, y0, x1, y1)
        if status != DONE or checked == CHECK_ONLY:
            return status
    cos, sin, stage = stack(TABLE_BYTES), stack(TABLE_BYTES), stack(STAGE_BYTES)
    positions = stack(POSITION_BYTES)
    step = 2 * lanes(storage)
    pitch = (field(record, PAIRS) + step - 1) // step * step * itemsize(computed(storage))
    block, tokens, grab = field(record, BLOCK), field(record, TOKENS), field(record, GRAB)
    blocks = (tokens + block - 1) // block
    units = field(record, BATCH) * blocks
    if not counter:
        grab = units
    first = fetch_add(counter, grab) if counter else 0
    while first < units:
        for unit in range(first, min(first + grab, units)):
            batch, token = unit // blocks, unit % blocks * block
            count = min(block, tokens - token)
            fill_positions(record, where, starts, batch, token, count, positions)
            _fill_table(storage, record, positions, count, cos, sin, pitch)
            _block(storage, record, x0, y0, 0, batch, token, count, cos, sin, pitch, stage)
            if field(record, ARRAYS) == 2:
                _block(storage, record, x1, y1, 1, batch, token, count, cos, sin, pitch, stage)
        first = fetch_add(counter, grab) if counter else units
    if field(record, STREAM):
        stream_fence()
    return DONE


def _entry(storage, fingerprint):
    def rotate(record, x0, y0, x1, y1, where, starts, counter, checked):
        return _rotate(storage, record, x0, y0, x1, y1, where, starts, counter, checked)

    return rotate


@cache
def kernel(dtype: str):
    """The compiled kernel for arrays of ``dtype``: record, inputs and outputs, where tokens stand, work counter."""
    return compile_entry(_entry(STORAGES[dtype], FINGERPRINT), 9)
