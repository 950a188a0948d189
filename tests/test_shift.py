"""Relative shifts: the linear map of an offset, and cached keys turned on by one."""

import numpy as np
import oracle
import pytest
from oracle import DTYPES, FLOAT32_ERROR

import fastpos
from fastpos import Learned, Linear, Rotary, Sinusoidal

OFFSETS = [0, 1, -1, 7, -300, 65537, 2**31 - 5, -(2**31)]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("offset", OFFSETS)
def test_matrix_of_sinusoids(interleaved, offset):
    pe = Sinusoidal(12, base=500.0, interleaved=interleaved)
    at = np.array([0, 3, -11, 2**30])
    here, there = (fastpos.table(pe, positions=p) for p in (at, at + offset))
    matrix = fastpos.shift_matrix(pe, offset)
    assert matrix.shape == (12, 12)
    np.testing.assert_allclose(here @ matrix.T, there, rtol=0, atol=1e-15)
    assert offset == 0 or np.abs(here - there).max() > 1e-3


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("rope", [Rotary(12), Rotary(16, rotary_dim=12, scaling=Linear(3.0))])
def test_matrix_of_rotations(rng, rope, interleaved, offset):
    rope = Rotary(rope.head_dim, rotary_dim=rope.rotary_dim, scaling=rope.scaling, interleaved=interleaved)
    x = rng.standard_normal((4, rope.head_dim))
    at = np.array([0, 3, -11, 2**30])
    here, there = (fastpos.apply(rope, x[:, None], positions=p)[:, 0] for p in (at, at + offset))
    matrix = fastpos.shift_matrix(rope, offset)
    np.testing.assert_allclose(here @ matrix.T, there, rtol=0, atol=5e-15)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(rope.head_dim), atol=1e-15)
    np.testing.assert_allclose(matrix @ fastpos.shift_matrix(rope, -offset), np.eye(rope.head_dim), atol=1e-15)


def test_matrix_against_the_formula():
    cos, sin = oracle.waves([5], oracle.geometric(1e4, 4))
    right = oracle.rounded(np.concatenate([cos, sin]), "float64")
    (c0, c1), (s0, s1) = right
    rotation = [[c0, 0, -s0, 0], [0, c1, 0, -s1], [s0, 0, c0, 0], [0, s1, 0, c1]]
    np.testing.assert_allclose(fastpos.shift_matrix(Rotary(4), 5), rotation, atol=1e-16)
    onward = [[c0, s0, 0, 0], [-s0, c0, 0, 0], [0, 0, c1, s1], [0, 0, -s1, c1]]
    np.testing.assert_allclose(fastpos.shift_matrix(Sinusoidal(4), 5), onward, atol=1e-16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("by", [-4096, -1, 3, 2**20])
def test_shifted_keys_stand_elsewhere(backend, rng, dtype, interleaved, by):
    rope = Rotary(40, rotary_dim=32, interleaved=interleaved)
    x = rng.standard_normal((2, 5, 3, 40)).astype(DTYPES[dtype])
    k = fastpos.apply(rope, x, start=5000, backend=backend)
    passed = k[..., 32:].copy()
    assert fastpos.shift_(rope, k, by, backend=backend) is k
    right = fastpos.apply(rope, x, start=5000 + by, backend=backend)
    norm = oracle.norms(x, 16, interleaved)
    # Two roundings instead of one (the first of them turned), and twice what the arithmetic loses.
    arithmetic = 2e-14 if dtype == "float64" else 2 * FLOAT32_ERROR
    lost = (1.5 + 2**0.5 / 2) * 2.0 ** (1 - oracle.PRECISION[dtype]) + arithmetic
    apart = np.abs(k.astype(np.float64) - right.astype(np.float64))[..., :32]
    assert (apart <= lost * norm + 3 * 2.0 ** oracle.LEAST[dtype]).all()
    oracle.assert_same(k[..., 32:], passed)
    assert apart.max() < 0.1 < np.abs(x.astype(np.float64) - k.astype(np.float64)).max()


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_each_row_by_its_own(backend, rng, layout):
    rope, by = Rotary(8), [-7, 0, 90]
    x = rng.standard_normal((3, 4, 2, 8) if layout == "bshd" else (3, 2, 4, 8), dtype=np.float32)
    together = fastpos.shift_(rope, x.copy(), by, layout=layout, backend=backend)
    alone = [fastpos.shift_(rope, x[n : n + 1].copy(), by[n], layout=layout, backend=backend) for n in range(3)]
    oracle.assert_same(together, np.concatenate(alone))
    oracle.assert_same(together[1], x[1])
    # Every token of a row turns by the same angle, which is the rotation for that position.
    turned = fastpos.apply(rope, x, positions=np.repeat(by, 4).reshape(3, 4), layout=layout, backend=backend)
    oracle.assert_same(together, turned)


def test_back_and_forth(backend, rng):
    rope, k = Rotary(64), rng.standard_normal((1, 9, 2, 64))
    before = k.copy()
    fastpos.shift_(rope, k, 2**31 - 1, backend=backend)
    assert np.abs(k - before).max() > 0.1
    fastpos.shift_(rope, k, -(2**31 - 1), backend=backend)
    np.testing.assert_allclose(k, before, atol=1e-14)


def test_a_slice_of_a_cache(backend, rng):
    rope, cache = Rotary(8), rng.standard_normal((2, 6, 3, 8), dtype=np.float32)
    before = cache.copy()
    fastpos.shift_(rope, cache[:, 2:5], -2, backend=backend)
    oracle.assert_same(cache[:, 2:5], fastpos.shift_(rope, before[:, 2:5].copy(), -2, backend=backend))
    oracle.assert_same(cache[:, :2], before[:, :2])
    oracle.assert_same(cache[:, 5:], before[:, 5:])


READ_ONLY = np.ones((1, 2, 1, 8), np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(("rope", "k", "by", "error", "message"), [
    (Sinusoidal(8), np.ones((1, 2, 1, 8)), 1, TypeError, "rope: expected fastpos.Rotary, got Sinusoidal"),
    (Rotary(8), np.ones((1, 2, 1, 8)), 1.5, TypeError, r"by: .*integer.*, got 1\.5"),
    (Rotary(8), np.ones((1, 2, 1, 8)), None, TypeError, "by: expected"),
    (Rotary(8), np.ones((2, 2, 1, 8)), [1, 2, 3], ValueError, r"by: .*\(2,\), one a row or document, got shape \(3,\)"),
    (Rotary(8), np.ones((2, 1, 8)), [1, 2], ValueError, "by: expected one integer"),
    (Rotary(8), np.ones((1, 2, 1, 6)), 1, ValueError, r"k: expected 8 channels .*\(1, 2, 1, 6\)"),
    (Rotary(8), np.ones((1, 2, 1, 8), int), 1, TypeError, "k: expected dtype .*, got int64"),
    (Rotary(8), [[1.0] * 8], 1, TypeError, "k: expected a NumPy array"),
    (Rotary(8), READ_ONLY, 1, ValueError, "k: expected a writeable array"),
])  # fmt: skip
def test_refused(backend, rope, k, by, error, message):
    with pytest.raises(error, match=message):
        fastpos.shift_(rope, k, by, backend=backend)
    assert (np.asarray(k) == 1).all()


def test_matrices_that_do_not_exist():
    with pytest.raises(TypeError, match="a learned table has no linear map"):
        fastpos.shift_matrix(Learned(np.ones((4, 8))), 1)
    with pytest.raises(TypeError, match=r"offset: expected an integer, got 1\.5"):
        fastpos.shift_matrix(Rotary(8), 1.5)
