"""Rotary kernel: sines and cosines of a block of tokens once, in registers, then the heads of q and k past them.

Read and written: each element of each input once, in accesses of 16 bytes wherever strides allow. One launch serves two
inputs: a scalar branch picks pointers and strides (a ``where`` on pointers would take 16-byte accesses apart). The next
head is loaded before the last one is stored, for no load is moved above a store: twice as many bytes are under way.
Shapes: rows are (batch, token) pairs, counted through; a tile is (rows, heads, pairs). What only some encodings have is a
compile-time value, so that the common form's machine code has nothing of it.
"""

import triton
import triton.language as tl

from .triton_clock import load_rates, load_rows, phase_of, sincos, sincos_single
from .triton_jit import entry
from .triton_positions import IDS, positions_of, rows_of_ids
from .triton_scale import carry, query_scale


@triton.jit
def _load(x, pairs: tl.constexpr, interleaved: tl.constexpr, shape: tl.constexpr, mask, computed: tl.constexpr):
    """First and second channels of a tile of pairs, in the type that is computed in."""
    if interleaved:
        both = tl.load(x, mask=mask).to(computed)
        a, b = tl.split(tl.reshape(both, (shape[0], shape[1], shape[2], 2)))
    else:
        a = tl.load(x, mask=mask).to(computed)
        b = tl.load(x + pairs, mask=mask).to(computed)
    return a, b


@triton.jit
def _store(y, pairs: tl.constexpr, interleaved: tl.constexpr, shape: tl.constexpr, mask, a, b):
    kind: tl.constexpr = y.dtype.scalar.element_ty
    if interleaved:
        both = tl.reshape(tl.join(a, b), (shape[0], shape[1], 2 * shape[2]))
        tl.store(y, both.to(kind), mask=mask)
    else:
        tl.store(y, a.to(kind), mask=mask)
        tl.store(y + pairs, b.to(kind), mask=mask)


@triton.jit
def _turn(a, b, sine, cosine, kind: tl.constexpr, rounded: tl.constexpr):
    """A pair turned: rounded once, at the store; or every product and sum rounded to ``kind``."""
    if rounded:
        first = (a * cosine).to(kind).to(a.dtype) - (b * sine).to(kind).to(a.dtype)
        second = (b * cosine).to(kind).to(a.dtype) + (a * sine).to(kind).to(a.dtype)
    else:
        first, second = tl.fma(a, cosine, b * sine * -1.0), tl.fma(b, cosine, a * sine)
    return first, second


@entry
def rotate(
    x0,
    y0,
    x1,
    y1,
    rates,
    where,
    starts,
    start: tl.int64,
    documents: tl.int32,
    rows: tl.int32,
    tokens: tl.int32,
    ids_batch: tl.int64,
    ids_token: tl.int64,
    ids_axis: tl.int64,
    x0_batch: tl.int64,
    x0_token: tl.int64,
    x0_head: tl.int64,
    y0_batch: tl.int64,
    y0_token: tl.int64,
    y0_head: tl.int64,
    x1_batch: tl.int64,
    x1_token: tl.int64,
    x1_head: tl.int64,
    y1_batch: tl.int64,
    y1_token: tl.int64,
    y1_head: tl.int64,
    rule: tl.constexpr,
    started: tl.constexpr,
    axes: tl.constexpr,
    interleaved: tl.constexpr,
    deinterleaved: tl.constexpr,
    rounded: tl.constexpr,
    scaled: tl.constexpr,
    width: tl.constexpr,
    lead: tl.constexpr,
    pairs: tl.constexpr,
    before: tl.constexpr,
    after: tl.constexpr,
    factor: tl.constexpr,
    heads0: tl.constexpr,
    heads1: tl.constexpr,
    unit: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_heads: tl.constexpr,
    tile_pairs: tl.constexpr,
    steps: tl.constexpr,
    groups0: tl.constexpr,
    groups1: tl.constexpr,
    blocks: tl.constexpr,
):
    """Rotate ``x0`` into ``y0`` and ``x1`` into ``y1``, which have ``heads1`` heads (none: they are not there).

    Array strides are in units of ``unit`` elements, so that the compiler knows what divides them; those of ids are in
    elements. ``groups`` programs with ``steps`` times ``tile_heads`` heads each share a block of rows, and ``blocks``
    programs share a row's pairs. The pairs' channels begin at ``lead``; those below ``before`` and from ``after`` on pass.

    ``axes``: whether ids have several, one of which drives each pair. ``deinterleaved``: pairs are written to (i, i +
    pairs); one program then has a whole row. ``rounded``: as transformers rounds. ``scaled``: 1 where the first input is
    scaled by its positions, 2 where the scale is rounded to the data's type.
    """
    wide: tl.constexpr = x0.dtype.element_ty == tl.float64
    computed: tl.constexpr = tl.float64 if wide else tl.float32
    program = tl.program_id(0)
    block = program % blocks
    group = program // blocks % (groups0 + groups1)
    counted = program // (blocks * (groups0 + groups1)) * tile_rows + tl.arange(0, tile_rows)
    row = tl.minimum(counted, rows - 1)
    batch = (row.to(tl.uint32) // tokens.to(tl.uint32)).to(tl.int32)
    token = row - batch * tokens
    inside = counted < rows
    position = positions_of(rule, started, where, starts, start, documents, ids_batch, ids_token, batch, token, inside)

    span: tl.constexpr = 2 * tile_pairs if interleaved else tile_pairs
    limit: tl.constexpr = 2 * pairs if interleaved else pairs
    channel = (block * span + tl.arange(0, span))[None, None, :]
    every = tl.broadcast_to(channel, (tile_rows, 1, span))
    joined: tl.constexpr = (tile_rows, 1, tile_pairs, 2)
    kind: tl.constexpr = y0.dtype.element_ty
    real: tl.constexpr = started and rule == IDS
    whole_position = position[:, None, None]
    if axes or real:
        axis, bits = load_rows(rates + 2 * pairs, every, pairs, interleaved, joined)
        at = rows_of_ids(ids_batch, ids_token, batch, token)[:, None, None]
    if axes:
        at += axis * ids_axis
        whole_position = tl.load(where + at, mask=inside[:, None, None], other=0).to(tl.int64)
    if real:
        fraction = tl.load(starts + at, mask=inside[:, None, None], other=0)
    if rounded:
        single, _ = load_rows(rates, every, pairs, interleaved, joined)
        place = whole_position.to(tl.float64)
        if real:
            place += fraction
        sine, cosine = sincos_single(place.to(tl.float32), single.to(tl.int32).to(tl.float32, bitcast=True))
        sine, cosine = (sine * factor).to(kind).to(computed), (cosine * factor).to(kind).to(computed)
    else:
        word, residual = load_rates(rates, every, pairs, interleaved, joined, wide)
        phase = whole_position * word
        if real:
            phase += phase_of(fraction, bits.to(tl.float64, bitcast=True))
        sine, cosine = sincos(phase, whole_position, residual, False)
        if factor != 1.0:
            sine, cosine = sine * factor, cosine * factor
    scale = tl.full((1, 1, 1), 1.0, computed)
    if scaled:
        scale = query_scale(position, rates + 4 * pairs, rounded).to(computed)[:, None, None]
        if scaled == 2:
            scale = scale.to(kind).to(computed)
        if group >= groups0:
            scale = tl.full(scale.shape, 1.0, computed)
        if not rounded:
            sine, cosine = sine * scale, cosine * scale

    if group < groups0:
        x, x_batch, x_token, x_head = x0, x0_batch, x0_token, x0_head
        y, y_batch, y_token, y_head = y0, y0_batch, y0_token, y0_head
        heads, first = heads0, group * (steps * tile_heads)
    else:
        x, x_batch, x_token, x_head = x1, x1_batch, x1_token, x1_head
        y, y_batch, y_token, y_head = y1, y1_batch, y1_token, y1_head
        heads, first = heads1, (group - groups0) * (steps * tile_heads)
    head = (first + tl.arange(0, tile_heads))[None, :, None]
    shape: tl.constexpr = (tile_rows, tile_heads, tile_pairs)
    x_row = (batch.to(tl.int64) * x_batch + token.to(tl.int64) * x_token)[:, None, None] + head.to(tl.int64) * x_head
    y_row = (batch.to(tl.int64) * y_batch + token.to(tl.int64) * y_token)[:, None, None] + head.to(tl.int64) * y_head
    x_step, y_step = x_head * (tile_heads * unit), y_head * (tile_heads * unit)
    source, target = x + (x_row * unit + (lead + channel)), y + (y_row * unit + (lead + channel))
    there = inside[:, None, None] & (channel < limit)
    if deinterleaved:
        pair = tl.arange(0, tile_pairs)[None, None, :]
        target = y + (y_row * unit + (lead + pair))
        written = inside[:, None, None] & (pair < pairs)
    whole: tl.constexpr = heads0 % (steps * tile_heads) == 0 and heads1 % (steps * tile_heads) == 0
    mask = there if whole else there & (head < heads)
    exact: tl.constexpr = whole and pairs % tile_pairs == 0
    if pairs:
        a, b = _load(source, pairs, interleaved, shape, mask if not exact else None, computed)
        for step in tl.static_range(steps):
            store_mask = mask
            if step + 1 < steps:
                source += x_step
                mask = there if whole else there & (head + (step + 1) * tile_heads < heads)
                next_a, next_b = _load(source, pairs, interleaved, shape, mask if not exact else None, computed)
            turned_a, turned_b = _turn(a, b, sine, cosine, kind, rounded)
            if rounded and scaled:
                turned_a, turned_b = turned_a.to(kind).to(computed) * scale, turned_b.to(kind).to(computed) * scale
            if deinterleaved:
                store_mask = written & (head + step * tile_heads < heads)
                # The row may lie where it is read, and other threads have read the rest of it.
                tl.debug_barrier()
                _store(target, pairs, False, shape, store_mask, turned_a, turned_b)
            else:
                _store(target, pairs, interleaved, shape, store_mask, turned_a, turned_b)
            if step + 1 < steps:
                target += y_step
                a, b = next_a, next_b

    if before > 0 or after < width:
        x_row, y_row, filled = x_row * unit, y_row * unit, inside[:, None, None]
        if block == blocks - 1:
            # fmt: off
            if scaled and group < groups0:
                carry(
                    x, y, x_row, y_row, x_step, y_step, filled, head, heads,
                    before, after, width, span, tile_heads, steps, scale, True,
                )
            else:
                carry(
                    x, y, x_row, y_row, x_step, y_step, filled, head, heads,
                    before, after, width, span, tile_heads, steps, scale, False,
                )
            # fmt: on
