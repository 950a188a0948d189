"""Arrays of every size, kind and address: sizes 0 to 65537, strides of 2**31 elements, maps, views, odd addresses."""

import pickle
import warnings

import numpy as np
import pytest
from oracle import DTYPES, assert_same
from views import patterns

import fastpos
from fastpos import Learned, Rotary, Sinusoidal


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_of_one_buffer(backend, threads, rng, dtype):
    """Q and k of packed q, k, v are rotated where they lie; v and the other half of each head stay."""
    for count in (1, 2):
        threads(count)
        packed = rng.standard_normal((2, 7, 6, 3, 40)).astype(DTYPES[dtype])
        before, rope = packed.copy(), Rotary(16, rotary_dim=12)
        q, k = packed[..., :4, 0, 8:24], packed[..., 1, 24:]
        want = fastpos.apply(rope, q.copy(), k.copy(), start=3, backend=backend)
        for got, right in zip(fastpos.apply_(rope, q, k, start=3, backend=backend), want, strict=True):
            assert_same(got, right)
        q[...], k[...] = before[..., :4, 0, 8:24], before[..., 1, 24:]
        assert_same(packed, before)


@pytest.mark.parametrize("encoding", [Rotary(64), Rotary(64, interleaved=True), Sinusoidal(64)], ids=repr)
def test_streamed_results_may_begin_anywhere(backend, streamed, rng, encoding):
    """Stores past the caches want aligned addresses; arrays of one shape may begin at any byte."""
    x = rng.standard_normal((5, 64), dtype=np.float32)
    where = {"start": 3, "layout": "td", "backend": backend}
    want = fastpos.apply(encoding, x, **where)
    for offset in (*range(0, 65, 4), 1, 2, 3):
        room = np.zeros(x.nbytes + 256, np.uint8)
        out = np.ndarray(x.shape, x.dtype, room, -room.ctypes.data % 64 + offset)
        for _ in range(2):
            fastpos.apply(encoding, x, out=out, **where)
            assert_same(out, want)


@pytest.mark.parametrize("count", [1, 2])
def test_output_over_its_own_input(backend, threads, rng, count):
    """The same memory under another array object is in place too, whatever the strides of axes of size 1."""
    threads(count)
    x = rng.standard_normal((1, 6, 2, 8), dtype=np.float32)
    want = fastpos.apply(Rotary(8), x, start=3, backend=backend)
    over = np.ndarray(x.shape, x.dtype, x, 0, (40000, *x.strides[1:]))
    fastpos.apply(Rotary(8), x, start=3, out=over, backend=backend)
    assert_same(x, want)


def test_one_array_as_query_and_key(backend, rng):
    x = rng.standard_normal((1, 3, 2, 8), dtype=np.float32)
    q, k = fastpos.apply(Rotary(8), x, x, start=2, backend=backend)
    assert_same(q, k)
    assert not np.shares_memory(q, k)


@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcast_inputs(backend, rng, dtype):
    one = rng.standard_normal((1, 1, 1, 48)).astype(DTYPES[dtype])
    x = np.broadcast_to(one, (2, 9, 3, 48))
    got = fastpos.apply(Rotary(48), x, start=[4, 4], backend=backend)
    assert_same(got, fastpos.apply(Rotary(48), x.copy(), start=[4, 4], backend=backend))
    assert_same(got[0], got[1])
    assert_same(got[:, :, 0], got[:, :, 2])
    with pytest.raises(ValueError, match="read-only"):
        fastpos.apply_(Rotary(48), x, start=0, backend=backend)


@pytest.mark.parametrize("size", [0, 1, 2, 65535, 65536, 65537])
@pytest.mark.parametrize("axis", ["b", "s", "h"])
@pytest.mark.parametrize("count", [1, 2])
def test_every_axis_of_every_size(backend, threads, rng, axis, size, count):
    threads(count)
    sizes = {"b": 2, "s": 2, "h": 2} | {axis: size}
    rope, x = Rotary(2), rng.standard_normal((sizes["b"], sizes["s"], sizes["h"], 2), dtype=np.float32)
    starts = np.arange(sizes["b"]) * 3
    got = fastpos.apply(rope, x, start=starts, backend=backend)
    assert got.shape == x.shape
    for n in sorted({0, 1, size // 2, size - 2, size - 1} & {*range(size)}):
        at = (slice(n, n + 1) if letter == axis else slice(None) for letter in "bsh")
        b, s, h = at
        right = fastpos.apply(rope, x[b, s, h].copy(), start=starts[b] + (n if axis == "s" else 0), backend=backend)
        assert_same(got[b, s, h], right)
    if axis != "h":
        pe = Sinusoidal(2)
        added = fastpos.apply(pe, x[:, :, 0], start=starts, backend=backend)
        last = starts[-1:] + max(sizes["s"] - 1, 0)
        assert_same(added[-1:, -1:], fastpos.apply(pe, x[-1:, -1:, 0], start=last, backend=backend))
    assert_same(fastpos.apply_(rope, x, start=starts, backend=backend), got)


def test_empty_beside_full(backend, rng):
    """No head of one array must not spare the others."""
    k = rng.standard_normal((1, 3, 2, 8), dtype=np.float32)
    none, right = np.zeros((1, 3, 0, 8), np.float32), fastpos.apply(Rotary(8), k, start=4, backend=backend)
    for arrays in ((none, k), (k, none), (none, none, k)):
        got = fastpos.apply(Rotary(8), *arrays, start=4, backend=backend)
        for array, result in zip(arrays, got, strict=True):
            assert_same(result, right if array is k else none)
    turned = k.copy()
    fastpos.apply_(Rotary(8), none, turned, start=4, backend=backend)
    assert_same(turned, right)


def test_empty_calls_check_all_the_same(backend):
    with pytest.raises(ValueError, match="x: expected 8 channels"):
        fastpos.apply(Rotary(8), np.ones((1, 0, 2, 6)), start=0, backend=backend)
    none = np.zeros((0, 8))
    assert fastpos.apply(Learned(np.ones((4, 8))), none, start=99, backend=backend).shape == (0, 8)


@pytest.mark.parametrize("axes", ["bshd", "sbhd", "hsbd"])
@pytest.mark.parametrize("sign", [1, -1])
def test_rows_two_thousand_million_elements_apart(backend, rng, tmp_path, axes, sign):
    """A stride of 2**31 elements, in a file of which only a few pages exist."""
    stride, width = 2**31, 24
    memory = np.memmap(tmp_path / "sparse", np.float16, "w+", shape=(stride + 4 * width,))
    shape = tuple(2 if letter == axes[0] else (width if letter == "d" else 2) for letter in axes)
    step = 2 * sign * stride
    view = np.ndarray(shape, np.float16, memory, 0 if sign > 0 else 2 * stride, (step, 4 * width, 2 * width, 2))
    x = rng.standard_normal(shape).astype(np.float16)
    view[...] = x
    where = {"start": 2**31 - 1, "layout": axes, "backend": backend}
    right = fastpos.apply(Rotary(width), x, **where)
    assert_same(fastpos.apply(Rotary(width), view, **where), right)
    out = np.empty_like(x)
    fastpos.apply(Rotary(width), view, out=out, **where)
    assert_same(out, right)
    fastpos.apply_(Rotary(width), view, **where)
    assert_same(view, right)


@pytest.mark.parametrize("dtype", DTYPES)
def test_kinds_of_arrays(backend, rng, tmp_path, dtype):
    """Memory maps, read-only inputs, unpickled arrays and equal dtypes that are other objects, in any order."""
    x = rng.standard_normal((2, 4, 3, 34)).astype(DTYPES[dtype])
    x.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", x.dtype, "r+", shape=x.shape)
    read_only = np.memmap(tmp_path / "x", x.dtype, "r", shape=x.shape)
    unpickled = pickle.loads(pickle.dumps(x))
    named = x.view(np.dtype(x.dtype, metadata={"name": "x"})) if x.dtype.kind == "f" else x
    locked = x.copy()
    locked.flags.writeable = False

    def outputs():
        return (
            None,
            np.full_like(x, np.nan),
            pickle.loads(pickle.dumps(x)),
            np.memmap(tmp_path / "y", x.dtype, "w+", shape=x.shape),
        )

    for encoding in (Rotary(34), Sinusoidal(34)):
        where = {"start": 5, "backend": backend, "layout": "bshd" if isinstance(encoding, Rotary) else "bsd"}
        right = None
        for array in (locked, unpickled, x, named, read_only, mapped, unpickled):
            values = array if isinstance(encoding, Rotary) else array[:, :, 0]
            for out in outputs():
                target = None if out is None else (out if isinstance(encoding, Rotary) else out[:, :, 0])
                got = fastpos.apply(encoding, values, out=target, **where)
                right = got if right is None else right
                assert type(got) in (np.ndarray, np.memmap)
                assert_same(patterns(got), patterns(right))
    for array in (x.copy(), pickle.loads(pickle.dumps(x)), mapped):
        first = fastpos.apply(Rotary(34), array, start=5, backend=backend)
        assert_same(fastpos.apply_(Rotary(34), array, start=5, backend=backend), first)


def test_a_dtype_that_is_gone_is_not_taken_for_another(backend):
    """Unpickled arrays have dtypes of their own, whose addresses may be used again by others."""
    rope = Rotary(8)
    right, wrong = (pickle.dumps(np.ones((1, 3, 2, 8), kind)) for kind in ("float32", "int32"))
    for _ in range(20):
        fastpos.apply(rope, pickle.loads(right), start=0, backend=backend)
        with pytest.raises(TypeError, match="expected dtype"):
            fastpos.apply(rope, pickle.loads(wrong), start=0, backend=backend)


def change(array, attribute, value):
    """NumPy from 2.5 on warns of assignments to these; people's arrays change all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        setattr(array, attribute, value)


def test_an_array_changed_between_calls_is_looked_at_again(backend):
    """The quick way of a repeated call knows its arrays by type, dtype, flags, shape and strides: each may change."""
    rope, x, out = Rotary(8), np.ones((1, 3, 2, 8), np.float32), np.ones((1, 3, 2, 8), np.float32)
    for _ in range(2):
        fastpos.apply_(rope, x, start=0, backend=backend)
        fastpos.apply(rope, x, start=0, out=out, backend=backend)
    before = x.tobytes(), out.tobytes()
    out.flags.writeable = False
    with pytest.raises(ValueError, match=r"out: .* read-only"):
        fastpos.apply(rope, x, start=1, out=out, backend=backend)
    x.flags.writeable = False
    with pytest.raises(ValueError, match=r"x: .* read-only"):
        fastpos.apply_(rope, x, start=1, backend=backend)
    assert (x.tobytes(), out.tobytes()) == before
    x.flags.writeable = True
    change(x, "shape", (3, 1, 2, 8))
    want = fastpos.apply(rope, x.copy(), start=1, backend=backend)
    assert_same(fastpos.apply_(rope, x, start=1, backend=backend), want)
    change(x, "dtype", np.int32)
    with pytest.raises(TypeError, match="x: expected dtype"):
        fastpos.apply_(rope, x, start=1, backend=backend)
