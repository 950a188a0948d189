"""Where a head's pairs lie: any slice, any pairing, results elsewhere than they were read, or no rotation at all."""

import numpy as np
import oracle
import pytest
from oracle import DTYPES, FLOAT32_ERROR

import fastpos
from fastpos import Axes, Rotary

AT = np.array([0, 1, 5000, -7, 2**31 - 1])
WIDTHS = [(8, 8, 0), (12, 6, 0), (12, 6, 6), (33, 8, 3), (160, 128, 32), (576, 64, 512), (192, 64, 128), (256, 70, 9)]


def split(start, pairs):
    return [(start + i, start + i + pairs) for i in range(pairs)]


def neighbours(start, pairs):
    return [(start + 2 * i, start + 2 * i + 1) for i in range(pairs)]


FORMS = {
    "split": ({}, split, split),
    "interleaved": ({"interleaved": True}, neighbours, neighbours),
    "deinterleaved": ({"interleaved": True, "deinterleaved": True}, neighbours, split),
}


def check(rope, x, exact, rotated, backend, at=AT):
    """In place and apart, alone and with another array: near the exact rows, other channels byte for byte."""
    got = fastpos.apply(rope, x[:, None], positions=at, backend=backend)[:, 0]
    size = np.abs(x.astype(float)).max(axis=1, keepdims=True) * 2
    lost = 1e-14 if x.dtype == np.float64 else FLOAT32_ERROR
    oracle.assert_close(got, exact, oracle.ulp(exact, x.dtype.name) / 2 + lost * size)
    rest = [channel for channel in range(x.shape[1]) if channel not in rotated]
    oracle.assert_same(got[:, rest], x[:, rest])
    here, other = x[:, None].copy(), np.repeat(x[:, None], 3, axis=1)
    fastpos.apply_(rope, here, other, positions=at, backend=backend)
    oracle.assert_same(here[:, 0], got)
    for head in range(3):
        oracle.assert_same(other[:, head], got)
    return got


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("head_dim", "rotary_dim", "start"), WIDTHS)
def test_any_slice_and_pairing(backend, rng, dtype, form, head_dim, rotary_dim, start):
    x = rng.standard_normal((len(AT), head_dim)).astype(DTYPES[dtype])
    arguments, read, write = FORMS[form]
    read, write = read(start, rotary_dim // 2), write(start, rotary_dim // 2)
    angles = oracle.waves(AT, oracle.geometric(1e4, rotary_dim))
    rope = Rotary(head_dim, rotary_dim=rotary_dim, rotary_start=start, **arguments)
    exact = oracle.rotate_channels(x, *angles, read, write)
    check(rope, x, exact, range(start, start + rotary_dim), backend)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sections", [(2, 1), (3, 5), (16, 16), (22, 22, 20), (40, 24)])
@pytest.mark.parametrize("start", [0, 4])
def test_blocks_of_channels(backend, rng, dtype, sections, start):
    """Every axis pairs inside a block of its own."""
    pairs = sum(sections)
    x = rng.standard_normal((len(AT), 2 * pairs + 2 * start)).astype(DTYPES[dtype])
    channels, first = [], start
    for section in sections:
        channels += split(first, section)
        first += 2 * section
    rope = Rotary(
        x.shape[1], rotary_dim=2 * pairs, rotary_start=start, base=100.0, axes=Axes(sections, own_channels=True)
    )
    angles = oracle.waves(AT, oracle.geometric(100.0, 2 * pairs))
    exact = oracle.rotate_channels(x, *angles, channels, channels)
    check(rope, x, exact, range(start, start + 2 * pairs), backend, np.tile(AT, (len(sections), 1)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [7, 64])
@pytest.mark.parametrize("numerics", ["exact", "hf"])
def test_a_layer_without_positions_copies(backend, rng, dtype, head_dim, numerics):
    kind = DTYPES[dtype]
    noise = rng.integers(0, 256, (2, 5, 2, head_dim * kind.itemsize), dtype=np.uint8).view(kind)
    rope = Rotary(head_dim, rotary_dim=0, numerics=numerics)
    oracle.assert_same(fastpos.apply(rope, noise, start=99, backend=backend), noise)
    here = noise.copy()
    fastpos.apply_(rope, here, start=99, backend=backend)
    oracle.assert_same(here, noise)
    np.testing.assert_array_equal(fastpos.shift_matrix(rope, 3), np.eye(head_dim))
    assert fastpos.table(rope, positions=[1, 2])[0].shape == (2, 0)


@pytest.mark.parametrize("interleaved", [False, True])
def test_clockwise_is_the_way_back(backend, rng, interleaved):
    x = rng.standard_normal((1, 4, 2, 16))
    there, back = (Rotary(16, interleaved=interleaved, clockwise=turn) for turn in (False, True))
    oracle.assert_same(
        fastpos.apply(back, x, start=5, backend=backend)[:, 1:2],
        fastpos.apply(there, x[:, 1:2], start=-6, backend=backend),
    )
    turned = fastpos.apply(back, fastpos.apply(there, x, start=10**6, backend=backend), start=10**6, backend=backend)
    np.testing.assert_allclose(turned, x, atol=1e-14)
    cos, sin = fastpos.table(back, positions=[3])
    np.testing.assert_array_equal(fastpos.table(there, positions=[3]), (cos, -sin))


@pytest.mark.parametrize("clockwise", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_rotated_keys_move_on_where_they_lie(backend, rng, form, clockwise):
    """A shift of de-interleaved keys reads them where the rotation has put them."""
    x = rng.standard_normal((1, 3, 2, 20))
    rope = Rotary(20, rotary_dim=12, rotary_start=5, clockwise=clockwise, **FORMS[form][0])
    k = fastpos.apply(rope, x, start=100, backend=backend)
    moved = fastpos.shift_(rope, k.copy(), -90, backend=backend)
    want = fastpos.apply(rope, x, start=10, backend=backend)
    np.testing.assert_allclose(moved, want, atol=1e-13)
    np.testing.assert_allclose(k @ fastpos.shift_matrix(rope, -90).T, want, atol=1e-13)
    assert np.abs(k - want).max() > 0.1


def test_transformers_de_interleaves_so(backend, rng):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: compares with what transformers computes")
    deepseek = pytest.importorskip(
        "transformers.models.deepseek_v3.modeling_deepseek_v3", reason="transformers is not installed"
    )
    x = rng.standard_normal((1, 2, 9, 64), dtype=np.float32)
    rope = Rotary(64, interleaved=True, deinterleaved=True)
    cos, sin = (
        torch.tensor(np.tile(wave, 2), dtype=torch.float32)[None] for wave in fastpos.table(rope, start=3, length=9)
    )
    want, _ = deepseek.apply_rotary_pos_emb_interleave(torch.tensor(x), torch.tensor(x), cos, sin)
    got = fastpos.apply(rope, x, start=3, layout="bhsd", backend=backend)
    np.testing.assert_allclose(got, want.numpy(), atol=1e-6)


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"rotary_dim": 4, "rotary_start": 5}, ValueError, "rotary_start: expected 0 to 4, got 5"),
    ({"rotary_start": 1}, ValueError, "rotary_start: expected 0 to 0, got 1"),
    ({"rotary_dim": 4, "rotary_start": -4}, ValueError, "rotary_start: expected 0 to 4, got -4"),
    ({"rotary_dim": 4, "rotary_start": 1.0}, TypeError, r"rotary_start: expected an integer, got 1\.0"),
    ({"deinterleaved": True}, ValueError, "deinterleaved: expected interleaved=True beside it"),
    ({"deinterleaved": 1}, TypeError, "deinterleaved: expected True or False, got 1"),
    ({"clockwise": "yes"}, TypeError, "clockwise: expected True or False, got 'yes'"),
    ({"rotary_dim": 0, "inv_freq": [1.0]}, ValueError, "inv_freq: expected rotary_dim / 2 = 0 numbers, got 1"),
])  # fmt: skip
def test_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Rotary(8, **arguments)
