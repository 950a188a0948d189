"""What the compiler makes of Triton's kernels, for GPUs that need not be there: registers, accesses, instructions.

The tiles and compile-time values are those that a launch chooses by itself. An access of a thread that is not 16 bytes
wide, or a spilled register, is a kernel two to eight times slower, and no test of results would see it.
"""

import re

import numpy as np
import pytest
from oracle import DTYPES

from fastpos import Learned, Linear, Rotary, Sinusoidal
from fastpos.frequencies import rates
from fastpos.layout import layout_of
from fastpos.places import Rule
from fastpos.plan import layout_for

launcher = pytest.importorskip("fastpos_kernels.triton_launch", reason="needs torch and triton")
import torch  # noqa: E402
from fastpos_kernels.rules import PACKED, START  # noqa: E402
from fastpos_kernels.triton_machine import ACCESS_BYTES, WARPS  # noqa: E402
from machine_code import TARGETS, code, compiled  # noqa: E402

ROPE_WIDTHS = {
    ("bfloat16", False): (64, 80, 96, 128, 256),
    ("bfloat16", True): (80, 128),
    ("float16", False): (128,),
    ("float32", False): (96, 128),
    ("float32", True): (128,),
}
SINUSOIDS = [
    ("float32", True, 4096),
    ("float32", False, 4096),
    ("bfloat16", True, 4096),
    ("bfloat16", False, 4096),
    ("float16", True, 4096),
    ("float32", True, 96),
    ("bfloat16", False, 80),
]
# Instructions a pair as first compiled, for many rows: rotary of 32 + 8 heads of 128 channels, sinusoids of 4096
# channels. The bars are those that keep the kernels bound by memory on an H200: 62 issue slots a pair of 16-bit channels.
RECORDED = {
    ("rotate", "bfloat16", False): {"sm_80": 14.5, "sm_90": 14.5, "sm_100": 14.0, "gfx942": 23.5},
    ("rotate", "bfloat16", True): {"sm_80": 16.7, "sm_90": 17.8, "sm_100": 16.9, "gfx942": 27.0},
    ("rotate", "float16", False): {"sm_80": 13.5, "sm_90": 13.5, "sm_100": 13.1, "gfx942": 14.7},
    ("rotate", "float32", False): {"sm_80": 13.2, "sm_90": 13.3, "sm_100": 13.3, "gfx942": 13.1},
    ("rotate", "float32", True): {"sm_80": 19.6, "sm_90": 20.0, "sm_100": 20.0, "gfx942": 17.4},
    ("add_sinusoid", "float32", True): {"sm_80": 43.3, "sm_90": 44.0, "sm_100": 43.8, "gfx942": 49.3},
    ("add_sinusoid", "float32", False): {"sm_80": 43.6, "sm_90": 43.5, "sm_100": 43.4, "gfx942": 48.9},
    ("add_sinusoid", "bfloat16", True): {"sm_80": 21.3, "sm_90": 20.9, "sm_100": 19.8, "gfx942": 54.0},
    ("add_sinusoid", "bfloat16", False): {"sm_80": 21.2, "sm_90": 20.7, "sm_100": 19.7, "gfx942": 53.0},
    ("add_sinusoid", "float16", True): {"sm_80": 20.3, "sm_90": 19.9, "sm_100": 18.8, "gfx942": 45.7},
}
WIDE = {"LDG.128", "LDG.128.CONSTANT", "STG.128", "global_load_dwordx4", "global_store_dwordx4", "buffer_load_dwordx4"}
NARROW = re.compile(r"\.[US](8|16)\b|_(ushort|sshort|short|ubyte|sbyte)")
BARS = {"rotate": {2: 18}, "add_sinusoid": {2: 27, 4: 45}}


@pytest.fixture(autouse=True, scope="module")
def _fresh(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def like(shape, dtype):
    """Make an array that only says how it would lie in memory."""
    strides = np.cumprod([DTYPES[dtype].itemsize, *shape[:0:-1]])[::-1]
    return np.lib.stride_tricks.as_strided(np.empty(1, DTYPES[dtype]), shape, strides)


def rotary(dtype, width, interleaved, tokens=4096, heads=(32, 8), rule=START, in_place=False, **more):
    """Bind q and k of a rotary call; the one piece of its launch."""
    rope, layout = Rotary(width, interleaved=interleaved, **more), layout_of("rotary", None, 4)
    inputs = [like((1, tokens, count, width), dtype) for count in heads]
    outputs = inputs if in_place else [like(x.shape, dtype) for x in inputs]
    ids = Rule(rule, (8 * tokens, 8), documents=3)
    [(piece, _)] = launcher.bind_rotate(inputs, outputs, layout.axes, ids, rates(rope), interleaved, False, 1).pieces
    return piece, dict.fromkeys(("x0", "y0", "x1", "y1"), dtype)


def additive(encoding, dtype, tokens=65536, rule=START):
    """Bind an additive call; the one piece of its launch."""
    layout, x = layout_for(encoding, None, 3), like((1, tokens, encoding.width), dtype)
    common = [x], [like(x.shape, dtype)], layout.axes, Rule(rule, (8 * tokens, 8), documents=3)
    if isinstance(encoding, Learned):
        table = torch.empty(encoding.table.shape, dtype=getattr(torch, encoding.table.dtype.name))
        [(piece, _)] = launcher.bind_learned(*common, table, 0, False, 1).pieces
        return piece, {"x": dtype, "y": dtype, "table": encoding.table.dtype.name}
    pairs, scale = encoding.interleaved, encoding.embedding_scale
    [(piece, _)] = launcher.bind_sinusoidal(*common, rates(encoding), pairs, scale, False, 1).pieces
    return piece, {"x": dtype, "y": dtype}


def built(piece, pointers, target):
    """Compile a piece; what its machine code holds, its compile-time values, and the elements of a thread's tile."""
    binary, values = compiled(piece, TARGETS[target], pointers)
    return code(binary, TARGETS[target]), values


def check_accesses(found, accesses):
    """Nothing in a thread's own memory; 16 bytes at a time from and to the arrays."""
    assert found.spilled == 0
    assert not found.local
    assert set(found.stores) <= WIDE, found.stores
    assert sum(found.stores.values()) == accesses
    assert sum(count for name, count in found.loads.items() if name in WIDE) >= accesses, found.loads
    assert not [name for name in found.loads if NARROW.search(name)], found.loads


def check_cost(found, values, target, dtype, interleaved):
    """Machine instructions of a thread for each pair of channels that it turns: not a tenth above what was recorded."""
    name = "rotate" if "heads0" in values else "add_sinusoid"
    pairs = values["tile_rows"] * values["tile_pairs"] * values["steps"]
    cost = len(found.opcodes) * TARGETS[target].warp_size * WARPS / pairs
    assert cost <= 1.1 * RECORDED[name, dtype, interleaved][target]
    assert target != "sm_90" or cost <= BARS[name].get(DTYPES[dtype].itemsize, 62), cost


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "interleaved"), ROPE_WIDTHS)
def test_rotate_many_rows(target, dtype, interleaved):
    for width in ROPE_WIDTHS[dtype, interleaved]:
        found, values = built(*rotary(dtype, width, interleaved), target)
        check_accesses(found, values["steps"] * (1 if interleaved else 2))
        assert found.registers <= 64
        assert found.shared == 0
        if TARGETS[target].backend == "cuda":
            # Each written out (10 for sine and cosine, 2 for each head), and none made of a product and a sum.
            pairs = values["tile_rows"] * values["tile_pairs"] // (32 * WARPS)
            fused = found.count("FFMA") + found.count("FFMA2")  # which does two
            assert fused.total() == pairs * (10 + 2 * values["steps"])
        if width == 128:
            check_cost(found, values, target, dtype, interleaved)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "interleaved"), [("bfloat16", False), ("float32", True)])
def test_rotate_few_rows(target, dtype, interleaved):
    found, values = built(*rotary(dtype, 128, interleaved, tokens=1, in_place=True), target)
    assert values["tile_rows"] == values["steps"] == 1
    check_accesses(found, 1 if interleaved else 2)
    assert found.registers <= 64
    assert len(found.opcodes) <= 600
    if TARGETS[target].backend == "cuda" and not interleaved:
        # As many for each pair as with many rows: the same roundings, so the same bits.
        fused = found.count("FFMA") + found.count("FFMA2")
        assert fused.total() == values["tile_heads"] * values["tile_pairs"] // (32 * WARPS) * (10 + 2)


@pytest.mark.parametrize("target", TARGETS)
def test_rotate_documents_and_channels_that_pass(target):
    found, values = built(*rotary("bfloat16", 128, False, rule=PACKED, scaling=Linear(2.0), rotary_dim=64), target)
    assert values["copied"]
    assert set(found.stores) <= WIDE
    assert found.spilled == 0
    assert not found.local
    assert found.registers <= 80


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "interleaved", "width"), SINUSOIDS)
def test_sinusoids(target, dtype, interleaved, width):
    found, values = built(*additive(Sinusoidal(width, interleaved=interleaved), dtype), target)
    tile = 2 * values["tile_rows"] * values["tile_pairs"] * DTYPES[dtype].itemsize
    check_accesses(found, values["steps"] * tile // (ACCESS_BYTES * WARPS * TARGETS[target].warp_size))
    assert found.registers <= 96
    assert found.shared == 0
    fast = found.count("MUFU.SIN", "MUFU.COS")
    assert bool(fast) == (TARGETS[target].backend == "cuda" and dtype != "float32")
    if width == 4096:
        check_cost(found, values, target, dtype, interleaved)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "stored"), [("bfloat16", "bfloat16"), ("float16", "float32")])
def test_learned(target, dtype, stored):
    found, _ = built(*additive(Learned(np.zeros((8, 768), DTYPES[stored])), dtype), target)
    check_accesses(found, 1)
    assert found.registers <= 64
    assert found.shared == 0
