"""Triton's rarer forms, interpreted, by what they mean in terms of the plain one: the same bits, elsewhere."""

import numpy as np
import oracle
import pytest
from oracle import DTYPES, assert_same

from fastpos import Axes, LogScale, Rotary, Sinusoidal

interpreted = pytest.importorskip("interpreted", reason="needs torch and triton")
machine = interpreted.kernels.machine


@pytest.fixture(params=[1 << 40, 0], ids=["few rows", "many rows"], autouse=True)
def form(request, monkeypatch):
    """Each of the two binaries of a launch, whatever its size."""
    monkeypatch.setattr(machine, "FULL", request.param)


@pytest.fixture(params=DTYPES)
def q_k(request, rng):
    """Two inputs of 24 channels; a batch of 2, 5 tokens."""
    return [rng.standard_normal((2, 5, heads, 24)).astype(DTYPES[request.param]) for heads in (3, 1)]


def turned(rope, inputs, in_place, **where):
    """Rotate inputs, or copies of them in place."""
    out = [x.copy() for x in inputs] if in_place else None
    results = interpreted.apply(rope, *(inputs if out is None else out), out=out, **where)
    return results if len(inputs) > 1 else [results]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("turns", "start"), [(24, 0), (14, 6), (6, 3), (2, 22), (0, 0), (0, 24)])
@pytest.mark.parametrize("interleaved", [False, True])
def test_a_slice(q_k, in_place, turns, start, interleaved):
    at = np.arange(10).reshape(2, 5) - 4
    rope = Rotary(24, rotary_dim=turns, rotary_start=start, interleaved=interleaved)
    for got, x in zip(turned(rope, q_k, in_place, positions=at), q_k, strict=True):
        inner = np.ascontiguousarray(x[..., start : start + turns])
        want = x.copy()
        if turns:
            whole = Rotary(turns, interleaved=interleaved)
            want[..., start : start + turns] = interpreted.apply(whole, inner, positions=at)
        assert_same(got, want)


@pytest.mark.parametrize("in_place", [False, True])
def test_deinterleaved(q_k, in_place):
    plain = Rotary(24, rotary_dim=20, rotary_start=2, interleaved=True)
    order = [0, 1, *range(2, 22, 2), *range(3, 22, 2), 22, 23]
    rope = Rotary(24, rotary_dim=20, rotary_start=2, interleaved=True, deinterleaved=True)
    wants = interpreted.apply(plain, *q_k, start=7)
    for got, want in zip(turned(rope, q_k, in_place, start=7), wants, strict=True):
        assert_same(got, want[..., order])


def test_a_wide_head_is_deinterleaved_by_one_program(rng):
    x = rng.standard_normal((1, 2, 1, 4096), np.float32)
    plain = interpreted.apply(Rotary(4096, interleaved=True), x, start=3)
    rope = Rotary(4096, interleaved=True, deinterleaved=True)
    interpreted.apply(rope, x, out=[x], start=3)
    assert_same(x, np.concatenate([plain[..., ::2], plain[..., 1::2]], axis=-1))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
def test_axes(q_k, rng, in_place, interleaved):
    """Each pair turns as it does at its own axis's position alone."""
    at = rng.integers(-(2**31), 2**31, (3, 2, 5)).astype(np.int32 if in_place else np.int64)
    axes = Axes((5, 3, 4))
    got = turned(Rotary(24, interleaved=interleaved, axes=axes), q_k, in_place, positions=at)
    alone = [interpreted.apply(Rotary(24, interleaved=interleaved), *q_k, positions=place) for place in at]
    pair = np.arange(24) // 2 if interleaved else np.arange(24) % 12
    for place in range(2):
        for axis in range(3):
            mine = axes.of_pairs()[pair] == axis
            assert_same(got[place][..., mine], alone[axis][place][..., mine])


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("real", [False, True])
def test_blocks_of_channels(q_k, rng, in_place, real):
    """Every axis has a head of its own; whole numbers are the same whether they could be real or not."""
    at = rng.integers(-999, 999, (2, 2, 5))
    rope = Rotary(
        24, rotary_dim=22, rotary_start=1, axes=Axes((4, 7), own_channels=True, own_frequencies=True, real=real)
    )
    got = turned(rope, q_k, in_place, positions=at.astype(np.float64) if real else at)
    for result, x in zip(got, q_k, strict=True):
        parts = [
            interpreted.apply(Rotary(width), np.ascontiguousarray(x[..., first : first + width]), positions=place)
            for place, first, width in zip(at, (1, 9), (8, 14), strict=True)
        ]
        assert_same(result, np.concatenate([x[..., :1], *parts, x[..., 23:]], axis=-1))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("turns", [24, 14, 0])
def test_queries_alone_are_scaled(q_k, in_place, turns):
    at = np.array([-3, 0, 1, 100, 10**6])
    plain, scaled = Rotary(24, rotary_dim=turns), Rotary(24, rotary_dim=turns, query_scale=LogScale(8.0))
    inputs = [*q_k, q_k[0]]
    got, wants = turned(scaled, inputs, in_place, positions=at), interpreted.apply(plain, *inputs, positions=at)
    for result, want in zip(got[1:], wants[1:], strict=True):
        assert_same(result, want)
    steps = np.maximum(at + 1, 1)
    scale = np.maximum(1, np.log(steps) / np.log(8.0))[:, None, None]
    first, dtype = wants[0].astype(np.float64) * scale, q_k[0].dtype.name
    # The plain result is rounded before it is scaled here, which the kernel does not do.
    size = np.abs(q_k[0].astype(np.float64)).max() * 2 * scale
    assert (np.abs(got[0].astype(np.float64) - first) <= size * 2.0 ** (1 - oracle.PRECISION[dtype])).all()
    if turns == 0:
        assert_same(got[0][:, :3], q_k[0][:, :3])


@pytest.mark.parametrize("interleaved", [False, True])
def test_real_positions(rng, interleaved):
    """A position of n / 1024 turns as position n does with frequencies of a 1024th."""
    numerators = rng.integers(-(2**30), 2**30, 12)
    frequencies = [frequency / 1024 for frequency in oracle.geometric(1e4, 16)]
    cos, sin = oracle.waves(numerators, frequencies)
    pe, zeros = Sinusoidal(16, interleaved=interleaved, real=True), np.zeros((12, 16), np.float32)
    got = interpreted.apply(pe, zeros, positions=numerators / 1024)
    exact = oracle.join(sin, cos, True) if interleaved else np.concatenate([sin, cos], axis=1)
    oracle.assert_close(got, exact, 1.2e-7)
