"""On a GPU: graphs, streams, devices, memory of every kind. ``bench/gpu.py`` checks the numbers; here it is how calls behave."""

import sys
from pathlib import Path

import pytest

import fastpos
from fastpos import Learned, Rotary, Sinusoidal

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from gpu_capture import check_capture  # noqa: E402
from gpu_machine import Machine  # noqa: E402

ROPE = Rotary(64, base=5e5)
GPU = torch.device("cuda", 0)


def randn(*shape, dtype=torch.float32, device=GPU):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(device, dtype)


def right(encoding, x, **place):
    """What the CPU gives, on the GPU; float32 alone is computed alike to the last bit but one."""
    place = {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in place.items()}
    return fastpos.apply(encoding, x.cpu(), **place).to(x.device)


def assert_near(got, want):
    torch.testing.assert_close(got, want, rtol=2**-22, atol=2**-22)


def test_graphs_wait_for_nothing_and_allocate_nothing():
    check_capture(Machine(GPU, False))


def test_a_first_call_in_a_capture_is_refused():
    """With what to do, and without breaking the device: the same call works afterwards."""
    x, fresh = randn(1, 3, 2, 64), Rotary(64, base=4321.0)

    def capture():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            fastpos.apply_(fresh, x, start=3)

    with pytest.raises(RuntimeError, match="before a CUDA graph is captured"):
        capture()
    torch.cuda.synchronize()
    assert_near(fastpos.apply(fresh, x, start=3), right(fresh, x, start=3))


def test_streams():
    """A launch goes to the stream that is current, behind what that stream has to do."""
    x = randn(1, 256, 8, 64)
    want = fastpos.apply(ROPE, x * 2, start=5)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    for _ in range(3):
        with torch.cuda.stream(aside):
            torch.cuda._sleep(200_000_000)
            doubled = x * 2
            got = fastpos.apply(ROPE, doubled, start=5)
        assert not aside.query()
        torch.cuda.current_stream().wait_stream(aside)
        assert torch.equal(got, want)


# The device of the data is told from the current one only where there are two; that the guard is entered is held without
# any, in test_triton_launch.test_the_device_of_the_tensors_is_the_current_one.
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="here is one GPU")
def test_a_device_that_is_not_the_current_one():
    for index in (1, 0, 1):
        x = randn(1, 7, 3, 64, device=torch.device("cuda", index))
        for _ in range(2):
            got = fastpos.apply(ROPE, x, start=5)
            assert got.device == x.device
            assert_near(got, right(ROPE, x, start=5))
        assert torch.cuda.current_device() == 0
    with pytest.raises(ValueError, match=r"more\[0\]: expected device cuda:1 like x, got cuda:0"):
        fastpos.apply(ROPE, x, x.to(GPU), start=0)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_memory_of_every_kind(mode):
    """Transposed, sliced, stepped, off the grid of 16 bytes, gathered; new, in place and into given memory."""
    ids = torch.tensor([[5, 1, 2**31, -7], [0, 1, 2, 3]], device=GPU)
    with mode():
        base = randn(2, 4, 6, 130)
        for x in (
            base[..., :64].contiguous(), base[..., 64:128], base[..., 1:65], base[..., :128:2],
            base[:, :, ::2, :64], base[..., :64].transpose(1, 2).contiguous().transpose(1, 2),
            base[:, :, :1, :64].expand(2, 4, 6, 64),
        ):  # fmt: skip
            want = right(ROPE, x, positions=ids)
            for _ in range(2):
                assert_near(fastpos.apply(ROPE, x, positions=ids), want)
                out = torch.full((*x.shape[:-1], 65), torch.nan, device=GPU)[..., 1:]
                assert_near(fastpos.apply(ROPE, x, positions=ids, out=out), want)
                here = torch.empty_like(x).copy_(x)
                assert_near(fastpos.apply_(ROPE, here, positions=ids), want)


def test_positions_in_main_memory():
    x = randn(3, 2, 4, 64)
    for start in (7, torch.tensor(7), torch.tensor(7, device=GPU)):
        assert_near(fastpos.apply(ROPE, x, start=start), right(ROPE, x, start=7))
    for place in ({"start": [1, 2, 3]}, {"positions": torch.arange(2)}, {"start": torch.arange(3)}):
        name = next(iter(place))
        with pytest.raises(ValueError, match=rf"{name}: expected a tensor on cuda:0.*torch.as_tensor\({name}"):
            fastpos.apply(ROPE, x, **place)


def test_versions_count():
    """A gradient that needs what stood there before a call in place fails aloud."""
    weight, x = torch.ones(1, 1, 2, 64, device=GPU, requires_grad=True), randn(1, 1, 2, 64)
    for _ in range(3):
        product, version = (weight * x).sum(), x._version
        fastpos.apply_(ROPE, x, start=3)
        assert x._version == version + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


def test_rows_that_a_table_does_not_have():
    """The result is NaN, the gradient goes nowhere, and the device works on."""
    table, x = randn(10, 64).requires_grad_(), randn(1, 4, 64)
    result = fastpos.apply(Learned(table), x, positions=torch.tensor([1, 10, -1, 1], device=GPU))
    assert result.isnan().all(-1).tolist() == [[False, True, True, False]]
    result.nansum().backward()
    torch.cuda.synchronize()
    assert table.grad.sum().item() == 128


def test_the_handles_know_this_triton():
    from fastpos_kernels import triton_handle

    assert triton_handle.KNOWN


def test_the_devices_own_sines_are_those_of_the_formula():
    """16-bit sinusoids use them; their error is far below what the type shows."""
    x = torch.zeros(1, 4096, 512, device=GPU, dtype=torch.float16)
    got = fastpos.apply(Sinusoidal(512), x, start=2**30)
    want = right(Sinusoidal(512), x.double(), start=2**30)
    torch.testing.assert_close(got.double(), want, rtol=2**-11, atol=2e-6)
