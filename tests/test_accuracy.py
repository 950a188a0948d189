"""How near results come to the formula in high-precision arithmetic; every tolerance is derived from the dtype."""

import numpy as np
import oracle
import pytest
from oracle import DTYPES, FLOAT32_ERROR, NEAR_PI

import fastpos
from fastpos import Linear, Rotary, Sinusoidal

EDGES = [
    *(0, 1, 2, 255, 256, 257, 4095, 65535, 65536, 65537, 131071, 10**6),
    *(2**24 - 1, 2**24, 2**24 + 1, 2**31 - 1, 2**31),
]
CASES = [(100.0, 8), (1e4, 128), (5e5, 128), (1e7, 256), (1e4, 6), (1e4, 2), (12345.678, 34)]


def positions(rng, count, limit=2**31):
    """Edges and random places of all magnitudes, both signs."""
    near = [p for p in (*EDGES, *NEAR_PI) if p <= limit]
    drawn = np.exp2(rng.uniform(0, np.log2(limit), count)).astype(np.int64)
    return np.unique(np.concatenate([near, drawn, -drawn, np.negative(near)]))


def in_turn(x):
    """Rows (n, d) as one packed run of tokens with one head."""
    return x[:, None, :]


@pytest.mark.parametrize(("base", "width"), CASES)
def test_sine_and_cosine_at_any_position(backend, rng, base, width):
    at = positions(rng, 40)
    cos, sin = oracle.waves(at, oracle.geometric(base, width))
    unit = np.zeros((len(at), width), np.float32)
    unit[:, : width // 2] = 1
    turned = fastpos.apply(Rotary(width, base=base), in_turn(unit), positions=at, backend=backend)[:, 0]
    oracle.assert_close(turned, np.concatenate([cos, sin], axis=1), 1.2e-7)
    added = fastpos.apply(Sinusoidal(width, base=base), np.zeros_like(unit), positions=at, backend=backend)
    oracle.assert_close(added, oracle.join(sin, cos, interleaved=True), 1.2e-7)
    halves = Sinusoidal(width, base=base, interleaved=False)
    added = fastpos.apply(halves, np.zeros_like(unit), positions=at, backend=backend)
    oracle.assert_close(added, np.concatenate([sin, cos], axis=1), 1.2e-7)


@pytest.mark.parametrize(("base", "width"), [(1e4, 512), (100.0, 32)])
def test_sinusoids_keep_their_last_places(backend, rng, base, width):
    at = positions(rng, 20, limit=2**20)
    cos, sin = oracle.waves(at, oracle.geometric(base, width))
    exact = oracle.join(sin, cos, interleaved=True)
    zeros = np.zeros((len(at), width), np.float32)
    added = fastpos.apply(Sinusoidal(width, base=base), zeros, positions=at, backend=backend)
    oracle.assert_close(added, exact, 3 * oracle.ulp(exact, "float32"))


@pytest.mark.parametrize(("base", "width"), CASES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_float64(backend, rng, base, width, interleaved):
    at = positions(rng, 20)
    x = rng.standard_normal((len(at), width))
    x /= np.abs(x).max()
    angles = oracle.waves(at, oracle.geometric(base, width))
    rope = Rotary(width, base=base, interleaved=interleaved)
    turned = fastpos.apply(rope, in_turn(x), positions=at, backend=backend)[:, 0]
    oracle.assert_close(turned, oracle.rotate(x, *angles, interleaved), 1e-14)
    pe = Sinusoidal(width, base=base, interleaved=interleaved)
    exact = oracle.join(*angles[::-1], interleaved) + oracle.integers(x)
    oracle.assert_close(fastpos.apply(pe, x, positions=at, backend=backend), exact, 1e-14)


def check_rounding(got, exact, size, dtype, share):
    """At least ``share`` of the elements are the exact result correctly rounded, the others one ulp beside it.

    Where a pair almost cancels, its result is far smaller than what float32 adds up, and float32 alone can be off by
    more than an ulp of so small a number. ``size`` is what is added up (the norm of a pair): the error is at most
    ``FLOAT32_ERROR * size`` before the one rounding to half an ulp. That bound holds everywhere; one ulp wherever the
    ulp is at least as large, which is where the result exceeds size / 1600 (float16) or size / 13000 (bfloat16).
    """
    right = oracle.rounded(exact, dtype)
    same = got.astype(np.float64) == right.astype(np.float64)
    assert same.mean() >= share, f"{(~same).sum()} of {same.size} are not correctly rounded"
    ulp = oracle.ulp(exact, dtype)
    oracle.assert_close(got, exact, ulp / 2 + FLOAT32_ERROR * size)
    clear = ulp >= FLOAT32_ERROR * size
    assert clear.mean() > 0.99
    apart = np.abs(got.astype(np.float64) - right.astype(np.float64))[clear]
    # Rounding may carry the neighbour into the next power of two, where an ulp is twice as large.
    assert (apart <= np.maximum(ulp, oracle.ulp(oracle.integers(right), dtype))[clear]).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_short_types_are_correctly_rounded(backend, rng, dtype, interleaved):
    at = positions(rng, 80)
    x = rng.standard_normal((len(at), 128)).astype(DTYPES[dtype])
    angles = oracle.waves(at, oracle.geometric(1e4, 128))
    rope = Rotary(128, interleaved=interleaved)
    turned = fastpos.apply(rope, in_turn(x), positions=at, backend=backend)[:, 0]
    share = 1.0 if backend == "numpy" else 0.999
    check_rounding(turned, oracle.rotate(x, *angles, interleaved), oracle.norms(x, 64, interleaved), dtype, share)
    pe = Sinusoidal(128, interleaved=interleaved, embedding_scale=128**0.5)
    scaled = (oracle.integers(x) * oracle.integers(pe.embedding_scale)) >> oracle.SCALE
    exact = scaled + oracle.join(*angles[::-1], interleaved)
    size = np.abs(x.astype(np.float64)) * pe.embedding_scale + 1
    check_rounding(fastpos.apply(pe, x, positions=at, backend=backend), exact, size, dtype, share)


def test_float32_loses_no_more_than_its_arithmetic(backend, rng):
    at = positions(rng, 40)
    x = rng.standard_normal((len(at), 64)).astype(np.float32)
    angles = oracle.waves(at, oracle.geometric(5e5, 64))
    turned = fastpos.apply(Rotary(64, base=5e5), in_turn(x), positions=at, backend=backend)[:, 0]
    oracle.assert_close(turned, oracle.rotate(x, *angles, False), FLOAT32_ERROR * oracle.norms(x, 32, False))


def test_partial_width_and_scaled_frequencies(backend, rng):
    at = positions(rng, 10)
    x = rng.standard_normal((len(at), 24)).astype(np.float32)
    angles = oracle.waves(at, oracle.geometric(1e4, 10, factor=3.7))
    rope = Rotary(24, rotary_dim=10, scaling=Linear(3.7))
    turned = fastpos.apply(rope, in_turn(x), positions=at, backend=backend)[:, 0]
    oracle.assert_close(turned[:, :10], oracle.rotate(x[:, :10], *angles, False), FLOAT32_ERROR * 6)
    oracle.assert_same(turned[:, 10:], x[:, 10:])


@pytest.mark.parametrize("encoding", [Rotary(16), Rotary(16, scaling=Linear(8)), Sinusoidal(16)])
def test_tables_are_exact_in_float64(rng, encoding):
    at = positions(rng, 20)
    factor = 8 if isinstance(encoding, Rotary) and encoding.scaling else 1
    cos, sin = oracle.waves(at, oracle.geometric(1e4, 16, factor))
    table = fastpos.table(encoding, positions=at)
    if isinstance(encoding, Rotary):
        oracle.assert_close(table[0], cos, 3e-16)
        oracle.assert_close(table[1], sin, 3e-16)
    else:
        oracle.assert_close(table, oracle.join(sin, cos, interleaved=True), 3e-16)


def test_frequencies_of_ones_own_enter_exactly(backend):
    own = (np.float32(1.0), np.float32(0.1), np.float32(1e-3), np.float32(-0.7))
    at = np.array([1, 20000, -(2**31)])
    cos, sin = oracle.waves(at, [float(frequency) for frequency in own])
    unit = np.tile(np.repeat([1.0, 0.0], 4), (3, 1))
    turned = fastpos.apply(Rotary(8, inv_freq=own), in_turn(unit), positions=at, backend=backend)[:, 0]
    oracle.assert_close(turned, np.concatenate([cos, sin], axis=1), 1e-14)


GOLDEN = {  # x = 0..7 at position 1, frequencies 1, 1/10, 1/100, 1/1000: cos and sin of 1 are 0.540302..., 0.841470...
    False: [
        *(-3.3658839392315860, 0.4958370820438850, 1.9399010008283306, 2.9929985011667917),
        *(2.1612092234725591, 5.0748542430369579, 6.0196996691683253, 7.0029964995002913),
    ],
    True: [
        *(-0.8414709848078965, 0.5403023058681398, 1.6905080806155672, 3.1846793291277340),
        *(3.9498008349958278, 5.0397493354199927, 5.9929970011669162, 7.0059964990002914),
    ],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_pairs_by_hand(backend, dtype, interleaved):
    x = np.arange(8).astype(DTYPES[dtype]).reshape(1, 1, 1, 8)
    turned = fastpos.apply(Rotary(8, interleaved=interleaved), x, start=1, backend=backend)
    tolerance = 2.0 ** -oracle.PRECISION[dtype]
    np.testing.assert_allclose(turned[0, 0, 0].astype(np.float64), GOLDEN[interleaved], rtol=tolerance, atol=1e-15)


def test_sinusoids_by_hand(backend):
    rows = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8414709848078965, 0.5403023058681398, 0.009999833334166665, 0.9999500004166653],
        [0.9092974268256817, -0.4161468365471424, 0.01999866669333308, 0.9998000066665778],
    ]
    zeros = np.zeros((3, 4))
    np.testing.assert_allclose(fastpos.apply(Sinusoidal(4), zeros, start=0, backend=backend), rows, atol=1e-15)
    halves = fastpos.apply(Sinusoidal(4, interleaved=False), zeros, start=0, backend=backend)
    np.testing.assert_allclose(halves, np.array(rows)[:, [0, 2, 1, 3]], atol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_norms_stay(backend, rng, dtype, interleaved):
    at = positions(rng, 60)
    x = rng.standard_normal((len(at), 64)).astype(DTYPES[dtype])
    turned = fastpos.apply(Rotary(64, interleaved=interleaved), in_turn(x), positions=at, backend=backend)[:, 0]
    before, after = (oracle.norms(a, 32, interleaved) for a in (x, turned))
    # Each of the two channels is off by half an ulp at most, and by what the arithmetic loses.
    lost = 2.0 ** -oracle.PRECISION[dtype] + (1e-14 if dtype == "float64" else FLOAT32_ERROR)
    assert (np.abs(after - before) <= np.sqrt(2) * (lost * before + 2.0 ** oracle.LEAST[dtype])).all()


@pytest.mark.parametrize("interleaved", [False, True])
def test_scores_depend_on_the_distance_alone(backend, rng, interleaved):
    rope = Rotary(64, interleaved=interleaved)
    q, k = rng.standard_normal((2, 1, 1, 1, 64))

    def score(m, n):
        return np.vdot(*(fastpos.apply(rope, x, start=p, backend=backend) for x, p in ((q, m), (k, n))))

    for m, n in ((5, 3), (100, -7), (4096, 4000)):
        for shift in (1, 1000, -(2**30), 2**30):
            assert score(m + shift, n + shift) == pytest.approx(score(m, n), abs=64 * 1e-13)
    assert abs(score(5, 3) - score(5, 4)) > 1e-3


@pytest.mark.parametrize("a", [3, -17, 2**20])
@pytest.mark.parametrize("b", [1, -40, 2**30])
def test_rotations_add_up_and_come_back(backend, rng, a, b):
    rope, x = Rotary(32), rng.standard_normal((1, 4, 2, 32))
    once = fastpos.apply(rope, x, positions=[a + b] * 4, backend=backend)
    twice = fastpos.apply(
        rope, fastpos.apply(rope, x, positions=[a] * 4, backend=backend), positions=[b] * 4, backend=backend
    )
    np.testing.assert_allclose(twice, once, atol=1e-13)
    back = fastpos.apply(rope, once, positions=[-a - b] * 4, backend=backend)
    np.testing.assert_allclose(back, x, atol=1e-13)
    assert np.abs(once - x).max() > 0.1
