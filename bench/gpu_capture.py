"""CUDA graphs: calls that read positions from a device wait for nothing, allocate nothing, and follow what is replayed."""

from collections.abc import Callable
from typing import Any

import torch
from gpu_machine import Machine
from gpu_truth import Wrong, check_same

import fastpos
from fastpos import Learned, Rotary, Sinusoidal

NOT_HERE = "not run: needs a GPU"


def captured(call: Callable[[], Any], warm: int = 2) -> torch.cuda.CUDAGraph:
    """Calls as a graph, after some on a stream of their own that compile what they need."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(warm):
            call()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def check_capture(machine: Machine) -> str:
    """No synchronisation and no allocation in ``apply_``; a graph follows positions that are changed in place."""
    if machine.dry:
        return NOT_HERE
    rope = Rotary(128, base=500_000.0)
    inputs = machine.normals((4, 1, 32, 128), "bfloat16", 1), machine.normals((4, 1, 8, 128), "bfloat16", 2)
    embeddings = (machine.normals((4, 1, 128), "float32", 3),)
    learned = Learned(machine.normals((1 << 12, 128), "float32", 4))
    ids = torch.zeros((4, 1), dtype=torch.int64, device=machine.device)
    starts = torch.zeros(4, dtype=torch.int64, device=machine.device)
    cases: list[tuple[Any, tuple[torch.Tensor, ...]]] = [
        (rope, inputs), (Sinusoidal(128), embeddings), (learned, embeddings)
    ]  # fmt: skip
    count = 0
    for encoding, originals in cases:
        for place, tensor in (({"positions": ids}, ids), ({"start": starts}, starts), ({"start": 9}, None)):
            what = f"{type(encoding).__name__} by {next(iter(place))}"
            here = tuple(x.clone() for x in originals)

            def call(encoding: Any = encoding, here: Any = here, place: Any = place) -> None:
                fastpos.apply_(encoding, *here, **place)

            call()
            _check_quiet(what, call)
            graph = captured(call)
            for step in (9,) if tensor is None else (0, 5, 4000):
                if tensor is not None:
                    tensor.fill_(step)
                for x, original in zip(here, originals, strict=True):
                    x.copy_(original)
                graph.replay()
                wanted = fastpos.apply(encoding, *originals, start=step)
                for got, want in zip(here, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                    check_same(f"{what}, replayed at {step}", got, want)
                count += 1
    return f"{count} replays; no synchronisation, no allocation"


def _check_quiet(what: str, call: Callable[[], Any]) -> None:
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    except RuntimeError as error:
        raise Wrong(f"{what}: expected no synchronisation, got {error}") from error
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    made = torch.cuda.memory_stats()["allocation.all.allocated"] - before
    if made:
        raise Wrong(f"{what}: expected no allocation, got {made}")
