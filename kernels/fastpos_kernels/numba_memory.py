"""Lanes to and from memory: loads, stores and conversions at byte addresses.

The unit is a *double vector*: two vectors of lanes that cover ``2 * lanes`` consecutive elements, so that 16-bit types
move whole cache lines. ``load_two`` gives them in the order that is cheapest for the storage (``double_order``), and
whatever meets them (a row of cosines) is laid out in the same order; ``load_pairs`` gives even and odd elements. For
bfloat16 the two are the same thing: as 32-bit integers the odd elements are a mask away and the even ones a shift.

Rows need not be a multiple of the unit: ``count`` says how many of its elements exist. The others are masked out, so a
tail runs through the same instructions as the body and rounds alike.
"""

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic, types

from .numba_lanes import ELEMENTS, I1, I16, I32, I64, Lanes, _BFloat, _call, _splat, _suffix, _vector

VOID = ir.VoidType()


def double_order(storage, width: int) -> np.ndarray:
    """Where the elements of a row of ``width`` (a multiple of the unit) lie once ``load_two`` has read it."""
    order = np.arange(width).reshape(-1, 2 * storage.lanes)
    if storage.name == "bfloat16":
        order = order.reshape(-1, storage.lanes, 2).transpose(0, 2, 1)
    return order.reshape(width)


def _pointer(builder, address, kind):
    return builder.inttoptr(address, ir.PointerType(kind))


def _raw(storage) -> ir.Type:
    return {"float32": ELEMENTS["float32"], "float64": ELEMENTS["float64"]}.get(storage.name, I16)


def _shuffle(builder, a, b, order):
    return builder.shuffle_vector(a, b, ir.Constant(_vector(I32, len(order)), list(order)))


def _split(builder, storage, raw, pairs: bool):
    """A raw double vector as two vectors of the compute type."""
    lanes, single = storage.lanes, _vector(ELEMENTS["float32"], storage.lanes)
    if storage.name == "bfloat16":
        words = builder.bitcast(raw, _vector(I32, lanes))
        even = builder.shl(words, _splat(builder, I32(16), lanes))
        odd = builder.and_(words, _splat(builder, I32(-0x10000), lanes))
        return builder.bitcast(even, single), builder.bitcast(odd, single)
    halves = [_shuffle(builder, raw, raw, range(first, first + lanes)) for first in (0, lanes)]
    if storage.name == "float16":
        half = _vector(ir.HalfType(), lanes)
        halves = [builder.fpext(builder.bitcast(part, half), single) for part in halves]
    if pairs:
        halves = [_shuffle(builder, *halves, range(first, 2 * lanes, 2)) for first in (0, 1)]
    return halves


def _round_bfloat16(builder, value, lanes):
    """The float32 bits rounded to nearest even at the upper half; a NaN keeps its upper bits and becomes quiet."""
    bits = builder.bitcast(value, _vector(I32, lanes))

    def constant(number):
        return _splat(builder, I32(number), lanes)

    last = builder.and_(builder.lshr(bits, constant(16)), constant(1))
    rounded = builder.add(builder.add(bits, constant(0x7FFF)), last)
    quiet = builder.or_(bits, constant(0x400000))
    return builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)


def _join_bfloat16_integer(builder, even, odd, lanes):
    low = builder.lshr(_round_bfloat16(builder, even, lanes), _splat(builder, I32(16), lanes))
    high = builder.and_(_round_bfloat16(builder, odd, lanes), _splat(builder, I32(-0x10000), lanes))
    return builder.bitcast(builder.or_(low, high), _vector(I16, 2 * lanes))


def _join_bfloat16(context, builder, even, odd, lanes):
    if "+avx512bf16" not in context.codegen()._tm_features:
        return _join_bfloat16_integer(builder, even, odd, lanes)
    # One instruction for 32 elements against nine a vector, but it flushes subnormals to zero: vectors that hold one
    # take the integer way, which gives the same bits everywhere else.
    halves = _vector(_BFloat(), 2 * lanes)
    packed = _call(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", halves, [odd, even])
    order = [element for lane in range(lanes) for element in (lane, lane + lanes)]
    packed = builder.bitcast(packed, _vector(I16, 2 * lanes))
    fast = _shuffle(builder, packed, packed, order)
    classes = [
        _call(builder, "llvm.x86.avx512.fpclass.ps.512", _vector(I1, lanes), [value, I32(0x20)])
        for value in (even, odd)
    ]
    any_subnormal = builder.icmp_unsigned("!=", builder.bitcast(builder.or_(*classes), I16), I16(0))
    before = builder.block
    with builder.if_then(any_subnormal, likely=False):
        exact = _join_bfloat16_integer(builder, even, odd, lanes)
        inside = builder.block
    result = builder.phi(exact.type)
    result.add_incoming(fast, before)
    result.add_incoming(exact, inside)
    return result


def _join(context, builder, storage, first, second, pairs: bool):
    """Two vectors of the compute type, rounded once, as a raw double vector."""
    lanes = storage.lanes
    if storage.name == "bfloat16":
        return _join_bfloat16(context, builder, first, second, lanes)
    if pairs:
        order = [element for lane in range(lanes) for element in (lane, lane + lanes)]
        first, second = (_shuffle(builder, first, second, part) for part in (order[:lanes], order[lanes:]))
    if storage.name == "float16":
        half = _vector(ir.HalfType(), lanes)
        first, second = (
            builder.bitcast(builder.fptrunc(value, half), _vector(I16, lanes)) for value in (first, second)
        )
    return _shuffle(builder, first, second, range(2 * lanes))


def _masked(vector: ir.VectorType, operation: str) -> str:
    element = {"float": "f32", "double": "f64"}.get(str(vector.element), str(vector.element))
    return f"llvm.masked.{operation}.v{vector.count}{element}.p0"


def _mask(builder, count, lanes: int):
    numbers = ir.Constant(_vector(I64, lanes), list(range(lanes)))
    return builder.icmp_signed("<", numbers, _splat(builder, count, lanes))


def _two_lanes(storage):
    return types.UniTuple(Lanes(storage.compute, storage.lanes), 2)


def _loader(pairs: bool, part: bool):
    def signature_and_code(storage):
        kind = storage.storage
        result = _two_lanes(kind)
        vector = _vector(_raw(kind), 2 * kind.lanes)

        def codegen(context, builder, signature, arguments):
            pointer = _pointer(builder, arguments[1], vector)
            if part:
                mask = _mask(builder, arguments[2], 2 * kind.lanes)
                loaded = [pointer, I32(1), mask, ir.Constant(vector, None)]
                raw = _call(builder, _masked(vector, "load"), vector, loaded)
            else:
                raw = builder.load(pointer, align=1)
            return context.make_tuple(builder, result, _split(builder, kind, raw, pairs))

        return result, codegen

    return signature_and_code


def _storer(pairs: bool, part: bool):
    def signature_and_code(storage, streamed=False):
        kind = storage.storage

        def codegen(context, builder, signature, arguments):
            raw = _join(context, builder, kind, arguments[2], arguments[3], pairs)
            pointer = _pointer(builder, arguments[1], raw.type)
            if part:
                mask = _mask(builder, arguments[4], 2 * kind.lanes)
                _call(builder, _masked(raw.type, "store"), VOID, [raw, pointer, I32(1), mask])
            else:
                written = builder.store(raw, pointer, align=16 if streamed else 1)
                if streamed:
                    written.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))
            return context.get_dummy_value()

        return types.void, codegen

    return signature_and_code


def _without_flag(codegen):
    """The code of a function whose second argument is a literal that it does not need."""

    def without(context, builder, signature, arguments):
        return codegen(context, builder, signature, [arguments[0], *arguments[2:]])

    return without


@intrinsic
def load_two(typingctx, storage, address):
    """A double vector in ``double_order``."""
    result, codegen = _loader(pairs=False, part=False)(storage)
    return result(storage, types.int64), codegen


@intrinsic
def load_two_part(typingctx, storage, address, count):
    """The first ``count`` elements of a double vector; the rest is zero and its memory is not touched."""
    result, codegen = _loader(pairs=False, part=True)(storage)
    return result(storage, types.int64, types.int64), codegen


@intrinsic
def load_pairs(typingctx, storage, address):
    """The even and the odd elements of a double vector."""
    result, codegen = _loader(pairs=True, part=False)(storage)
    return result(storage, types.int64), codegen


@intrinsic
def load_pairs_part(typingctx, storage, address, count):
    result, codegen = _loader(pairs=True, part=True)(storage)
    return result(storage, types.int64, types.int64), codegen


@intrinsic(prefer_literal=True)
def store_two(typingctx, storage, streamed, address, first, second):
    """Round once to ``storage`` and write a double vector that is in ``double_order``.

    ``streamed`` (a literal): past the caches; the address must then be a multiple of 16.
    """
    result, codegen = _storer(pairs=False, part=False)(storage, streamed.literal_value)
    return result(storage, streamed, types.int64, first, second), _without_flag(codegen)


@intrinsic
def store_two_part(typingctx, storage, address, first, second, count):
    result, codegen = _storer(pairs=False, part=True)(storage)
    return result(storage, types.int64, first, second, types.int64), codegen


@intrinsic(prefer_literal=True)
def store_pairs(typingctx, storage, streamed, address, even, odd):
    """Round once to ``storage`` and write even and odd elements side by side; ``streamed`` as for ``store_two``."""
    result, codegen = _storer(pairs=True, part=False)(storage, streamed.literal_value)
    return result(storage, streamed, types.int64, even, odd), _without_flag(codegen)


@intrinsic
def store_pairs_part(typingctx, storage, address, even, odd, count):
    result, codegen = _storer(pairs=True, part=True)(storage)
    return result(storage, types.int64, even, odd, types.int64), codegen


@intrinsic
def load_computed(typingctx, storage, address):
    """One vector that lies in memory in the storage's compute type."""
    result = Lanes(storage.storage.compute, storage.storage.lanes)

    def codegen(context, builder, signature, arguments):
        vector = _vector(ELEMENTS[result.element], result.count)
        return builder.load(_pointer(builder, arguments[1], vector), align=8)

    return result(storage, types.int64), codegen


@intrinsic
def store_computed(typingctx, storage, address, value):
    def codegen(context, builder, signature, arguments):
        builder.store(arguments[2], _pointer(builder, arguments[1], arguments[2].type), align=8)
        return context.get_dummy_value()

    return types.void(storage, types.int64, value), codegen


@intrinsic
def load_words(typingctx, storage, address):
    """One vector of ``int64``, a word for each lane of the storage."""
    result = Lanes("int64", storage.storage.lanes)

    def codegen(context, builder, signature, arguments):
        pointer = _pointer(builder, arguments[1], _vector(I64, result.count))
        return builder.load(pointer, align=8)

    return result(storage, types.int64), codegen


@intrinsic
def phase_of(typingctx, storage, fraction, address):
    """The 64-bit phases of ``fraction`` (a scalar) times a vector of ``float64`` turns, to 2**-62 turn."""
    count = storage.storage.lanes

    def codegen(context, builder, signature, arguments):
        vector = _vector(ELEMENTS["float64"], count)
        turns = builder.load(_pointer(builder, arguments[2], vector), align=8)
        turns = builder.fmul(turns, _splat(builder, arguments[1], count))
        turns = builder.fsub(turns, _call(builder, f"llvm.rint.{_suffix(vector)}", vector, [turns]))
        turns = builder.fmul(turns, _splat(builder, ir.Constant(ELEMENTS["float64"], 2.0**62), count))
        return builder.shl(builder.fptosi(turns, _vector(I64, count)), _splat(builder, I64(2), count))

    return Lanes("int64", count)(storage, types.float64, types.int64), codegen


def _rounded(builder, storage, value):
    """Vectors of float32 rounded to a short storage; those of other storages as they are."""
    count = value.type.count
    if storage.name == "bfloat16":
        bits = _round_bfloat16(builder, value, count)
        return builder.bitcast(builder.and_(bits, _splat(builder, I32(-0x10000), count)), value.type)
    if storage.name == "float16":
        return builder.fpext(builder.fptrunc(value, _vector(ir.HalfType(), count)), value.type)
    return value


@intrinsic
def rounded(typingctx, storage, value):
    """Lanes of the compute type, rounded as if they had been stored and loaded again."""

    def codegen(context, builder, signature, arguments):
        return _rounded(builder, storage.storage, arguments[1])

    return value(storage, value), codegen


@intrinsic
def store_single(typingctx, storage, address, value):
    """Write ``float64`` lanes, rounded to float32 and then to the storage, in its compute type."""

    def codegen(context, builder, signature, arguments):
        vector = _vector(ELEMENTS["float32"], value.count)
        written = _rounded(builder, storage.storage, builder.fptrunc(arguments[2], vector))
        if storage.storage.compute == "float64":
            written = builder.fpext(written, arguments[2].type)
        builder.store(written, _pointer(builder, arguments[1], written.type), align=4)
        return context.get_dummy_value()

    return types.void(storage, types.int64, value), codegen


@intrinsic
def in_double_order(typingctx, storage, first, second):
    """Two vectors of consecutive elements in the order that ``store_two`` takes."""
    result = _two_lanes(storage.storage)

    def codegen(context, builder, signature, arguments):
        halves = arguments[1:]
        if storage.storage.name == "bfloat16":
            halves = [_shuffle(builder, *halves, range(part, 2 * first.count, 2)) for part in (0, 1)]
        return context.make_tuple(builder, result, halves)

    return result(storage, first, second), codegen
