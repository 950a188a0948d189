"""A row's result depends on that row and its position alone, bit for bit, and nothing else is written.

The measure is always ``alone``: each token by itself, in fresh contiguous memory, on one thread, out of place.
"""

import pickle

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import DTYPES, FLOAT32_ERROR, assert_same
from views import LAYOUTS, PLACES, encodings, lyings, patterns, stands, surroundings

import fastpos
from fastpos import Learned, Rotary, Sinusoidal

KINDS = ["rotary", "sinusoidal", "learned"]


def alone(encoding, x, at, backend):
    """Rows ``x`` (b, s, h, d) at positions (b, s), a token a call."""
    result = np.empty_like(x)
    for index in np.ndindex(at.shape):
        token = x[index].copy()
        for head in range(len(token)):
            arguments = {"positions": [int(at[index])], "layout": "td", "backend": backend}
            result[index][head] = fastpos.apply(encoding, token[head : head + 1], **arguments)[0]
    return result


def laid_out(x, layout):
    """Order the axes of an array (b, s, h, d) as ``layout`` says; those that it lacks have size 1."""
    letters = layout.replace("t", "s")
    axes = ["bshd".index(letter) for letter in letters]
    missing = [axis for axis in range(4) if axis not in axes]
    return x.transpose(*missing, *axes).reshape([x.shape[axis] for axis in axes])


@st.composite
def calls(draw, kind):
    """Draw an encoding, rows of data, their layout and where they stand."""
    encoding, dtype = draw(encodings(kind)), DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    layout = draw(st.sampled_from([layout for layout in LAYOUTS if kind == "rotary" or "h" not in layout]))
    sizes = {"b": draw(st.integers(1, 3)), "s": draw(st.sampled_from([1, 2, 5, 13])), "h": draw(st.integers(1, 6))}
    b, s, h = (sizes[letter] if letter in layout.replace("t", "s") else 1 for letter in "bsh")
    seed = draw(st.integers(0, 2**32))
    x = np.random.default_rng(seed).standard_normal((b, s, h, encoding.width)).astype(dtype)
    return encoding, x, layout, draw(stands(b, s, layout, kind == "learned"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2])
@settings(max_examples=120)
@given(data=st.data())
def test_no_bit_depends_on_where_or_how(backend, threads, streamed, kind, count, data):
    """SPLIT, CLONE and UNTOUCHED: any strides and layout, any rule, in place or not, streamed or not, any threads."""
    encoding, x, layout, stand = data.draw(calls(kind))
    threads(1)
    want = laid_out(alone(encoding, x, stand.at, backend), layout)
    threads(count)
    values, where = laid_out(x, layout), {"layout": layout, "backend": backend, **stand.arguments}
    source, memory = data.draw(lyings(values.ndim)).place(values)
    before = memory.tobytes()
    assert_same(fastpos.apply(encoding, source, **where), want)
    target, room = data.draw(lyings(values.ndim)).place(np.full_like(values, np.nan))
    around = surroundings(target, room)
    assert fastpos.apply(encoding, source, out=target, **where) is target
    assert_same(target, want)
    assert surroundings(target, room) == around
    assert memory.tobytes() == before
    around = surroundings(source, memory)
    assert fastpos.apply_(encoding, source, **where) is source
    assert_same(source, want)
    assert surroundings(source, memory) == around


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(backend, rng, layout):
    b, s, h = (size if letter in layout.replace("t", "s") else 1 for letter, size in zip("bsh", (2, 5, 3), strict=True))
    x, at = rng.standard_normal((b, s, h, 40), dtype=np.float32), rng.integers(-999, 999, (b, s))
    for encoding in (Rotary(40), Rotary(40, interleaved=True), *(() if "h" in layout else (Sinusoidal(40),))):
        where = {"positions": at if "b" in layout else at[0], "layout": layout, "backend": backend}
        want = laid_out(alone(encoding, x, at, backend), layout)
        assert_same(fastpos.apply(encoding, laid_out(x, layout), **where), want)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_permuted_rows_give_permuted_results(backend, kind, data):
    encoding, x, _, stand = data.draw(calls(kind))
    rows, at = x.reshape(-1, *x.shape[2:])[:, 0], stand.at.reshape(-1)
    order = data.draw(st.permutations(range(len(at))))
    want = fastpos.apply(encoding, rows, positions=at, layout="td", backend=backend)
    assert_same(fastpos.apply(encoding, rows[order], positions=at[order], layout="td", backend=backend), want[order])


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_several_arrays_at_once(backend, threads, streamed, kind, data):
    """q, k and more, of different head counts and strides, some in place: each as by itself."""
    encoding, x, _, _ = data.draw(calls(kind))
    threads(data.draw(st.sampled_from([1, 2])))
    where = {"start": data.draw(st.sampled_from([0, 3, 250])), "backend": backend, "layout": "bsd"}
    shapes = [x.shape[:2] + x.shape[3:]] * data.draw(st.integers(2, 4))
    if kind == "rotary":
        where["layout"] = "bshd"
        shapes = [(*x.shape[:2], data.draw(st.integers(0, 3)), x.shape[3]) for _ in shapes]
    source = np.random.default_rng(5)
    values = [source.standard_normal(shape).astype(x.dtype) for shape in shapes]
    want = [fastpos.apply(encoding, value, **where) for value in values]
    inputs = [data.draw(lyings(len(shape))).place(value)[0] for shape, value in zip(shapes, values, strict=True)]
    outputs = [data.draw(lyings(len(shape))).place(np.zeros(shape, x.dtype))[0] for shape in shapes]
    outputs = tuple(data.draw(st.sampled_from([x, y])) for x, y in zip(inputs, outputs, strict=True))
    apart = fastpos.apply(encoding, *inputs, **where)
    given = fastpos.apply(encoding, *inputs, out=outputs, **where)
    assert isinstance(apart, tuple)
    assert all(one is other for one, other in zip(given, outputs, strict=True))
    for right, one, other in zip(want, apart, given, strict=True):
        assert_same(one, right)
        assert_same(other, right)
    for value, array, out in zip(values, inputs, outputs, strict=True):
        if array is not out:
            assert_same(array, value)


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
def test_decoding_equals_prefill(backend, rng, dtype):
    rope = Rotary(64)
    q, k = (rng.standard_normal((2, 40, heads, 64)).astype(DTYPES[dtype]) for heads in (4, 1))
    right = fastpos.apply(rope, q, k, start=-7, backend=backend)
    cache = np.full((2, 50, 1, 64), np.nan, k.dtype)
    for n in range(40):
        one, other = q[:, n : n + 1].copy(), k[:, n : n + 1].copy()
        assert fastpos.apply(rope, other, start=n - 7, out=cache[:, n : n + 1], backend=backend).base is cache
        assert_same(other, k[:, n : n + 1])
        fastpos.apply_(rope, one, other, start=n - 7, backend=backend)
        assert_same(one, right[0][:, n : n + 1])
        assert_same(other, right[1][:, n : n + 1])
    assert_same(cache[:, :40], right[1])
    assert np.isnan(cache[:, 40:]).all()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_short_types_are_only_rounded(backend, rng, kind, dtype, interleaved):
    """Rotating as float32 and rounding is rotating in the short type: nothing in between is short."""
    encoding = {
        "rotary": Rotary(96, interleaved=interleaved),
        "sinusoidal": Sinusoidal(96, interleaved=interleaved),
        "learned": Learned(rng.standard_normal((40, 96)).astype(DTYPES[dtype])),
    }[kind]
    at = np.arange(30) if kind == "learned" else np.array([*range(2000, 2020), *PLACES])
    x = rng.standard_normal((len(at), 96)).astype(DTYPES[dtype])
    short = fastpos.apply(encoding, x, positions=at, layout="td", backend=backend)
    wide = fastpos.apply(encoding, x.astype(np.float32), positions=at, layout="td", backend=backend)
    if backend == "numba" and kind != "sinusoidal":
        assert_same(short, wide.astype(short.dtype))
    # The NumPy backend computes in float64, and short sinusoids are carried from a neighbour: one rounding apart.
    exact = oracle.integers(wide)
    oracle.assert_close(short, exact, oracle.ulp(exact, dtype) / 2 + 5 * FLOAT32_ERROR)


def test_neighbours_differ(backend, rng):
    x = np.broadcast_to(rng.standard_normal(64, dtype=np.float32), (2, 64))
    for place in (0, 65535, 2**24, 2**31 - 1, 2**31, -(2**31) - 1):
        for encoding in (Rotary(64), Sinusoidal(64)):
            first, second = fastpos.apply(encoding, x, start=place, layout="td", backend=backend)
            assert np.abs(first - second).max() > 0.1


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


def test_no_memory_of_earlier_calls(backend, rng):
    ropes = [Rotary(16), Rotary(16, base=500.0), Rotary(16, interleaved=True)]
    shapes = (1, 4, 2, 16), (2, 3, 1, 16)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes for dtype in DTYPES.values()]
    calls = [(rope, x, start) for rope in ropes for x in arrays for start in (0, 9, -4)]
    first = [fastpos.apply(rope, x, start=start, backend=backend) for rope, x, start in calls]
    for index in rng.permutation(len(calls)):
        rope, x, start = calls[index]
        assert_same(fastpos.apply(rope, x, start=start, backend=backend), first[index])
        assert_same(fastpos.apply_(rope, x.copy(), start=start, backend=backend), first[index])


def test_thousands_of_encodings(backend, rng):
    """More than any cache of plans holds; one that is gone must not be mistaken for a new one at its address."""
    x = rng.standard_normal((1, 1, 1, 4))
    for n in range(1200):
        base = 100.0 + n
        got = fastpos.apply_(Rotary(4, base=base), x.copy(), start=1, backend=backend)[0, 0, 0]
        angle = base**-0.5
        np.testing.assert_allclose(got[1], x[0, 0, 0, 1] * np.cos(angle) - x[0, 0, 0, 3] * np.sin(angle), atol=1e-12)
