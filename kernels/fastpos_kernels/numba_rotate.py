"""Rotary kernel: sines and cosines of a block of tokens once, into level-1 cache, then every head of q and k past them.

Read and written: each element of each input once. Large results are streamed past the caches, which spares reading their
memory first (4096 tokens float32: 1.2 -> 0.65); then rows go one by one, for streamed lines of more than two rows at once
are torn apart (8 to 16 copies).
"""

from functools import cache

from numba import njit

from .numba_bytes import fetch_add, stack, stream_fence
from .numba_form import EXACT, SPLIT, Form, by_form
from .numba_jit import compile_entry
from .numba_lanes import STORAGES, computed, itemsize
from .numba_positions import PLACE_BYTES, POSITION_BYTES, fill_coordinates, fill_positions
from .numba_record import (
    ARRAYS,
    BATCH,
    BLOCK,
    CHECK_ONLY,
    CHECKED,
    COMPARE,
    GRAB,
    HEADS,
    LEAD,
    PADDED,
    PAIRS,
    STRIDE_B,
    STRIDE_H,
    STRIDE_T,
    TOKENS,
    check,
    data_address,
    field,
    operand_of,
)
from .numba_rows import GROUP, rotate_rows, split_group
from .numba_scale import carry_over, scale_table
from .numba_table import fill_table
from .rules import DONE

# A row of the widest head (8192 channels) in float64; both tables fit a thread's stack of 128 KiB.
TABLE_BYTES = 32768


def _place_whole(form, record, where, starts, batch, first, count, out):
    fill_positions(record, where, starts, batch, first, count, out)


def _place_axes(form, record, where, starts, batch, first, count, out):
    fill_coordinates(record, where, starts, batch, first, count, out)


place_tokens = by_form(lambda form: _place_whole if form.clock == EXACT else _place_axes)


@njit
def _tile(form, storage, streamed, record, scales, x, y, heads, tokens, xh, xt, yh, yt, cos, sin, pitch):
    """Rotate ``heads`` x ``tokens`` rows, the nearer axis inside, and carry over channels that no rotation touches."""
    lead = field(record, LEAD)
    if pitch:
        _turn_tile(form, storage, streamed, record, x + lead, y + lead, heads, tokens, xh, xt, yh, yt, cos, sin, pitch)
    carry_over(form, storage, record, scales, x, y, heads, tokens, xh, xt, yh, yt)


def _turn_tile_in_groups(form, storage, streamed, record, x, y, heads, tokens, xh, xt, yh, yt, cos, sin, pitch):
    if abs(xh) <= abs(xt):
        for token in range(tokens):
            c, s = cos + token * pitch, sin + token * pitch
            rotate_rows(form, storage, streamed, record, x + token * xt, y + token * yt, heads, xh, yh, c, s, 0)
    else:
        head, pairs = 0, field(record, PAIRS)
        while not streamed and head + GROUP <= heads:
            for token in range(tokens):
                at, to = x + head * xh + token * xt, y + head * yh + token * yt
                split_group(form, storage, at, to, xh, yh, pairs, cos + token * pitch, sin + token * pitch)
            head += GROUP
        while head < heads:
            at, to = x + head * xh, y + head * yh
            rotate_rows(form, storage, streamed, record, at, to, tokens, xt, yt, cos, sin, pitch)
            head += 1


def _turn_tile_by_rows(form, storage, streamed, record, x, y, heads, tokens, xh, xt, yh, yt, cos, sin, pitch):
    if abs(xh) <= abs(xt):
        for token in range(tokens):
            c, s = cos + token * pitch, sin + token * pitch
            rotate_rows(form, storage, streamed, record, x + token * xt, y + token * yt, heads, xh, yh, c, s, 0)
    else:
        for head in range(heads):
            at, to = x + head * xh, y + head * yh
            rotate_rows(form, storage, streamed, record, at, to, tokens, xt, yt, cos, sin, pitch)


_turn_tile = by_form(lambda form: _turn_tile_in_groups if form.pairing == SPLIT else _turn_tile_by_rows)


@njit
def _block(form, storage, streamed, record, scales, array_in, array_out, pair, batch, token, count, cos, sin, pitch):
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
    _tile(form, storage, streamed, record, scales, x, y, heads, count, xh, xt, yh, yt, cos, sin, pitch)


@njit
def _rotate(form, storage, streamed, record, x0, y0, x1, y1, where, starts, counter, checked):
    if checked != CHECKED:
        status = check(record, x0, y0, x1, y1, checked == COMPARE)
        if status != DONE or checked == CHECK_ONLY:
            return status
    cos, sin = stack(TABLE_BYTES), stack(TABLE_BYTES)
    positions, scales = stack(PLACE_BYTES), stack(POSITION_BYTES)
    pitch = field(record, PADDED) * itemsize(computed(storage))
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
            place_tokens(form, record, where, starts, batch, token, count, positions)
            fill_table(form, storage, record, positions, count, cos, sin, pitch)
            # Keys first: what scales queries is multiplied into the table afterwards.
            if field(record, ARRAYS) == 2:
                _block(form, storage, streamed, record, 0, x1, y1, 1, batch, token, count, cos, sin, pitch)
            scale = scale_table(form, storage, record, positions, count, cos, sin, pitch, scales)
            _block(form, storage, streamed, record, scale, x0, y0, 0, batch, token, count, cos, sin, pitch)
        first = fetch_add(counter, grab) if counter else units
    if streamed:
        stream_fence()
    return DONE


def _entry(form, storage, streamed):
    def rotate(record, x0, y0, x1, y1, where, starts, counter, checked):
        return _rotate(form, storage, streamed, record, x0, y0, x1, y1, where, starts, counter, checked)

    return rotate


@cache
def kernel(dtype: str, form: Form, streamed: bool):
    """The compiled kernel: record, inputs and outputs, where tokens stand, work counter, what to check.

    A streamed one needs outputs whose rows, and what each row stores in one run, begin at multiples of 16 bytes.
    """
    return compile_entry(_entry(form, STORAGES[dtype], streamed), 9)
