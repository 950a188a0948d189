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

from .numba_lanes import ELEMENTS, StorageType, _call, _splat, _suffix, computed, fill, fma, itemsize, rest_of, turn
from .numba_memory import load_computed, load_words

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
def sincos(storage, position, words, residuals, at):
    """Sines and cosines at ``position`` for the pairs from ``at`` on.

    ``words`` and ``residuals`` are the addresses of the pairs' rates, padded to whole vectors: ``int64`` units of 2**-64
    turn, and turns in the compute type.
    """
    phase = fill(storage, position) * load_words(storage, words + at * 8)
    correction = fill(storage, float(position)) * load_computed(storage, residuals + at * itemsize(computed(storage)))
    upper, lower = rest_of(storage, phase)
    x = fma(upper, fill(storage, 2.0**-34), fma(lower, fill(storage, 2.0**-65), correction))
    z = x * x
    sine = fma(x, _tau(storage, z), x * _sine(storage, z))
    cosine = fma(z, _cosine(storage, z), fill(storage, 1.0))
    return turn(phase, sine, cosine)
