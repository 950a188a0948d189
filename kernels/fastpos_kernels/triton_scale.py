"""What goes with a rotation: channels that do not turn, and queries scaled by where they stand (as ``numba_scale``)."""

import triton
import triton.language as tl


@triton.jit
def query_scale(position, terms, rounded: tl.constexpr):
    """``max(1, constant + slope * ln(1 + floor((p + offset) / length)))``, and 1 before position 0.

    In float64, or with ``rounded`` every step in float32; ``terms`` are the bits of float64 numbers.
    """
    constant = tl.load(terms).to(tl.float64, bitcast=True)
    slope = tl.load(terms + 1).to(tl.float64, bitcast=True)
    length = tl.load(terms + 2).to(tl.float64, bitcast=True)
    offset = tl.load(terms + 3).to(tl.float64, bitcast=True)
    if rounded:
        place = position.to(tl.float32) + offset.to(tl.float32)
        steps = tl.floor(tl.div_rn(place, tl.full(place.shape, 1.0, tl.float32) * length.to(tl.float32)))
        logarithm = tl.log(tl.maximum(steps + 1.0, 1.0).to(tl.float64)).to(tl.float32)
        scale = tl.maximum(constant.to(tl.float32) + slope.to(tl.float32) * logarithm, 1.0)
    else:
        steps = tl.floor((position.to(tl.float64) + offset) / length)
        scale = tl.maximum(constant + slope * tl.log(tl.maximum(steps + 1.0, 1.0)), 1.0)
    return scale


@triton.jit
def _carry(
    x,
    y,
    x_row,
    y_row,
    x_step,
    y_step,
    inside,
    head,
    heads,
    first: tl.constexpr,
    last: tl.constexpr,
    span: tl.constexpr,
    tile_heads: tl.constexpr,
    steps: tl.constexpr,
    scale,
    scaled: tl.constexpr,
):
    for at in range(first, last, span):
        channel = (at + tl.arange(0, span))[None, None, :]
        source, target = x + (x_row + channel), y + (y_row + channel)
        for step in range(steps):
            mask = inside & (channel < last) & (head + step * tile_heads < heads)
            value = tl.load(source, mask=mask)
            if scaled:
                value = (value.to(scale.dtype) * scale).to(y.dtype.element_ty)
            tl.store(target, value, mask=mask)
            source += x_step
            target += y_step


@triton.jit
def carry(
    x,
    y,
    x_row,
    y_row,
    x_step,
    y_step,
    inside,
    head,
    heads,
    before: tl.constexpr,
    after: tl.constexpr,
    width: tl.constexpr,
    span: tl.constexpr,
    tile_heads: tl.constexpr,
    steps: tl.constexpr,
    scale,
    scaled: tl.constexpr,
):
    """Copy the channels below ``before`` and from ``after`` on, which no rotation touches, bit for bit; or scale them."""
    # fmt: off
    if before > 0:
        _carry(
            x, y, x_row, y_row, x_step, y_step, inside, head, heads,
            0, before, span, tile_heads, steps, scale, scaled,
        )
    if after < width:
        _carry(
            x, y, x_row, y_row, x_step, y_step, inside, head, heads,
            after, width, span, tile_heads, steps, scale, scaled,
        )
    # fmt: on
