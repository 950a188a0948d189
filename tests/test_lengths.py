"""Scalings that go by the length of a sequence: each row as if it were alone, and nothing chosen in silence."""

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import assert_same
from views import lyings, stands, surroundings

import fastpos
from fastpos import Rotary, Sinusoidal
from fastpos.scaling import DynamicNTK, Linear, LongRoPE

LONG = Rotary(8, scaling=LongRoPE([1.0, 1.5, 2.0, 2.5], [4.0, 5.0, 6.0, 7.0], 10, 4.0))
DYNAMIC = Rotary(8, scaling=DynamicNTK(3.0, 10), interleaved=True)
ROPES = pytest.mark.parametrize("rope", [LONG, DYNAMIC], ids=["longrope", "dynamic"])
LENGTHS = st.sampled_from([0, 1, 9, 10, 11, 12, 500])


@ROPES
@settings(max_examples=60)
@given(data=st.data())
def test_a_row_never_depends_on_its_neighbours(backend, rope, data):
    """Every rule, layout and memory, in place and not: rows and documents get the bits that each gets alone."""
    layout = data.draw(st.sampled_from(["bshd", "bhsd", "shd", "thd", "hbsd", "sbd"]))
    b = data.draw(st.integers(1, 4)) if "b" in layout else 1
    s, h = data.draw(st.integers(1, 6)), 3 if "h" in layout else 1
    x = np.random.default_rng(5).standard_normal((b, s, h, 8)).astype(np.float32)
    stand = data.draw(stands(b, s, layout, False))
    edges = stand.arguments.get("cu_seqlens")
    rows = b if edges is None else len(edges) - 1
    tokens = data.draw(st.lists(LENGTHS, min_size=rows, max_size=rows))
    if "b" not in layout and edges is None:
        tokens, said = tokens[:1], tokens[0]
    else:
        said = np.array(tokens, data.draw(st.sampled_from(["i8", "i4", "u2"])))
    owner = np.repeat(np.arange(b), s) if edges is None else np.repeat(np.arange(rows), np.diff(edges))
    want = np.empty_like(x)
    for index, row in enumerate(owner):
        place = divmod(index, s)
        alone = rope.at_length(tokens[row if len(tokens) > 1 else 0])
        at = [int(np.broadcast_to(stand.at, (b, s))[place])]
        want[place] = fastpos.apply(alone, x[place][None, None], positions=at, backend=backend)[0, 0]
    letters = layout.replace("t", "s")
    order = ["bshd".index(letter) for letter in letters]
    missing = [axis for axis in range(4) if axis not in order]

    def laid(array):
        return array.transpose(*missing, *order).reshape([array.shape[axis] for axis in order])

    where = {**stand.arguments, "layout": layout, "backend": backend, "seq_lens": said}
    source, memory = data.draw(lyings(len(layout))).place(laid(x))
    before = memory.tobytes()
    assert_same(fastpos.apply(rope, source, **where), laid(want))
    assert memory.tobytes() == before
    target, room = data.draw(lyings(len(layout))).place(np.full_like(laid(x), np.nan))
    around = surroundings(target, room)
    assert fastpos.apply(rope, source, out=target, **where) is target
    assert_same(target, laid(want))
    assert surroundings(target, room) == around
    around = surroundings(source, memory)
    assert fastpos.apply_(rope, source, **where) is source
    assert_same(source, laid(want))
    assert surroundings(source, memory) == around


@ROPES
def test_one_length_for_the_whole_batch(backend, rng, rope):
    """What transformers does: the longest row decides for all."""
    q, k = rng.standard_normal((2, 3, 5, 2, 8))
    turned = fastpos.apply(rope, q, k, start=[0, 3, 20], seq_lens=25, backend=backend)
    want = fastpos.apply(rope.at_length(25), q, k, start=[0, 3, 20], backend=backend)
    for one, other in zip(turned, want, strict=True):
        assert_same(one, other)
    changed = fastpos.apply(rope, q, k, start=[0, 3, 20], seq_lens=[5, 8, 25], backend=backend)
    assert_same(changed[0][2], want[0][2])
    assert (changed[0][0] != want[0][0]).any()


@ROPES
def test_decoding_by_length(backend, rng, rope):
    """A token at a time, rows crossing the trained length one after the other: straight into a cache, q in place."""
    cache, done = np.zeros((2, 16, 1, 8)), np.array([6, 9])
    for _ in range(6):
        q, k = rng.standard_normal((2, 2, 1, 1, 8))
        want = [fastpos.apply(rope.at_length(n + 1), q[i : i + 1], start=int(n)) for i, n in enumerate(done)]
        wrote = cache[:, 3:4]
        fastpos.apply(rope, q, k, start=done, seq_lens=done + 1, out=(q, wrote), backend=backend)
        np.testing.assert_allclose(q, np.concatenate(want), atol=1e-15)
        assert (cache[:, 3] != 0).all()
        assert (cache[:, :3] == 0).all()
        done = done + 1


def test_rows_of_one_clock_go_together(monkeypatch, rng):
    """Rows side by side with the same frequencies are one call."""
    seen = []
    true = fastpos.call.execute
    monkeypatch.setattr(fastpos.call, "execute", lambda *call: (seen.append(call[1][0].shape[0]), true(*call)))
    x = rng.standard_normal((5, 2, 1, 8))
    fastpos.apply(LONG, x, start=0, seq_lens=[3, 10, 11, 99, 2])
    assert seen == [2, 2, 1]
    fastpos.apply(LONG, x, start=0, seq_lens=[3, 10, 1, 9, 2])
    assert seen == [2, 2, 1, 5]


def test_rows_with_several_coordinates(backend, rng):
    """Positions (axes, b, s), real ones too, are cut by rows, and queries stay the first array."""
    for real in (False, True):
        axes = fastpos.Axes((2, 1, 1), real=real)
        rope = dataclasses.replace(LONG, axes=axes, query_scale=fastpos.MinistralScale(0.5, 4))
        at = rng.integers(0, 40, (3, 3, 5)) + (0.25 if real else 0)
        q, k = rng.standard_normal((2, 3, 5, 2, 8))
        for ids in (at, at[:, 0], at[:, :1]):
            got = fastpos.apply(rope, q, k, positions=ids, seq_lens=[3, 50, 3], backend=backend)
            for row, length in enumerate([3, 50, 3]):
                own = ids[:, row : row + 1] if ids.shape == at.shape else ids
                one = slice(row, row + 1)
                want = fastpos.apply(rope.at_length(length), q[one], k[one], positions=own, backend=backend)
                for mine, right in zip(got, want, strict=True):
                    assert_same(mine[one], right)


def test_nothing_to_do(backend):
    for shape in ((0, 3, 2, 8), (2, 0, 2, 8)):
        x = np.empty(shape, np.float32)
        lengths = [5, 50][: shape[0]]
        assert fastpos.apply(LONG, x, start=0, seq_lens=lengths, backend=backend).shape == shape
    packed = fastpos.apply(LONG, np.empty((0, 2, 8)), cu_seqlens=[0], seq_lens=[], backend=backend)
    assert packed.shape == (0, 2, 8)


def x4():
    return np.ones((2, 3, 1, 8), np.float32)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda x: fastpos.apply(LONG, x, start=0), ValueError, r"encoding: .* \(LongRoPE\).* seq_lens=.*at_length\(n\)"),
    (lambda x: fastpos.apply_(DYNAMIC, x, start=0), ValueError, r"encoding: .* \(DynamicNTK\): .*seq_lens="),
    (lambda x: fastpos.apply(Rotary(8), x, start=0, seq_lens=3), ValueError, "seq_lens: expected none, for Rotary"),
    (lambda x: fastpos.apply_(Rotary(8, scaling=Linear(2.0)), x, start=0, seq_lens=3), ValueError, "seq_lens: .* none"),
    (lambda x: fastpos.apply(LONG.at_length(3), x, start=0, seq_lens=3), ValueError, "seq_lens: expected none, for Rot"),
    (lambda x: fastpos.apply(Sinusoidal(8), x[0], start=0, seq_lens=3), ValueError, "seq_lens: expected none, for Sin"),
    (lambda x: fastpos.apply(None, x, start=0, seq_lens=3), TypeError, "encoding: expected first an object"),
    (lambda x: fastpos.apply(LONG, x, seq_lens=3), TypeError, "expected start=, positions= or cu_seqlens="),
    (lambda x: fastpos.apply(LONG, x, start=0, seq_lens=-3), ValueError, "seq_lens: expected 0 to .*, got -3"),
    (lambda x: fastpos.apply(LONG, x, start=0, seq_lens=[3, -1]), ValueError, "seq_lens: expected 0 or more, got -1"),
    (lambda x: fastpos.apply(LONG, x, start=0, seq_lens=[3]), ValueError, r"seq_lens: .*shape \(2,\), one a row.*\(1,\)"),
    (lambda x: fastpos.apply(LONG, x, start=0, seq_lens=[[3, 3]]), ValueError, r"seq_lens: .*got shape \(1, 2\)"),
    (lambda x: fastpos.apply(LONG, x, start=0, seq_lens=3.0), TypeError, r"seq_lens: expected an integer.*got 3\.0"),
    (lambda x: fastpos.apply(LONG, x, start=0, seq_lens=[3.0, 4.0]), TypeError, "seq_lens: .*integers.*float64"),
    (lambda x: fastpos.apply(LONG, x[0], start=0, seq_lens=[3]), ValueError, "seq_lens: .*one integer.*no batch axis"),
    (lambda x: fastpos.apply(LONG, x[0], cu_seqlens=[0, 1, 3], seq_lens=[3]), ValueError, r"seq_lens: .*\(2,\).*\(1,\)"),
    (lambda x: fastpos.apply(LONG, x, start=0, seq_lens=[3, 99], layout="bsd"), ValueError, "layout: 'bsd' has 3 axes"),
    (lambda x: fastpos.apply_(LONG, x, x, start=0, seq_lens=[3, 99]), ValueError, "output 0: .*overlaps more"),
    (lambda x: LONG.at_length(-1), ValueError, "length: expected 0 to .*, got -1"),
    (lambda x: LONG.at_length(2.0), TypeError, r"length: expected an integer, got 2\.0"),
])  # fmt: skip
def test_refused_before_a_byte_is_written(call, error, message):
    x = x4()
    with pytest.raises(error, match=message):
        call(x)
    assert (x == 1).all()


def explain(x):
    return fastpos.explain(LONG, x, start=0)


def table(x):
    return fastpos.table(LONG, positions=[0])


def shift(x):
    return fastpos.shift_(DYNAMIC, x, by=1)


def shift_matrix(x):
    return fastpos.shift_matrix(DYNAMIC, 1)


@pytest.mark.parametrize("call", [explain, table, shift, shift_matrix])
def test_others_ask_for_a_length(call):
    x = x4()
    with pytest.raises(
        ValueError, match=r"encoding: its frequencies go by the length .* take encoding\.at_length\(n\)"
    ):
        call(x)
    assert (x == 1).all()


def test_rows_that_would_write_over_others_are_refused():
    """What one row writes is what the next would read: the whole is checked, not each row."""
    memory = np.arange(3 * 24, dtype=np.float32).reshape(3, 3, 1, 8)
    before = memory.copy()
    with pytest.raises(ValueError, match="out: expected to be x itself or memory apart"):
        fastpos.apply(LONG, memory[:2], start=0, seq_lens=[3, 99], out=memory[1:])
    assert_same(memory, before)


def test_at_length():
    assert Rotary(8).at_length(5) == Rotary(8)
    assert not LONG.at_length(5).by_length
    assert LONG.at_length(5).at_length(500) is LONG.at_length(5) is LONG.at_length(10)
    assert LONG.at_length(11) is LONG.at_length(500) is not LONG.at_length(10)
    copied = pickle.loads(pickle.dumps(LONG))
    assert copied == LONG
    assert copied.at_length(500) == LONG.at_length(500)
    for length in range(1000):
        assert DYNAMIC.at_length(length).scaling.length == max(length, 10)
    assert fastpos.warmup(LONG, dtypes=["float32"]) == ["rotate float32"]
    np.testing.assert_allclose(fastpos.table(LONG.at_length(11), positions=[1])[1][0, 0] / LONG.scaling.attention_scaling,
                               np.sin(1 / 4.0))  # fmt: skip
