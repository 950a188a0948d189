"""The clock: sine and cosine of ``position * frequency`` for one vector of channel pairs, exact at any position.

A pair's rate is an integer, ``word = round(inv_freq / 2 pi * 2**64)``, so ``position * word`` in wrapping 64-bit
arithmetic *is* the phase modulo one turn. What rounding the rate lost (at most half a unit) is kept as ``residual``, in
turns, and ``position * residual`` is added to the rest: one multiply-add, with which even a sine next to zero keeps its
relative accuracy. Without it the error is 2**-34 turns at position 2**31, and every float64 result would show it.

The rest, at most an eighth of a turn from the nearest quarter turn, feeds two short polynomials in turns.
"""

from math import factorial, tau

from llvmlite import ir
from numba import njit
from numba.extending import intrinsic

from .numba_bytes import read_float, read_int
from .numba_lanes import (
    ELEMENTS,
    FLOAT64,
    StorageType,
    _call,
    _splat,
    _suffix,
    computed,
    fill,
    fma,
    itemsize,
    nearest,
    quarter_turns,
    rest_of,
    turn,
)
from .numba_memory import load_computed, load_words, phase_of
from .numba_positions import POSITION_BYTES

# sin(2 pi x) = x * TAU + x * SINE(z) and cos(2 pi x) = 1 + z * COSINE(z) with z = x * x and 2 pi = TAU + SINE(0).
# float32: minimax on |x| <= 1/8, each coefficient rounded before the next is fitted; errors 2.3e-9 and 4.1e-10, a
# fortieth of an ulp. float64: the Taylor series as far as x**17 and x**18, errors below 1e-16.
TAU = {"float32": (6.2831854820251464844,), "float64": (tau,)}
SINE = {
    "float32": (-1.7484555314695171546e-7, -41.3416633605957, 81.5921630859375, -75.37873840332031),
    "float64": (2.4492935982947064e-16, *((-1) ** k * tau ** (2 * k + 1) / factorial(2 * k + 1) for k in range(1, 9))),
}
COSINE = {
    "float32": (-19.739208221435547, 64.93914031982422, -85.4231185913086, 58.56117630004883),
    "float64": tuple((-1) ** k * tau ** (2 * k) / factorial(2 * k) for k in range(1, 10)),
}

# A radian in turns, as two numbers: the first product with an angle is exact inside the multiply-add that takes the
# quarter turns away, the second makes up for what the first lacks.
RADIAN = (0.15915494309189535, -9.839338337591243e-18)


def _series(coefficients):
    """An intrinsic for the polynomial in ``z`` whose coefficients, lowest first, are those of the storage's type."""

    @intrinsic
    def polynomial(typingctx, storage, z):
        numbers = coefficients[storage.storage.compute] if isinstance(storage, StorageType) else ()

        def codegen(context, builder, signature, arguments):
            vector = arguments[1].type
            constants = [_splat(builder, ir.Constant(ELEMENTS[z.element], number), z.count) for number in numbers]
            total = constants.pop()
            while constants:
                total = _call(builder, f"llvm.fma.{_suffix(vector)}", vector, [arguments[1], total, constants.pop()])
            return total

        return z(storage, z), codegen

    return polynomial


_tau, _sine, _cosine = _series(TAU), _series(SINE), _series(COSINE)


@njit
def _waves(storage, phase, correction):
    upper, lower = rest_of(storage, phase)
    x = fma(upper, fill(storage, 2.0**-34), fma(lower, fill(storage, 2.0**-65), correction))
    z = x * x
    sine = fma(x, _tau(storage, z), x * _sine(storage, z))
    cosine = fma(z, _cosine(storage, z), fill(storage, 1.0))
    return turn(phase, sine, cosine)


@njit
def sincos(storage, position, words, residuals, at):
    """Sines and cosines at ``position`` for the pairs from ``at`` on.

    ``words`` and ``residuals`` are the addresses of the pairs' rates, padded to whole vectors: ``int64`` units of 2**-64
    turn, and turns in the compute type.
    """
    phase = fill(storage, position) * load_words(storage, words + at * 8)
    correction = fill(storage, float(position)) * load_computed(storage, residuals + at * itemsize(computed(storage)))
    return _waves(storage, phase, correction)


@njit
def sincos_of_axes(storage, axes, real, place, pitch, words, residuals, turns, width, at):
    """Sines and cosines at a token's coordinates for the pairs from ``at`` on.

    A row of ``width`` rates for every axis, zero for the pairs that another axis drives, so that a sum over the axes is
    the phase. ``place`` has the whole parts ``pitch`` bytes apart; where ``real``, each has its fraction POSITION_BYTES
    further, which turns by ``turns`` a unit in float64.
    """
    phase, correction = fill(storage, 0), fill(storage, 0.0)
    for axis in range(axes):
        whole, pair = read_int(place + axis * pitch), axis * width + at
        phase = phase + fill(storage, whole) * load_words(storage, words + pair * 8)
        rest = load_computed(storage, residuals + pair * itemsize(computed(storage)))
        correction = fma(fill(storage, float(whole)), rest, correction)
        if real:
            phase = phase + phase_of(storage, read_float(place + axis * pitch + POSITION_BYTES), turns + pair * 8)
    return _waves(storage, phase, correction)


@njit
def sincos_of_angles(angle):
    """Sines and cosines of float64 lanes of radians, within 1e-15 for angles up to 2**31."""
    quarters = nearest(angle * fill(FLOAT64, 4 * RADIAN[0]))
    x = fma(angle, fill(FLOAT64, RADIAN[0]), quarters * fill(FLOAT64, -0.25))
    x = fma(angle, fill(FLOAT64, RADIAN[1]), x)
    z = x * x
    sine = fma(x, _tau(FLOAT64, z), x * _sine(FLOAT64, z))
    cosine = fma(z, _cosine(FLOAT64, z), fill(FLOAT64, 1.0))
    return turn(quarter_turns(quarters), sine, cosine)
