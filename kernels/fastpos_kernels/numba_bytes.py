"""Scalars, rooms on the stack and bytes at addresses: what kernels need besides lanes."""

from llvmlite import ir
from numba.extending import intrinsic, types

from .numba_lanes import I1, I32, I64, _call

VOID, BYTE = ir.VoidType(), ir.IntType(8)
LINE = 64


def _pointer(builder, address, kind):
    return builder.inttoptr(address, ir.PointerType(kind))


def _reader(element, result):
    @intrinsic
    def reader(typingctx, address):
        def codegen(context, builder, signature, arguments):
            value = builder.load(_pointer(builder, arguments[0], element), align=1)
            return builder.sext(value, I64) if element == I32 else value

        return result(types.int64), codegen

    return reader


read_int = _reader(I64, types.int64)
read_short_int = _reader(I32, types.int64)
read_float = _reader(ir.DoubleType(), types.float64)


@intrinsic
def write_int(typingctx, address, value):
    def codegen(context, builder, signature, arguments):
        builder.store(arguments[1], _pointer(builder, arguments[0], I64), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def write_float(typingctx, address, value):
    def codegen(context, builder, signature, arguments):
        builder.store(arguments[1], _pointer(builder, arguments[0], ir.DoubleType()), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), codegen


@intrinsic
def fetch_add(typingctx, address, amount):
    """Atomically add to the ``int64`` at ``address`` and return what it was."""

    def codegen(context, builder, signature, arguments):
        return builder.atomic_rmw("add", _pointer(builder, arguments[0], I64), arguments[1], "monotonic")

    return types.int64(types.int64, types.int64), codegen


@intrinsic(prefer_literal=True)
def stack(typingctx, size):
    """Address of ``size`` bytes (a literal) on the stack, aligned to a cache line."""
    length = size.literal_value

    def codegen(context, builder, signature, arguments):
        # Not cgutils.alloca_once: it also clears the room, and LLVM spends 7 s a kernel on taking that store apart.
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(BYTE, length))
        room.align = LINE
        return builder.ptrtoint(room, I64)

    return types.int64(size), codegen


@intrinsic
def copy_bytes(typingctx, target, source, count):
    """``memmove``: channels that no rotation touches keep every bit, NaN payloads included."""

    def codegen(context, builder, signature, arguments):
        target_, source_ = (_pointer(builder, address, BYTE) for address in arguments[:2])
        _call(builder, "llvm.memmove.p0.p0.i64", VOID, [target_, source_, arguments[2], I1(0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def prefetch(typingctx, address):
    """Ask for the cache line at ``address``; any address is allowed."""

    def codegen(context, builder, signature, arguments):
        pointer = _pointer(builder, arguments[0], BYTE)
        _call(builder, "llvm.prefetch.p0", VOID, [pointer, I32(0), I32(3), I32(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def stream_fence(typingctx):
    """Order streamed lines before whatever tells other threads of them."""

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen
