"""The launch path of Triton's kernels, as far as a GPU that is not there: tiles, binaries, arguments, cost."""

import gc
import time

import numpy as np
import pytest
from children import child
from oracle import DTYPES, assert_same

from fastpos import Learned, Rotary, Sinusoidal
from fastpos.layout import layout_of
from fastpos.places import Rule

interpreted = pytest.importorskip("interpreted", reason="needs torch and triton")
import torch  # noqa: E402
import triton  # noqa: E402
from fastpos_kernels import triton_add, triton_handle, triton_launch, triton_rotate  # noqa: E402
from fastpos_kernels import triton_machine as machine  # noqa: E402
from fastpos_kernels.rules import DONE, IDS, START, STARTS  # noqa: E402
from recorder import STREAM, forget, recorder  # noqa: E402

KERNELS = triton_rotate.rotate, triton_add.add_sinusoid, triton_add.add_learned
COPIES = dict(zip(KERNELS, (interpreted.kernels.rotate, interpreted.kernels.add_sinusoid, interpreted.kernels.add_learned),
                  strict=True))  # fmt: skip
RULE = Rule(START, same_for_batch=True)


@pytest.fixture(autouse=True, scope="module")
def _fresh(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.fixture
def device():
    """A recorder in place of a GPU, in a process that has compiled nothing yet."""
    forget(*KERNELS)
    with recorder() as found:
        yield found
        # While there is a driver to unload them.
        forget(*KERNELS)
        gc.collect()


def arrays(tokens, width=48, heads=(3, 1), dtype="float32"):
    """Tensors q and k, zeros."""
    return [torch.zeros(1, tokens, count, width, dtype=getattr(torch, dtype)) for count in heads]


def bound(tensors, outputs=None, rule=RULE, rope=None):
    """Bind a rotary launch."""
    sources, targets = ([tensor.numpy() for tensor in some] for some in (tensors, outputs or tensors))
    rope, layout = rope or Rotary(tensors[0].shape[-1]), layout_of("rotary", "bshd", 4)
    return interpreted.bind(rope, sources, targets, layout, rule, triton_launch)


@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("lanes", [32, 64])
def test_tiles_fill_every_access(itemsize, interleaved, lanes):
    for pairs in (1, 5, 32, 64, 1000, 4096, 32768):
        for rows in (1, 16, 17, 4096, 10**6):
            for heads in ((1,), (32, 8), (28, 4), (0, 3), (71, 71)):
                tile = machine.rotate_tile(rows, heads, pairs, itemsize, interleaved, lanes)
                elements = tile.rows * tile.heads * tile.pairs * (2 if interleaved else 1)
                assert elements * itemsize == lanes * machine.WARPS * machine.ACCESS_BYTES
                spread = machine.rotate_programs(rows, heads, pairs, tile)
                assert spread * tile.rows * tile.heads * tile.steps * tile.pairs >= rows * sum(heads) * pairs
                assert machine.rotate_tile(rows, heads, pairs, itemsize, interleaved, lanes, True).pairs >= pairs
            tile = machine.sinusoid_tile(rows, pairs, itemsize, interleaved, lanes)
            elements = 2 * tile.rows * tile.pairs * itemsize // (lanes * machine.WARPS * machine.ACCESS_BYTES)
            assert elements in (1, 2)
            spread = machine.add_programs(rows, pairs, tile)
            assert spread * tile.rows * tile.steps * tile.pairs >= rows * pairs


def test_units_are_what_divides_all_strides():
    assert machine.unit(2, (256, 512, 0)) == 8
    assert machine.unit(2, (256, 514)) == 1
    assert machine.unit(4, (-48, 8)) == 2
    assert machine.unit(8, (48, 16)) == 2
    assert machine.unit(2, ()) == 8


def test_two_binaries_at_most_over_all_token_counts(device):
    for tokens in (1, 2, 3, 16, 17, 4096):
        q_k = arrays(tokens)
        launch = bound(q_k)
        for start in (0, 1, 16, 2**40):
            assert launch(q_k, q_k, start, None, 1, True) == DONE
        assert len(device.loaded) <= 2
    assert len(device.loaded) == 2
    for kernel, count in ((triton_add.add_sinusoid, 2), (triton_add.add_learned, 1)):
        before, table = len(device.loaded), np.zeros((9, 512), np.float32)
        for tokens in (1, 2, 3, 16, 17, 4096):
            x = torch.zeros(1, tokens, 512)
            encoding = Learned(table) if kernel is triton_add.add_learned else Sinusoidal(512)
            layout = layout_of("additive", None, 3)
            launch = interpreted.bind(encoding, [x.numpy()], [x.numpy()], layout, RULE, triton_launch)
            launch([x], [x], 3, None, 1, True)
        assert len(device.loaded) - before == count


def test_the_second_launch_says_what_the_first_said(device):
    """A handle passes the grid and arguments of the ordinary launch, in its order, with addresses for tensors."""
    q_k, out = arrays(7, heads=(40, 9)), arrays(7, heads=(40, 9))
    ids = torch.arange(7, dtype=torch.int32)
    for rule, where in ((RULE, 5), (Rule(IDS, (0, 4), 4), ids), (Rule(STARTS, (0, 0), 4), ids[:1])):
        device.launches.clear()
        launch = bound(q_k, out, rule)
        launch(q_k, out, where, None, 1, True)
        launch(q_k, out, where, None, 1, True)
        (grid, stream, function, _, first), (*same, hooks, second) = device.launches
        assert same == [grid, stream, function]
        assert stream == STREAM
        assert grid[1:] == (1, 1)
        assert hooks == (None, None)
        addresses = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in first]
        assert [*second] == addresses
        assert [*addresses[:4]] == [x.data_ptr() for pair in zip(q_k, out, strict=True) for x in pair]
        assert len(first) == len(triton_rotate.rotate.arg_names)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("kind", ["rotary", "sinusoidal", "learned"])
def test_what_would_be_launched_is_right(device, rng, kind, quick):
    """The recorded grid and arguments, given to the interpreted copy of the kernel, give the right results."""
    encoding = {"rotary": Rotary(24), "sinusoidal": Sinusoidal(24), "learned": Learned(rng.standard_normal((9, 24)))}[
        kind
    ]
    layout = "bshd" if kind == "rotary" else "bsd"
    x = rng.standard_normal((2, 5, 3, 24) if kind == "rotary" else (2, 5, 24), dtype=np.float32)
    y, ids = np.zeros_like(x), rng.integers(0, 9, (2, 5))
    operands = [interpreted.tensor(array) for array in (x, y, ids)]
    place = layout_of("rotary" if kind == "rotary" else "additive", layout, x.ndim)
    launch = interpreted.bind(encoding, [x], [y], place, Rule(IDS, ids.strides), triton_launch)
    for _ in range(1 + quick):
        launch(operands[:1], operands[1:2], operands[2], None, 1, True)
    grid, *_, arguments = device.launches[-1]
    [(piece, _)] = launch.pieces
    [handle] = piece.handles.values()
    known = {tensor.data_ptr(): tensor for tensor in (*operands, *handle.constants)}
    pointers = len(arguments) - len(handle.fixed) - 1
    given = [value if isinstance(value, torch.Tensor) else known[value] for value in arguments[:pointers]]
    COPIES[piece.kernel][grid](*given, *arguments[pointers:])
    assert_same(y, interpreted.apply(encoding, x, positions=ids, layout=layout))


def test_other_alignments_are_launched_the_ordinary_way(device):
    room = torch.zeros(1, 2, 2, 49)
    odd = [room.view(-1)[1:97].view(1, 1, 2, 48)]
    launch = bound(odd)
    launch(odd, odd, 0, None, 1, True)
    launch(odd, odd, 0, None, 1, True)
    assert all(isinstance(launched[-1][0], torch.Tensor) for launched in device.launches)
    even = [torch.zeros(1, 1, 2, 48)]
    for x in (even, even, odd, even):
        launch(x, x, 0, None, 1, True)
    kinds = [isinstance(launched[-1][0], torch.Tensor) for launched in device.launches[2:]]
    assert kinds == [True, False, True, False]
    assert len({launched[2] for launched in device.launches}) == 2


def test_profilers_see_every_launch(device):
    q_k, seen = arrays(1), []
    launch, chain = bound(q_k), triton.knobs.runtime.launch_enter_hook
    for _ in range(2):
        launch(q_k, q_k, 0, None, 1, True)

    def hook(metadata):
        seen.append(metadata)

    chain.add(hook)
    try:
        launch(q_k, q_k, 0, None, 1, True)
    finally:
        chain.remove(hook)
    launch(q_k, q_k, 0, None, 1, True)
    assert [hooks[0] is chain for *_, hooks, _ in device.launches] == [True, False, True, False]


def test_versions_that_were_not_tried_are_launched_the_ordinary_way(device, monkeypatch):
    monkeypatch.setattr(triton_handle, "KNOWN", False)
    q_k = arrays(1)
    launch = bound(q_k)
    for _ in range(2):
        launch(q_k, q_k, 0, None, 1, True)
    assert all(isinstance(launched[-1][0], torch.Tensor) for launched in device.launches)


def test_the_version_here_is_one_that_was_tried():
    assert triton_handle.KNOWN


def test_the_device_of_the_tensors_is_the_current_one(monkeypatch):
    entered = []

    class Guard:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            entered.append(self.index)

        def __exit__(self, *error):
            entered.append("left")

    class Elsewhere:
        def get_device(self):
            return 3

    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    launch = triton_launch.Launch([(lambda *given: entered.append(given[0]), [0])])
    launch([Elsewhere()], [Elsewhere()], 0, None, 1, True)
    assert entered == [3, 3, "left"]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    launch([Elsewhere()], [Elsewhere()], 0, None, 1, True)
    assert entered == [3, 3, "left", 3]


INTERPRETED = """
import numpy, torch
from fastpos import Rotary
from fastpos.frequencies import rates
from fastpos.places import START_RULE
from fastpos_kernels import triton_launch
x = numpy.eye(1, 8, dtype=numpy.float32).reshape(1, 1, 1, 8)
y = numpy.zeros_like(x)
launch = triton_launch.bind_rotate([x], [y], (0, 1, 2), START_RULE, rates(Rotary(8)), Rotary(8).head, False, 1)
launch([torch.from_numpy(x)], [torch.from_numpy(y)], 3, None, 1, True)
print(abs(y[0, 0, 0, [0, 4]] - [numpy.cos(3), numpy.sin(3)]).max() < 1e-7, y.astype(bool).sum())
"""


def test_the_environment_alone_chooses_the_interpreter():
    assert child(INTERPRETED, TRITON_INTERPRET="1")[0] == "True 2"


def test_first_calls_are_refused_in_a_capture(device, monkeypatch):
    """A known kind of call is captured; one that would copy and compile says what to do, and launches nothing."""

    class OnGpu(torch.Tensor):
        """A tensor that says it lies on a GPU."""

        def get_device(self):
            return 0

        @property
        def device(self):
            return torch.device("cuda", 0)

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(triton_launch, "_clock", lambda *arguments: (torch.zeros(2, 24, dtype=torch.int64),))
    capturing = False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    plain = arrays(1)
    q_k, known, new = [x.as_subclass(OnGpu) for x in plain], bound(plain), bound(plain)
    known(q_k, q_k, 0, None, 1, True)
    capturing = True
    known(q_k, q_k, 7, None, 1, True)
    before = len(device.launches)
    assert before == 2
    with pytest.raises(RuntimeError, match=r"on cuda:0 before a CUDA graph is captured.*ahead of the capture"):
        new(q_k, q_k, 0, None, 1, True)
    assert len(device.launches) == before
    capturing = False
    new(q_k, q_k, 0, None, 1, True)
    assert len(device.launches) == before + 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_type_has_its_binary(device, dtype):
    kind = getattr(torch, dtype)
    x = torch.zeros(1, 3, 2, 64, dtype=kind)
    stand_in = np.zeros(x.shape, DTYPES[dtype])
    layout = layout_of("rotary", "bshd", 4)
    launch = interpreted.bind(Rotary(64), [stand_in], [stand_in], layout, RULE, triton_launch)
    launch([x], [x], 0, None, 1, True)
    assert len(device.launches) == 1
    assert device.loaded == ["rotate"]


def test_a_decoded_token_costs_little_python(device):
    """Bar: 2.5 us. It is measured with its best burst, and the bar here is wide, for machines that are busy."""
    q_k = arrays(1, 128, (32, 8))
    launch = bound(q_k)
    for _ in range(2):
        launch(q_k, q_k, 5, None, 1, True)
    device.recording = False
    best = min(_burst(lambda: launch(q_k, q_k, 5, None, 1, True)) for _ in range(40))
    ordinary = triton_rotate.rotate[device.launches[0][0][:1]]
    arguments = device.launches[0][-1]
    slow = min(_burst(lambda: ordinary(*arguments, **triton_handle.OPTIONS)) for _ in range(10))
    assert best < slow / 4
    assert best < 7.5e-6


def _burst(call, count=200):
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count
