"""SIMD lanes for Numba: sixteen numbers as one value, so that a kernel says what the machine shall do.

A plain loop is at the mercy of the auto-vectoriser, which gives up in place, on slices and on every 16-bit type
(measured: 2.5 to 15 times slower). Here a value *is* a vector; LLVM legalises it on every target (one AVX-512
register, two of AVX2, four of NEON), loads stand before stores where the kernel puts them, and no multiply-add is
fused unless ``fma`` says so: that is what keeps a row's bits the same in body, tail, thread split and stride.

Memory is named by byte addresses (``int64``). A ``Storage`` says how an element lies in memory and in which type it is
computed with. It is a compile-time constant: ``load(BFLOAT16, address)`` becomes two instructions.
"""

import operator
import sys
from dataclasses import dataclass

from llvmlite import ir
from numba.core import cgutils
from numba.core.imputils import lower_constant
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable, typeof_impl, types

I1, I16, I32, I64 = ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64)


class _BFloat(ir.Type):
    """LLVM's ``bfloat``, which llvmlite does not know; one instruction narrows to it on AVX512-BF16 hosts."""

    def _to_string(self) -> str:
        return "bfloat"


ELEMENTS = {"float32": ir.FloatType(), "float64": ir.DoubleType(), "int32": I32, "int64": I64}


class Lanes(types.Type):
    """Numba type of ``count`` numbers of one element type held in registers."""

    def __init__(self, element: str, count: int):
        self.element, self.count = element, count
        super().__init__(name=f"Lanes({element} x {count})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        super().__init__(manager, lanes, ir.VectorType(ELEMENTS[lanes.element], lanes.count))


@dataclass(frozen=True)
class Storage:
    """How an element lies in memory (``name``, ``itemsize`` bytes) and what it is computed with (``compute``)."""

    name: str
    itemsize: int
    compute: str
    lanes: int


FLOAT32 = Storage("float32", 4, "float32", 16)
FLOAT16 = Storage("float16", 2, "float32", 16)
BFLOAT16 = Storage("bfloat16", 2, "float32", 16)
FLOAT64 = Storage("float64", 8, "float64", 8)
STORAGES = {storage.name: storage for storage in (FLOAT32, FLOAT16, BFLOAT16, FLOAT64)}


class StorageType(types.Type):
    def __init__(self, storage: Storage):
        self.storage = storage
        super().__init__(name=f"Storage({storage.name})")


register_model(StorageType)(models.OpaqueModel)


@typeof_impl.register(Storage)
def _typeof_storage(value, context):
    return StorageType(value)


@lower_constant(StorageType)
def _lower_storage(context, builder, kind, value):
    return context.get_dummy_value()


def _vector(element: ir.Type, count: int) -> ir.VectorType:
    return ir.VectorType(element, count)


def _splat(builder, scalar, count: int):
    vector = builder.insert_element(ir.Constant(_vector(scalar.type, count), ir.Undefined), scalar, I32(0))
    return builder.shuffle_vector(vector, vector, ir.Constant(_vector(I32, count), [0] * count))


def _call(builder, name: str, result: ir.Type, arguments):
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(result, [a.type for a in arguments]), name
    )
    return builder.call(function, arguments)


def _suffix(vector: ir.VectorType) -> str:
    names = {"float": "f32", "double": "f64", "half": "f16"}
    element = str(vector.element)
    return f"v{vector.count}{names.get(element, element)}"


# Arithmetic -----------------------------------------------------------------------------------------------------------


def _binary(python_operator, float_instruction: str, int_instruction: str) -> None:
    @type_callable(python_operator)
    def typed(context):
        def typer(a, b):
            if isinstance(a, Lanes) and a == b:
                return a

        return typer

    @lower_builtin(python_operator, Lanes, Lanes)
    def lower(context, builder, signature, arguments):
        kind = signature.return_type.element
        return getattr(builder, float_instruction if kind.startswith("float") else int_instruction)(*arguments)


_binary(operator.add, "fadd", "add")
_binary(operator.sub, "fsub", "sub")
_binary(operator.mul, "fmul", "mul")


@intrinsic
def fma(typingctx, a, b, c):
    """``a * b + c`` with one rounding."""

    def codegen(context, builder, signature, arguments):
        kind = arguments[0].type
        return _call(builder, f"llvm.fma.{_suffix(kind)}", kind, arguments)

    return a(a, b, c), codegen


@intrinsic
def negate(typingctx, a):
    def codegen(context, builder, signature, arguments):
        return builder.fneg(arguments[0])

    return a(a), codegen


@intrinsic
def nearest(typingctx, a):
    """To whole numbers, ties to even."""

    def codegen(context, builder, signature, arguments):
        kind = arguments[0].type
        return _call(builder, f"llvm.rint.{_suffix(kind)}", kind, arguments)

    return a(a), codegen


@intrinsic
def single(typingctx, a):
    """``float64`` lanes rounded to float32."""

    def codegen(context, builder, signature, arguments):
        kind = arguments[0].type
        return builder.fpext(builder.fptrunc(arguments[0], _vector(ELEMENTS["float32"], kind.count)), kind)

    return a(a), codegen


@intrinsic
def quarter_turns(typingctx, quarters):
    """Whole ``float64`` numbers of quarter turns as 64-bit phases."""
    result = Lanes("int64", quarters.count)

    def codegen(context, builder, signature, arguments):
        whole = builder.fptosi(arguments[0], _vector(I64, quarters.count))
        return builder.shl(whole, _splat(builder, I64(62), quarters.count))

    return result(quarters), codegen


@intrinsic
def fill(typingctx, storage, value):
    """All lanes of the storage's compute type set to one number; integers give ``int64`` lanes."""
    integer = isinstance(value, types.Integer)
    result = Lanes("int64" if integer else storage.storage.compute, storage.storage.lanes)
    scalar = types.int64 if integer else types.float64

    def codegen(context, builder, signature, arguments):
        number = arguments[1]
        if result.element == "float32":
            number = builder.fptrunc(number, ELEMENTS["float32"])
        return _splat(builder, number, result.count)

    return result(storage, scalar), codegen


def _half_words(builder, words, count: int, upper: bool):
    """The upper or lower 32 bits of ``int64`` lanes: one shuffle, where a truncation would be two and a join."""
    both = builder.bitcast(words, _vector(I32, 2 * count))
    first = int(upper) if sys.byteorder == "little" else 1 - int(upper)
    order = ir.Constant(_vector(I32, count), list(range(first, 2 * count, 2)))
    return builder.shuffle_vector(both, both, order)


@intrinsic
def rest_of(typingctx, storage, phase):
    """Signed distance of a 64-bit phase from the nearest quarter turn, exactly, as two numbers ``upper, lower``.

    The rest is ``upper * 2**-34 + lower * 2**-65`` turns. Two conversions of 32-bit lanes are cheaper than one of 64-bit
    lanes, which AVX2 and NEON would do lane by lane.
    """
    result = Lanes(storage.storage.compute, phase.count)

    def codegen(context, builder, signature, arguments):
        vector = _vector(ELEMENTS[result.element], phase.count)
        rest = builder.shl(arguments[1], _splat(builder, I64(2), phase.count))
        upper = _half_words(builder, rest, phase.count, upper=True)
        lower = _half_words(builder, rest, phase.count, upper=False)
        lower = builder.lshr(lower, _splat(builder, I32(1), phase.count))
        halves = builder.sitofp(upper, vector), builder.sitofp(lower, vector)
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(result, 2)(storage, phase), codegen


@intrinsic
def turn(typingctx, phase, sine, cosine):
    """Sine and cosine of the rest carried into the phase's quadrant: swap on odd quarters, then set the signs."""
    result = types.UniTuple(sine, 2)
    # The rounded top two bits need the upper half of the phase alone; float64 keeps lanes of one width.
    word = I32 if sine.element == "float32" else I64
    bits = word.width

    def codegen(context, builder, signature, arguments):
        phase_, sine_, cosine_ = arguments
        count = sine.count
        if word is I32:
            phase_ = _half_words(builder, phase_, count, upper=True)
        rounded = builder.add(phase_, _splat(builder, word(1 << (bits - 3)), count))
        odd = builder.trunc(builder.lshr(rounded, _splat(builder, word(bits - 2), count)), _vector(I1, count))
        top = _splat(builder, word(1 << (bits - 1)), count)
        sine_sign = builder.and_(rounded, top)
        cosine_sign = builder.and_(builder.add(rounded, _splat(builder, word(1 << (bits - 2)), count)), top)
        swapped_sine = builder.select(odd, cosine_, sine_)
        swapped_cosine = builder.select(odd, sine_, cosine_)

        def signed(value, sign):
            return builder.bitcast(builder.xor(builder.bitcast(value, sign.type), sign), value.type)

        pair = signed(swapped_sine, sine_sign), signed(swapped_cosine, cosine_sign)
        return context.make_tuple(builder, result, pair)

    return result(phase, sine, cosine), codegen


def _constant(value_of):
    """An intrinsic for a compile-time integer of the storage."""

    @intrinsic
    def constant(typingctx, storage):
        number = value_of(storage.storage)
        return types.int64(storage), lambda context, builder, signature, arguments: I64(number)

    return constant


itemsize = _constant(lambda storage: storage.itemsize)
lanes = _constant(lambda storage: storage.lanes)


@intrinsic
def computed(typingctx, storage):
    """The storage of the type that ``storage`` is computed with."""
    result = StorageType(FLOAT64 if storage.storage.compute == "float64" else FLOAT32)
    return result(storage), lambda context, builder, signature, arguments: context.get_dummy_value()
