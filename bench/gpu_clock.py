"""Time on a GPU: bursts between events, behind a pause that lets the host run ahead; and the host's own time."""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import torch
from gpu_capture import captured
from gpu_machine import Machine

from fastpos.commands.timing import Timing, interleave

Call = Callable[[], Any]
BURST_SECONDS, MOST_CALLS = 4e-3, 64
# Cycles that the GPU waits while the host puts a burst into its queue, 1 ms; the queue holds 1,024 launches.
PAUSE = 2_000_000
HOST_CHUNKS = 5


class Burst:
    """One contender: ``calls`` do the same work on different memory, so that no cache answers for it."""

    def __init__(self, machine: Machine, calls: Sequence[Call], share: int = 1) -> None:
        """``share``: how many calls of interest one of ``calls`` holds."""
        self.machine, self.calls, self.share = machine, calls, share
        for call in calls:
            call()
        machine.wait()
        once = min(self._run(1) for _ in range(machine.pick(3, 1)))
        self.count = max(1, min(machine.pick(MOST_CALLS, 1), round(BURST_SECONDS / max(once, 1e-7))))
        self.seconds: list[float] = []
        self.used = 0.0

    def burst(self) -> None:
        """Time some calls, and add the time that it took to ``used``."""
        begin = perf_counter()
        self.seconds.append(self._run(self.count) / self.share)
        self.used += perf_counter() - begin

    def timing(self) -> Timing:
        """What was measured."""
        return Timing(self.count * self.share, tuple(self.seconds))

    def _run(self, count: int) -> float:
        """Seconds for each of so many calls."""
        calls, many = self.calls, len(self.calls)
        if self.machine.dry:
            begin = perf_counter()
            for index in range(count):
                calls[index % many]()
            return (perf_counter() - begin) / count
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(PAUSE)
        first.record()
        for index in range(count):
            calls[index % many]()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e-3 / count


def on_device(machine: Machine, contenders: dict[str, Sequence[Call]], seconds: float) -> dict[str, Timing]:
    """Seconds of the device a call; all contenders take turns for about so many seconds each."""
    runners = {name: Burst(machine, calls) for name, calls in contenders.items()}
    interleave(runners.values(), seconds * len(runners))
    return {name: runner.timing() for name, runner in runners.items()}


def in_graphs(machine: Machine, contenders: dict[str, Sequence[Call]], seconds: float) -> dict[str, Timing | str]:
    """The same where all calls of a contender are one CUDA graph; words for one that cannot be captured."""
    found: dict[str, Timing | str] = {}
    runners: dict[str, Burst] = {}
    for name, calls in contenders.items():
        if machine.dry:
            found[name] = "not run: needs a GPU"
            continue
        try:
            graph = captured(lambda calls=calls: [call() for call in calls])
            runners[name] = Burst(machine, [graph.replay], len(calls))
        except Exception as error:  # whatever a peer does that no graph can hold
            torch.cuda.synchronize()
            found[name] = f"cannot be captured: {first_line(error)}"
    if runners:
        interleave(runners.values(), seconds * len(runners))
    return found | {name: runner.timing() for name, runner in runners.items()}


def on_host(machine: Machine, calls: Sequence[Call]) -> float:
    """Seconds of the host a call, which waits for nothing: the median of some chunks, the device at rest before each."""
    count, found = machine.pick(400, 2), []
    for _ in range(machine.pick(HOST_CHUNKS, 1)):
        machine.wait()
        begin = perf_counter()
        for index in range(count):
            calls[index % len(calls)]()
        found.append((perf_counter() - begin) / count)
    machine.wait()
    return median(found)


def first_line(error: BaseException) -> str:
    """An error in one line of at most 200 letters."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0] if said else ''}"[:200]
