"""Results of ``fastpos bench --against``: a table a case, as words, Markdown and JSON."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from .peers.catalogue import Peer, Result, Table
from .report import seconds_in_words
from .timing import Timing
from .workloads import COPY, Case

HEADINGS = ("what", "time", "of\ncopy", "x\nfastpos", "largest\nerror", "table", "result")
LEFT = 1
LEGEND = (
    "- time: median of rounds in which all take turns; a process each for the peers, one thread count for all",
    "- of copy: time over that of numpy.copyto of the same bytes, into memory that exists",
    "- x fastpos: how many times longer than fastpos with a result of the same kind (below 1.0 it is faster)",
    "- largest error: absolute, against 50-digit arithmetic, the rounding of the result included",
    "- table: cosines and sines, or rows, given ready, made in the call, or none needed; given ones are float32 products "
    "of position and frequency as models make them (numpy: float64), in PyTorch cast to x's type",
    "- result: in place, into given memory, or into new arrays, as the peer does it by nature; transformers works on "
    "(b, h, s, d) views of the same memory, as its models have them",
)


@dataclass(frozen=True)
class Row:
    """One contender of one case; ``failure`` says why there are no figures."""

    name: str
    what: str
    table: Table
    result: Result
    error: float = float("nan")
    timing: Timing | None = None
    failure: str | None = None

    @staticmethod
    def of(peer: Peer, error: float = float("nan"), timing: Timing | None = None, failure: str | None = None) -> "Row":
        """The row of a peer."""
        return Row(peer.name, peer.what, peer.table, peer.result, error, timing, failure)


@dataclass(frozen=True)
class Comparison:
    """A case whose first token stands at ``start``: the copy, fastpos with each kind of result, and the peers."""

    case: Case
    start: int
    copy: Timing
    ours: dict[Result, Row]
    peers: list[Row]
    unfit: dict[str, str]

    @property
    def title(self) -> str:
        """The case without its place, and where its tokens stand."""
        name = self.case.name.removesuffix("-out")
        positions = f"positions {self.start} to {self.start + self.case.tokens - 1}"
        return f"{name}, {positions if self.case.tokens > 1 else f'position {self.start}'}"

    def over_fastpos(self, row: Row) -> float:
        """How many times longer it takes than fastpos with a result of the same kind."""
        ours = self.ours[row.result].timing
        assert row.timing is not None
        assert ours is not None
        return row.timing.over(ours)

    def timed(self) -> list[Row]:
        """fastpos, then the peers that have figures, the fastest first."""
        return [*self.ours.values(), *sorted(_with_figures(self.peers), key=_median)]

    def cells(self) -> list[tuple[str, ...]]:
        """Words for ``HEADINGS``: the copy, then all that were timed."""
        copy = ("copy", seconds_in_words(self.copy.median), "1.00", "", "", "", Result.GIVEN.value)
        return [copy, *(self._cells(row) for row in self.timed())]

    def _cells(self, row: Row) -> tuple[str, ...]:
        assert row.timing is not None
        return (
            f"{row.name}: {row.what}" if row.what else row.name,
            seconds_in_words(row.timing.median),
            f"{row.timing.over(self.copy):.2f}",
            f"{self.over_fastpos(row):.1f}x",
            f"{row.error:.1e}",
            row.table.value,
            row.result.value,
        )

    def failures(self) -> list[str]:
        """A line for each peer that failed, and one for all those that have no form for the case."""
        failed = [f"- {row.name}: {row.failure}" for row in self.peers if row.failure]
        reasons = ", ".join(f"{name} ({reason})" for name, reason in self.unfit.items())
        return [*failed, f"- without a form for this case: {reasons}"] if reasons else failed

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file; times in seconds, a failed peer's null."""
        return {
            "name": self.case.name.removesuffix("-out"),
            "case": asdict(self.case),
            "start": self.start,
            "copy": self.copy.median,
            "contenders": [self._row_as_dict(row) for row in [*self.ours.values(), *self.peers]],
        }

    def _row_as_dict(self, row: Row) -> dict[str, Any]:
        said = {"name": row.name, "table": row.table.value, "result": row.result.value, "failure": row.failure}
        if row.timing is None:
            return said
        figures = {
            "median": row.timing.median,
            "p20": row.timing.percentile(20),
            "p80": row.timing.percentile(80),
            "rounds": len(row.timing.seconds),
            "time_over_copy": row.timing.over(self.copy),
            "time_over_fastpos": self.over_fastpos(row),
            "largest_absolute_error": row.error,
        }
        return {**said, **figures}


def _with_figures(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.timing is not None]


def _median(row: Row) -> float:
    assert row.timing is not None
    return row.timing.median


def losses(comparisons: list[Comparison]) -> str:
    """How often something else was faster, fastpos's slower forms counted too."""
    lost: Counter[str] = Counter()
    met: Counter[str] = Counter()
    for comparison in comparisons:
        for row in comparison.ours.values():
            assert row.timing is not None
            met[COPY] += 1
            lost[COPY] += row.timing.over(comparison.copy) > 1
        for row in _with_figures(comparison.peers):
            if row.table is Table.NONE:
                continue
            met[row.name] += 1
            lost[row.name] += comparison.over_fastpos(row) < 1
    counts = ", ".join(f"{name} in {lost[name]} of {count}" for name, count in met.items())
    return f"With a result of the same kind, fastpos is slower than {counts}."


def markdown(comparisons: list[Comparison], setting: list[str]) -> str:
    """The tables for a README: what it was measured on, every case, who took no part, and how often fastpos lost."""
    headings = [heading.replace("\n", " ") for heading in HEADINGS]
    lines = [*setting, "", *LEGEND]
    for comparison in comparisons:
        lines += [
            "",
            f"### {comparison.title}",
            "",
            "| " + " | ".join(headings) + " |",
            "|---|---:|---:|---:|---:|---|---|",
        ]
        lines += ["| " + " | ".join(cells) + " |" for cells in comparison.cells()]
        if failures := comparison.failures():
            lines += ["", "Not in this table:", "", *failures]
    return "\n".join([*lines, "", losses(comparisons), ""])
