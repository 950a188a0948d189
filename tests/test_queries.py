"""Queries scaled by where they stand: the first array alone, its whole head, in one rounding with the rotation."""

import mpmath
import numpy as np
import oracle
import pytest
from oracle import DTYPES, FLOAT32_ERROR

import fastpos
from fastpos import Axes, Llama4Scale, LogScale, MinistralScale, Rotary

SCALES = [Llama4Scale(0.1, 64), Llama4Scale(0.25, 100.5), MinistralScale(0.1, 64), LogScale(50)]
AT = np.array([0, 1, 49, 50, 62, 63, 64, 65, 127, 128, 1000, 2**20, 2**31 - 1, -1, -500])
HEADS = {
    "all": {},
    "some": {"rotary_dim": 6, "rotary_start": 5},
    "none": {"rotary_dim": 0},
    "deinterleaved": {"rotary_dim": 8, "interleaved": True, "deinterleaved": True},
}


def factor(scale, position):
    """The formulas of the papers and model files, in 50 digits; 1 before position 0."""
    if position < 0:
        return mpmath.mpf(1)
    with mpmath.workdps(50):
        if isinstance(scale, Llama4Scale):
            steps = mpmath.floor((mpmath.mpf(position) + 1) / mpmath.mpf(scale.floor_scale))
            return 1 + mpmath.mpf(scale.attn_scale) * mpmath.log(1 + steps)
        if isinstance(scale, MinistralScale):
            steps = mpmath.floor(mpmath.mpf(position) / mpmath.mpf(scale.original_max_position_embeddings))
            return 1 + mpmath.mpf(scale.beta) * mpmath.log(1 + steps)
        return max(mpmath.mpf(1), mpmath.log(mpmath.mpf(position) + 1) / mpmath.log(mpmath.mpf(scale.length)))


def expected(x, scale, head):
    """Rows (n, d) at ``AT``: turned where they turn, all of them scaled."""
    width = head.get("rotary_dim", x.shape[1])
    start, pairs = head.get("rotary_start", 0), width // 2
    split = [(start + i, start + i + pairs) for i in range(pairs)]
    read = [(start + 2 * i, start + 2 * i + 1) for i in range(pairs)] if head.get("interleaved") else split
    exact = oracle.rotate_channels(x, *oracle.waves(AT, oracle.geometric(1e4, width)), read, split)
    factors = [int(mpmath.ldexp(factor(scale, int(position)), oracle.SCALE)) for position in AT]
    return (exact * np.array(factors, object)[:, None]) >> oracle.SCALE, np.array(factors, float) / 2.0**oracle.SCALE


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("scale", SCALES, ids=repr)
def test_queries_alone_are_scaled(backend, rng, dtype, head, scale):
    x = rng.standard_normal((len(AT), 16)).astype(DTYPES[dtype])
    rope, plain = (Rotary(16, query_scale=query, **HEADS[head]) for query in (scale, None))
    exact, factors = expected(x, scale, HEADS[head])
    q, k = x[:, None].copy(), np.repeat(x[:, None], 2, axis=1)
    one, other = fastpos.apply(rope, q, k, positions=AT, backend=backend)
    lost = 1e-14 if dtype == "float64" else 1.5 * FLOAT32_ERROR
    size = 2 * np.abs(x.astype(float)).max() * factors[:, None]
    oracle.assert_close(one[:, 0], exact, oracle.ulp(exact, dtype) / 2 + lost * size)
    oracle.assert_same(other, fastpos.apply(plain, k, positions=AT, backend=backend))
    before = AT < 0
    oracle.assert_same(one[before], fastpos.apply(plain, q, positions=AT, backend=backend)[before])
    oracle.assert_same(fastpos.apply(rope, q, positions=AT, backend=backend), one)
    fastpos.apply_(rope, q, k, positions=AT, backend=backend)
    oracle.assert_same(q, one)
    oracle.assert_same(k, other)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_of_many_arrays_the_first(backend, rng, count):
    rope, plain = (Rotary(8, query_scale=query) for query in (LogScale(2), None))
    arrays = [rng.standard_normal((2, 5, heads, 8), dtype=np.float32) for heads in range(1, count + 1)]
    got = fastpos.apply(rope, *arrays, start=3, backend=backend)
    oracle.assert_same(got[0], fastpos.apply(rope, arrays[0], start=3, backend=backend))
    assert np.abs(got[0] - fastpos.apply(plain, arrays[0], start=3, backend=backend)).max() > 0.1
    for x, y in zip(arrays[1:], got[1:], strict=True):
        oracle.assert_same(y, fastpos.apply(plain, x, start=3, backend=backend))


@pytest.mark.parametrize("scale", SCALES, ids=repr)
def test_at_says_the_same(scale):
    for position in AT.tolist():
        assert scale.at(position) == pytest.approx(float(factor(scale, position)), rel=1e-15)
    assert scale.at(10**6) > 1


def test_the_first_axis_counts(backend, rng):
    x = rng.standard_normal((1, 4, 2, 8))
    at = np.array([[70, 0, 7, 9], [1, 700, 7, 9]])
    rope, plain = (Rotary(8, axes=Axes((2, 2)), query_scale=query) for query in (LogScale(5), None))
    got, want = (fastpos.apply(encoding, x, positions=at, backend=backend) for encoding in (rope, plain))
    scales = np.array([LogScale(5).at(position) for position in at[0].tolist()])
    np.testing.assert_allclose(got, want * scales[None, :, None, None], atol=1e-14)


def test_a_shift_scales_nothing(backend, rng):
    k = rng.standard_normal((1, 4, 2, 8))
    rope, plain = (Rotary(8, query_scale=query) for query in (LogScale(2), None))
    oracle.assert_same(*(fastpos.shift_(e, k.copy(), 1000, backend=backend) for e in (rope, plain)))


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: Llama4Scale(0.0), ValueError, r"attn_scale: expected a finite number above 0, got 0\.0"),
    (lambda: Llama4Scale(0.1, -1), ValueError, "floor_scale: .*, got -1"),
    (lambda: MinistralScale("0.1", 4), TypeError, "beta: expected a number, got '0.1'"),
    (lambda: MinistralScale(0.1, 0), ValueError, "original_max_position_embeddings: .*, got 0"),
    (lambda: LogScale(1), ValueError, r"length: expected more than 1, got 1\.0"),
    (lambda: LogScale(float("inf")), ValueError, "length: .*, got inf"),
    (lambda: Rotary(8, query_scale=0.1), TypeError, r"query_scale: expected fastpos.Llama4Scale, .* got 0\.1"),
])  # fmt: skip
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
