"""A row's result depends on that row and its position alone, bit for bit, and nothing else is written.

The measure is always ``alone``: each token by itself, in fresh contiguous memory, on one thread, out of place.
"""

import dataclasses

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import DTYPES, FLOAT32_ERROR, assert_same
from views import LAYOUTS, PLACES, encodings, lyings, stands, surroundings

import fastpos
from fastpos import Learned, Rotary, Sinusoidal

KINDS = ["rotary", "sinusoidal", "learned"]


def alone(encoding, x, at, backend):
    """Rows ``x`` (b, s, h, d) at positions (b, s) or (axes, b, s), a token a call."""
    result = np.empty_like(x)
    for index in np.ndindex(x.shape[:2]):
        token = x[index].copy()
        for head in range(len(token)):
            arguments = {"positions": at[..., index[0], index[1], None], "layout": "td", "backend": backend}
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
    encoding = draw(encodings(kind))
    # Rare forms in two types alone: each form of each type is a kernel to compile, streamed and not.
    rare = kind == "rotary" and (encoding.axes or encoding.query_scale) is not None
    dtype = DTYPES[draw(st.sampled_from(["bfloat16", "float32"] if rare else sorted(DTYPES)))]
    layout = draw(st.sampled_from([layout for layout in LAYOUTS if kind == "rotary" or "h" not in layout]))
    sizes = {"b": draw(st.integers(1, 3)), "s": draw(st.sampled_from([1, 2, 5, 13])), "h": draw(st.integers(1, 6))}
    b, s, h = (sizes[letter] if letter in layout.replace("t", "s") else 1 for letter in "bsh")
    seed = draw(st.integers(0, 2**32))
    x = np.random.default_rng(seed).standard_normal((b, s, h, encoding.width)).astype(dtype)
    return encoding, x, layout, draw(stands(b, s, layout, encoding))


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
    rows, at = x.reshape(-1, *x.shape[2:])[:, 0], stand.at.reshape(*stand.at.shape[:-2], -1)
    order = data.draw(st.permutations(range(len(rows))))
    want = fastpos.apply(encoding, rows, positions=at, layout="td", backend=backend)
    got = fastpos.apply(encoding, rows[order], positions=at[..., order], layout="td", backend=backend)
    assert_same(got, want[order])


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
    # The first array is the queries.
    keys = dataclasses.replace(encoding, query_scale=None) if kind == "rotary" else encoding
    want = [fastpos.apply(keys if index else encoding, value, **where) for index, value in enumerate(values)]
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
