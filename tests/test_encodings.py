"""Encodings: refused with the value in the text, frozen, hashable, printable, and every parameter counts."""

import copy
import dataclasses
import pickle

import ml_dtypes
import mpmath
import numpy as np
import oracle
import pytest
from oracle import DTYPES

import fastpos
from fastpos import Axes, Learned, Linear, Llama4Scale, LogScale, MinistralScale, Rotary, Sinusoidal
from fastpos.scaling import LongRoPE, YaRN

TABLE = np.arange(40, dtype=np.float32).reshape(10, 4)
ENCODINGS = [
    Rotary(8),
    Rotary(16, base=5e5, rotary_dim=6, interleaved=True, scaling=Linear(2.0)),
    Rotary(4, inv_freq=(1.0, 0.25)),
    Rotary(4, scaling=LongRoPE((1.0, 1.5), (2.0, 4.0), 4096, 32.0)),
    Rotary(20, rotary_dim=8, rotary_start=3, interleaved=True, deinterleaved=True, query_scale=LogScale(50)),
    Rotary(8, axes=Axes((1, 3), own_channels=True, real=True), clockwise=True, numerics="hf"),
    Rotary(5, rotary_dim=0, query_scale=Llama4Scale()),
    Sinusoidal(8),
    Sinusoidal(8, base=100.0, interleaved=False, embedding_scale=8**0.5),
    Sinusoidal.fairseq(9, padding_index=0, embedding_scale=3.0),
    Sinusoidal.diffusers(9, flip_sin_to_cos=True),
    Learned(TABLE, offset=2),
]


@pytest.mark.parametrize(("make", "names"), [
    (lambda **flags: Rotary(8, **flags), ("interleaved", "deinterleaved", "clockwise")),
    (lambda **flags: Sinusoidal(8, base=1e4, **flags), ("zero_last", "real")),
    (lambda **flags: Axes((4, 4), **flags), ("own_frequencies", "own_channels", "real")),
    (lambda **flags: YaRN(8.0, 512, **flags), ("truncate",)),
])  # fmt: skip
def test_flags_of_numpy_are_pythons(make, names):
    """They are spelled alike, for graphs and messages are made of what is spelled."""
    for value in (False, True):
        made = make(**dict.fromkeys(names, np.bool_(value)))
        assert repr(made) == repr(make(**dict.fromkeys(names, value)))
        assert all(getattr(made, name) is value for name in names)


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: Rotary(7), ValueError, "head_dim: .*even.*, got 7"),
    (lambda: Rotary(0), ValueError, "head_dim: expected .*, got 0"),
    (lambda: Rotary(-2), ValueError, "head_dim: expected .*, got -2"),
    (lambda: Rotary(8194), ValueError, "head_dim: expected 2 to 8192, got 8194"),
    (lambda: Rotary(8.0), TypeError, r"head_dim: expected an integer, got 8\.0"),
    (lambda: Rotary(True), TypeError, "head_dim: expected an integer, got True"),
    (lambda: Rotary("8"), TypeError, "head_dim: expected an integer, got '8'"),
    (lambda: Rotary(8, rotary_dim=10), ValueError, "rotary_dim: expected at most head_dim = 8, got 10"),
    (lambda: Rotary(8, rotary_dim=5), ValueError, "rotary_dim: .*even.*, got 5"),
    (lambda: Rotary(8, rotary_dim=-2), ValueError, "rotary_dim: expected .*, got -2"),
    (lambda: Rotary(8, rotary_dim=4.0), TypeError, r"rotary_dim: expected an integer, got 4\.0"),
    (lambda: Rotary(8, base=0), ValueError, "base: expected a finite number above 0, got 0"),
    (lambda: Rotary(8, base=-10.0), ValueError, r"base: .*, got -10\.0"),
    (lambda: Rotary(8, base=float("nan")), ValueError, "base: .*, got nan"),
    (lambda: Rotary(8, base=float("inf")), ValueError, "base: .*, got inf"),
    (lambda: Rotary(8, base="1e4"), TypeError, "base: expected a number, got '1e4'"),
    (lambda: Rotary(8, interleaved=1), TypeError, "interleaved: expected True or False, got 1"),
    (lambda: Rotary(8, interleaved="yes"), TypeError, "interleaved: expected True or False, got 'yes'"),
    (lambda: Rotary(8, rotary_dim=0, scaling=Linear(2.0)), ValueError, "scaling: expected None beside rotary_dim=0, .*got Lin"),
    (lambda: Rotary(8, scaling=4.0), TypeError, r"scaling: expected a rule of fastpos.scaling .* or None, got 4\.0"),
    (lambda: Rotary(8, scaling={"factor": 2}), TypeError, "scaling: expected a rule of fastpos.scaling"),
    (lambda: Rotary(8, inv_freq=[1.0]), ValueError, "inv_freq: expected rotary_dim / 2 = 4 numbers, got 1"),
    (lambda: Rotary(8, rotary_dim=4, inv_freq=[1.0] * 4), ValueError, "rotary_dim / 2 = 2 numbers, got 4"),
    (lambda: Rotary(4, inv_freq=[1.0, float("nan")]), ValueError, "inv_freq: expected finite numbers, got nan"),
    (lambda: Rotary(4, inv_freq=[float("-inf"), 1.0]), ValueError, "inv_freq: expected finite numbers, got -inf"),
    (lambda: Rotary(4, inv_freq=np.ones((1, 2))), TypeError, r"row of numbers, got float64 of shape \(1, 2\)"),
    (lambda: Rotary(4, inv_freq=["1", "2"]), TypeError, "inv_freq: expected a row of numbers"),
    (lambda: Rotary(4, base=5e5, inv_freq=[1.0, 0.5]), ValueError, r"base: .*inv_freq.*, got 500000\.0"),
    (lambda: Linear(0), ValueError, "factor: expected a finite number above 0, got 0"),
    (lambda: Linear(-1.0), ValueError, r"factor: .*, got -1\.0"),
    (lambda: Linear("2"), TypeError, "factor: expected a number, got '2'"),
    (lambda: Sinusoidal(1), ValueError, "width: expected 2 to 65536, got 1"),
    (lambda: Sinusoidal(8, divisor=0), ValueError, "divisor: expected a finite number above 0, got 0"),
    (lambda: Sinusoidal(8, frequency_scale=-1.0), ValueError, r"frequency_scale: .*, got -1\.0"),
    (lambda: Sinusoidal(8, scale="1"), TypeError, "scale: expected a number, got '1'"),
    (lambda: Sinusoidal(8, scale=1e39), ValueError, r"scale: .*at most 3\.40282e\+38, got 1e\+39"),
    (lambda: Sinusoidal(8, cosine_first=True), ValueError, "cosine_first: expected interleaved=False beside it"),
    (lambda: Sinusoidal(7, cosine_first=True, interleaved=False), ValueError, "zero_last=True for an odd width"),
    (lambda: Sinusoidal(8, zero_last=0), TypeError, "zero_last: expected True or False, got 0"),
    (lambda: Sinusoidal(8, real=1), TypeError, "real: expected True or False, got 1"),
    (lambda: Sinusoidal(8, padding_index=-1), ValueError, "padding_index: expected 0 to 2147483648, got -1"),
    (lambda: Sinusoidal(8, padding_index=1.0), TypeError, r"padding_index: expected an integer, got 1\.0"),
    (lambda: Sinusoidal.fairseq(3), ValueError, "width: expected at least 4, .* h - 1, got 3"),
    (lambda: Sinusoidal.whisper(2), ValueError, "width: expected at least 4, .* h - 1, got 2"),
    (lambda: Sinusoidal.whisper(9), ValueError, "width: expected an even number, .*, got 9"),
    (lambda: Sinusoidal.mlx(11), ValueError, "width: expected an even number, .*, got 11"),
    (lambda: Sinusoidal.mlx(8, min_freq=0), ValueError, "min_freq: .*, got 0"),
    (lambda: Sinusoidal.diffusers(8, downscale_freq_shift=4.0), ValueError, r"divisor: .*, got 0\.0"),
    (lambda: Sinusoidal.tensor2tensor(8, min_timescale=0), ValueError, "min_timescale: .*, got 0"),
    (lambda: Sinusoidal(0), ValueError, "width: expected .*, got 0"),
    (lambda: Sinusoidal(8.0), TypeError, r"width: expected an integer, got 8\.0"),
    (lambda: Sinusoidal(8, base=-1), ValueError, "base: .*, got -1"),
    (lambda: Sinusoidal(8, interleaved=None), TypeError, "interleaved: expected True or False, got None"),
    (lambda: Sinusoidal(8, embedding_scale=0.0), ValueError, r"embedding_scale: .*, got 0\.0"),
    (lambda: Sinusoidal(8, embedding_scale=float("inf")), ValueError, "embedding_scale: .*, got inf"),
    (lambda: Learned(np.zeros((4, 8), int)), TypeError, "table: expected float32, .*, got int64"),
    (lambda: Learned(np.zeros((4, 8), complex)), TypeError, "table: expected float32, .*, got complex128"),
    (lambda: Learned(np.zeros(8)), ValueError, r"table: expected shape \(rows, width\), got \(8,\)"),
    (lambda: Learned(np.zeros((2, 4, 8))), ValueError, r"table: expected shape \(rows, width\), got \(2, 4, 8\)"),
    (lambda: Learned(np.zeros((0, 8))), ValueError, r"table: expected shape \(rows, width\), got \(0, 8\)"),
    (lambda: Learned(TABLE, offset=-1), ValueError, "offset: expected 0 to 9, got -1"),
    (lambda: Learned(TABLE, offset=10), ValueError, "offset: expected 0 to 9, got 10"),
    (lambda: Learned(TABLE, offset=1.0), TypeError, r"offset: expected an integer, got 1\.0"),
])  # fmt: skip
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_frozen_hashable_printable(encoding):
    for field in dataclasses.fields(encoding):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(encoding, field.name, getattr(encoding, field.name))
    assert encoding in {encoding}
    assert type(encoding).__name__ in repr(encoding)
    assert len(repr(encoding)) < 300


def pickled(encoding):
    return pickle.loads(pickle.dumps(encoding))


def printed(encoding):
    return eval(repr(encoding))


def itself(encoding):
    return encoding


@pytest.mark.parametrize("encoding", ENCODINGS[:-1], ids=repr)
@pytest.mark.parametrize("copied", [pickled, copy.deepcopy, copy.copy, printed])
def test_copies_are_equal(encoding, copied):
    assert copied(encoding) == encoding
    assert hash(copied(encoding)) == hash(encoding)


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy, copy.copy, itself])
def test_learned_keeps_its_own_table(copied):
    source = TABLE.copy()
    learned = copied(Learned(source, offset=2))
    source[:] = -1
    np.testing.assert_array_equal(learned.table, TABLE)
    with pytest.raises(ValueError, match="read-only"):
        learned.table[0, 0] = 1
    assert learned.offset == 2
    np.testing.assert_array_equal(fastpos.table(learned, positions=[0, 7]), TABLE[[2, 9]])


def test_equal_only_when_every_parameter_is():
    assert Rotary(8) == Rotary(8, base=1e4, rotary_dim=8)
    assert Rotary(8, base=10_000) == Rotary(np.int64(8))
    assert Linear(2) == Linear(2.0)
    assert len({*ENCODINGS, Rotary(8), Rotary(8, interleaved=True), Sinusoidal(8, base=100.0)}) == len(ENCODINGS) + 2
    assert Learned(TABLE) != Learned(TABLE)


CHANGES = [
    (Rotary(8), {"base": 10001.0}),
    (Rotary(8), {"rotary_dim": 6}),
    (Rotary(8), {"interleaved": True}),
    (Rotary(8), {"scaling": Linear(2.0)}),
    (Rotary(8), {"inv_freq": (1.0, 0.1, 0.01, 0.0010001)}),
    (Rotary(8), {"rotary_dim": 0}),
    (Rotary(8), {"clockwise": True}),
    (Rotary(8), {"numerics": "hf"}),
    (Rotary(8), {"query_scale": LogScale(10000)}),
    (Rotary(8), {"axes": Axes((2, 2), own_frequencies=True)}),
    (Rotary(8, interleaved=True), {"deinterleaved": True}),
    (Rotary(8, rotary_dim=6), {"rotary_start": 1}),
    (Rotary(8, axes=Axes((2, 2))), {"axes": Axes((2, 2), own_channels=True)}),
    (Rotary(8, query_scale=MinistralScale(0.1, 9000)), {"query_scale": MinistralScale(0.2, 9000)}),
    (Rotary(8, query_scale=MinistralScale(0.1, 9000)), {"query_scale": MinistralScale(0.1, 10001)}),
    (Rotary(8, query_scale=Llama4Scale(0.1, 9000)), {"query_scale": Llama4Scale(0.2, 9000)}),
    (Rotary(8, query_scale=Llama4Scale(0.1, 9000)), {"query_scale": Llama4Scale(0.1, 10001.5)}),
    (Rotary(8, query_scale=LogScale(10000)), {"query_scale": LogScale(10001)}),
    (Rotary(8, scaling=Linear(2.0)), {"scaling": Linear(2.001)}),
    (Rotary(8, inv_freq=(1.0, 0.1, 0.01, 0.001)), {"inv_freq": (1.0, 0.1, 0.01, 0.00100001)}),
    (Sinusoidal(8), {"base": 10001.0}),
    (Sinusoidal(8), {"interleaved": False}),
    (Sinusoidal(8), {"embedding_scale": 2.0}),
    (Sinusoidal(8), {"divisor": 3.0}),
    (Sinusoidal(8), {"frequency_scale": 2.0}),
    (Sinusoidal(8), {"scale": 2.0}),
    (Sinusoidal(8), {"padding_index": 20000}),
    (Sinusoidal(8, interleaved=False), {"cosine_first": True}),
]


def test_short_when_printed():
    assert repr(Rotary(128)) == "Rotary(128, base=10000.0)"
    assert repr(Rotary(4, inv_freq=[1, 2], clockwise=True)) == "Rotary(4, inv_freq=(1.0, 2.0), clockwise=True)"


@pytest.mark.parametrize(("encoding", "change"), CHANGES, ids=str)
def test_every_parameter_matters(backend, rng, encoding, change):
    x = rng.standard_normal((1, 2, 8))
    one, other = (
        fastpos.apply(e, x, start=20000, layout="bsd", backend=backend)
        for e in (encoding, dataclasses.replace(encoding, **change))
    )
    assert np.abs(one - other).max() > 1e-6
    assert np.isfinite(other).all()


def test_offset_matters(backend):
    x = np.zeros((2, 4), np.float32)
    for offset in (0, 1, 3):
        added = fastpos.apply(Learned(TABLE, offset=offset), x, start=2, backend=backend)
        oracle.assert_same(added, TABLE[2 + offset : 4 + offset])


@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
def test_own_frequencies_enter_exactly(name):
    own = np.array([1.0, 0.7, 1e-3, 3e-5]).astype(DTYPES[name])
    rope = Rotary(8, inv_freq=own)
    assert rope.inv_freq == tuple(own.astype(float).tolist())
    assert rope == Rotary(8, inv_freq=rope.inv_freq)
    cos, sin = oracle.waves([2**31 - 1], rope.inv_freq)
    table = fastpos.table(rope, positions=[2**31 - 1])
    oracle.assert_close(table[0], cos, 3e-16)
    oracle.assert_close(table[1], sin, 3e-16)


def test_linear_scaling_divides_positions(backend, rng):
    x = rng.standard_normal((1, 1, 3, 8))
    scaled = fastpos.apply(Rotary(8, scaling=Linear(4.0)), x, start=20000, backend=backend)
    plain = fastpos.apply(Rotary(8), x, start=5000, backend=backend)
    np.testing.assert_allclose(scaled, plain, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(33, 2), (33, 32), (96, 24), (8, 6)])
def test_channels_beyond_rotary_dim_pass_byte_for_byte(backend, rng, dtype, interleaved, head_dim, rotary_dim):
    kind = DTYPES[dtype]
    noise = rng.integers(0, 256, (1, 5, 2, head_dim * kind.itemsize), dtype=np.uint8).view(kind)
    noise[..., :rotary_dim] = 1
    # Two NaN, one of them signalling, with payloads.
    top = {"float32": 0x7F8, "float16": 0x7C, "bfloat16": 0x7F8, "float64": 0x7FF}[dtype]
    unsigned = noise.view(f"u{kind.itemsize}")
    shift = {"float32": 20, "float16": 8, "bfloat16": 4, "float64": 52}[dtype]
    unsigned[0, 0, 0, -1] = (top << shift) + 1
    unsigned[0, 1, 0, -1] = (top << shift) + (1 << (oracle.PRECISION[dtype] - 2)) + 5
    rope = Rotary(head_dim, rotary_dim=rotary_dim, interleaved=interleaved)
    turned = fastpos.apply(rope, noise, start=1, backend=backend)
    oracle.assert_same(turned[..., rotary_dim:], noise[..., rotary_dim:])
    assert (oracle.bits(turned[..., :rotary_dim]) != oracle.bits(noise[..., :rotary_dim])).any()
    in_place = noise.copy()
    fastpos.apply_(rope, in_place, start=1, backend=backend)
    oracle.assert_same(in_place, turned)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_stay_in_their_pair(backend, rng, dtype, interleaved, poison):
    x = rng.standard_normal((1, 3, 2, 70)).astype(DTYPES[dtype])
    rope = Rotary(70, interleaved=interleaved)
    clean = fastpos.apply(rope, x, start=-1, backend=backend)
    for pair in (0, 3, 16, 34):
        first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 35)
        for channel in (first, second):
            bad = x.copy()
            bad[0, 1, 1, channel] = poison
            # The token stands at 0, where a sine is 0 and its product with infinity NaN.
            turned = fastpos.apply(rope, bad, start=-1, backend=backend)
            assert not np.isfinite(turned[0, 1, 1, [first, second]]).any()
            turned[0, 1, 1, [first, second]] = clean[0, 1, 1, [first, second]]
            oracle.assert_same(turned, clean)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "encoding", [Sinusoidal(70), Sinusoidal(70, interleaved=False), Learned(np.ones((9, 70), np.float32))], ids=repr
)
def test_nan_and_infinity_stay_in_their_channel(backend, rng, dtype, encoding):
    x = rng.standard_normal((1, 3, 70)).astype(DTYPES[dtype])
    clean = fastpos.apply(encoding, x, start=5, backend=backend)
    bad = x.copy()
    bad[0, 1, [0, 33, 69]] = np.nan, np.inf, -np.inf
    added = fastpos.apply(encoding, bad, start=5, backend=backend)
    np.testing.assert_array_equal(added[0, 1, [0, 33, 69]].astype(float), [np.nan, np.inf, -np.inf])
    added[0, 1, [0, 33, 69]] = clean[0, 1, [0, 33, 69]]
    oracle.assert_same(added, clean)


def test_results_that_overflow_become_infinite(backend):
    for dtype, most in ((np.float16, 65504.0), (ml_dtypes.bfloat16, 3.38e38), (np.float32, 3.4e38)):
        x = np.full((1, 1, 1, 2), most, dtype)
        turned = fastpos.apply(Rotary(2), x, start=-1, backend=backend)[0, 0, 0].astype(float)
        assert turned[0] == np.inf
        assert np.isfinite(turned[1])


@pytest.mark.parametrize("table_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_learned_tables_of_every_type(backend, rng, table_dtype, dtype):
    table = rng.standard_normal((6, 50)).astype(DTYPES[table_dtype])
    x = rng.standard_normal((4, 50)).astype(DTYPES[dtype])
    added = fastpos.apply(Learned(table), x, positions=[5, 0, 3, 3], backend=backend)
    exact = oracle.integers(x) + oracle.integers(table[[5, 0, 3, 3]])
    # A float64 table is rounded to float32 before it is added to shorter data.
    size = np.abs(x.astype(float)) + np.abs(table[[5, 0, 3, 3]].astype(float))
    oracle.assert_close(added, exact, oracle.ulp(exact, dtype) / 2 + (0 if dtype == "float64" else 2.0**-23) * size)


@pytest.mark.parametrize(
    ("rope", "frequencies"),
    [
        (Rotary(8, inv_freq=[1e40, 1e45, 1e50, 1e70]), [1e40, 1e45, 1e50, 1e70]),
        (Rotary(4, base=1e-300), [1.0, "1e150"]),
        (Rotary(4, scaling=Linear(1e-60)), ["1e60", "1e58"]),
    ],
    ids=["inv_freq", "base", "factor"],
)
def test_frequencies_of_any_size_are_exact(rope, frequencies):
    """The fraction of a turn wants as many digits more as the frequency has before its point."""
    with mpmath.workdps(400):
        base = mpmath.mpf(rope.base)
        exact = [mpmath.mpf(value) for value in rope.inv_freq] if rope.inv_freq else [1, base ** (-mpmath.mpf(1) / 2)]
        exact = [value / mpmath.mpf(rope.scaling.factor if rope.scaling else 1) for value in exact]
        assert [float(value) for value in exact] == pytest.approx([float(value) for value in frequencies])
        cos, sin = fastpos.table(rope, positions=[1, 12345, -(2**31)])
        for row, position in enumerate((1, 12345, -(2**31))):
            for pair, frequency in enumerate(exact):
                assert abs(cos[row, pair] - mpmath.cos(position * frequency)) < 1e-14
                assert abs(sin[row, pair] - mpmath.sin(position * frequency)) < 1e-14
