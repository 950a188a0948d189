"""Sinusoidal tables by name: each as its source writes it, in 50 digits; every width, padding, real-valued positions."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import oracle
import pytest
from oracle import DTYPES

import fastpos
from fastpos import Sinusoidal

AT = [0, 1, 2, 3, 100, 5000, 131071, 2**31 - 1, -7]
TIMES = [0.0, 0.5, 999.0, 1e-3, 12.25, -3.75, 500.3, 2.0**20 + 0.125]


def row(position, frequencies, place):
    """Sines and cosines in 50 digits, put where ``place(sines, cosines)`` has them."""
    with mpmath.workdps(60):
        number = Fraction(position)
        number = mpmath.mpf(number.numerator) / number.denominator
        waves = [mpmath.cos_sin(number * frequency) for frequency in frequencies]
        channels = place([s for _, s in waves], [c for c, _ in waves])
        return [int(mpmath.ldexp(value, oracle.SCALE)) for value in channels]


def interleaved(sines, cosines):
    return [value for pair in zip(sines, cosines, strict=True) for value in pair]


def power(base, count, divisor, first=1):
    with mpmath.workdps(60):
        return [mpmath.mpf(first) * mpmath.power(base, -mpmath.mpf(i) / divisor) for i in range(count)]


# Name: width -> our description, frequencies and channels from sines and cosines, as the sources have them.
FORMS = {
    "paper": lambda d: (
        Sinusoidal(d),
        power(10000, math.ceil(d / 2), mpmath.mpf(d) / 2),
        lambda s, c: interleaved(s, c)[:d],
    ),
    "tensor2tensor": lambda d: (
        Sinusoidal.tensor2tensor(d, min_timescale=2.0, max_timescale=5e4),
        power(25000, d // 2, max(d // 2 - 1, 1), 2),
        lambda s, c: s + c + [0] * (d % 2),
    ),
    "fairseq": lambda d: (
        Sinusoidal.fairseq(d, padding_index=2),
        power(10000, d // 2, d // 2 - 1),
        lambda s, c: s + c + [0] * (d % 2),
    ),
    "whisper": lambda d: (Sinusoidal.whisper(d), power(10000, d // 2, d // 2 - 1), lambda s, c: s + c),
    "marian": lambda d: (
        Sinusoidal.marian(d),
        power(10000, math.ceil(d / 2), mpmath.mpf(d) / 2),
        lambda s, c: s + c[: d // 2],
    ),
    "diffusers": lambda d: (
        Sinusoidal.diffusers(d, downscale_freq_shift=0.5, scale=1.5, max_period=5000.0),
        power(5000, d // 2, d // 2 - mpmath.mpf(0.5), 1.5),
        lambda s, c: s + c + [0] * (d % 2),
    ),
    "diffusers flipped": lambda d: (
        Sinusoidal.diffusers(d, flip_sin_to_cos=True, downscale_freq_shift=0.0),
        power(10000, d // 2, d // 2),
        lambda s, c: c + s + [0] * (d % 2),
    ),
    "mlx": lambda d: (
        Sinusoidal.mlx(d, min_freq=2.0**-12, max_freq=0.5, scale=0.25),
        power(2048, d // 2, d // 2 - 1, 0.5),
        lambda s, c: [value / 4 for value in s + c],
    ),
    "mlx, cosines first": lambda d: (
        Sinusoidal.mlx(d, min_freq=2.0**-12, scale=1.0, cos_first=True),
        power(4096, d // 2, d // 2 - 1),
        lambda s, c: c + s,
    ),
}
EVEN = ("whisper", "mlx", "mlx, cosines first")


@pytest.mark.parametrize("width", [4, 6, 7, 33, 64, 65, 66, 130])
@pytest.mark.parametrize("name", FORMS)
def test_as_the_sources_write_them(backend, rng, name, width):
    if name in EVEN:
        width += width % 2
    pe, frequencies, place = FORMS[name](width)
    at = np.array([*AT, *TIMES] if pe.real else AT)
    exact = np.array([row(p, frequencies, place) for p in at.tolist()], object)
    if pe.padding_index is not None:
        exact[at == pe.padding_index] = 0
    oracle.assert_close(fastpos.table(pe, positions=at), exact, 4e-16)
    for dtype in ("float32", "bfloat16"):
        x = rng.standard_normal((len(at), width)).astype(DTYPES[dtype])
        got = fastpos.apply(pe, x, positions=at, backend=backend)
        total = exact + oracle.integers(x)
        oracle.assert_close(got, total, oracle.ulp(total, dtype) / 2 + 3.6e-7 * (np.abs(x.astype(float)) + 1))
    got = fastpos.apply(pe, np.zeros((len(at), width)), positions=at, backend=backend)
    oracle.assert_close(got, exact, 1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_is_added_to_padding(backend, rng, dtype):
    x = rng.standard_normal((2, 5, 9)).astype(DTYPES[dtype])
    pe = Sinusoidal.fairseq(9, padding_index=1, embedding_scale=4.0)
    added = fastpos.apply(pe, x, positions=[[2, 3, 4, 1, 1], [2, 1, 1, 1, 1]], backend=backend)
    scaled = (x.astype(float) * 4).astype(x.dtype)
    padded = np.array([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]], bool)
    oracle.assert_same(added[padded], scaled[padded])
    assert (added[~padded][:, :8] != scaled[~padded][:, :8]).all(axis=-1).any()
    oracle.assert_same(added[..., 8], scaled[..., 8])


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_real_numbers_are_integers(backend, rng, dtype):
    x, pe = rng.standard_normal((1, 6, 64)).astype(DTYPES[dtype]), Sinusoidal(64, real=True)
    want = fastpos.apply(pe, x, start=5, backend=backend)
    for kind in (np.int64, np.float32, np.float64):
        oracle.assert_same(fastpos.apply(pe, x, positions=np.arange(5, 11).astype(kind), backend=backend), want)


def test_rows_of_padding_and_odd_widths_have_their_shift():
    for pe in (Sinusoidal.fairseq(9), Sinusoidal.diffusers(8, flip_sin_to_cos=True), Sinusoidal.mlx(6)):
        here, there = (fastpos.table(pe, positions=[p, p + 1]) for p in (40, 1040))
        np.testing.assert_allclose(here @ fastpos.shift_matrix(pe, 1000).T * 1.0, there, atol=1e-12)
    with pytest.raises(ValueError, match="a sine without its cosine has no linear map"):
        fastpos.shift_matrix(Sinusoidal(9), 1)


# Against the sources themselves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [64, 9])
@pytest.mark.parametrize(("name", "make", "ours"), [
    ("marian.modeling_marian", lambda m, d: m.MarianSinusoidalPositionalEmbedding(50, d).create_weight(), Sinusoidal.marian),
    ("m2m_100.modeling_m2m_100", lambda m, d: m.M2M100SinusoidalPositionalEmbedding.get_embedding(50, d, 1), Sinusoidal.fairseq),
    ("musicgen.modeling_musicgen", lambda m, d: m.MusicgenSinusoidalPositionalEmbedding.get_embedding(50, d),
     lambda d: Sinusoidal(d, divisor=d // 2 - 1, interleaved=False, cosine_first=True, zero_last=True)),
    ("whisper.modeling_whisper", lambda m, d: m.sinusoids(50, d), Sinusoidal.whisper),
])  # fmt: skip
def test_tables_of_transformers(name, make, ours, width):
    import importlib

    pytest.importorskip("torch", reason="PyTorch is not installed: compares with tables of transformers")
    pytest.importorskip("transformers", reason="transformers is not installed: compares with its tables")
    module = importlib.import_module(f"transformers.models.{name}")
    width += width % 2 if "whisper" in name else 0
    theirs = np.asarray(make(module, width).detach())
    np.testing.assert_allclose(fastpos.table(ours(width), start=0, length=50), theirs, atol=1e-5)
