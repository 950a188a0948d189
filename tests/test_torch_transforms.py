"""PyTorch's own checks of the operators, and what they go through: compilers, exports, gradients, vmap, modules."""

import io
import warnings

import numpy as np
import pytest

import fastpos
from fastpos import Learned, Rotary, Sinusoidal

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch._dynamo.testing as dynamo_testing  # noqa: E402

import fastpos.nn  # noqa: E402
from fastpos import torch_ops  # noqa: E402
from fastpos.torch_request import word  # noqa: E402

# PyTorch's compiler uses parts of its own that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

ROPE = Rotary(16, rotary_dim=8)
PE = Sinusoidal(16, embedding_scale=3.0)


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def q_and_k():
    return randn(2, 5, 4, 16), randn(2, 5, 2, 16)


IDS = torch.tensor([[5, 1, 2, 2, 0], [-3, 1, 9, 2**31, 7]])
START, POSITIONS = (word(ROPE.spelling, "bshd", None, rule, "apply") for rule in ("start", "positions"))
HEADS_FIRST = word(ROPE.spelling, "bhsd", None, "positions", "apply")
ADDED, ROWS = (
    word(PE.spelling, None, None, "start", "apply"),
    word("Learned(offset=2)", None, None, "positions", "apply"),
)


def operands(transposed):
    q, k = q_and_k()
    return (q.transpose(1, 2), k.transpose(1, 2)) if transposed else (q, k)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "name", ["encode", "encode_pair", "encode_", "encode_pair_", "encode_into", "encode_pair_into"]
)
def test_opcheck(name, transposed):
    count = 2 if "pair" in name else 1
    tensors = [x.requires_grad_() if name in ("encode", "encode_pair") else x for x in operands(transposed)[:count]]
    if "into" in name:
        tensors += [torch.empty_like(x) for x in tensors]
    call = HEADS_FIRST if transposed else POSITIONS
    torch.library.opcheck(getattr(torch_ops, name), (*tensors, 0, call, IDS))
    if not transposed:
        torch.library.opcheck(getattr(torch_ops, name), (*tensors, 3, START))


@pytest.mark.parametrize("table", [None, randn(12, 16)])
def test_opcheck_of_additions(table):
    x = randn(2, 3, 16).requires_grad_()
    place = (3, ADDED) if table is None else (0, ROWS, torch.tensor([9, 0, 9]), None, table.requires_grad_())
    torch.library.opcheck(torch_ops.encode, (x, *place))


@pytest.mark.parametrize("place", [{"start": 7}, {"positions": IDS[:, 2:4]}, {"start": torch.tensor([3, -9])}])
@pytest.mark.parametrize("encoding", [
    ROPE,
    Rotary(16, interleaved=True, scaling=fastpos.scaling.YaRN(4.0, 64)),
    Rotary(16, rotary_dim=12, rotary_start=2, interleaved=True, deinterleaved=True,
           query_scale=fastpos.LogScale(2.0), clockwise=True),
])  # fmt: skip
def test_gradients_of_rotations(encoding, place):
    tensors = [x[:, :2, :1].double().requires_grad_() for x in q_and_k()]
    assert torch.autograd.gradcheck(lambda q, k: fastpos.apply(encoding, q, k, **place), tensors)
    assert torch.autograd.gradgradcheck(lambda q, k: fastpos.apply(encoding, q, k, **place), tensors)


def test_gradients_of_several_axes():
    rope, x = (
        Rotary(16, axes=fastpos.Axes((2, 3, 3), real=True)),
        randn(1, 2, 1, 16, dtype=torch.double).requires_grad_(),
    )
    places = torch.tensor([[0.5, 1.0], [2.0, -7.25], [3.0, 0.0]])
    assert torch.autograd.gradcheck(lambda x: fastpos.apply(rope, x, positions=places), (x,))


def test_the_scale_of_queries_is_the_first_tensors():
    rope, x = Rotary(16, query_scale=fastpos.LogScale(2.0)), randn(1, 2, 1, 16)
    results = fastpos.apply(rope, x, x, x, x, start=100)
    assert not torch.equal(results[0], results[1])
    assert torch.equal(results[1], results[2])
    assert torch.equal(results[2], results[3])


def test_the_gradient_of_one_of_two():
    q, k = (x.requires_grad_() for x in q_and_k())
    fastpos.apply(ROPE, q, k, start=3)[1].square().sum().backward()
    assert q.grad is None or not q.grad.any()
    torch.testing.assert_close(k.grad, 2 * k)


@pytest.mark.parametrize("place", [
    {"start": 2}, {"start": torch.tensor([0, 4])}, {"positions": torch.tensor([[5, 1, 1], [6, 0, 1]])},
    {"positions": torch.tensor([3, 3, 0])},
])  # fmt: skip
def test_gradients_of_tables(place):
    x, table = randn(2, 3, 4, dtype=torch.double).requires_grad_(), randn(8, 4, dtype=torch.double).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, table: fastpos.apply(Learned(table, offset=1), x, **place), (x, table))
    assert torch.autograd.gradcheck(lambda x: fastpos.apply(Sinusoidal(4, embedding_scale=3.0), x, **place), (x,))


def test_gradients_of_packed_tables():
    x, table = randn(5, 4, dtype=torch.double).requires_grad_(), randn(9, 4, dtype=torch.double).requires_grad_()
    for start in (None, [4, 1, 0], 2, torch.tensor([3, 1, 0])):
        place = {"cu_seqlens": torch.tensor([0, 3, 5, 5]), "start": start}
        assert torch.autograd.gradcheck(lambda x, table: fastpos.apply(Learned(table), x, **place), (x, table))  # noqa: B023


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("in_place", [False, True])
def test_compiled_decode(backend, in_place):
    """64 steps, the position a tensor: one graph, compiled once."""
    torch._dynamo.reset()
    counter = dynamo_testing.CompileCounterWithBackend(backend)

    def step(q, k, position):
        q, k = q * 2, k + 1
        q, k = (fastpos.apply_ if in_place else fastpos.apply)(ROPE, q, k, positions=position)
        return q + 1, k

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    q, k = randn(1, 1, 4, 16), randn(1, 1, 2, 16)
    for position in range(64):
        at = torch.tensor([position])
        for got, want in zip(compiled(q, k, at), step(q, k, at), strict=True):
            torch.testing.assert_close(got, want)
    assert counter.frame_count == 1


def test_compiled_with_every_way_to_say_where():
    torch._dynamo.reset()
    packed, q = randn(5, 4, 16), q_and_k()[0]
    calls = [
        lambda: fastpos.apply(ROPE, q, start=3),
        lambda: fastpos.apply(ROPE, q, start=torch.tensor(3)),
        lambda: fastpos.apply(ROPE, q, start=[3, 5]),
        lambda: fastpos.apply(ROPE, q.transpose(1, 2), start=3, layout="bhsd"),
        lambda: fastpos.apply(ROPE, packed, cu_seqlens=[0, 2, 5]),
        lambda: fastpos.apply(ROPE, packed, cu_seqlens=torch.tensor([0, 2, 5]), start=torch.tensor([3, 1])),
        lambda: fastpos.apply(PE, packed[:, 0], start=3),
    ]
    for call in calls:
        assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(), call())


def test_a_compiled_graph_finds_its_backend_when_it_runs():
    torch._dynamo.reset()
    q = q_and_k()[0].double()
    compiled = torch.compile(lambda q: fastpos.apply(ROPE, q, start=2**40), fullgraph=True, backend="aot_eager")
    first = compiled(q)
    with fastpos.use_backend("numpy"):
        assert torch.equal(compiled(q), fastpos.apply(ROPE, q, start=2**40))
    assert torch.equal(compiled(q), first)


class Model(torch.nn.Module):
    """What nanoGPT and gpt-fast have of positions."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(9, 16), fastpos.nn.Learned(12, 16, offset=2)
        self.sinusoids, self.rope = fastpos.nn.Sinusoidal(16, embedding_scale=4.0), fastpos.nn.Rotary(8, base=5e5)
        self.projection = torch.nn.Linear(16, 48)

    def forward(self, ids, positions):
        x = self.sinusoids(self.wpe(self.wte(ids), positions=positions), positions=positions)
        q, k, v = self.projection(x).view(*ids.shape, 3, 2, 8).unbind(2)
        q, k = self.rope(q, k, positions=positions)
        return torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)))


def model():
    torch.manual_seed(0)
    return Model(), torch.randint(0, 9, (2, 6)), torch.arange(6)


def test_modules():
    net, ids, positions = model()
    assert list(net.state_dict()) == ["wte.weight", "wpe.weight", "projection.weight", "projection.bias"]
    assert "Learned(rows=12, width=16, offset=2)" in repr(net)
    assert "Rotary(8, base=500000.0)" in repr(net)
    net(ids, positions).square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in net.parameters()]
    assert all(gradient.any() for gradient in gradients)
    assert not net.wpe.weight.grad[:2].any()
    net.zero_grad()
    torch._dynamo.reset()
    torch.compile(net, fullgraph=True, backend="aot_eager")(ids, positions).square().sum().backward()
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict):
    net, ids, positions = model()
    with torch.no_grad():
        exported = torch.export.export(net, (ids, positions), strict=strict)
        file = io.BytesIO()
        torch.export.save(exported, file)
        file.seek(0)
        torch.testing.assert_close(torch.export.load(file).module()(ids, positions), net(ids, positions))


def test_graphs_hold_encodings_in_words():
    from fastpos import spelling

    for encoding in (
        ROPE,
        PE,
        Rotary(4, inv_freq=[1.0, 0.1]),
        Rotary(8, scaling=fastpos.Linear(2.0), interleaved=True),
    ):
        assert spelling.read(encoding.spelling) == encoding
    for words in (
        "Rotary(7)",
        "open('x')",
        "Rotary(open('x'))",
        "Linear(factor=2.0)",
        "Rotary(head_dim=open('x'))",
        "Rotary(",
        "4",
    ):
        with pytest.raises(ValueError, match="encoding: expected what repr"):
            spelling.read(words)


def test_vmap():
    q, k = q_and_k()
    want = fastpos.apply(ROPE, q, k, positions=IDS)
    got = torch.vmap(lambda q, k, ids: fastpos.apply(ROPE, q, k, positions=ids, layout="shd"))(q, k, IDS)
    assert all(map(torch.equal, got, want))
    got = torch.vmap(lambda q: fastpos.apply(ROPE, q, start=3, layout="shd"), in_dims=2, out_dims=2)(q.movedim(0, 2))
    assert torch.equal(got.movedim(2, 0), fastpos.apply(ROPE, q, start=3))
    here = q.clone()
    torch.vmap(lambda q, ids: fastpos.apply_(ROPE, q, positions=ids, layout="shd"))(here, IDS)
    assert torch.equal(here, want[0])


def test_forward_mode_is_refused():
    """PyTorch would answer zeros, for every operator that is registered as these are."""
    q = q_and_k()[0]
    for _ in range(2):
        fastpos.apply(ROPE, q, start=3)
        fastpos.apply_(ROPE, q.clone(), start=3)
    for call in (fastpos.apply, lambda rope, x, start: fastpos.apply_(rope, x.clone(), start=start)):
        with pytest.raises(NotImplementedError, match="x: forward-mode differentiation is not supported"):
            torch.func.jvp(lambda x: call(ROPE, x, start=3), (q,), (q,))  # noqa: B023


def test_autocast_changes_nothing():
    q = q_and_k()[0]
    want = fastpos.apply(ROPE, q, start=3)
    with torch.autocast("cpu"):
        for _ in range(2):
            assert torch.equal(fastpos.apply(ROPE, q, start=3), want)


@pytest.mark.parametrize("function", [fastpos.apply, fastpos.apply_])
def test_tensors_that_are_none(function):
    from torch._subclasses import FakeTensorMode

    q, k = q_and_k()
    for _ in range(3):
        function(ROPE, q.clone(), start=0)
        function(ROPE, q.clone(), k.clone(), start=0)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(q)
    cases = [
        (TypeError, "x: expected a tensor with elements, got a meta tensor", (q.to("meta"),)),
        (TypeError, "x: expected a tensor with elements, got a fake tensor", (fake,)),
        (ValueError, r"more\[0\]: expected device cpu like x, got meta", (q, k.to("meta"))),
        (TypeError, "x: expected a dense tensor, got layout torch.sparse_coo; give x.to_dense()", (q.to_sparse(),)),
        (TypeError, r"more\[0\]: expected a PyTorch tensor like x, got numpy\.ndarray", (q, k.numpy())),
        (TypeError, r"more\[0\]: expected a NumPy array .*, got torch\.Tensor", (q.numpy(), k)),
        (TypeError, r"x: expected dtype float32, .*, got int32", (q.int(),)),
        (TypeError, r"x: expected dtype float32, .*, got float8_e4m3fn", (q.to(torch.float8_e4m3fn),)),
    ]
    for error, message, tensors in cases:
        with pytest.raises(error, match=message):
            function(ROPE, *tensors, start=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch is about to give up such tensors
        quantised = torch.quantize_per_tensor(q, 0.1, 0, torch.quint8)
    with pytest.raises(TypeError, match="x: expected plain numbers, got quantised"):
        function(ROPE, quantised, start=0)


def test_what_requires_a_gradient_is_not_written():
    q = q_and_k()[0]
    table = randn(12, 16).requires_grad_()
    leaf = q.clone().requires_grad_()
    for inside in (torch.enable_grad, torch.no_grad):
        with inside():
            with pytest.raises(ValueError, match="x: expected a tensor that requires no gradient"):
                fastpos.apply_(ROPE, leaf, start=0)
            with pytest.raises(ValueError, match=r"more\[0\]: expected a tensor that requires no gradient"):
                fastpos.apply_(ROPE, q, leaf, start=0)
            with pytest.raises(ValueError, match="out: expected a tensor that requires no gradient"):
                fastpos.apply(ROPE, q, start=0, out=leaf)
            with pytest.raises(ValueError, match="x: expected a tensor that requires no gradient"):
                fastpos.apply(ROPE, leaf, start=0, out=q.clone())
            with pytest.raises(ValueError, match="table: expected a tensor that requires no gradient"):
                fastpos.apply_(Learned(table), randn(1, 3, 16), start=0)
    assert torch.equal(leaf, q)


def test_numbers_of_a_gpu_call_stay_there():
    """What a call on a GPU would refuse: positions in main memory, which it would have to copy each time."""
    from fastpos import torch_door

    class Elsewhere:
        device, is_cuda = torch.device("cuda", 0), True

    for value in (torch.arange(3), [0, 1, 2], np.arange(3)):
        with pytest.raises(
            ValueError, match=r"positions: expected a tensor on cuda:0 like x, got .* make it there once"
        ):
            torch_door._ids("positions", value, Elsewhere())
