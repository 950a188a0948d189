"""Triton's kernels, interpreted, against the formulas in high precision: every type, pairing, rule and layout.

Compiled code rounds as the interpreter does, for every multiply-add is written out; what the compiler makes of the same
files is tested in ``test_triton_compiled``.
"""

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import DTYPES, FLOAT32_ERROR, assert_same
from test_accuracy import CASES, check_rounding, in_turn, positions
from test_pure import calls, laid_out
from views import LAYOUTS, Lying, surroundings

import fastpos
from fastpos import Learned, Linear, Rotary, Sinusoidal

interpreted = pytest.importorskip("interpreted", reason="needs torch and triton")
machine = interpreted.kernels.machine

FORMS = {"few rows": 1 << 40, "many rows": 0}


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    """Each of the two binaries of a launch, whatever its size."""
    monkeypatch.setattr(machine, "FULL", FORMS[request.param])
    return request.param


@pytest.fixture
def many(monkeypatch):
    """Let the binary for many rows do it: fewer programs, which is what interpreting takes time for."""
    monkeypatch.setattr(machine, "FULL", 0)


@pytest.mark.parametrize(("base", "width"), CASES)
def test_sine_and_cosine_at_any_position(many, rng, base, width):
    at = positions(rng, 40)
    cos, sin = oracle.waves(at, oracle.geometric(base, width))
    unit = np.zeros((len(at), width), np.float32)
    unit[:, : width // 2] = 1
    turned = interpreted.apply(Rotary(width, base=base), in_turn(unit), positions=at)[:, 0]
    oracle.assert_close(turned, np.concatenate([cos, sin], axis=1), 1.2e-7)
    added = interpreted.apply(Sinusoidal(width, base=base), np.zeros_like(unit), positions=at)
    oracle.assert_close(added, oracle.join(sin, cos, interleaved=True), 1.2e-7)
    added = interpreted.apply(Sinusoidal(width, base=base, interleaved=False), np.zeros_like(unit), positions=at)
    oracle.assert_close(added, np.concatenate([sin, cos], axis=1), 1.2e-7)


@pytest.mark.parametrize(("base", "width"), [(1e4, 512), (100.0, 32)])
def test_sinusoids_keep_their_last_places(many, rng, base, width):
    at = positions(rng, 20)
    cos, sin = oracle.waves(at, oracle.geometric(base, width))
    exact = oracle.join(sin, cos, interleaved=True)
    added = interpreted.apply(Sinusoidal(width, base=base), np.zeros((len(at), width), np.float32), positions=at)
    oracle.assert_close(added, exact, 3 * oracle.ulp(exact, "float32"))


def test_sines_next_to_zero(many):
    """Where rates need more than 64 bits: numerators of fractions that come ever closer to pi."""
    at = np.array([80143857, 165707065, 245850922, 411557987, 1068966896, -411557987])
    cos, sin = oracle.waves(at, [1])
    exact = oracle.join(sin, cos, interleaved=True)
    added = interpreted.apply(Sinusoidal(2), np.zeros((len(at), 2), np.float32), positions=at)
    oracle.assert_close(added, exact, 3 * oracle.ulp(exact, "float32"))


@pytest.mark.parametrize(("base", "width"), [(1e4, 128), (12345.678, 34)])
@pytest.mark.parametrize("interleaved", [False, True])
def test_float64(many, rng, base, width, interleaved):
    at = positions(rng, 20)
    x = rng.standard_normal((len(at), width))
    x /= np.abs(x).max()
    angles = oracle.waves(at, oracle.geometric(base, width))
    rope = Rotary(width, base=base, interleaved=interleaved)
    turned = interpreted.apply(rope, in_turn(x), positions=at)[:, 0]
    oracle.assert_close(turned, oracle.rotate(x, *angles, interleaved), 1e-14)
    pe = Sinusoidal(width, base=base, interleaved=interleaved)
    exact = oracle.join(*angles[::-1], interleaved) + oracle.integers(x)
    oracle.assert_close(interpreted.apply(pe, x, positions=at), exact, 1e-14)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_short_types_are_correctly_rounded(many, rng, dtype, interleaved):
    at = positions(rng, 60)
    x = rng.standard_normal((len(at), 128)).astype(DTYPES[dtype])
    angles = oracle.waves(at, oracle.geometric(1e4, 128))
    rope = Rotary(128, interleaved=interleaved)
    turned = interpreted.apply(rope, in_turn(x), positions=at)[:, 0]
    check_rounding(turned, oracle.rotate(x, *angles, interleaved), oracle.norms(x, 64, interleaved), dtype, 0.999)
    pe = Sinusoidal(128, interleaved=interleaved, embedding_scale=128**0.5)
    exact = ((oracle.integers(x) * oracle.integers(pe.embedding_scale)) >> oracle.SCALE) + oracle.join(
        *angles[::-1], interleaved
    )
    size = np.abs(x.astype(np.float64)) * pe.embedding_scale + 1
    check_rounding(interpreted.apply(pe, x, positions=at), exact, size, dtype, 0.999)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("width", "turned"), [(24, 10), (33, 16), (130, 2), (4, None)])
def test_partial_width_and_scaled_frequencies(form, rng, width, turned, interleaved):
    pairs = (turned or width) // 2
    at = positions(rng, 3)[::7]
    x = rng.standard_normal((len(at), width)).astype(np.float32)
    x[:, 2 * pairs :] = rng.integers(0, 2**32, (len(at), width - 2 * pairs), np.uint32).view(np.float32)
    before, rope = x.copy(), Rotary(width, rotary_dim=turned, interleaved=interleaved, scaling=Linear(3.7))
    angles = oracle.waves(at, oracle.geometric(1e4, 2 * pairs, factor=3.7))
    exact = oracle.rotate(x[:, : 2 * pairs], *angles, interleaved)
    limit = FLOAT32_ERROR * oracle.norms(x[:, : 2 * pairs], pairs, interleaved)
    for out in (np.empty_like(x), x):
        interpreted.apply(rope, x, out=[out], positions=at, layout="td")
        oracle.assert_close(out[:, : 2 * pairs], exact, limit)
        assert_same(out[:, 2 * pairs :], before[:, 2 * pairs :])


@pytest.mark.parametrize("dtype", DTYPES)
def test_learned_rows(form, rng, dtype):
    table = rng.standard_normal((40, 72)).astype(DTYPES[dtype])
    x, at = rng.standard_normal((2, 9, 72)).astype(DTYPES[dtype]), rng.integers(0, 38, (2, 9))
    exact = oracle.integers(x) + oracle.integers(table[at + 2])
    want = oracle.rounded(exact, dtype)
    if dtype == "bfloat16":  # rounded by way of float32
        want = (x.astype(np.float32) + table[at + 2].astype(np.float32)).astype(x.dtype)
    assert_same(interpreted.apply(Learned(table, offset=2), x, positions=at), want)
    mixed = Learned(rng.standard_normal((40, 72)))
    right = oracle.integers(x) + oracle.integers(mixed.table[at])
    limit = oracle.ulp(right, dtype) / 2 + (1e-15 if dtype == "float64" else FLOAT32_ERROR)
    oracle.assert_close(interpreted.apply(mixed, x, positions=at), right, limit)


def test_rows_outside_a_learned_table_are_nan(form, rng):
    table, x = rng.standard_normal((8, 40), np.float32), rng.standard_normal((1, 7, 40), np.float32)
    at = np.array([[5, 6, -2, -3, 2**62, -(2**62), 0]])
    got = interpreted.apply(Learned(table, offset=2), x, positions=at)
    assert np.isnan(got[0]).all(-1).tolist() == [False, True, True, True, True, True, False]
    assert_same(got[0, [0, 6]], x[0, [0, 6]] + table[[7, 2]])


@pytest.mark.parametrize(
    "rows", ["start", "starts", "one start", "ids", "shared ids", "documents", "started documents"]
)
@pytest.mark.parametrize("integers", [np.int32, np.int64])
def test_every_rule(form, rng, rows, integers):
    """Positions as they are read inside the kernel, next to the same ones given as ids."""
    batch, tokens = (1, 11) if "documents" in rows else (2, 11)
    x = rng.standard_normal((batch, tokens, 2, 16)).astype(np.float32)
    low, high = (-(2**31), 2**31 - 20) if integers is np.int32 else (-(2**61), 2**61)
    begin = rng.integers(low, high, batch, dtype=np.int64)
    steps, layout = np.arange(tokens), interpreted.layout_for(Rotary(16), "bshd", 4)
    rule, starts = interpreted.Rule, None
    if rows == "start":
        where, kind, at = int(begin[0]), rule(interpreted.START), begin[0] + steps
    elif rows == "starts":
        wide = np.repeat(begin, 3).astype(integers)[::3]
        where, kind, at = wide, rule(interpreted.STARTS, (wide.strides[0], 0)), begin[:, None] + steps
    elif rows == "one start":
        where, kind, at = begin[0].astype(integers), rule(interpreted.STARTS, (0, 0)), begin[0] + steps
    elif "ids" in rows:
        at = rng.integers(low, high, (batch, tokens))
        at = at[:1] if rows == "shared ids" else at
        where = np.asfortranarray(at.astype(integers))
        kind = rule(interpreted.IDS, (0 if len(at) == 1 else where.strides[0], where.strides[1]), integers().itemsize)
    else:
        lengths = [0, 3, 0, 2, 1, 0, 0, 4, 1]
        where = np.cumsum([0, *lengths]).astype(integers)
        kind = rule(interpreted.PACKED, documents=len(lengths))
        starts = rng.integers(low, high, len(lengths)).astype(integers) if "started" in rows else None
        at = np.repeat(np.zeros(9, np.int64) if starts is None else starts.astype(np.int64), lengths)
        at = at + steps - np.repeat(where[:-1], lengths)
    y = np.empty_like(x)
    operands = [interpreted.tensor(array) for array in (x, y)]
    launch = interpreted.bind(Rotary(16), [x], [y], layout, kind)
    where, starts = (
        a if a is None or isinstance(a, int) else interpreted.tensor(np.asarray(a)) for a in (where, starts)
    )
    assert launch(operands[:1], operands[1:], where, starts, 1, True) == interpreted.DONE
    want = interpreted.apply(Rotary(16), x, positions=np.broadcast_to(at, (batch, tokens)).astype(np.int64))
    assert_same(y, want)
    # The same bits as NumPy's reference would give them in float32, so that ids are right, too.
    assert_same(want, fastpos.apply(Rotary(16), x, positions=np.broadcast_to(at, (batch, tokens)), backend="numba"))


@st.composite
def lyings(draw, rank):
    """How a tensor may lie in memory: axes in any order but the last, gaps, steps, broadcast, off the grid of 16 bytes."""
    spare = st.sampled_from([0, 0, 1, 3])
    order = (*draw(st.permutations(range(rank - 1))), rank - 1)
    before, after = (tuple(draw(st.lists(spare, min_size=rank, max_size=rank))) for _ in range(2))
    steps = (*draw(st.lists(st.sampled_from([1, 1, 2, -1, -3]), min_size=rank - 1, max_size=rank - 1)), 1)
    return Lying(order, before, after, steps, draw(st.sampled_from([0, 8, 16])), False)


@pytest.mark.parametrize("kind", ["rotary", "sinusoidal", "learned"])
@settings(max_examples=30)
@given(data=st.data())
def test_no_bit_depends_on_where_or_how(kind, data):
    """Any strides and layout, any rule, in place or not, either binary: always the bits of the plain call."""
    encoding, x, layout, stand = data.draw(calls(kind))
    x, at = x[:, :5, :3], stand.at[..., :5]
    full = machine.FULL
    try:
        machine.FULL = 0
        flat = x.reshape(-1, *x.shape[2:])
        rows = [np.ascontiguousarray(flat[:, head]) for head in range(x.shape[2])]
        places = at.reshape(*at.shape[:-2], -1)
        want = [interpreted.apply(encoding, row, positions=places, layout="td") for row in rows]
        want = laid_out(np.stack(want, axis=1).reshape(x.shape), layout)
        machine.FULL = data.draw(st.sampled_from(sorted(FORMS.values())))
        values = laid_out(x, layout)
        where = {"layout": layout, **stand.arguments}
        if stand.at.shape[-1] > 5 and "start" not in stand.arguments:
            where = {"layout": layout, "positions": at if "b" in layout else at[..., 0, :]}
        elif "cu_seqlens" in where:
            where = {"layout": layout, "positions": at[..., 0, :]}
        source, memory = data.draw(lyings(values.ndim)).place(values)
        before = memory.tobytes()
        target, room = data.draw(lyings(values.ndim)).place(np.full_like(values, np.nan))
        around = surroundings(target, room)
        interpreted.apply(encoding, source, out=[target], **where)
        assert_same(target, want)
        assert surroundings(target, room) == around
        assert memory.tobytes() == before
        around = surroundings(source, memory)
        interpreted.apply(encoding, source, out=[source], **where)
        assert_same(source, want)
        assert surroundings(source, memory) == around
    finally:
        machine.FULL = full


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_a_token_alone(form, rng, dtype, interleaved):
    """Prefill, decode one by one into a cache, more inputs than two, of different head counts."""
    rope = Rotary(48, rotary_dim=32, interleaved=interleaved)
    inputs = [rng.standard_normal((2, 5, heads, 48)).astype(DTYPES[dtype]) for heads in (9, 2, 0, 1)]
    right = interpreted.apply(rope, *inputs, start=-2)
    cache = np.full((2, 8, 2, 48), np.nan, inputs[1].dtype)
    for n in range(5):
        q = inputs[0][:, n : n + 1].copy()
        pair = q, inputs[1][:, n : n + 1]
        interpreted.apply(rope, *pair, out=[q, cache[:, n : n + 1]], start=n - 2)
        assert_same(q, right[0][:, n : n + 1])
    assert_same(cache[:, :5], right[1])
    assert np.isnan(cache[:, 5:].astype(np.float32)).all()
    assert_same(interpreted.apply(rope, inputs[3], start=-2), right[3])


def test_broadcast_inputs_are_read_where_they_lie(form, rng):
    one = rng.standard_normal((1, 4, 1, 32), np.float32)
    wide = np.broadcast_to(one, (3, 4, 5, 32))
    assert_same(
        interpreted.apply(Rotary(32), wide, start=7, out=[np.empty(wide.shape, np.float32)]),
        np.broadcast_to(interpreted.apply(Rotary(32), one, start=7), wide.shape),
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(many, rng, layout):
    b, s, h = (size if letter in layout.replace("t", "s") else 1 for letter, size in zip("bsh", (2, 5, 3), strict=True))
    x, at = rng.standard_normal((b, s, h, 40), dtype=np.float32), rng.integers(-999, 999, (b, s))
    where = {"positions": at if "b" in layout else at[0], "layout": layout}
    for encoding in (Rotary(40), *(() if "h" in layout else (Sinusoidal(40),))):
        got = interpreted.apply(encoding, np.ascontiguousarray(laid_out(x, layout)), **where)
        assert_same(got, laid_out(fastpos.apply(encoding, x[:, :, 0], positions=at, layout="bsd")[:, :, None], layout)
                    if h == 1 else laid_out(fastpos.apply(encoding, x, positions=at, layout="bshd"), layout))  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [8192, 2])
def test_widest_and_narrowest(form, rng, dtype, width):
    """Rows that several programs share, and rows of one pair; the bits that Numba's kernels give."""
    x, at = rng.standard_normal((2, width)).astype(DTYPES[dtype]), np.array([2**31, -(2**31) - 3])
    for interleaved in (False, True):
        rope = Rotary(width, interleaved=interleaved, rotary_dim=max(2, width - 2))
        want = fastpos.apply(rope, x, positions=at, layout="td", backend="numba")
        assert_same(interpreted.apply(rope, x, positions=at, layout="td"), want)
        if dtype in ("float32", "float64"):  # Numba carries short sinusoids from neighbours
            pe = Sinusoidal(width, interleaved=interleaved, embedding_scale=3.0)
            want = fastpos.apply(pe, x, positions=at, backend="numba")
            assert_same(interpreted.apply(pe, x, positions=at), want)
    table = rng.standard_normal((3, width)).astype(DTYPES[dtype])
    want = fastpos.apply(Learned(table), x, positions=[2, 0], backend="numba")
    assert_same(interpreted.apply(Learned(table), x, positions=[2, 0]), want)


@pytest.mark.parametrize("edges", [[0, 2**40, -5, 4], [3, 3, 3, 3], [4, 0, 0, 0], [-1, -1, -1, -1]])
def test_boundaries_that_are_wrong_stay_in_their_arrays(form, rng, edges):
    """Boundaries on a device are not looked at beforehand: a wrong result at worst, never a document that is not there."""
    guarded = np.full(64, 10**6, np.int64)
    x, where, starts = rng.standard_normal((4, 1, 8), np.float32), np.array(edges), guarded[30:33]
    starts[...] = 0
    y, layout = np.empty_like(x), interpreted.layout_for(Rotary(8), "thd", 3)
    launch = interpreted.bind(Rotary(8), [x], [y], layout, interpreted.Rule(interpreted.PACKED, documents=3))
    operands = [interpreted.tensor(array) for array in (x, y, where, starts)]
    assert launch(operands[:1], operands[1:2], *operands[2:], 1, True) == interpreted.DONE
    possible = [
        interpreted.apply(Rotary(8), x, positions=[token - edge for token in range(4)]) for edge in {*edges[:3]}
    ]
    assert all(any((y[token] == way[token]).all() for way in possible) for token in range(4))


def test_empty_arrays(rng):
    for shape in ((0, 3, 2, 8), (2, 0, 2, 8), (2, 3, 0, 8)):
        x = np.zeros(shape, np.float32)
        assert interpreted.apply(Rotary(8), x, start=0).shape == shape


def test_too_many_rows_are_refused():
    x = np.broadcast_to(np.float16(0), (2**31, 2))
    with pytest.raises(
        ValueError, match=r"x: expected at most \d+ tokens over all batch rows on a GPU, got 2147483648"
    ):
        interpreted.apply(Sinusoidal(2), x, out=[x], start=0)
