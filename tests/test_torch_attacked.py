"""What an adversary broke in the door for tensors: memory, state that outlives a call, answers that are not there."""

import contextlib

import numpy as np
import pytest
from children import child

import fastpos
from fastpos import Axes, Learned, Rotary, Sinusoidal
from fastpos.scaling import DynamicNTK

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

ROPE = Rotary(16, base=5e5)


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def nested():
    return torch.nested.nested_tensor([randn(3, 2, 16), randn(5, 2, 16)])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_before_and_after_a_call():
    x, ids = randn(1, 1, 4, 16), torch.tensor([3])
    for _ in range(3):
        for call in (
            lambda: fastpos.apply(ROPE, nested(), start=0),
            lambda: fastpos.apply_(ROPE, nested(), start=0),
            lambda: fastpos.apply(ROPE, x, start=0, out=nested()),
            lambda: fastpos.apply(ROPE, x, positions=torch.nested.nested_tensor([torch.arange(2), torch.arange(3)])),
        ):
            with pytest.raises(TypeError, match="expected a dense tensor, got a nested one"):
                call()
        fastpos.apply(ROPE, x, start=0)
        fastpos.apply_(ROPE, x, start=0)
        fastpos.apply(ROPE, x, positions=ids)
        fastpos.apply(ROPE, x, start=0, out=randn(1, 1, 4, 16))


def test_tracing_leaves_nothing_behind():
    encoding, x = Learned(np.ones((9, 16), np.float32)), randn(2, 5, 16)
    make_fx(lambda x: fastpos.apply(encoding, x, start=1) * 2, tracing_mode="real")(x)
    # Fake tensors have no table to read: an error is as good as a graph.
    with contextlib.suppress(Exception):
        make_fx(lambda x: fastpos.apply(encoding, x, start=1), tracing_mode="fake")(x)
    assert torch.equal(fastpos.apply(encoding, x, start=1), x + 1)


def test_rows_of_different_lengths_are_checked_as_one_call():
    rope, whole = Rotary(16, scaling=DynamicNTK(2.0, 8)), randn(4, 3, 2, 16)
    kept = whole.clone()
    for call in (
        lambda: fastpos.apply(rope, whole[:3], start=0, seq_lens=[3, 30, 50], out=whole[1:]),
        lambda: fastpos.apply_(rope, whole[:3], whole[1:], start=0, seq_lens=[3, 30, 50]),
    ):
        with pytest.raises(ValueError, match="overlaps"):
            call()
        assert torch.equal(whole, kept)


def test_vmap_does_not_write_one_tensor_many_times():
    shared, many = randn(5, 2, 16), randn(3, 5, 2, 16)
    ids, kept = torch.arange(5) + torch.arange(3)[:, None], shared.clone()
    for call, arguments in (
        (lambda i: fastpos.apply_(ROPE, shared, positions=i, layout="shd"), (ids,)),
        (lambda x: fastpos.apply(ROPE, x, start=0, layout="shd", out=shared), (many,)),
        (lambda x: fastpos.apply_(ROPE, x, shared, start=0, layout="shd"), (many,)),
    ):
        with pytest.raises(ValueError, match="to be mapped like the others"):
            torch.vmap(call)(*arguments)
        assert torch.equal(shared, kept)


def test_vmap_of_nothing_of_three_and_of_starts():
    x = randn(3, 5, 2, 16)
    assert torch.vmap(lambda x: fastpos.apply(ROPE, x, start=0, layout="shd"))(x[:0]).shape == (0, 5, 2, 16)
    got = torch.vmap(lambda x: fastpos.apply(ROPE, x, x, x, start=2, layout="shd"))(x)
    assert all(torch.equal(y, fastpos.apply(ROPE, x, start=2)) for y in got)
    got = torch.vmap(lambda x, n: fastpos.apply(ROPE, x, start=n, layout="shd"))(x, torch.tensor([4, 0, 9]))
    assert torch.equal(got, fastpos.apply(ROPE, x, start=[4, 0, 9]))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_no_derivative_is_silently_zero():
    table, x = randn(9, 16), randn(1, 3, 16)
    with pytest.raises(NotImplementedError, match="table: forward-mode"):
        torch.func.jvp(lambda t: fastpos.apply(Learned(t), x, start=1), (table,), (torch.ones_like(table),))
    places = torch.tensor([0.5, 1.0, 2.0])
    with pytest.raises(NotImplementedError, match="positions: forward-mode"):
        torch.func.jvp(lambda p: fastpos.apply(Sinusoidal(16, real=True), x, positions=p), (places,), (places,))
    places.requires_grad_()
    for encoding, data, ids in (
        (Sinusoidal(16, real=True), x, places),
        (Rotary(16, axes=Axes((4, 4), real=True)), randn(1, 3, 1, 16), torch.stack([places, places])),
    ):
        with pytest.raises(ValueError, match="positions: expected a tensor that requires no gradient"):
            fastpos.apply(encoding, data, positions=ids)


def test_versions_of_pairs_that_differ():
    with torch.inference_mode():
        k = randn(1, 1, 1, 16)
    for _ in range(3):
        weight, q = torch.ones(1, 1, 2, 16, requires_grad=True), randn(1, 1, 2, 16)
        product = (weight * q).sum()
        fastpos.apply_(ROPE, k, q, start=5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


def test_a_table_is_read_as_it_stands():
    module, x = fastpos.nn.Learned(20, 16), torch.zeros(1, 1, 16)
    with torch.no_grad():
        module(x, start=15)
        module.weight.data = module.weight.data[:10]
        with pytest.raises(IndexError, match="position 15"):
            module(x, start=15)
        module.weight.data = module.weight.data.view(torch.float16).view(20, 16)
        assert torch.equal(module(x, start=15)[0, 0].nan_to_num(), module.weight[15].float().nan_to_num())


def test_results_do_not_lie_in_the_table():
    table = randn(6, 16)
    kept = table.clone()
    for call in (
        lambda: fastpos.apply_(Learned(table), table[None], positions=[5, 4, 3, 2, 1, 0]),
        lambda: fastpos.apply(Learned(table), randn(1, 3, 16), positions=[2, 1, 0], out=table[None, :3]),
    ):
        with pytest.raises(ValueError, match="out: expected memory apart from the learned table"):
            call()
        assert torch.equal(table, kept)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_results_into_given_memory_compile():
    torch._dynamo.reset()
    q, cache = randn(1, 1, 2, 16), torch.zeros(1, 4, 2, 16)

    def step(q, cache, ids):
        fastpos.apply(ROPE, q, positions=ids, out=cache[:, 1:2])
        return cache * 2

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    got, want = cache.clone(), cache.clone()
    assert torch.equal(compiled(q, got, torch.tensor([7])), step(q, want, torch.tensor([7])))
    assert torch.equal(got, want)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_compiled_graphs_refuse_what_calls_refuse():
    torch._dynamo.reset()
    x = randn(1, 1, 2, 16)
    fastpos.apply(ROPE, x, start=0)
    compiled = torch.compile(lambda x, n: fastpos.apply(ROPE, x, start=n), backend="aot_eager", dynamic=True)
    compiled(x, 3)
    for start in (2**62 + 1, 2**63 - 1, -(2**63)):
        with pytest.raises(ValueError, match=r"start: expected within \+-2\*\*62"):
            compiled(x, start)


LOADED = """
import sys, torch
import fastpos.nn
program = torch.export.load(sys.argv[1]).module()
print(torch.equal(program(torch.ones(1, 3, 2, 16)), fastpos.apply(fastpos.Rotary(16, base=5e5), torch.ones(1, 3, 2, 16), start=3)))
"""


def test_exported_programs_load_in_another_process(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x):
            return fastpos.apply(ROPE, x, start=3)

    torch.export.save(torch.export.export(Model(), (randn(1, 3, 2, 16),)), tmp_path / "program.pt2")
    assert child(LOADED, str(tmp_path / "program.pt2"), warnings="default")[0] == "True"


@pytest.mark.parametrize("layout", ["", "bs|hd"])
def test_words_that_are_none(layout):
    for x in (np.ones((1, 1, 2, 16), np.float32), randn(1, 1, 2, 16)):
        with pytest.raises(ValueError, match="layout: "):
            fastpos.apply(ROPE, x, start=0, layout=layout)
        with pytest.raises(ValueError, match="backend: "):
            fastpos.apply(ROPE, x, start=0, backend=layout)


@pytest.mark.parametrize("kind", [torch.uint16, torch.uint32, torch.uint64])
def test_gradients_of_tables_at_unsigned_places(kind):
    table, x = randn(9, 16).requires_grad_(), randn(2, 3, 16)
    fastpos.apply(Learned(table), x, start=torch.tensor([1, 4]).to(kind)).sum().backward()
    assert table.grad[:, 0].tolist() == [0, 1, 1, 1, 1, 1, 1, 0, 0]
    table.grad = None
    packed = torch.tensor([0, 2, 5]).to(kind)
    fastpos.apply(Learned(table), randn(5, 16), cu_seqlens=packed).sum().backward()
    assert table.grad[:, 0].tolist() == [2, 2, 1, 0, 0, 0, 0, 0, 0]


def test_negated_places():
    ids, x = torch._neg_view(torch.tensor([-4, -2, -7])), randn(1, 3, 16)
    table = Learned(randn(9, 16))
    assert torch.equal(fastpos.apply(table, x, positions=ids), fastpos.apply(table, x, positions=[4, 2, 7]))
    assert fastpos.explain(table, x, positions=ids).kernel == "add_learned"


def test_a_version_counts_whatever_was_called_before():
    """A call remembered for tensors without a version stands for none that has one, in no mode."""
    rope = Rotary(16)
    with torch.inference_mode():
        without = randn(1, 4, 1, 16)
    for _ in range(2):
        fastpos.apply_(rope, without, start=5)
    weight, x, out = torch.ones(16, requires_grad=True), randn(1, 4, 1, 16), randn(1, 4, 1, 16)
    product = (weight * x).sum()
    with torch.inference_mode():
        fastpos.apply_(rope, x, start=5)
        for count in (1, 2):
            fastpos.apply(rope, x, start=5, out=out)
            assert out._version == count
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
