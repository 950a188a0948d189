"""Triton through the public API: in Triton's interpreter, the bits and the errors that Numba's kernels give on tensors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from views import encodings

import fastpos
from fastpos import Axes, Learned, Rotary, Sinusoidal, dispatch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")
import interpreted  # noqa: E402
from drawn import check_a_drawn_call  # noqa: E402
from test_errors import TENSOR_CALLS, made, memory, tensors  # noqa: E402

from fastpos import torch_device, torch_request  # noqa: E402

ROPE = Rotary(16, base=5e5)


@pytest.fixture(autouse=True)
def on_triton(monkeypatch):
    """Make the interpreted copies of the kernels what backend ``triton`` is."""
    find, kernels = dispatch.find, dispatch.kernels
    usable = dispatch.Backend("triton", None, ())
    monkeypatch.setattr(dispatch, "find", lambda name: usable if name == "triton" else find(name))
    monkeypatch.setattr(dispatch, "kernels", lambda name: interpreted.kernels if name == "triton" else kernels(name))
    monkeypatch.setattr(dispatch, "interpreted", lambda: True)
    torch_device.forget()
    yield
    torch_device.forget()


@pytest.fixture
def checked(monkeypatch):
    """Check values on the device, as FASTPOS_CHECK=1 does."""
    for module in (torch_device, torch_request):
        monkeypatch.setattr(module, "checks_values", lambda: True)


@settings(max_examples=60)
@given(st.data())
def test_the_bits_of_arrays(data):
    kind = data.draw(st.sampled_from(["rotary", "sinusoidal", "learned"]))
    check_a_drawn_call(data, data.draw(encodings(kind)), kind, backend="triton")


@pytest.mark.parametrize(("function", "error", "message", "encoding", "arrays", "arguments"), TENSOR_CALLS)
def test_refused_alike(checked, function, error, message, encoding, arrays, arguments):
    originals = [made(array) for array in arrays], {name: made(value) for name, value in arguments.items()}
    before = memory(*originals[0], originals[1].get("out"))
    inputs = [tensors(x) for x in originals[0]]
    given = {name: tensors(value) if name == "out" else value for name, value in originals[1].items()}
    with pytest.raises(error, match=message) as raised:
        function(encoding, *inputs, **given, backend="triton")
    assert raised.type is error
    assert memory(*originals[0], originals[1].get("out")) == before


def test_rows_that_a_table_does_not_have_are_nan(monkeypatch):
    """A fault is loud without waiting for a device; asked to check, it is the CPU's error."""
    encoding, x = Learned(torch.ones(10, 16), offset=2), torch.ones(2, 3, 16)
    for place in (torch.tensor([0, 8, -1]), torch.tensor([[0, 9, 2**40], [-3, 0, 1]])):
        result = fastpos.apply(encoding, x, positions=place, backend="triton")
        outside = ((place < 0) | (place >= 8)).expand(2, 3)
        assert torch.equal(result.isnan().all(-1), outside)
        assert torch.equal(result.isnan().any(-1), outside)
    for module in (torch_device, torch_request):
        monkeypatch.setattr(module, "checks_values", lambda: True)
    with pytest.raises(IndexError, match=r"position 8 \(row 0, token 1\): expected 0 to 7"):
        fastpos.apply(encoding, x, positions=torch.tensor([0, 8, 1]), backend="triton")


def test_nothing_is_read_from_the_device(monkeypatch):
    """No call, first or further, asks a tensor for a value: that would wait for the device, and break a capture."""
    q, k = torch.randn(2, 3, 4, 16), torch.randn(2, 3, 2, 16)
    places = [
        {"start": 5}, {"start": torch.tensor([5, 6])}, {"positions": torch.arange(6).view(2, 3)},
        {"positions": torch.arange(3, dtype=torch.int32)},
    ]  # fmt: skip
    wants = [fastpos.apply(ROPE, q, k, **place) for place in places]
    spatial, points = Rotary(16, axes=Axes((4, 4), own_channels=True, real=True)), torch.rand(2, 2, 3) * 100
    in_space = fastpos.apply(spatial, q, k, positions=points)
    packed = torch.tensor([0, 2, 6])
    want = fastpos.apply(ROPE, q.flatten(0, 1), cu_seqlens=packed, start=torch.tensor([7, 1]))

    def refuse(*arguments, **named):
        raise AssertionError("a value was read")

    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    asked = [(ROPE, place, want) for place, want in zip(places, wants, strict=True)]
    for encoding, place, (left, right) in [*asked, (spatial, {"positions": points}, in_space)]:
        for _ in range(2):
            results = fastpos.apply(encoding, q, k, **place, backend="triton")
            here = q.clone(), k.clone()
            fastpos.apply_(encoding, *here, **place, backend="triton")
            for got, wanted in zip((*results, *here), (left, right, left, right), strict=True):
                assert (got != wanted).sum().data_ptr()
                np.testing.assert_array_equal(np.from_dlpack(got), np.from_dlpack(wanted))
    got = fastpos.apply(ROPE, q.flatten(0, 1), cu_seqlens=packed, start=torch.tensor([7, 1]), backend="triton")
    np.testing.assert_array_equal(np.from_dlpack(got), np.from_dlpack(want))


def test_operands_are_checked_where_they_come_to_lie():
    """A launch that is known asks again when operands have moved towards each other."""
    memory = torch.randn(1, 8, 4, 16)
    q, k = memory[:, :3], memory[:, 3:6]
    for _ in range(2):
        fastpos.apply_(ROPE, q, k, start=3, backend="triton")
    with pytest.raises(ValueError, match="overlaps"):
        fastpos.apply_(ROPE, q, memory[:, 2:5], start=3, backend="triton")


def test_gradients_and_graphs():
    with fastpos.use_backend("triton"):
        x = torch.randn(1, 2, 1, 4, dtype=torch.double, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: fastpos.apply(Rotary(4), x, positions=torch.tensor([3, -1])), (x,))
        table = torch.randn(9, 4, dtype=torch.double, requires_grad=True)
        row = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
        place = torch.tensor([3, 0])
        assert torch.autograd.gradcheck(lambda x, t: fastpos.apply(Learned(t), x, positions=place), (row, table))
        torch._dynamo.reset()
        pe = Sinusoidal(4)
        call = torch.compile(lambda x: fastpos.apply(pe, x, start=3), fullgraph=True, backend="aot_eager")
        assert torch.equal(call(row), fastpos.apply(pe, row, start=3))


@pytest.mark.parametrize("kind", [torch.int32, torch.int64, torch.int8])
def test_boundaries_and_starts_with_gaps(kind):
    """Kernels search boundaries as they lie: those of a tensor with steps, of another type or not, are laid together."""
    x = torch.randn(9, 2, 16)
    edges = torch.tensor([0, 77, 5, 2, 5, 3, 9, 1], dtype=kind)[::2]
    begins = torch.tensor([[3, 7], [77, 2], [4, 9]], dtype=kind)[:, 0]
    for place in ({}, {"start": begins}, {"start": begins.contiguous()}):
        want = fastpos.apply(ROPE, x, cu_seqlens=edges.contiguous(), **place)
        for boundaries in (edges, edges.contiguous()):
            for _ in range(2):
                got = fastpos.apply(ROPE, x, cu_seqlens=boundaries, **place, backend="triton")
                assert torch.equal(got, want)


def test_gradients_of_rows_that_a_table_does_not_have():
    """They go nowhere: an index out of range would end the process's use of a GPU."""
    table = torch.randn(10, 16, requires_grad=True)
    x = torch.randn(1, 5, 16, requires_grad=True)
    place = torch.tensor([1, 8, -3, 1, 2**40])
    result = fastpos.apply(Learned(table, offset=2), x, positions=place, backend="triton")
    result.nansum().backward()
    want = torch.zeros(10, 16)
    want[3] = 2
    assert torch.equal(table.grad, want)


@pytest.mark.parametrize("backend", ["numba", "triton"])
def test_shifts_by_a_number_wait_for_nothing(monkeypatch, backend):
    """No tensor is made from a number in main memory, which a GPU would be waited for."""
    k = torch.randn(2, 3, 2, 16)
    want = k.clone()
    fastpos.shift_(ROPE, want, -4)
    fastpos.shift_(ROPE, k.clone(), 3, backend=backend)  # makes what further calls find

    def refuse(*arguments, **named):
        raise AssertionError("a tensor was made from numbers")

    monkeypatch.setattr(torch, "tensor", refuse)
    fastpos.shift_(ROPE, k, -4, backend=backend)
    assert torch.equal(k, want)
