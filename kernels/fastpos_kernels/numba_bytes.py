"""Scalars, rooms on the stack and bytes at addresses: what kernels need besides lanes."""

from llvmlite import ir
from numba import njit
from numba.extending import intrinsic, types

from .numba_lanes import I1, I32, I64, _call, _vector

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
def _stream_line(typingctx, target, source):
    """Copy one cache line past the caches; ``target`` is aligned to it."""

    def codegen(context, builder, signature, arguments):
        line = _vector(ir.FloatType(), 16)
        value = builder.load(_pointer(builder, arguments[1], line), align=1)
        written = builder.store(value, _pointer(builder, arguments[0], line), align=LINE)
        written.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def stream_fence(typingctx):
    """Order streamed lines before whatever tells other threads of them."""

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@njit
def stream_bytes(target, source, count):
    """Copy to ``target`` past the caches: whole aligned lines, with ordinary stores for the two ends.

    Results are staged in level-1 cache first because only whole lines stream well: written straight from the kernel to
    an array that starts 16 bytes off a line, as NumPy's do, four rows at once took 8 to 16 copies instead of one.
    """
    head = min(-target & (LINE - 1), count)
    copy_bytes(target, source, head)
    end = head + (count - head) // LINE * LINE
    for at in range(head, end, LINE):
        _stream_line(target + at, source + at)
    copy_bytes(target + end, source + end, count - end)
