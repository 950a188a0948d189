"""Correctness, before anything is timed: each check says what it found, or raises ``Wrong``."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from gpu_capture import check_capture
from gpu_machine import Array, Machine
from gpu_torch import check_compiled, check_gradients
from gpu_truth import Wrong, check_near, check_same, check_truth, poisoned

import fastpos
from fastpos import Learned, Rotary, Sinusoidal
from fastpos.commands.workloads import normals

FAR = (0, 1, -1, 4095, 131_072, 2**24 + 1, 2**31 - 1, -(2**31))
Check = Callable[[Machine], str]


def _positions(machine: Machine) -> Array:
    some = np.random.default_rng(5).integers(-(2**31), 2**31, machine.pick(16, 1))
    return np.concatenate([FAR if not machine.dry else FAR[4:], some]).astype(np.int64)


def _rotations(machine: Machine, dtype: str) -> Iterator[Rotary]:
    # A case costs up to 1 s of compiling for the GPU and the CPU: types that few models use get two widths.
    full = (64, 80, 96, 128, 256) if dtype in ("float32", "bfloat16") else (80, 128)
    for width, interleaved in product(machine.pick(full, (80,)), (False, True)):
        yield Rotary(width, base=500_000.0, interleaved=interleaved)
    for width, turned in machine.pick(((128, 64), (96, 24), (80, 78)), ((64, 24),)):
        yield Rotary(width, rotary_dim=turned, interleaved=turned == 64)


def _additions(machine: Machine, dtype: str) -> Iterator[Any]:
    for width in machine.pick((64, 250, 4096), (80,)):
        yield Sinusoidal(width, interleaved=width != 250, embedding_scale=width**0.5)
        yield Learned(normals(9, (512, width), dtype), offset=2)
    yield Learned(normals(9, (512, 80), "float32"))


def _dtypes(machine: Machine) -> tuple[str, ...]:
    every: tuple[str, ...] = machine.pick(("float32", "bfloat16", "float16", "float64"), ("float32", "bfloat16"))
    return every


def check_formulas(machine: Machine) -> str:
    """Every width, pairing, dtype and position: into memory full of NaN, in place and new, few rows and many."""
    worst, cases = 0.0, 0
    positions = _positions(machine)
    for dtype in _dtypes(machine):
        for encoding in (*_rotations(machine, dtype), *_additions(machine, dtype)):
            worst = max(worst, _check_encoding(machine, encoding, dtype, positions))
            cases += 1
    return f"{cases} encodings by dtypes, {len(positions)} positions within 2^31; {worst:.2f} of the allowed error used"


def _check_encoding(machine: Machine, encoding: Any, dtype: str, positions: Array) -> float:
    if isinstance(encoding, Learned):
        positions = np.abs(positions) % (len(encoding.table) - encoding.offset)
    heads = ((machine.pick(32, 3),), (machine.pick(8, 2),)) if isinstance(encoding, Rotary) else ((),)
    arrays = [normals(index, (len(positions), *some, encoding.width), dtype) for index, some in enumerate(heads)]
    inputs, ids = tuple(machine.on(x) for x in arrays), machine.on(positions)
    layout = "thd" if isinstance(encoding, Rotary) else "td"
    place = {"positions": ids, "layout": layout, "backend": "triton"}
    results = poisoned(inputs)
    fastpos.apply(encoding, *inputs, **place, out=results)
    cpu = _tuple(fastpos.apply(encoding, *(x.cpu() for x in inputs), positions=ids.cpu(), layout=layout,
                               backend="numba"))  # fmt: skip
    what, worst = f"{encoding}, {dtype}", 0.0
    # The interpreter cuts bfloat16 off where hardware rounds.
    ulps = 1.0 if machine.dry and dtype == "bfloat16" else 0.5
    for x, result, its in zip(arrays, results, cpu, strict=True):
        worst = max(worst, check_truth(what, encoding, x, positions, result, ulps))
        check_near(what, encoding, x, result, its)
    for result, want in zip(_tuple(fastpos.apply(encoding, *inputs, **place)), results, strict=True):
        check_same(f"{what}, new", result, want)
    here = tuple(x.clone() for x in inputs)
    fastpos.apply_(encoding, *here, **place)
    times = machine.pick(64, 2)
    many = tuple(x.repeat(times, *(1,) * (x.ndim - 1)) for x in inputs)
    fastpos.apply_(encoding, *many, **{**place, "positions": ids.repeat(times)})
    for result, whole, want in zip(here, many, results, strict=True):
        check_same(f"{what}, in place", result, want)
        check_same(f"{what}, among {times} times as many rows", whole, want.repeat(times, *(1,) * (want.ndim - 1)))
    return worst


def _tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def check_rules(machine: Machine) -> str:
    """Positions by numbers, tensors, ids and boundaries, of 32 and 64 bits, next to the same ones as ids."""
    rope, pe, batch, tokens = Rotary(64), Sinusoidal(64), 3, 6
    learned, count = Learned(normals(9, (64, 64), "bfloat16")), 0
    steps = torch.arange(tokens, device=machine.device)
    for kind in machine.pick((torch.int32, torch.int64), (torch.int32,)):
        starts = torch.tensor([7, 0, 31], dtype=kind, device=machine.device)
        ids = (starts[:, None] * 7 + steps * 5) % 61
        edges = torch.tensor([0, 2, 2, 3, tokens * batch], dtype=kind, device=machine.device)
        begins = torch.tensor([5, 0, 9, 1], dtype=kind, device=machine.device)
        document = torch.tensor([0, 0, 2, *[3] * (tokens * batch - 3)], device=machine.device)
        packed = torch.arange(tokens * batch, device=machine.device) - edges[document]
        rows: list[tuple[dict[str, Any], torch.Tensor, bool]] = [
            ({"start": 7}, (7 + steps).expand(batch, -1), False),
            ({"start": starts[2]}, (31 + steps).expand(batch, -1), False),
            ({"start": starts}, starts[:, None] + steps, False),
            ({"start": starts.repeat_interleave(2)[::2]}, starts[:, None] + steps, False),
            ({"positions": ids}, ids, False),
            ({"positions": ids.T.contiguous().T}, ids, False),
            ({"positions": ids[1]}, ids[1].expand(batch, -1), False),
            ({"cu_seqlens": edges}, packed, True),
            ({"cu_seqlens": edges.repeat_interleave(2)[::2]}, packed, True),
            ({"cu_seqlens": edges, "start": begins}, packed + begins[document], True),
            ({"cu_seqlens": edges, "start": begins.repeat_interleave(3)[::3]}, packed + begins[document], True),
        ]
        for place, same, flat in rows:
            for encoding in (rope, pe, learned):
                heads = (2,) if encoding is rope else ()
                dtype = "bfloat16" if encoding is learned else "float32"
                x = machine.normals((*((batch * tokens,) if flat else (batch, tokens)), *heads, 64), dtype)
                layout = ("t" if flat else "bs") + ("h" if heads else "") + "d"
                want = fastpos.apply(encoding, x, positions=same.contiguous(), layout=layout, backend="triton")
                got = fastpos.apply(encoding, x, **place, layout=layout, backend="triton")
                check_same(f"{type(encoding).__name__}, {', '.join(place)} of {kind}", got, want)
                count += 1
    return f"{count} calls"


def check_layouts(machine: Machine) -> str:
    """Any order of axes, gaps, slices of one projection, broadcast inputs and rows off the grid of 16 bytes: the same bits."""
    count = 0
    for dtype, (encoding, letters) in product(_dtypes(machine), ((Rotary(64), "bshd"), (Sinusoidal(64), "bsd"))):
        sizes = {"b": 2, "s": 5, "h": 3, "d": 64}
        x = machine.normals([sizes[letter] for letter in letters], dtype)
        ids = torch.arange(10, device=machine.device).view(2, 5) * 1001 - 3000
        want = fastpos.apply(encoding, x, positions=ids, layout=letters, backend="triton")
        heads_too = machine.pick(("bhsd", "sbhd", "hbsd", "shbd", "hsbd", "bshd"), ("bhsd", "hsbd"))
        orders = heads_too if "h" in letters else ("sbd", "bsd")
        for order, pad in product(orders, machine.pick((0, 1, 16), (0, 1))):
            axes = [letters.index(letter) for letter in order]
            back = [order.index(letter) for letter in letters]
            room = torch.full(
                (*(sizes[letter] for letter in order[:-1]), 64 + pad), float("nan"), device=machine.device
            )
            room = room.to(x.dtype)
            view = room[..., pad:]
            view.copy_(x.permute(axes))
            got = fastpos.apply(encoding, view, positions=ids, layout=order, backend="triton")
            check_same(f"{encoding}, {dtype}, {order}, {pad} between rows, new", got.permute(back), want)
            fastpos.apply_(encoding, view, positions=ids, layout=order, backend="triton")
            check_same(f"{encoding}, {dtype}, {order}, {pad} between rows, in place", view.permute(back), want)
            if pad and not room[..., :pad].isnan().all():
                raise Wrong(f"{encoding}, {dtype}, {order}: what lies between the rows was written")
            count += 2
    return f"{count} calls"


def check_large(machine: Machine) -> str:
    """More elements than 32 bits count: the last rows get what they get by themselves."""
    width, heads, last = machine.pick(4096, 64), machine.pick(32, 1), 3
    rows = machine.pick(2**31, 2**9) // width + last
    for encoding, layout in ((Sinusoidal(width), "td"), (Rotary(width // heads), "thd")):
        shape = (rows, heads, encoding.width) if layout == "thd" else (rows, encoding.width)
        x = torch.zeros(shape, dtype=torch.bfloat16, device=machine.device)
        x[-last:] = machine.normals(x[-last:].shape, "bfloat16")
        want = fastpos.apply(encoding, x[-last:], start=rows - last, layout=layout, backend="triton")
        fastpos.apply_(encoding, x, start=0, layout=layout, backend="triton")
        check_same(f"{encoding}, the last of {x.numel()} elements", x[-last:], want)
    return f"{rows * width} elements"


def check_repeats(machine: Machine) -> str:
    """Run to run, a token alone and in its prompt, a row alone and in its batch: the same bits."""
    times, tokens = machine.pick(100, 2), machine.pick(4096, 5)
    heads = machine.pick((32, 8), (3, 2))
    for dtype in _dtypes(machine):
        rope = Rotary(128, base=500_000.0)
        inputs = tuple(machine.normals((2, tokens, count, 128), dtype, count) for count in heads)
        want = fastpos.apply(rope, *inputs, start=100_000, backend="triton")
        for _ in range(times):
            got = fastpos.apply(rope, *inputs, start=100_000, backend="triton")
            for one, other in zip(got, want, strict=True):
                check_same(f"{dtype}, run to run", one, other)
        for token in (0, tokens // 2, tokens - 1):
            alone = tuple(x[1:, token : token + 1].clone() for x in inputs)
            fastpos.apply_(rope, *alone, start=100_000 + token, backend="triton")
            for one, other in zip(alone, want, strict=True):
                check_same(f"{dtype}, token {token} alone", one, other[1:, token : token + 1])
    return f"{times} runs of {tokens} tokens, and single tokens of them"


CHECKS: dict[str, Check] = {
    "formulas": check_formulas,
    "positions": check_rules,
    "layouts": check_layouts,
    "large": check_large,
    "repeats": check_repeats,
    "gradients": check_gradients,
    "torch.compile": check_compiled,
    "CUDA graphs": check_capture,
}
