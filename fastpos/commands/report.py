"""Results of a benchmark as rows of words, and as JSON."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from . import workloads
from .timing import Timing
from .workloads import COPY, FASTPOS, MADE, READY, Case

TITLES = {
    workloads.PREFILL: "Rotary, prefill: 32 + 8 heads x 128 (rope)",
    workloads.DECODE: f"Rotary, one decoded token at position {workloads.DECODED_AT}: 32 + 8 heads x 128 (decode)",
    workloads.SINUSOIDAL: "Sinusoids added (sinusoidal)",
    workloads.LEARNED: "Learned rows added (learned)",
}
HEADINGS = (
    *("case", "fastpos", "p20 - p80", "copy", "of\ncopy", "GB/s"),
    *("NumPy\nready", "NumPy\nmade", "largest\nerror"),
)
# What a window narrower than WIDE has room for.
NARROW, WIDE = (0, 1, 4, 5, 6, 7, 8), 110
LEGEND = (
    "- b batch, s tokens, d channels; halves, pairs: which channels turn together; out: into arrays that exist",
    "- fastpos, copy: median time of a call over rounds in which all take turns; copy: numpy.copyto of the same bytes",
    "- of copy: time over that of the copy; GB/s: inputs and results, each byte once",
    "- NumPy ready, made: how many times longer the baseline takes (below 1.0 it is faster), with the rows of the table "
    "ready or made in the call (sines and cosines from the formula, learned rows by fancy indexing)",
    "- largest error: absolute, against 50-digit arithmetic, the rounding of the result included",
)


@dataclass(frozen=True)
class Result:
    """What was measured of one case; ``error`` is that of fastpos."""

    case: Case
    timings: dict[str, Timing]
    error: float

    @property
    def label(self) -> str:
        """The case's name without its workload."""
        return self.case.name.removeprefix(self.case.workload + "-")

    @property
    def of_copy(self) -> float:
        """Time over that of a copy of the same bytes."""
        return self.timings[FASTPOS].over(self.timings[COPY])

    @property
    def gigabytes_per_second(self) -> float:
        """Bytes of inputs and of results, each counted once."""
        return 2 * self.case.nbytes / self.timings[FASTPOS].median / 1e9

    def gain(self, contender: str) -> float:
        """How many times longer ``contender`` takes."""
        return self.timings[contender].over(self.timings[FASTPOS])

    def cells(self) -> tuple[str, ...]:
        """Words for ``HEADINGS``."""
        mine = self.timings[FASTPOS]
        return (
            self.label,
            seconds_in_words(mine.median),
            f"{seconds_in_words(mine.percentile(20))} - {seconds_in_words(mine.percentile(80))}",
            seconds_in_words(self.timings[COPY].median),
            f"{self.of_copy:.2f}",
            f"{self.gigabytes_per_second:.1f}",
            f"{self.gain(READY):.1f}x",
            f"{self.gain(MADE):.1f}x",
            f"{self.error:.1e}",
        )

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file; times in seconds."""
        return {
            "name": self.case.name,
            "case": asdict(self.case),
            "input_bytes": self.case.nbytes,
            "time_over_copy": self.of_copy,
            "gigabytes_per_second": self.gigabytes_per_second,
            "largest_absolute_error": self.error,
            "contenders": {
                name: {
                    "median": timing.median,
                    "p20": timing.percentile(20),
                    "p80": timing.percentile(80),
                    "rounds": len(timing.seconds),
                    "calls_a_round": timing.calls,
                }
                for name, timing in self.timings.items()
            },
        }


def seconds_in_words(seconds: float) -> str:
    """Three digits, in microseconds or milliseconds."""
    value, unit = (seconds * 1e6, "us") if seconds < 1e-3 else (seconds * 1e3, "ms")
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {unit}"


def by_workload(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results under the title of their workload."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(TITLES[result.case.workload], []).append(result)
    return groups


def losses(results: list[Result]) -> str:
    """How often something else was faster."""
    slower = {
        "a plain copy": sum(result.of_copy > 1 for result in results),
        "NumPy with rows ready": sum(result.gain(READY) < 1 for result in results),
        "NumPy that makes its rows": sum(result.gain(MADE) < 1 for result in results),
    }
    counts = ", ".join(f"than {name} in {count}" for name, count in slower.items())
    return f"Of {len(results)} cases fastpos is slower {counts}."


def markdown(results: list[Result], setting: str) -> str:
    """The tables for a README: what it was measured on, every case, and how often something else was faster."""
    lines = [setting, "", *LEGEND]
    for title, group in by_workload(results).items():
        headings = [heading.replace("\n", " ") for heading in HEADINGS]
        lines += ["", f"### {title}", "", "| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1)]
        lines += ["| " + " | ".join(result.cells()) + " |" for result in group]
    return "\n".join([*lines, "", losses(results), ""])
