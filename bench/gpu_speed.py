"""What is timed: a copy, which is the ceiling; prefill; decode in and outside of a CUDA graph. Peers are checked first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from gpu_clock import first_line, in_graphs, on_device, on_host
from gpu_machine import Machine, array_of, bytes_of
from gpu_peers import PEERS, Peer, Task, check_peer
from gpu_truth import check_truth

import fastpos
from fastpos import Learned, Rotary, Sinusoidal
from fastpos.commands.timing import Timing

COPY, OURS, OURS_OUT = "copy", "fastpos, in place", "fastpos, into given memory"
OURS_NUMBER = "fastpos, in place, start a number"
SECONDS, COPY_SECONDS = 0.25, 0.5
HEADS, WIDTH, BASE = (32, 8), 128, 500_000.0
DECODED_AT = 4096
# The caches of a GPU (60 MB on an H200) must not hold what a call reads: sets of inputs take turns.
LEAST_BYTES, MOST_SETS = 1 << 30, 8
GRAPHED = 64


@dataclass(frozen=True)
class Size:
    """One case: ``batch`` rows of ``tokens``."""

    name: str
    encoding: Any
    batch: int
    tokens: int
    dtype: str
    start: int = 0

    def task(self, machine: Machine, seed: int) -> Task:
        """Inputs and where their tokens stand."""
        heads = machine.pick(HEADS, (3, 2)) if isinstance(self.encoding, Rotary) else (None,)
        shapes = [(self.batch, self.tokens, *([count] if count else []), self.encoding.width) for count in heads]
        inputs = tuple(machine.normals(shape, self.dtype, seed + index) for index, shape in enumerate(shapes))
        ids = torch.arange(self.start, self.start + self.tokens, device=machine.device).expand(self.batch, -1)
        return Task(machine, self.encoding, inputs, ids.contiguous())


@dataclass
class Row:
    """A case's figures: seconds of the device a call (graphs: inside of one), of the host, and who took no part."""

    size: Size
    bytes: int
    device: dict[str, Timing]
    graphs: dict[str, Timing | str] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def prefill_sizes(machine: Machine) -> list[Size]:
    """Rotations of prompts, and additions."""
    rope, tokens = Rotary(WIDTH, base=BASE), machine.pick((4096, 16_384, 65_536), (2, 4))
    many, width = tokens[-1], machine.pick(4096, 64)
    sizes = [Size(f"rotary, {count} tokens", rope, 1, count, "bfloat16") for count in tokens]
    sizes.append(Size(f"rotary, {many} tokens", rope, 1, many, "float32"))
    for dtype in ("bfloat16", "float32"):
        sizes.append(Size(f"sinusoidal, {many} x {width}", Sinusoidal(width), 1, many, dtype))
    learned = Learned(machine.normals((many, width), "bfloat16", 7))
    sizes.append(Size(f"learned, {many} x {width}", learned, 1, many, "bfloat16"))
    return sizes


def decode_sizes(machine: Machine) -> list[Size]:
    """One token of each of so many sequences."""
    counts, rope = machine.pick((1, 8, 64, 256), (1, 2)), Rotary(WIDTH, base=BASE)
    return [
        Size(f"decode, {count} sequence{'s' * (count > 1)}", rope, count, 1, "bfloat16", DECODED_AT) for count in counts
    ]


def copy_ceiling(machine: Machine) -> dict[str, Any]:
    """Bytes a second of a copy, read and written, twice over: the second says how far the first can be trusted."""
    x = machine.normals((machine.pick(2 * 65_536 * 40 * 128, 4096),), "bfloat16")
    y, speeds = torch.empty_like(x), []
    for _ in range(2):
        timing = on_device(machine, {COPY: [partial(y.copy_, x)]}, machine.pick(COPY_SECONDS, 0.01))[COPY]
        speeds.append(bytes_of(x) / timing.median)
    return {"bytes": bytes_of(x), "bytes_per_second": max(speeds), "of_two_runs": speeds}


def measure_prefill(machine: Machine, size: Size, enough: Callable[[], bool]) -> Row:
    """Device time of a call by everyone."""
    one = size.task(machine, 0)
    _check(one)
    # A learned row is read besides.
    rows = 1.5 if isinstance(size.encoding, Learned) else 1
    moved = int(bytes_of(*one.inputs) * rows)
    count = machine.pick(max(1, min(MOST_SETS, LEAST_BYTES // moved)), 2)
    tasks = [one, *(size.task(machine, 10 * index) for index in range(1, count))]
    targets = [tuple(torch.empty_like(x) for x in task.inputs) for task in tasks]
    contenders = {
        COPY: [partial(_copy, target, task.inputs) for task, target in zip(tasks, targets, strict=True)],
        OURS: [_in_place(task) for task in tasks],
        OURS_OUT: [_into(task, target) for task, target in zip(tasks, targets, strict=True)],
    }
    peers, failures = _peers(tasks, enough)
    device = on_device(machine, contenders | peers, machine.pick(SECONDS, 0.01))
    return Row(size, moved, device, failures=failures)


def measure_decode(machine: Machine, size: Size, enough: Callable[[], bool]) -> Row:
    """Device time inside of a graph and one by one, and the host's."""
    tasks = [size.task(machine, 10 * index) for index in range(machine.pick(GRAPHED, 2))]
    _check(tasks[0])
    peers, failures = _peers(tasks, enough)
    contenders = {OURS: [_in_place(task) for task in tasks], **peers}
    seconds = machine.pick(SECONDS, 0.01)
    device = on_device(machine, contenders, seconds)
    graphs = in_graphs(machine, contenders, seconds)
    host = {name: on_host(machine, calls) for name, calls in contenders.items()}
    host[OURS_NUMBER] = on_host(machine, [_in_place(task, start=size.start) for task in tasks])
    return Row(size, bytes_of(*tasks[0].inputs), device, graphs, host, failures)


def _check(task: Task) -> None:
    """Our own results at the size that is timed, of some tokens."""
    results = fastpos.apply(task.encoding, *task.inputs, positions=task.ids, backend="triton")
    tokens = sorted({0, task.ids.shape[1] // 3, task.ids.shape[1] - 1})
    positions = array_of(task.ids[-1, tokens])
    encoding = task.encoding
    if isinstance(encoding, Learned):
        # The formula's arithmetic knows arrays alone; these are the rows of the table that the tokens use.
        encoding, positions = Learned(array_of(encoding.table[positions])), np.arange(len(tokens))
    ulps = 1.0 if task.machine.dry and task.dtype == torch.bfloat16 else 0.5
    for x, y in zip(task.inputs, results if isinstance(results, tuple) else (results,), strict=True):
        check_truth(f"{encoding}, {tuple(x.shape)}", encoding, array_of(x[-1, tokens]), positions, y[-1, tokens], ulps)


def _in_place(task: Task, **place: Any) -> Callable[[], Any]:
    place = place or {"positions": task.ids}
    return partial(fastpos.apply_, task.encoding, *task.inputs, **place, backend="triton")


def _into(task: Task, target: Sequence[torch.Tensor]) -> Callable[[], Any]:
    return partial(fastpos.apply, task.encoding, *task.inputs, positions=task.ids, out=target, backend="triton")


def _copy(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def _peers(tasks: list[Task], enough: Callable[[], bool]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Calls of the peers whose results are right, and why the others take no part."""
    found: dict[str, list[Any]] = {}
    failures: dict[str, str] = {}
    torch.compiler.reset()
    for peer in (peer for peer in PEERS if isinstance(tasks[0].encoding, peer.kind)):
        reason = peer.missing() or (None if enough() else "left out: no time was left for it")
        calls: list[Any] = []
        if reason is None:
            reason, calls = _tried(peer, tasks)
        if reason is None:
            found[peer.name] = calls
        else:
            failures[peer.name] = reason
    return found, failures


def _tried(peer: Peer, tasks: list[Task]) -> tuple[str | None, list[Any]]:
    try:
        return check_peer(peer, tasks[0]), [peer.make(task) for task in tasks]
    except Exception as error:  # whatever a peer's version does here is its own, and is listed
        return f"failed: {first_line(error)}", []
