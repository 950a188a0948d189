"""Additive kernels: ``y = x * scale + encoding``, with sinusoids made on the fly or rows of a learned table.

Read and written: each element of x once. Shapes: rows are (batch, token) pairs, counted through; a tile is (rows, pairs)
or (rows, channels). Array strides are in units of ``unit`` elements, so that the compiler knows what divides them.
"""

import triton
import triton.language as tl

from .triton_clock import load_rates, load_rows, phase_of, sincos
from .triton_jit import entry
from .triton_positions import IDS, positions_of, rows_of_ids


@triton.jit
def _place(first, count: tl.constexpr, rows, tokens):
    """Batch row and token of some rows, and which of them are there."""
    row = first + tl.arange(0, count)
    batch = row // tokens
    return batch, row - batch * tokens, row < rows


@triton.jit
def _row_of(batch, token, batch_stride, token_stride, unit: tl.constexpr):
    return (batch.to(tl.int64) * batch_stride + token.to(tl.int64) * token_stride)[:, None] * unit


@entry
def add_sinusoid(
    x,
    y,
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
    x_batch: tl.int64,
    x_token: tl.int64,
    y_batch: tl.int64,
    y_token: tl.int64,
    rule: tl.constexpr,
    started: tl.constexpr,
    axes: tl.constexpr,
    interleaved: tl.constexpr,
    pairs: tl.constexpr,
    cosines: tl.constexpr,
    zeros: tl.constexpr,
    cosine_first: tl.constexpr,
    padding: tl.constexpr,
    factor: tl.constexpr,
    scale: tl.constexpr,
    unit: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_pairs: tl.constexpr,
    steps: tl.constexpr,
    blocks: tl.constexpr,
    alike: tl.constexpr,
    hardware: tl.constexpr,
):
    """Add sinusoids; ``blocks`` programs share a row, and each passes ``steps`` tiles of rows by the same pairs.

    ``pairs`` sines and ``cosines`` cosines, times ``factor``, then one channel without, or none (``zeros``); ``padding``: the position
    whose row is all zeros, or None.
    """
    wide: tl.constexpr = x.dtype.element_ty == tl.float64
    computed: tl.constexpr = tl.float64 if wide else tl.float32
    kind: tl.constexpr = y.dtype.element_ty
    program = tl.program_id(0)
    block = program % blocks
    span: tl.constexpr = 2 * tile_pairs if interleaved else tile_pairs
    limit: tl.constexpr = pairs + cosines if interleaved else pairs
    real: tl.constexpr = started and rule == IDS
    sine_at: tl.constexpr = cosines if cosine_first else 0
    cosine_at: tl.constexpr = 0 if cosine_first else pairs
    channel = (block * span + tl.arange(0, span))[None, :]
    every = tl.broadcast_to(channel, (tile_rows, span))
    shape: tl.constexpr = (tile_rows, tile_pairs, 2)
    word, residual = load_rates(rates, every, pairs, interleaved, shape, wide)
    if real:
        _, bits = load_rows(rates + 2 * pairs, every, pairs, interleaved, shape)
        turns = bits.to(tl.float64, bitcast=True)
    times = tl.full((1, 1), scale, computed)
    row = program // blocks * (steps * tile_rows) + tl.arange(0, tile_rows) * steps
    batch = (row.to(tl.uint32) // tokens.to(tl.uint32)).to(tl.int32)
    token = row - batch * tokens
    at = batch.to(tl.int64) * x_batch + token.to(tl.int64) * x_token
    x_turn = x_batch - (tokens - 1) * x_token
    if not alike:
        to = batch.to(tl.int64) * y_batch + token.to(tl.int64) * y_token
        y_turn = y_batch - (tokens - 1) * y_token
    for step in tl.static_range(steps):
        inside = row + step < rows
        position = positions_of(
            rule, started, where, starts, start, documents, ids_batch, ids_token, batch, token, inside
        )
        phase = position[:, None] * word
        if real:
            there = rows_of_ids(ids_batch, ids_token, batch, token)
            fraction = tl.load(starts + there, mask=inside, other=0)
            phase += phase_of(fraction[:, None], turns)
        sine, cosine = sincos(phase, position[:, None], residual, hardware)
        if padding is not None:
            strength = tl.where(position == padding, tl.full((tile_rows,), 0.0, computed), factor)[:, None]
            sine, cosine = sine * strength, cosine * strength
        elif factor != 1.0:
            sine, cosine = sine * factor, cosine * factor
        mask = inside[:, None] & (channel < limit)
        source = x + (at[:, None] * unit + channel)
        target = y + ((at if alike else to)[:, None] * unit + channel)
        if interleaved:
            wave = tl.reshape(tl.join(sine, cosine), (tile_rows, span))
            value = tl.load(source, mask=mask).to(computed)
            tl.store(target, tl.fma(value, times, wave).to(kind), mask=mask)
        else:
            fewer = mask if cosines == pairs else inside[:, None] & (channel < cosines)
            a = tl.load(source + sine_at, mask=mask).to(computed)
            b = tl.load(source + cosine_at, mask=fewer).to(computed)
            tl.store(target + sine_at, tl.fma(a, times, sine).to(kind), mask=mask)
            tl.store(target + cosine_at, tl.fma(b, times, cosine).to(kind), mask=fewer)
        if zeros > 0 and block == blocks - 1:
            rest = tl.load(x + (at * unit + (pairs + cosines)), mask=inside).to(computed)
            last = tl.fma(rest, tl.full((1,), scale, computed), tl.full((1,), 0.0, computed))
            tl.store(y + ((at if alike else to) * unit + (pairs + cosines)), last.to(kind), mask=inside)
        if step + 1 < steps:
            turned = token + 1 == tokens
            token = tl.where(turned, 0, token + 1)
            batch += turned.to(tl.int32)
            at += tl.where(turned, x_turn, x_token)
            if not alike:
                to += tl.where(turned, y_turn, y_token)


@entry
def add_learned(
    x,
    y,
    table,
    where,
    starts,
    start: tl.int64,
    documents: tl.int32,
    rows: tl.int32,
    tokens: tl.int32,
    ids_batch: tl.int64,
    ids_token: tl.int64,
    ids_axis: tl.int64,
    x_batch: tl.int64,
    x_token: tl.int64,
    y_batch: tl.int64,
    y_token: tl.int64,
    table_row: tl.int64,
    table_rows: tl.int64,
    offset: tl.int64,
    rule: tl.constexpr,
    started: tl.constexpr,
    axes: tl.constexpr,
    width: tl.constexpr,
    unit: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
    blocks: tl.constexpr,
    computed: tl.constexpr,
):
    """Add rows ``position + offset`` of ``table``; a position without a row of its own gives NaN, and nothing is read."""
    program = tl.program_id(0)
    block = program % blocks
    batch, token, inside = _place(program // blocks * tile_rows, tile_rows, rows, tokens)
    position = positions_of(rule, started, where, starts, start, documents, ids_batch, ids_token, batch, token, inside)
    index = position + offset
    known = (position >= 0) & (index < table_rows)
    channel = (block * tile_channels + tl.arange(0, tile_channels))[None, :]
    mask = inside[:, None] & (channel < width)
    value = tl.load(x + (_row_of(batch, token, x_batch, x_token, unit) + channel), mask=mask).to(computed)
    at = (index * table_row)[:, None] * unit + channel
    learned = tl.load(table + at, mask=mask & known[:, None], other=0).to(computed)
    total = tl.where(known[:, None], value + learned, float("nan"))
    tl.store(y + (_row_of(batch, token, y_batch, y_token, unit) + channel), total.to(y.dtype.element_ty), mask=mask)
