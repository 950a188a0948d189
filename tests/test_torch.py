"""Tensors through ``apply`` and ``apply_``: the bits that arrays get, in memory of every kind, on every path through the door."""

import gc

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from views import encodings

import fastpos
from fastpos import Learned, Rotary, Sinusoidal
from fastpos.scaling import DynamicNTK, LongRoPE

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch._dynamo.testing as dynamo_testing  # noqa: E402
from drawn import check_a_drawn_call  # noqa: E402
from tensors import array_of  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
ROPE = Rotary(16, base=5e5)


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def right(encoding, x, **place):
    """What arrays of the same numbers get."""
    place = {name: array_of(value) if isinstance(value, torch.Tensor) else value for name, value in place.items()}
    if isinstance(encoding, Learned) and encoding.is_tensor:
        encoding = Learned(array_of(encoding.table), offset=encoding.offset)
    return fastpos.apply(encoding, array_of(x).copy(), **place)


def assert_same(tensor, array):
    oracle.assert_same(array_of(tensor), array)


@given(st.data())
def test_tensors_get_the_bits_of_arrays(data):
    kind = data.draw(st.sampled_from(["rotary", "sinusoidal", "learned"]))
    check_a_drawn_call(data, data.draw(encodings(kind)), kind)


def test_positions_that_are_arrays_of_any_memory():
    """What a tensor cannot be: negative strides and foreign byte order, of integers and of real numbers."""
    x, pe = torch.randn(3, 8), Sinusoidal(8, real=True)
    for places in (np.array([1.5, 2.25, -3.75]), np.array([7, 1, -2])):
        want = fastpos.apply(pe, x, positions=places)
        for same in (places[::-1].copy()[::-1], places.astype(places.dtype.newbyteorder(">"))):
            assert torch.equal(fastpos.apply(pe, x, positions=same), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_a_decode_loop(dtype, mode):
    """Every call is checked anew: the launch that is kept must fit positions, shapes, strides and dtypes that change."""
    with mode():
        for position in range(12):
            q, k = randn(1, 1, 4, 16, dtype=dtype, seed=position), randn(1, 1, 2, 16, dtype=dtype)
            wants = right(ROPE, q, start=position), right(ROPE, k, start=position)
            places = {"start": position}, {"positions": torch.tensor([position])}, {"start": torch.tensor(position)}
            for place in places:
                for got, want in zip(fastpos.apply(ROPE, q, k, **place), wants, strict=True):
                    assert_same(got, want)
                out = torch.full_like(q, torch.nan), torch.full((1, 3, 2, 16), torch.nan, dtype=dtype)[:, 1:2]
                assert fastpos.apply(ROPE, q, k, **place, out=out)[1] is out[1]
                for got, want in zip(out, wants, strict=True):
                    assert_same(got, want)
                here = q.clone(), k.clone()
                assert fastpos.apply_(ROPE, *here, **place) == here
                for got, want in zip(here, wants, strict=True):
                    assert_same(got, want)


def test_calls_that_look_alike():
    """One encoding, one start: other strides, dtypes, shapes, negated views and parameters find their own way."""
    base = randn(2, 3, 4, 32)
    for _ in range(3):
        for x in (
            base[..., :16].contiguous(),
            base[..., :16],
            base[..., ::2],
            base[..., :16].transpose(1, 2),
            base[:1, :1, :, :16],
            base[:1, :1, :1, 16:],
            base[..., :16].double(),
            base[..., :16].bfloat16(),
            torch._neg_view(base[..., :16].clone()),
            base[:1, :, :, :16].expand(2, 3, 4, 16),
            base[:0, :, :, :16],
        ):
            want = right(ROPE, x.resolve_neg(), start=5)
            assert_same(fastpos.apply(ROPE, x, start=5), want)
            if x.is_neg():
                with pytest.raises(ValueError, match="negation"):
                    fastpos.apply_(ROPE, x, start=5)
                continue
            here = x.clone()
            fastpos.apply_(ROPE, here, start=5)
            assert_same(here, want)


def test_more_than_two():
    tensors = [randn(2, 3, heads, 16, dtype=torch.bfloat16, seed=heads) for heads in (4, 2, 1, 3, 5)]
    wants = [right(ROPE, x, start=[4, 9]) for x in tensors]
    for got, want in zip(fastpos.apply(ROPE, *tensors, start=torch.tensor([4, 9])), wants, strict=True):
        assert_same(got, want)
    fastpos.apply_(ROPE, *tensors, start=[4, 9])
    for got, want in zip(tensors, wants, strict=True):
        assert_same(got, want)


def test_nothing_is_written_before_all_is_checked():
    tensors = [randn(1, 2, 1, 16) for _ in range(3)]
    kept = [x.clone() for x in tensors]
    with pytest.raises(ValueError, match=r"more\[2\]: expected 16 channels"):
        fastpos.apply_(ROPE, *tensors, randn(1, 2, 1, 8), start=3)
    with pytest.raises(ValueError, match="overlaps"):
        fastpos.apply_(ROPE, *tensors, tensors[0], start=3)
    assert all(map(torch.equal, tensors, kept))


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_and_threaded(threads, dtype):
    threads(2)
    x = randn(1, 40, 4, 16, dtype=dtype)
    assert_same(fastpos.apply(Rotary(16), x, start=3), right(Rotary(16), x, start=3))


def test_packed_fused_qkv():
    """Q, k and v as slices of one projection: strides that skip, ranges that interleave."""
    qkv = randn(3, 2, 6, 16)
    q, k = qkv[:, :, :3], qkv[:, :, 3:5]
    wants = right(ROPE, q, start=[1, 2, 3]), right(ROPE, k, start=[1, 2, 3])
    kept = qkv[:, :, 5].clone()
    fastpos.apply_(ROPE, q, k, start=torch.tensor([1, 2, 3]))
    assert_same(q, wants[0])
    assert_same(k, wants[1])
    assert torch.equal(qkv[:, :, 5], kept)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("table_dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_learned_tables(kind, table_dtype, dtype):
    table = np.random.default_rng(1).standard_normal((20, 8)).astype(table_dtype)
    encoding, x = Learned(kind(table), offset=2), randn(2, 3, 8, dtype=dtype)
    for _ in range(2):
        assert_same(fastpos.apply(encoding, x, positions=[17, 0, 5]), right(encoding, x, positions=[17, 0, 5]))


def test_a_table_that_is_trained():
    """A tensor is read as it stands, and neither copied nor kept alive."""
    from fastpos import torch_request

    table, x = randn(20, 8), randn(2, 3, 8)
    encoding = Learned(table)
    first = fastpos.apply(encoding, x, start=4)
    table.mul_(2)
    assert_same(fastpos.apply(encoding, x, start=4), right(encoding, x, start=4))
    assert not torch.equal(first, fastpos.apply(encoding, x, start=4))
    gc.collect()
    before = len(torch_request._tables)
    del table, encoding
    gc.collect()
    assert len(torch_request._tables) == before - 1


def test_versions_count():
    """A gradient that needs what stood there before a call in place fails aloud."""
    for _ in range(3):
        weight, x = torch.ones(1, 1, 2, 16, requires_grad=True), randn(1, 1, 2, 16)
        product = (weight * x).sum()
        version = x._version
        fastpos.apply_(ROPE, x, start=3)
        assert x._version == version + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
        out = randn(1, 1, 2, 16)
        fastpos.apply(ROPE, x, start=3, out=out)
        assert out._version == 1


def test_explain_and_shift():
    x = randn(2, 3, 4, 16, dtype=torch.bfloat16)
    plan = fastpos.explain(ROPE, x, start=3)
    assert (plan.backend, plan.dtype, plan.in_place, plan.bytes_read) == ("numba", "bfloat16", False, x.nbytes)
    assert fastpos.explain(ROPE, x, start=3, out=x).in_place
    for by in (5, -3, [2, -7], torch.tensor([2, -7]), torch.tensor(5)):
        keys, array = x.clone(), array_of(x).copy()
        assert fastpos.shift_(ROPE, keys, by) is keys
        fastpos.shift_(ROPE, array, array_of(by) if isinstance(by, torch.Tensor) else by)
        assert_same(keys, array)
    with pytest.raises(ValueError, match=r"by: .*\(2,\)"):
        fastpos.shift_(ROPE, x, torch.tensor([1, 2, 3]))


def test_the_numpy_backend():
    x = randn(2, 3, 4, 16, dtype=torch.bfloat16)
    with fastpos.use_backend("numpy"):
        got = fastpos.apply(ROPE, x, start=2**31)
        want = fastpos.apply(ROPE, array_of(x), start=2**31)
    assert_same(got, want)


def test_sinusoids_in_every_dtype():
    pe = Sinusoidal(16, embedding_scale=4.0)
    for dtype in DTYPES:
        x = randn(2, 3, 16, dtype=dtype)
        want = right(pe, x, start=77)
        assert_same(fastpos.apply(pe, x, start=77), want)
        fastpos.apply_(pe, x, start=77)
        assert_same(x, want)


def test_the_default_device_is_not_that_of_positions_and_tables():
    """Lists and arrays go to where the data is, whatever device PyTorch makes new tensors on."""
    table, x, q = (
        np.random.default_rng(1).standard_normal((20, 16), dtype=np.float32),
        randn(2, 3, 16),
        randn(2, 3, 2, 16),
    )
    for encoding, tensor in ((Learned(table), x), (ROPE, q)):
        for place in ({"positions": [2, 0, 1]}, {"start": [4, 1]}):
            want = right(encoding, tensor, **place)
            with torch.device("meta"):
                got = fastpos.apply(encoding, tensor, **place)
            assert_same(got, want)


def test_encodings_do_not_stay_alive():
    from fastpos import torch_decode

    x = randn(1, 1, 2, 16)
    before = len(torch_decode._known)
    for base in range(2, 9):
        fastpos.apply_(Rotary(16, base=float(base)), x, start=0)
    gc.collect()
    assert len(torch_decode._known) <= before


LENGTHS = LongRoPE(short_factor=[1.0] * 8, long_factor=[2.0] * 8, original_max_position_embeddings=10, factor=4.0)


@pytest.mark.parametrize("kind", [list, torch.tensor])
@pytest.mark.parametrize("lengths", [[4, 11, 5], [3, 4, 5], [11, 12, 13]])
def test_rows_of_different_lengths(lengths, kind):
    rope, x = Rotary(16, scaling=LENGTHS), randn(3, 3, 2, 16)
    for place in ({"start": 1}, {"start": torch.tensor([1, 8, 2])}, {"positions": torch.arange(9).view(3, 3)}):
        want = right(rope, x, **place, seq_lens=lengths)
        assert_same(fastpos.apply(rope, x, **place, seq_lens=kind(lengths)), want)
        here, out, leaf = x.clone(), torch.empty_like(x), x.clone().requires_grad_()
        fastpos.apply(rope, x, **place, seq_lens=kind(lengths), out=out)
        fastpos.apply_(rope, here, **place, seq_lens=kind(lengths))
        assert_same(here, want)
        assert_same(out, want)
        fastpos.apply(rope, leaf, **place, seq_lens=kind(lengths)).sum().backward()
        assert leaf.grad.any(dim=-1).all()
    packed = randn(9, 2, 16)
    place = {"cu_seqlens": [0, 2, 4, 9], "start": [1, 2, 3]}
    assert_same(
        fastpos.apply(rope, packed, **place, seq_lens=kind(lengths)), right(rope, packed, **place, seq_lens=lengths)
    )


@pytest.mark.parametrize(
    ("scaling", "graphs"), [(LENGTHS, 3), (DynamicNTK(2.0, 10), 5)], ids=["LongRoPE", "DynamicNTK"]
)
def test_compiled_with_one_length(scaling, graphs):
    """A length is an argument of the graph: one for the first, one for others up to the trained length, and those beyond."""
    torch._dynamo.reset()
    counter = dynamo_testing.CompileCounter()
    rope, x = Rotary(16, scaling=scaling), randn(3, 3, 2, 16)
    call = torch.compile(lambda x, n: fastpos.apply(rope, x, start=0, seq_lens=n), fullgraph=True, backend=counter)
    for length in (3, 5, 4, 9, 11, 12, 13, 10, 11, 7):
        assert_same(call(x, length), right(rope, x, start=0, seq_lens=length))
    assert counter.frame_count == graphs


def test_one_length_for_all_and_none():
    rope, x = Rotary(16, scaling=LENGTHS), randn(3, 3, 2, 16)
    for length in (3, 11):
        assert_same(fastpos.apply(rope, x, start=0, seq_lens=length), right(rope, x, start=0, seq_lens=length))
    for call in (fastpos.apply, fastpos.apply_, fastpos.explain):
        with pytest.raises(ValueError, match="give apply or apply_ seq_lens="):
            call(rope, x, start=0)
    with pytest.raises(ValueError, match="seq_lens: expected none"):
        fastpos.apply(ROPE, x, start=0, seq_lens=3)
    with pytest.raises(ValueError, match="seq_lens: expected 0 or more, got -1"):
        fastpos.apply(rope, x, start=0, seq_lens=-1)


@pytest.mark.parametrize("mask", [[[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]], [1, 0, 1, 0, 1]])
def test_positions_from_masks_that_are_tensors(mask):
    for kind in (torch.int64, torch.bool, torch.float32):
        for place in ({}, {"start": 7}, {"start": 2, "padding": 1}):
            got = fastpos.positions.from_mask(torch.tensor(mask).to(kind), **place)
            assert torch.equal(got, torch.tensor(fastpos.positions.from_mask(mask, **place)))
    with pytest.raises(ValueError, match="mask: expected 0 and 1 alone, got 2"):
        fastpos.positions.from_mask(torch.tensor([0, 2]))
    rows = torch.tensor([[0, 1], [1, 1]])
    assert fastpos.positions.from_mask(rows, start=[3, 4]).tolist() == [[3, 3], [4, 5]]
    with pytest.raises(ValueError, match="start: expected one integer or one a row"):
        fastpos.positions.from_mask(rows, start=[1, 2, 3])


def test_modules_of_encodings():
    from fastpos import nn

    assert nn.Rotary(ROPE).encoding == ROPE
    assert nn.Rotary(ROPE, interleaved=True).encoding == Rotary(16, base=5e5, interleaved=True)
    assert nn.Sinusoidal(Sinusoidal.whisper(16)).encoding == Sinusoidal.whisper(16)


def test_a_table_of_tensors_needs_tensors():
    with pytest.raises(TypeError, match="x: expected a PyTorch tensor like the learned table, got a NumPy array"):
        fastpos.apply(Learned(randn(4, 8)), np.ones((1, 2, 8), np.float32), start=0)
