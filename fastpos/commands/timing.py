"""Interleaved bursts: every round runs every contender once, so that a drift of the machine meets all of them."""

import statistics
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import perf_counter
from timeit import Timer
from typing import Any, Protocol

BURST_SECONDS = 4e-3
# A longer call does not find its data in a cache, so a burst of it needs no call ahead of the clock.
LONG_SECONDS = 20e-3
LEAST_ROUNDS, MOST_ROUNDS = 3, 101


@dataclass(frozen=True)
class Timing:
    """Seconds a call, one entry a round; each is the mean of a burst of ``calls``."""

    calls: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds a call."""
        return statistics.median(self.seconds)

    def percentile(self, percent: int) -> float:
        """Seconds a call of the round at this rank."""
        return sorted(self.seconds)[round(percent / 100 * (len(self.seconds) - 1))]

    def over(self, other: "Timing") -> float:
        """Median of the ratios to ``other`` in the same rounds."""
        return statistics.median(mine / its for mine, its in zip(self.seconds, other.seconds, strict=False))


class Runner:
    """Bursts of one contender, of as many calls as take some milliseconds."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.timer = Timer(call)
        once = self.timer.timeit(1)
        if once < LONG_SECONDS:
            once = min(self.timer.timeit(1) for _ in range(2))
        self.calls = max(1, round(BURST_SECONDS / max(once, 1e-7)))
        self.warm = once < LONG_SECONDS
        self.seconds: list[float] = []
        self.used = 0.0

    def burst(self) -> None:
        """Add one entry to ``seconds``."""
        begin = perf_counter()
        if self.warm:
            self.timer.timeit(1)
        self.seconds.append(self.timer.timeit(self.calls) / self.calls)
        self.used += perf_counter() - begin


class Bursts(Protocol):
    """What takes turns: a contender here or in another process."""

    used: float

    def burst(self) -> None:
        """Time some calls, and add the time that it took to ``used``."""


def interleave(runners: Collection[Bursts], seconds: float) -> None:
    """Let all take turns for about so many seconds.

    One so slow that it has used up its share of the time after three rounds sits out the others.
    """
    share = seconds / len(runners)
    for done in range(MOST_ROUNDS):
        active = [runner for runner in runners if done < LEAST_ROUNDS or runner.used < share]
        if not active:
            break
        for runner in active:
            runner.burst()


def measure(contenders: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, Timing]:
    """Time the contenders for about so many seconds; the first one should be what brings the inputs back."""
    runners = {name: Runner(call) for name, call in contenders.items()}
    interleave(runners.values(), seconds)
    return {name: Timing(runner.calls, tuple(runner.seconds)) for name, runner in runners.items()}
