"""Positions with several coordinates: which one drives each pair, integers and real numbers, and models that have them."""

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import oracle
import pytest
from oracle import DTYPES, FLOAT32_ERROR

import fastpos
from fastpos import Axes, Linear, Rotary

# By hand, from the papers and model files: which coordinate drives each pair.
MAPS = {
    "chunked": (Axes((2, 3, 1)), [0, 0, 1, 1, 1, 2]),
    "interleaved": (Axes((4, 2, 2), order="interleaved"), [0, 1, 2, 0, 1, 2, 0, 0]),
    "interleaved of two": (Axes((3, 2), order="interleaved"), [0, 1, 0, 1, 0]),
    "alternating": (Axes((2, 3, 3), order="alternating"), [1, 2, 1, 2, 1, 2, 0, 0]),
    "one": (Axes((3,)), [0, 0, 0]),
}
EDGES = [0, 1, -1, 257, 65537, 10**6, 2**31 - 1, -(2**31)]


def frequencies(rope):
    """The frequency of every pair in 50 digits, from the definition."""
    axes = rope.axes
    if axes is None or not axes.own_frequencies:
        return oracle.geometric(rope.base, 2 * rope.pairs)
    return [value for section in axes.sections for value in oracle.geometric(rope.base, 2 * section)]


def waves(rope, places):
    """Cosines and sines (n, pairs) at coordinates (axes, n) of integers or floats, exactly."""
    driven = rope.axes.of_pairs()
    cos, sin = (np.empty((places.shape[1], rope.pairs), object) for _ in range(2))
    with mpmath.workdps(70):
        for pair, frequency in enumerate(frequencies(rope)):
            for row, value in enumerate(places[driven[pair]].tolist()):
                number = Fraction(value)
                angle = mpmath.mpf(number.numerator) / number.denominator * frequency
                found = mpmath.cos_sin(-angle if rope.clockwise else angle)
                cos[row, pair], sin[row, pair] = (int(mpmath.ldexp(wave, oracle.SCALE)) for wave in found)
    return cos, sin


@pytest.mark.parametrize("name", MAPS)
def test_which_axis_drives_a_pair(name):
    axes, expected = MAPS[name]
    assert axes.of_pairs().tolist() == expected
    assert axes.count == len(axes.sections)


SHARED = [
    Axes((16, 24, 24)),
    Axes((24, 20, 20), order="interleaved"),
    Axes((20, 22, 22), order="alternating"),
    Axes((9, 8), own_frequencies=True),
    Axes((5, 1, 2, 3), own_frequencies=True),
]
BLOCKS = Axes((22, 21, 21), own_frequencies=True, own_channels=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("axes", "interleaved"), [*product(SHARED, (False, True)), (BLOCKS, False)], ids=repr)
def test_coordinates_turn_their_pairs(backend, rng, dtype, axes, interleaved):
    pairs = sum(axes.sections)
    rope = Rotary(2 * pairs, axes=axes, interleaved=interleaved)
    at = rng.choice(EDGES, (axes.count, 12))
    x = rng.standard_normal((12, 1, 2 * pairs)).astype(DTYPES[dtype])
    got = fastpos.apply(rope, x, positions=at, backend=backend)[:, 0]
    starts = np.concatenate([[0], np.cumsum(axes.sections)])
    if axes.own_channels:
        channels = [
            (2 * begin + i, 2 * begin + i + section)
            for begin, section in zip(starts, axes.sections, strict=False)
            for i in range(section)
        ]
    else:
        channels = [(2 * i, 2 * i + 1) if interleaved else (i, i + pairs) for i in range(pairs)]
    exact = oracle.rotate_channels(x[:, 0], *waves(rope, at), channels, channels)
    lost = 1e-14 if dtype == "float64" else FLOAT32_ERROR
    size = 2 * np.abs(x[:, 0].astype(float)).max()
    oracle.assert_close(got, exact, oracle.ulp(exact, dtype) / 2 + lost * size)
    cos, sin = fastpos.table(rope, positions=at)
    oracle.assert_close(cos, waves(rope, at)[0], 3e-16)
    oracle.assert_close(sin, waves(rope, at)[1], 3e-16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axes", [Axes((3, 2, 3), own_frequencies=True, real=True), Axes((8,), real=True)], ids=repr)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_real_numbers_enter_exactly(backend, rng, dtype, axes, kind):
    rope = Rotary(16, axes=axes)
    at = rng.uniform(-1e4, 1e4, (axes.count, 40)).astype(kind)
    at[:, :8] = [0.5, -0.25, 1e-3, -1e-20, 2.0**31 - 0.5, 7.0, -(2.0**31) - 0.5, 1e-9]
    x = rng.standard_normal((40, 1, 16)).astype(DTYPES[dtype])
    given = at if axes.count > 1 else at[0]
    got = fastpos.apply(rope, x, positions=given, backend=backend)[:, 0]
    channels = [(i, i + 8) for i in range(8)]
    exact = oracle.rotate_channels(x[:, 0], *waves(rope, at.astype(float)), channels, channels)
    lost = 1e-14 if dtype == "float64" else FLOAT32_ERROR
    oracle.assert_close(got, exact, oracle.ulp(exact, dtype) / 2 + lost * 2 * np.abs(x.astype(float)).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_numbers_are_the_same_as_integers(backend, rng, dtype):
    x = rng.standard_normal((2, 5, 2, 16)).astype(DTYPES[dtype])
    at = rng.integers(-9999, 9999, (2, 2, 5))
    whole, real = (Rotary(16, axes=Axes((4, 4), real=real)) for real in (False, True))
    want = fastpos.apply(whole, x, positions=at, backend=backend)
    oracle.assert_same(fastpos.apply(real, x, positions=at.astype(float), backend=backend), want)
    oracle.assert_same(fastpos.apply(real, x, positions=at, backend=backend), want)


@pytest.mark.parametrize("numerics", ["exact", "hf"])
@pytest.mark.parametrize("name", MAPS)
def test_equal_coordinates_are_plain_positions(backend, rng, name, numerics):
    """Text between images: the same bits as without axes, by ids and by every other rule."""
    axes, _ = MAPS[name]
    width = 2 * sum(axes.sections)
    x = rng.standard_normal((1, 6, 2, width)).astype(np.float32)
    plain, several = Rotary(width, numerics=numerics), Rotary(width, axes=axes, numerics=numerics)
    want = fastpos.apply(plain, x, start=70000, backend=backend)
    oracle.assert_same(fastpos.apply(several, x, start=70000, backend=backend), want)
    if axes.count > 1:
        ids = np.tile(np.arange(70000, 70006), (axes.count, 1))
        oracle.assert_same(fastpos.apply(several, x, positions=ids, backend=backend), want)
    rows = fastpos.apply(several, x[0], cu_seqlens=[0, 2, 6], start=[70000, 70002], backend=backend)
    oracle.assert_same(rows, want[0])


@pytest.mark.parametrize("shape", ["(axes, s)", "(axes, 1, s)", "(axes, b, s)"])
@pytest.mark.parametrize("kind", ["int32", "int64", "uint8", "strided", "reversed"])
def test_shapes_of_positions(backend, rng, shape, kind):
    rope = Rotary(8, axes=Axes((1, 2, 1)))
    x = rng.standard_normal((2, 5, 3, 8)).astype(np.float32)
    size = {"(axes, s)": (3, 5), "(axes, 1, s)": (3, 1, 5), "(axes, b, s)": (3, 2, 5)}[shape]
    at = rng.integers(0, 200, size)
    each = np.broadcast_to(at if at.ndim == 3 else at[:, None], (3, 2, 5))
    if kind == "strided":
        at = np.repeat(np.asfortranarray(at), 2, axis=-1)[..., ::2]
    elif kind == "reversed":
        at = at[::-1].copy()[::-1]
    else:
        at = at.astype(kind)
    got = fastpos.apply(rope, x, positions=at, backend=backend)
    for batch, token in np.ndindex(2, 5):
        alone = fastpos.apply(rope, x[batch, token : token + 1], positions=each[:, batch, token, None], backend=backend)
        oracle.assert_same(got[batch, token], alone[0])


def test_scaled_frequencies_of_each_axis(backend, rng):
    x = rng.standard_normal((1, 2, 1, 12))
    axes = Axes((2, 4), own_frequencies=True)
    scaled = fastpos.apply(
        Rotary(12, axes=axes, scaling=Linear(4.0)), x, positions=[[400, 8], [-40, 4]], backend=backend
    )
    plain = fastpos.apply(Rotary(12, axes=axes), x, positions=[[100, 2], [-10, 1]], backend=backend)
    np.testing.assert_allclose(scaled, plain, atol=1e-14)


def test_keys_move_along_every_axis(backend, rng):
    rope = Rotary(12, axes=Axes((2, 4)))
    x, at = rng.standard_normal((1, 3, 2, 12)), rng.integers(0, 99, (2, 3))
    k = fastpos.apply(rope, x, positions=at, backend=backend)
    want = fastpos.apply(rope, x, positions=at - 7, backend=backend)
    np.testing.assert_allclose(fastpos.shift_(rope, k.copy(), -7, backend=backend), want, atol=1e-13)
    np.testing.assert_allclose(k @ fastpos.shift_matrix(rope, -7).T, want, atol=1e-13)


ROPE, X = Rotary(8, axes=Axes((1, 2, 1))), np.ones((2, 5, 3, 8), np.float32)


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: Axes(()), ValueError, "sections: expected 1 to 8 axes, got 0"),
    (lambda: Axes((1,) * 9), ValueError, "sections: expected 1 to 8 axes, got 9"),
    (lambda: Axes(3), TypeError, "sections: expected a row of integers, got 3"),
    (lambda: Axes((1, 0)), ValueError, "sections: expected 1 to 4096, got 0"),
    (lambda: Axes((1, 2.0)), TypeError, r"sections: expected an integer, got 2\.0"),
    (lambda: Axes((1, 2), order="rows"), ValueError, "order: expected one of chunked, interleaved, alternating, got 'rows'"),
    (lambda: Axes((1, 4, 1), order="interleaved"), ValueError, r"the order 'interleaved' can give, got \(1, 4, 1\)"),
    (lambda: Axes((2, 1, 2), order="alternating"), ValueError, r"take turns .*, got \(2, 1, 2\)"),
    (lambda: Axes((2, 2), order="interleaved", own_channels=True), ValueError, "own_channels: expected the order 'chunked'"),
    (lambda: Axes((2, 2), real=1), TypeError, "real: expected True or False, got 1"),
    (lambda: Rotary(8, axes=(2, 2)), TypeError, r"axes: expected fastpos.Axes or None, got \(2, 2\)"),
    (lambda: Rotary(8, axes=Axes((2, 1))), ValueError, r"axes: expected sections of rotary_dim / 2 = 4 pairs in all, got \(2, 1\)"),
    (lambda: Rotary(4, axes=Axes((1, 1), own_channels=True), interleaved=True), ValueError, "axes: expected no own_channels"),
    (lambda: Rotary(4, axes=Axes((1, 1), own_frequencies=True), inv_freq=[1.0, 1.0]), ValueError, "no own_frequencies"),
    (lambda: fastpos.apply(ROPE, X, positions=range(5)), ValueError,
     r"positions: expected shape \(axes, s\) = \(3, 5\) or \(axes, b, s\) = \(3, 2, 5\), got \(5,\)"),
    (lambda: fastpos.apply(ROPE, X, positions=np.zeros((2, 5), int)), ValueError, r"\(3, 2, 5\), got \(2, 5\)"),
    (lambda: fastpos.apply(ROPE, X[0], positions=np.zeros((3, 4), int)), ValueError,
     r"positions: expected shape \(axes, t\) = \(3, 5\), got \(3, 4\)"),
    (lambda: fastpos.apply(ROPE, X, positions=np.zeros((3, 5))), TypeError, "positions: expected integers .* float64"),
    (lambda: fastpos.apply(Rotary(8, axes=Axes((4,), real=True)), X, positions=[0, 1, 2, 3, float("nan")]), ValueError,
     r"positions: expected finite numbers within \+-2\*\*62, got nan"),
    (lambda: fastpos.apply(Rotary(8, axes=Axes((4,), real=True)), X, positions=np.ma.masked_array(np.ones(5), [1] * 5)),
     TypeError, "positions: expected plain numbers, got a masked array"),
    (lambda: fastpos.table(ROPE, positions=np.zeros((2, 5), int)), ValueError,
     r"positions: expected shape \(n,\) or \(axes, n\) = \(3, n\), got \(2, 5\)"),
])  # fmt: skip
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


# Against transformers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    """PyTorch on one thread."""
    found = pytest.importorskip("torch", reason="PyTorch is not installed: compares with what transformers computes")
    pytest.importorskip("transformers", reason="transformers is not installed: compares with what it computes")
    found.set_num_threads(1)
    return found


def model_of(torch, name):
    """Rotary embedding and its application of one model: a function of (x, ids), and our description."""
    import importlib

    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    if name == "qwen2_vl":
        from transformers import Qwen2VLTextConfig

        rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
        config = Qwen2VLTextConfig(hidden_size=256, num_attention_heads=2, num_key_value_heads=2, rope_parameters=rope)
        embedding, ours = module.Qwen2VLRotaryEmbedding(config), Rotary(128, base=1e6, axes=Axes((16, 24, 24)))
    elif name == "qwen3_vl":
        from transformers import Qwen3VLTextConfig

        rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
        config = Qwen3VLTextConfig(hidden_size=256, num_attention_heads=2, head_dim=128, rope_parameters=rope)
        embedding = module.Qwen3VLTextRotaryEmbedding(config)
        ours = Rotary(128, base=5e6, axes=Axes((24, 20, 20), order="interleaved"))
    else:
        from transformers import Ernie4_5_VLMoeTextConfig

        rope = {"rope_type": "default", "rope_theta": 5e5, "mrope_section": [22, 22, 20]}
        config = Ernie4_5_VLMoeTextConfig(hidden_size=256, num_attention_heads=2, rope_parameters=rope)
        embedding = module.Ernie4_5_VLMoeTextRotaryEmbedding(config)
        ours = Rotary(128, base=5e5, interleaved=True, axes=Axes((20, 22, 22), order="alternating"))
    return lambda x, ids: module.apply_rotary_pos_emb(x, x, *embedding(x, ids))[0], ours


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen3_vl", "ernie4_5_vl_moe"])
def test_multimodal_rotations_of_transformers(torch, backend, rng, name):
    theirs, ours = model_of(torch, name)
    x = rng.standard_normal((2, 2, 9, 128), dtype=np.float32)
    ids = rng.integers(0, 60, (3, 2, 9))
    got = fastpos.apply(ours, x, positions=ids, layout="bhsd", backend=backend)
    # Their float32 angles of up to 60 radians are off by 60 * 2**-23.
    np.testing.assert_allclose(got, theirs(torch.tensor(x), torch.tensor(ids)).numpy(), atol=5e-5)


def test_vision_towers_of_transformers(torch, backend, rng):
    from transformers.models.gemma4.modeling_gemma4 import apply_multidimensional_rope
    from transformers.models.llama4.modeling_llama4 import vision_apply_rotary_emb

    x, ids = rng.standard_normal((1, 9, 2, 32), dtype=np.float32), rng.integers(0, 40, (2, 9))
    own = 100.0 ** -(np.arange(8) / 8)
    h, w = (ids[axis, :, None] * own for axis in range(2))
    # Gemma 4: height, height, width, width; each axis half-split inside its half of the head.
    angles = torch.tensor(np.concatenate([h, h, w, w], axis=1), dtype=torch.float32)[None]
    want = apply_multidimensional_rope(torch.tensor(x), angles.cos(), angles.sin(), torch.tensor(ids.T[None]))
    rope = Rotary(32, base=100.0, axes=Axes((8, 8), own_frequencies=True, own_channels=True))
    np.testing.assert_allclose(fastpos.apply(rope, x, positions=ids, backend=backend), want.numpy(), atol=2e-5)
    # Llama 4: complex pairs of neighbours, x then y, from 1 on.
    turn = torch.tensor(np.exp(1j * np.concatenate([h + own, w + own], axis=1)), dtype=torch.complex64)[None, :, None]
    want, _ = vision_apply_rotary_emb(torch.tensor(x), torch.tensor(x), turn[:, :, 0])
    rope = Rotary(32, base=100.0, interleaved=True, axes=Axes((8, 8), own_frequencies=True))
    np.testing.assert_allclose(fastpos.apply(rope, x, positions=ids + 1, backend=backend), want.numpy(), atol=2e-5)
