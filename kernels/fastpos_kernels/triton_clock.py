"""The clock in Triton: sine and cosine of ``position * frequency``, exact at any position.

The arithmetic of ``numba_clock``, operation by operation: a pair's rate is ``word`` in units of 2**-64 turn plus
``residual`` turns, and ``position * word``, which wraps, is the phase modulo one turn. Every multiply-add is written out
and the compiler may fuse no other (it would count a rest twice), so both backends round float32 alike.
"""

from math import factorial, tau

import triton
import triton.language as tl

# Coefficients in turns, lowest first: sin(2 pi x) = x * TAU + x * SINE(z), cos(2 pi x) = 1 + z * COSINE(z), z = x * x.
# float32: minimax on |x| <= 1/8 (errors 2.3e-9 and 4.1e-10); float64: the Taylor series, errors below 1e-16.
TAU_32 = tl.constexpr(6.2831854820251464844)
SINE_32 = tl.constexpr((-1.7484555314695171546e-7, -41.3416633605957, 81.5921630859375, -75.37873840332031))
COSINE_32 = tl.constexpr((-19.739208221435547, 64.93914031982422, -85.4231185913086, 58.56117630004883))
TAU_64 = tl.constexpr(tau)
SINE_64 = tl.constexpr(
    (2.4492935982947064e-16, *((-1) ** k * tau ** (2 * k + 1) / factorial(2 * k + 1) for k in range(1, 9)))
)
COSINE_64 = tl.constexpr(tuple((-1) ** k * tau ** (2 * k) / factorial(2 * k) for k in range(1, 10)))
# A radian in turns, as two numbers: the second makes up for what the first lacks.
RADIAN = tl.constexpr((0.15915494309189535, -9.839338337591243e-18))
# Added to a float64 below 2**51 it leaves no place for a fraction.
WHOLE = tl.constexpr(1.5 * 2.0**52)


@triton.jit
def _polynomial(z, coefficients: tl.constexpr, count: tl.constexpr):
    total = tl.full(z.shape, coefficients[count - 1], z.dtype)
    for index in tl.static_range(1, count):
        total = tl.fma(z, total, tl.full(z.shape, coefficients[count - 1 - index], z.dtype))
    return total


@triton.jit
def _short(phase, correction):
    """Float32: a quarter turn's rest from two 32-bit conversions, cheaper than one of 64 bits."""
    rest = phase << 2
    upper = (rest >> 32).to(tl.int32).to(tl.float32)
    lower = (rest.to(tl.uint32) >> 1).to(tl.int32).to(tl.float32)
    x = tl.fma(upper, 2.0**-34, tl.fma(lower, 2.0**-65, correction))
    z = x * x
    sine = tl.fma(x, TAU_32, x * _polynomial(z, SINE_32, 4))
    cosine = tl.fma(z, _polynomial(z, COSINE_32, 4), 1.0)
    rounded = tl.add((phase >> 32).to(tl.int32), 1 << 29, sanitize_overflow=False)
    odd = (rounded & (1 << 30)) != 0
    sine_sign = rounded & -(1 << 31)
    cosine_sign = tl.add(rounded, 1 << 30, sanitize_overflow=False) & -(1 << 31)
    turned_sine = tl.where(odd, cosine, sine).to(tl.int32, bitcast=True) ^ sine_sign
    turned_cosine = tl.where(odd, sine, cosine).to(tl.int32, bitcast=True) ^ cosine_sign
    return turned_sine.to(tl.float32, bitcast=True), turned_cosine.to(tl.float32, bitcast=True)


@triton.jit
def _turned(phase, x):
    """Float64 sine and cosine of ``x`` turns, carried into the quadrant of ``phase``."""
    z = x * x
    sine = tl.fma(x, tl.full(z.shape, TAU_64, tl.float64), x * _polynomial(z, SINE_64, 9))
    cosine = tl.fma(z, _polynomial(z, COSINE_64, 9), 1.0)
    rounded = phase + (1 << 61)
    odd = (rounded & (1 << 62)) != 0
    sine_sign = rounded & -(1 << 63)
    cosine_sign = (rounded + (1 << 62)) & -(1 << 63)
    turned_sine = tl.where(odd, cosine, sine).to(tl.int64, bitcast=True) ^ sine_sign
    turned_cosine = tl.where(odd, sine, cosine).to(tl.int64, bitcast=True) ^ cosine_sign
    return turned_sine.to(tl.float64, bitcast=True), turned_cosine.to(tl.float64, bitcast=True)


@triton.jit
def _wide(phase, correction):
    """Float64, plain: for correctness alone."""
    rest = phase << 2
    upper = (rest >> 32).to(tl.float64)
    lower = ((rest & 0xFFFFFFFF) >> 1).to(tl.float64)
    return _turned(phase, tl.fma(upper, 2.0**-34, tl.fma(lower, 2.0**-65, correction)))


@triton.jit
def _hardware(phase):
    """NVIDIA's own sine and cosine of the upper 32 bits of the phase: absolute error 5e-7."""
    angle = (phase >> 32).to(tl.int32).to(tl.float32) * 1.4629180792671596e-09  # 2 pi / 2**32
    sine = tl.inline_asm_elementwise(
        "sin.approx.ftz.f32 $0, $1;", "=f,f", [angle], dtype=tl.float32, is_pure=True, pack=1
    )
    cosine = tl.inline_asm_elementwise(
        "cos.approx.ftz.f32 $0, $1;", "=f,f", [angle], dtype=tl.float32, is_pure=True, pack=1
    )
    return sine, cosine


@triton.jit
def load_rows(rows, channel, pairs: tl.constexpr, interleaved: tl.constexpr, shape: tl.constexpr):
    """Two rows of ``int64`` for the pairs of a tile: ``channel`` (of first channels, or all where interleaved).

    The rows have the order of the channels, and ``channel`` the shape of the data's tile, so that each thread loads the
    rates of its own channels: else they would be exchanged through shared memory.
    """
    if interleaved:
        both = tl.load(rows + channel, mask=channel < 2 * pairs, other=0)
        first, second = tl.split(tl.reshape(both, shape))
    else:
        first = tl.load(rows + channel, mask=channel < pairs, other=0)
        second = tl.load(rows + pairs + channel, mask=channel < pairs, other=0)
    return first, second


@triton.jit
def load_rates(rates, channel, pairs: tl.constexpr, interleaved: tl.constexpr, shape: tl.constexpr, wide: tl.constexpr):
    """Words and residuals for the pairs of a tile, as ``load_rows`` takes them."""
    words, bits = load_rows(rates, channel, pairs, interleaved, shape)
    if wide:
        residuals = bits.to(tl.float64, bitcast=True)
    else:
        residuals = bits.to(tl.int32).to(tl.float32, bitcast=True)
    return words, residuals


@triton.jit
def _nearest(x):
    """Float64 to whole numbers, ties to even."""
    return tl.where((x < 2.0**51) & (x > -(2.0**51)), (x + WHOLE) - WHOLE, x)


@triton.jit
def phase_of(fraction, turns):
    """The phases of float64 ``fraction`` times ``turns``, to 2**-62 turn."""
    more = fraction * turns
    more -= _nearest(more)
    return (more * 2.0**62).to(tl.int64) << 2


@triton.jit
def sincos(phase, position, residuals, hardware: tl.constexpr):
    """Sines and cosines of phases: ``int64`` positions times words, wrapping, and what ``phase_of`` adds to them.

    ``residuals`` are in the type that is computed in, and so are the results.
    """
    if hardware:
        sine, cosine = _hardware(phase)
    elif residuals.dtype == tl.float64:
        sine, cosine = _wide(phase, position.to(tl.float64) * residuals)
    else:
        sine, cosine = _short(phase, position.to(tl.float32) * residuals)
    return sine, cosine


@triton.jit
def sincos_single(position, frequency):
    """Float32 sines and cosines of the float32 product of position and frequency, in radians: as transformers has them."""
    angle = (position * frequency).to(tl.float64)
    quarters = _nearest(angle * tl.full(angle.shape, 4 * RADIAN[0], tl.float64))
    x = tl.fma(angle, tl.full(angle.shape, RADIAN[0], tl.float64), quarters * -0.25)
    x = tl.fma(angle, tl.full(angle.shape, RADIAN[1], tl.float64), x)
    sine, cosine = _turned(quarters.to(tl.int64) << 62, x)
    return sine.to(tl.float32), cosine.to(tl.float32)
