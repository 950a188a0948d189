"""``numerics="hf"``: float32 angles and three roundings, bit for bit as the steps say, and as transformers has them."""

import mpmath
import numpy as np
import oracle
import pytest
from oracle import DTYPES

import fastpos
from fastpos import Axes, Linear, LogScale, MinistralScale, Rotary
from fastpos.frequencies import single_frequencies

EDGES = [0, 1, 2, 255, 4095, 65537, 131071, 10**6, 2**24 - 1, 2**24 + 1, 2**31 - 1, -1, -4096, -(2**31)]


def single(value) -> mpmath.mpf:
    """One rounding to float32."""
    return mpmath.mpf(float(np.float32(value))) if isinstance(value, int | float) else rounded(value, "float32")


def rounded(value, dtype):
    exact = np.array([int(mpmath.ldexp(value, oracle.SCALE))], object)
    return mpmath.mpf(float(oracle.rounded(exact, dtype)[0]))


def frequencies(base, width):
    """Exponent, power and reciprocal, each rounded to float32."""
    with mpmath.workdps(60):
        exponents = [single(mpmath.mpf(2 * i) / width) for i in range(width // 2)]
        return [single(1 / single(mpmath.power(single(float(base)), exponent))) for exponent in exponents]


def stepped(x, positions, own, dtype, interleaved=False, factor=1.0):
    """Rows ``x`` (n, d), every step rounded: angle, waves and factor to float32, then all to the dtype."""
    pairs, result = len(own), np.empty(x.shape, DTYPES[dtype])
    narrow = dtype if dtype != "float64" else "float64"
    with mpmath.workdps(80):
        for row, position in enumerate(positions):
            where = single(float(np.float32(int(position))))
            for pair, frequency in enumerate(own):
                cosine, sine = (
                    rounded(single(single(wave) * single(float(factor))), narrow)
                    for wave in mpmath.cos_sin(single(where * frequency))
                )
                first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + pairs)
                a, b = (mpmath.mpf(float(x[row, channel])) for channel in (first, second))
                ac, bs, bc, as_ = (rounded(value, dtype) for value in (a * cosine, b * sine, b * cosine, a * sine))
                result[row, first], result[row, second] = (
                    float(rounded(total, dtype)) for total in (ac - bs, bc + as_)
                )
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_every_step_is_rounded_as_said(backend, rng, dtype, interleaved):
    at = np.array([*EDGES, *rng.integers(-(2**31), 2**31, 6)])
    x = rng.standard_normal((len(at), 1, 12)).astype(DTYPES[dtype])
    rope = Rotary(12, base=5e5, interleaved=interleaved, numerics="hf")
    got = fastpos.apply(rope, x, positions=at, backend=backend)[:, 0]
    oracle.assert_same(got + 0, stepped(x[:, 0], at, frequencies(5e5, 12), dtype, interleaved) + 0)


@pytest.mark.parametrize(("base", "width"), [(1e4, 64), (5e5, 128), (12345.678, 34), (1e7, 2)])
def test_frequencies_are_rounded_step_by_step(base, width):
    own = single_frequencies(Rotary(width, base=base, numerics="hf"))
    assert own.dtype == np.float32
    assert own.tolist() == [float(frequency) for frequency in frequencies(base, width)]
    scaled = single_frequencies(Rotary(width, base=base, numerics="hf", scaling=Linear(3.0)))
    assert scaled.tolist() == (own / np.float32(3)).tolist()


def test_frequencies_of_ones_own_are_rounded_once(backend, rng):
    own = np.array([1.0, 0.1, 1e-3, 0.7])
    x = rng.standard_normal((1, 3, 1, 8)).astype(np.float32)
    one, other = (
        fastpos.apply(Rotary(8, inv_freq=values, numerics="hf"), x, start=99999, backend=backend)
        for values in (own, own.astype(np.float32))
    )
    oracle.assert_same(one, other)


@pytest.mark.parametrize(
    ("limit", "least", "most"), [(4096, 5e-5, 2.5e-4), (131072, 1e-3, 8e-3), (1 << 20, 1e-2, 6.3e-2)]
)
def test_what_each_arithmetic_is_off_by(backend, limit, least, most):
    """The bounds that the docstring of ``Rotary`` states."""
    at = np.arange(limit - 64, limit)
    cos, sin = oracle.waves(at, oracle.geometric(1e4, 128))
    unit = np.zeros((len(at), 1, 128), np.float32)
    unit[..., :64] = 1
    errors = {}
    for numerics in ("exact", "hf"):
        turned = fastpos.apply(Rotary(128, numerics=numerics), unit, positions=at, backend=backend)[:, 0]
        errors[numerics] = oracle.error(turned, np.concatenate([cos, sin], axis=1)).max()
    assert errors["exact"] <= 1.2e-7
    assert least <= errors["hf"] <= most


def test_a_shift_is_exact_for_the_rounded_frequencies(backend, rng):
    rope = Rotary(16, numerics="hf", interleaved=True)
    k = rng.standard_normal((1, 4, 2, 16))
    moved = fastpos.shift_(rope, k.copy(), 1000, backend=backend)
    own = Rotary(16, inv_freq=single_frequencies(rope), interleaved=True)
    oracle.assert_same(moved, fastpos.apply(own, k, positions=[1000] * 4, backend=backend))


def test_refused():
    with pytest.raises(ValueError, match="numerics: expected one of exact, hf, got 'float32'"):
        Rotary(8, numerics="float32")


# Against transformers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transformers():
    """The package, with PyTorch on one thread."""
    pytest.importorskip(
        "torch", reason="PyTorch is not installed: compares with what transformers computes"
    ).set_num_threads(1)
    return pytest.importorskip("transformers", reason="transformers is not installed: compares with what it computes")


def as_numpy(tensor):
    """A tensor's numbers in the same type."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(DTYPES["bfloat16"])
    return tensor.numpy()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("base", [1e4, 5e5])
@pytest.mark.parametrize("start", [0, 4000, 131072 - 256])
def test_llama(transformers, backend, rng, dtype, base, start):
    """The same but where PyTorch's own float32 cosine is not the nearest: 1 to 5 % of them, by one ulp.

    A short type shows that once in some 50,000 elements, by one of its ulps; float32 shows it as an ulp of the pair's
    magnitude in each of the two products.
    """
    import torch
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = transformers.LlamaConfig(
        hidden_size=128, num_attention_heads=2, rope_parameters={"rope_type": "default", "rope_theta": base}
    )
    embedding = LlamaRotaryEmbedding(config)
    x = torch.tensor(rng.standard_normal((1, 2, 256, 64), dtype=np.float32)).to(getattr(torch, dtype))
    want, _ = apply_rotary_pos_emb(x, x, *embedding(x, torch.arange(start, start + 256)[None]))
    rope = Rotary(64, inv_freq=embedding.inv_freq.numpy(), numerics="hf")
    assert rope.inv_freq == pytest.approx([base ** (-i / 32) for i in range(32)], rel=1e-6)
    got, want = fastpos.apply(rope, as_numpy(x), start=start, layout="bhsd", backend=backend), as_numpy(want)
    apart = np.abs(got.astype(float) - want.astype(float))
    size = np.hypot(as_numpy(x)[..., :32].astype(float), as_numpy(x)[..., 32:].astype(float))
    assert (apart <= 2.0 ** (2 - oracle.PRECISION[dtype]) * np.concatenate([size, size], -1)).all()
    assert (apart > 0).mean() <= {"bfloat16": 1e-4, "float16": 1e-4, "float32": 0.1}[dtype]
    if dtype == "float32":
        exact = fastpos.apply(Rotary(64, base=base), as_numpy(x), start=start, layout="bhsd", backend=backend)
        assert np.abs(exact - want).max() > apart.max()


def test_queries_scaled_as_ministral_does(transformers, backend, rng):
    import torch
    from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

    x = torch.tensor(rng.standard_normal((1, 2, 300, 16), dtype=np.float32)).to(torch.bfloat16)
    scale = get_llama_4_attn_scale(torch.arange(300)[None], 0.1, 32).to(x.dtype)
    plain, scaled = (Rotary(16, numerics="hf", query_scale=query) for query in (None, MinistralScale(0.1, 32)))
    q, k = fastpos.apply(scaled, as_numpy(x), as_numpy(x), start=0, layout="bhsd", backend=backend)
    turned = fastpos.apply(plain, as_numpy(x), start=0, layout="bhsd", backend=backend)
    oracle.assert_same(k, turned)
    want = torch.tensor(turned.view(np.int16)).view(torch.bfloat16) * scale
    oracle.assert_same(q, as_numpy(want))


@pytest.mark.parametrize("numerics", ["exact", "hf"])
def test_other_fields_go_with_it(backend, rng, numerics):
    """Axes, a slice, the other direction and scaled queries: each changes what it should, whatever the arithmetic."""
    x = rng.standard_normal((1, 3, 2, 12)).astype(np.float32)
    rope = Rotary(12, rotary_dim=8, rotary_start=2, numerics=numerics)
    turned = fastpos.apply(rope, x, start=70, backend=backend)
    oracle.assert_same(turned[..., [0, 1, 10, 11]], x[..., [0, 1, 10, 11]])
    alone = fastpos.apply(Rotary(8, numerics=numerics), x[..., 2:10].copy(), start=70, backend=backend)
    oracle.assert_same(turned[..., 2:10], alone)
    back = fastpos.apply(Rotary(8, numerics=numerics, clockwise=True), alone, start=70, backend=backend)
    np.testing.assert_allclose(back, x[..., 2:10], atol=1e-6)
    axes = Axes((1, 3), order="chunked")
    both = fastpos.apply(Rotary(8, numerics=numerics, axes=axes), x[..., 2:10].copy(), start=70, backend=backend)
    oracle.assert_same(both, alone)
    scaled = Rotary(8, numerics=numerics, query_scale=LogScale(8))
    np.testing.assert_allclose(
        fastpos.apply(scaled, x[..., 2:10].copy(), start=70, backend=backend),
        alone * np.array([LogScale(8).at(70 + i) for i in range(3)])[None, :, None, None],
        rtol=1e-6,
        atol=1e-7,
    )
