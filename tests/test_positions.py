"""Where tokens stand: the builders, and the rules of a call against each other."""

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpos
from fastpos import Learned, Rotary
from fastpos.positions import cu_seqlens, from_lengths, from_mask, packed

LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=5)
STARTS = st.integers(-(2**40), 2**40)
# A table that says which row was added.
ROWS = Learned(np.arange(64, dtype=np.float32)[:, None] * np.ones((1, 2), np.float32))


def places(layout, shape, **where):
    """Read off the positions that a call gives its tokens."""
    return fastpos.apply(ROWS, np.zeros((*shape, 2), np.float32), layout=layout, **where)[..., 0].astype(int).tolist()


@pytest.mark.parametrize(
    ("mask", "start", "expected"),
    [
        ([[1, 1, 1], [1, 1, 1]], 0, [[0, 1, 2], [0, 1, 2]]),
        ([[0, 0, 1, 1], [0, 1, 1, 1]], 0, [[0, 0, 0, 1], [0, 0, 1, 2]]),
        ([[1, 1, 0, 0], [1, 0, 0, 0]], 0, [[0, 1, 1, 1], [0, 0, 0, 0]]),
        ([[1, 0, 1, 0, 1]], 0, [[0, 0, 1, 1, 2]]),
        ([[0, 0, 0]], 0, [[0, 0, 0]]),
        ([[0, 1, 1], [1, 1, 0]], [5, 9], [[5, 5, 6], [9, 10, 10]]),
        ([[0, 1, 1], [1, 1, 0]], 7, [[7, 7, 8], [7, 8, 8]]),
        ([0, 1, 1], 3, [3, 3, 4]),
        (np.array([[True, False, True]]), 0, [[0, 0, 1]]),
        (np.array([[0.0, 1.0]]), 0, [[0, 0]]),
        (np.zeros((2, 0), int), 0, [[], []]),
    ],
)
def test_from_mask(mask, start, expected):
    found = from_mask(mask, start)
    assert found.dtype == np.int64
    assert found.tolist() == expected


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=4), STARTS)
def test_padding_neither_consumes_nor_resets(mask, start):
    for marks, row in zip(mask, from_mask(mask, start), strict=True):
        tokens = [position for mark, position in zip(marks, row.tolist(), strict=True) if mark]
        assert tokens == list(range(start, start + sum(marks)))


@given(LENGTHS, st.integers(0, 3), st.sampled_from(["left", "right"]))
def test_from_lengths(lengths, spare, padding):
    s = max(lengths) + spare
    found = from_lengths(lengths, s, padding=padding)
    assert found.shape == (len(lengths), s)
    for length, row in zip(lengths, found.tolist(), strict=True):
        tokens = row[s - length :] if padding == "left" else row[:length]
        assert tokens == list(range(length))
        rest = row[: s - length] if padding == "left" else row[length:]
        assert set(rest) <= {0 if padding == "left" else max(length - 1, 0)}


def test_from_lengths_by_hand():
    assert from_lengths([3, 1]).tolist() == [[0, 1, 2], [0, 0, 0]]
    assert from_lengths([3, 1], padding="left").tolist() == [[0, 1, 2], [0, 0, 0]]
    assert from_lengths([2, 3], 4, padding="left", start=[10, 0]).tolist() == [[10, 10, 10, 11], [0, 0, 1, 2]]
    assert from_lengths([2, 3], start=[10, 0]).tolist() == [[10, 11, 11], [0, 1, 2]]


@given(LENGTHS, STARTS)
def test_packed(lengths, start):
    assert packed(lengths, start).tolist() == [start + j for length in lengths for j in range(length)]
    starts = [start + n for n in range(len(lengths))]
    expected = [begin + j for begin, length in zip(starts, lengths, strict=True) for j in range(length)]
    assert packed(lengths, starts).tolist() == expected
    edges = cu_seqlens(lengths).tolist()
    assert edges[0] == 0
    assert np.diff(edges).tolist() == lengths


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: from_mask([[0, 2]]), ValueError, "mask: expected 0 and 1 alone, got 2"),
    (lambda: from_mask([[0.5, 1]]), ValueError, r"mask: expected 0 and 1 alone, got 0\.5"),
    (lambda: from_mask(1), ValueError, r"mask: expected shape \(b, s\) or \(s,\), got \(\)"),
    (lambda: from_mask([[[1]]]), ValueError, r"mask: expected shape .*, got \(1, 1, 1\)"),
    (lambda: from_mask([[1, 1]], [0, 1]), ValueError, r"start: .*\(1,\), one a row or document, got shape \(2,\)"),
    (lambda: from_mask([[1, 1]], 0.5), TypeError, r"start: .*got 0\.5"),
    (lambda: from_lengths([3, -1]), ValueError, "lengths: expected 0 or more, got -1"),
    (lambda: from_lengths([3, 5], 4), ValueError, "lengths: expected at most s = 4, got 5"),
    (lambda: from_lengths([1], padding="both"), ValueError, "padding: expected 'left' or 'right', got 'both'"),
    (lambda: from_lengths([[1]]), ValueError, r"lengths: expected one number a row, got shape \(1, 1\)"),
    (lambda: from_lengths([1.5]), TypeError, "lengths: expected integers that int64 can hold, got float64"),
    (lambda: packed([2, 1], [0]), ValueError, r"start: .*\(2,\), one a row or document, got shape \(1,\)"),
    (lambda: cu_seqlens([1, -2]), ValueError, "lengths: expected 0 or more, got -2"),
])  # fmt: skip
def test_builders_refuse(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("layout", "shape", "where", "expected"),
    [
        ("td", (3,), {"start": 5}, [5, 6, 7]),
        ("sd", (3,), {"start": np.int64(5)}, [5, 6, 7]),
        ("sd", (3,), {"start": np.array(5)}, [5, 6, 7]),
        ("bsd", (2, 3), {"start": 5}, [[5, 6, 7], [5, 6, 7]]),
        ("bsd", (2, 3), {"start": [5, 0]}, [[5, 6, 7], [0, 1, 2]]),
        ("bsd", (2, 3), {"start": np.array([5, 0], np.uint8)}, [[5, 6, 7], [0, 1, 2]]),
        ("sbd", (3, 2), {"start": [5, 0]}, [[5, 0], [6, 1], [7, 2]]),
        ("bsd", (2, 3), {"positions": [9, 0, 9]}, [[9, 0, 9], [9, 0, 9]]),
        ("bsd", (2, 2), {"positions": [9, 0]}, [[9, 0], [9, 0]]),
        ("bsd", (2, 3), {"positions": [[9, 0, 9], [1, 2, 63]]}, [[9, 0, 9], [1, 2, 63]]),
        ("sbd", (3, 2), {"positions": [[9, 0, 9], [1, 2, 63]]}, [[9, 1], [0, 2], [9, 63]]),
        ("td", (5,), {"positions": range(5)}, [0, 1, 2, 3, 4]),
        ("td", (5,), {"cu_seqlens": [0, 3, 5]}, [0, 1, 2, 0, 1]),
        ("td", (5,), {"cu_seqlens": [0, 0, 3, 3, 5, 5]}, [0, 1, 2, 0, 1]),
        ("td", (5,), {"cu_seqlens": [0, 3, 5], "start": [7, 60]}, [7, 8, 9, 60, 61]),
        ("td", (5,), {"cu_seqlens": [0, 3, 3, 5], "start": [7, 99, 60]}, [7, 8, 9, 60, 61]),
        ("td", (5,), {"cu_seqlens": [0, 3, 5], "start": 7}, [7, 8, 9, 7, 8]),
        ("td", (5,), {"cu_seqlens": np.array([0, 5], np.int32)}, [0, 1, 2, 3, 4]),
        ("td", (0,), {"cu_seqlens": [0]}, []),
    ],
)
def test_rules(backend, layout, shape, where, expected):
    assert places(layout, shape, backend=backend, **where) == expected


@given(lengths=LENGTHS, data=st.data())
def test_packed_rule_is_packed_positions(lengths, data):
    starts = data.draw(st.lists(STARTS, min_size=len(lengths), max_size=len(lengths)))
    rope, x = Rotary(6), np.random.default_rng(1).standard_normal((sum(lengths), 2, 6), dtype=np.float32)
    for backend in ("numpy", "numba"):
        rule = fastpos.apply(rope, x, cu_seqlens=cu_seqlens(lengths), start=starts, backend=backend)
        ids = fastpos.apply(rope, x, positions=packed(lengths, starts), backend=backend)
        oracle.assert_same(rule, ids)


def test_start_needs_no_position_array():
    """A rule is as large for a million tokens as for one."""
    from fastpos.layout import layout_of
    from fastpos.places import resolve

    layout = layout_of("rotary", "thd", 3)
    assert resolve(layout, (10**9, 2, 8), 5, None, None)[1:] == (5, None)
    _, edges, starts = resolve(layout, (10**9, 2, 8), None, None, [0, 10, 10**9])
    assert edges.size == 3
    assert starts is None
