"""Tensors spread over two processes by PyTorch's own engine: equal results, and nothing is sent."""

import pytest
from children import child

pytest.importorskip("torch", reason="PyTorch is not installed")

DISTRIBUTED = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
    import fastpos
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    rope, pe = fastpos.Rotary(16), fastpos.Sinusoidal(16)
    q, k, x = torch.randn(2, 6, 4, 16), torch.randn(2, 6, 2, 16), torch.randn(2, 6, 16)
    rows, ids = torch.tensor([[5, 1, 2, 9, 0, 3], [0, 1, 2, 3, 4, 5]]), torch.tensor([5, 1, 2, 9, 0, 3])
    shared = lambda value: distribute_tensor(value, mesh, [Replicate()])
    cut = lambda value, axis: distribute_tensor(value, mesh, [Shard(axis)])
    cases = [
        (0, {"positions": rows}, {"positions": cut(rows, 0)}),
        (0, {"positions": ids}, {"positions": shared(ids)}),
        (0, {"start": 7}, {"start": 7}),
        (0, {"start": torch.tensor([3, 9])}, {"start": cut(torch.tensor([3, 9]), 0)}),
        (1, {"positions": rows}, {"positions": cut(rows, 1)}),
        (1, {"positions": ids}, {"positions": cut(ids, 0)}),
        (1, {"positions": rows}, {"positions": rows}),
        (2, {"positions": rows}, {"positions": shared(rows)}),
        (2, {"start": 7}, {"start": 7}),
    ]
    for axis, plain, place in cases:
        wants = fastpos.apply(rope, q, k, **plain)
        with CommDebugMode() as talk:
            results = fastpos.apply(rope, cut(q, axis), cut(k, axis), **place)
            one = fastpos.apply(rope, cut(q, axis), **place)
            here = cut(q.clone(), axis), cut(k.clone(), axis)
            fastpos.apply_(rope, *here, **place)
            fastpos.apply_(rope, there := cut(q.clone(), axis), **place)
        assert all(result.placements == (Shard(axis),) for result in results)
        assert sum(count for what, count in talk.get_comm_counts().items() if "scatter" not in str(what)) == 0, talk.get_comm_counts()
        for got, want in zip((*results, one, *here, there), (*wants, wants[0], *wants, wants[0])):
            assert torch.equal(got.full_tensor(), want), (axis, place)
        if axis < 2:
            assert torch.equal(fastpos.apply(pe, cut(x, axis), **place).full_tensor(), fastpos.apply(pe, x, **plain))
    for call in (fastpos.apply, fastpos.apply_):
        for place in ({"start": 0}, {"start": [0, 4]}):
            try:
                call(rope, cut(q, 1), **place)
            except ValueError as error:
                assert "expected positions= beside tokens that are sharded" in str(error), error
            else:
                raise AssertionError("not refused")
    try:
        fastpos.apply_(rope, cut(q, 0), shared(k), start=0)
    except ValueError as error:
        assert "expected placements that all tensors share" in str(error), error
    else:
        raise AssertionError("not refused")
    try:
        fastpos.apply(rope, cut(q, 0), k, start=0)
    except (TypeError, ValueError) as error:
        assert "more[0]: expected a DTensor" in str(error), error
    else:
        raise AssertionError("not refused")
    leaf = cut(q, 1).requires_grad_()
    fastpos.apply(rope, leaf, positions=cut(rows, 1)).square().sum().backward()
    torch.testing.assert_close(leaf.grad.full_tensor(), 2 * q)

    tokens, places = torch.randn(1, 8, 4, 16), torch.arange(8)
    want = fastpos.apply(rope, tokens, positions=places)
    for _ in range(2):
        fastpos.apply(rope, tokens[:, :4], start=0)
    with context_parallel(mesh, buffers=[tokens, places], buffer_seq_dims=[1, 0]):
        result = fastpos.apply(rope, tokens, positions=places)
        try:
            fastpos.apply(rope, tokens, start=0)
        except ValueError as error:
            assert "context parallelism" in str(error), error
        else:
            raise AssertionError("not refused")
        (whole,) = context_parallel_unshard(mesh, [result], [1])
    assert torch.equal(whole, want)
    fastpos.apply(rope, tokens, start=0)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print("same")

if __name__ == "__main__":
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (folder + "/store",), nprocs=2)
"""


def test_shards(tmp_path):
    """Two processes of PyTorch's own engine: equal results, and nothing is sent."""
    script = tmp_path / "shards.py"
    script.write_text(DISTRIBUTED)
    assert "same" in child(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
