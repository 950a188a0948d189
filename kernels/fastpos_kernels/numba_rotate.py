"""Rotary kernel: sines and cosines of a block of tokens once, into level-1 cache, then every head of q and k past them.

Read and written: each element of each input once. Loads stand before stores inside a row's step, so the same code serves
in place and out of place. Heads of 128 channels keep cosines and sines in registers over all heads of a token (512
tokens float32 in place: 0.87 copies -> 0.65). With heads before tokens, where the table's rows come from level-2 cache,
four heads share each load (4096 tokens float32: 1.0 -> 0.7). Large results are streamed past the caches, which spares
reading their memory first (4096 tokens float32: 1.2 -> 0.65); then rows go one by one, for streamed lines of more than
two rows at once are torn apart (8 to 16 copies).
"""

from functools import cache

from numba import njit

from .numba_bytes import copy_bytes, fetch_add, read_float, stack, stream_fence
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
    ARRAYS,
    BATCH,
    BLOCK,
    CHECK_ONLY,
    CHECKED,
    COMPARE,
    FACTOR,
    GRAB,
    HEADS,
    IN_PLACE,
    PAIRS,
    RESIDUALS,
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

# A row of the widest head (8192 channels) in float64; both tables fit a thread's stack of 128 KiB.
TABLE_BYTES = 32768
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
def _split_step(storage, streamed, x, y, half, c0, c1, s0, s1):
    a0, a1 = load_two(storage, x)
    b0, b1 = load_two(storage, x + half)
    p0, q0 = _turn(a0, b0, c0, s0)
    p1, q1 = _turn(a1, b1, c1, s1)
    store_two(storage, streamed, y, p0, p1)
    store_two(storage, streamed, y + half, q0, q1)


@njit
def _split_tail(storage, x, y, half, cos, sin, count):
    vector = lanes(storage) * itemsize(computed(storage))
    a0, a1 = load_two_part(storage, x, count)
    b0, b1 = load_two_part(storage, x + half, count)
    p0, q0 = _turn(a0, b0, load_computed(storage, cos), load_computed(storage, sin))
    p1, q1 = _turn(a1, b1, load_computed(storage, cos + vector), load_computed(storage, sin + vector))
    store_two_part(storage, y, p0, p1, count)
    store_two_part(storage, y + half, q0, q1, count)


@njit
def _split_row(storage, streamed, x, y, pairs, cos, sin):
    """Rotate pairs (i, i + pairs) of one row."""
    size, step = itemsize(storage), 2 * lanes(storage)
    vector = lanes(storage) * itemsize(computed(storage))
    half, whole, at = pairs * size, pairs // step * step, 0
    for pair in range(0, whole, step):
        c0, c1 = load_computed(storage, cos + at), load_computed(storage, cos + at + vector)
        s0, s1 = load_computed(storage, sin + at), load_computed(storage, sin + at + vector)
        _split_step(storage, streamed, x + pair * size, y + pair * size, half, c0, c1, s0, s1)
        at += 2 * vector
    if whole < pairs:
        _split_tail(storage, x + whole * size, y + whole * size, half, cos + at, sin + at, pairs - whole)


@njit
def _split_group(storage, x, y, xs, ys, pairs, cos, sin):
    """Rotate pairs (i, i + pairs) of GROUP rows that share their position and the loads of its cosines and sines."""
    size, step = itemsize(storage), 2 * lanes(storage)
    vector = lanes(storage) * itemsize(computed(storage))
    half, whole, at = pairs * size, pairs // step * step, 0
    for pair in range(0, whole, step):
        c0, c1 = load_computed(storage, cos + at), load_computed(storage, cos + at + vector)
        s0, s1 = load_computed(storage, sin + at), load_computed(storage, sin + at + vector)
        i = pair * size
        _split_step(storage, False, x + i, y + i, half, c0, c1, s0, s1)
        _split_step(storage, False, x + xs + i, y + ys + i, half, c0, c1, s0, s1)
        _split_step(storage, False, x + 2 * xs + i, y + 2 * ys + i, half, c0, c1, s0, s1)
        _split_step(storage, False, x + 3 * xs + i, y + 3 * ys + i, half, c0, c1, s0, s1)
        at += 2 * vector
    if whole < pairs:
        i = whole * size
        for row in range(GROUP):
            _split_tail(storage, x + row * xs + i, y + row * ys + i, half, cos + at, sin + at, pairs - whole)


@njit
def _pairs_row(storage, streamed, x, y, pairs, cos, sin):
    """Rotate pairs (2i, 2i + 1) of one row."""
    size, step = itemsize(storage), lanes(storage)
    whole, at = pairs // step * step, 0
    for pair in range(0, whole, step):
        a, b = load_pairs(storage, x + 2 * pair * size)
        p, q = _turn(a, b, load_computed(storage, cos + at), load_computed(storage, sin + at))
        store_pairs(storage, streamed, y + 2 * pair * size, p, q)
        at += step * itemsize(computed(storage))
    if whole < pairs:
        i, count = 2 * whole * size, 2 * (pairs - whole)
        a, b = load_pairs_part(storage, x + i, count)
        p, q = _turn(a, b, load_computed(storage, cos + at), load_computed(storage, sin + at))
        store_pairs_part(storage, y + i, p, q, count)


@njit
def _rotated(storage, interleaved, streamed, x, y, half, i, c0, c1, s0, s1):
    """Two vectors of pairs, half-split from the i-th pair on or interleaved from the 2 i-th channel on."""
    size = itemsize(storage)
    if interleaved:
        x, y, next_to = x + 2 * i * size, y + 2 * i * size, 2 * lanes(storage) * size
        a, b = load_pairs(storage, x)
        p, q = _turn(a, b, c0, s0)
        store_pairs(storage, streamed, y, p, q)
        a, b = load_pairs(storage, x + next_to)
        p, q = _turn(a, b, c1, s1)
        store_pairs(storage, streamed, y + next_to, p, q)
    else:
        _split_step(storage, streamed, x + i * size, y + i * size, half, c0, c1, s0, s1)


@njit
def _fixed_rows(storage, interleaved, streamed, x, y, count, xs, ys, cos, sin):
    """Rotate ``count`` rows of one position and 4 vectors of pairs (128 channels), cosines and sines in registers."""
    vector = lanes(storage) * itemsize(computed(storage))
    half, step = 4 * lanes(storage) * itemsize(storage), 2 * lanes(storage)
    c0, c1 = load_computed(storage, cos), load_computed(storage, cos + vector)
    c2, c3 = load_computed(storage, cos + 2 * vector), load_computed(storage, cos + 3 * vector)
    s0, s1 = load_computed(storage, sin), load_computed(storage, sin + vector)
    s2, s3 = load_computed(storage, sin + 2 * vector), load_computed(storage, sin + 3 * vector)
    for row in range(count):
        at, to = x + row * xs, y + row * ys
        _rotated(storage, interleaved, streamed, at, to, half, 0, c0, c1, s0, s1)
        _rotated(storage, interleaved, streamed, at, to, half, step, c2, c3, s2, s3)


@njit
def _rows(storage, interleaved, streamed, x, y, count, xs, ys, pairs, cos, sin, pitch):
    """Rotate ``count`` rows, ``pitch`` bytes of the table apart."""
    if pitch == 0 and pairs == 4 * lanes(storage):
        _fixed_rows(storage, interleaved, streamed, x, y, count, xs, ys, cos, sin)
        return
    for row in range(count):
        at, to, c, s = x + row * xs, y + row * ys, cos + row * pitch, sin + row * pitch
        if interleaved:
            _pairs_row(storage, streamed, at, to, pairs, c, s)
        else:
            _split_row(storage, streamed, at, to, pairs, c, s)


@njit
def _tile(storage, interleaved, streamed, record, x, y, heads, tokens, xh, xt, yh, yt, cos, sin, pitch):
    """Rotate ``heads`` x ``tokens`` rows, the nearer axis inside, and carry over channels that no rotation touches."""
    pairs = field(record, PAIRS)
    if abs(xh) <= abs(xt):
        for token in range(tokens):
            c, s = cos + token * pitch, sin + token * pitch
            _rows(storage, interleaved, streamed, x + token * xt, y + token * yt, heads, xh, yh, pairs, c, s, 0)
    else:
        head = 0
        while not streamed and not interleaved and head + GROUP <= heads:
            for token in range(tokens):
                at, to = x + head * xh + token * xt, y + head * yh + token * yt
                _split_group(storage, at, to, xh, yh, pairs, cos + token * pitch, sin + token * pitch)
            head += GROUP
        while head < heads:
            at, to = x + head * xh, y + head * yh
            _rows(storage, interleaved, streamed, at, to, tokens, xt, yt, pairs, cos, sin, pitch)
            head += 1
    rotated = 2 * pairs * itemsize(storage)
    rest = 0 if field(record, IN_PLACE) else field(record, WIDTH) - rotated
    if rest:
        for token in range(tokens):
            for head in range(heads):
                at, to = x + token * xt + head * xh, y + token * yt + head * yh
                copy_bytes(to + rotated, at + rotated, rest)


@njit
def _block(storage, interleaved, streamed, record, array_in, array_out, pair, batch, token, count, cos, sin, pitch):
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
    _tile(storage, interleaved, streamed, record, x, y, heads, count, xh, xt, yh, yt, cos, sin, pitch)


@njit
def _rotate(storage, interleaved, streamed, record, x0, y0, x1, y1, where, starts, counter, checked):
    if checked != CHECKED:
        status = check(record, x0, y0, x1, y1, checked == COMPARE)
        if status != DONE or checked == CHECK_ONLY:
            return status
    cos, sin = stack(TABLE_BYTES), stack(TABLE_BYTES)
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
            _block(storage, interleaved, streamed, record, x0, y0, 0, batch, token, count, cos, sin, pitch)
            if field(record, ARRAYS) == 2:
                _block(storage, interleaved, streamed, record, x1, y1, 1, batch, token, count, cos, sin, pitch)
        first = fetch_add(counter, grab) if counter else units
    if streamed:
        stream_fence()
    return DONE


def _entry(storage, interleaved, streamed):
    def rotate(record, x0, y0, x1, y1, where, starts, counter, checked):
        return _rotate(storage, interleaved, streamed, record, x0, y0, x1, y1, where, starts, counter, checked)

    return rotate


@cache
def kernel(dtype: str, interleaved: bool, streamed: bool):
    """The compiled kernel: record, inputs and outputs, where tokens stand, work counter, what to check.

    A streamed one needs outputs whose rows and halves of rows begin at multiples of 16 bytes.
    """
    return compile_entry(_entry(STORAGES[dtype], interleaved, streamed), 9)
