"""Results of ``fastpos bench --against``: a table a case, as words, Markdown and JSON."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from .peers import catalogue
from .peers.catalogue import Peer, Result, Table
from .report import seconds_in_words
from .timing import Timing
from .workloads import Case

HEADINGS = ("what", "time", "of\ncopy", "x\nfastpos", "largest\nerror", "table", "result")
LEFT = 1
LEGEND = (
    "- time: median of rounds in which all take turns, each in a process of its own with as many threads as the others; "
    "glibc is told to keep large blocks, or page faults would be most of the time of what makes new arrays",
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
    """One contender of one case; where there is a ``failure``, it says why there are no figures."""

    peer: Peer
    failure: str | None
    error: float = float("nan")
    timing: Timing | None = None

    @property
    def measured(self) -> Timing:
        """The timing of one that has not failed."""
        assert self.timing is not None
        return self.timing


@dataclass(frozen=True)
class Comparison:
    """A case whose first token stands at ``start``: the copy, fastpos with each kind of result, and the peers."""

    case: Case
    start: int
    copy: Row
    ours: dict[Result, Row]
    peers: list[Row]
    unfit: dict[str, str]

    @property
    def name(self) -> str:
        """The case without the kind of result, which differs by contender."""
        return self.case.name.removesuffix("-out")

    @property
    def title(self) -> str:
        """The case, and where its tokens stand."""
        positions = f"positions {self.start} to {self.start + self.case.tokens - 1}"
        return f"{self.name}, {positions if self.case.tokens > 1 else f'position {self.start}'}"

    def over_fastpos(self, row: Row) -> float:
        """How many times longer it takes than fastpos with a result of the same kind."""
        return row.measured.over(self.ours[row.peer.result].measured)

    def timed(self) -> list[Row]:
        """Peers that have figures, the fastest first."""
        return sorted((row for row in self.peers if row.failure is None), key=lambda row: row.measured.median)

    def cells(self) -> list[tuple[str, ...]]:
        """Words for ``HEADINGS``: the copy, fastpos, then the peers."""
        copy = ("copy", seconds_in_words(self.copy.measured.median), "1.00", "", "", "", self.copy.peer.result.value)
        return [copy, *(self._cells(row) for row in [*self.ours.values(), *self.timed()])]

    def _cells(self, row: Row) -> tuple[str, ...]:
        peer = row.peer
        return (
            f"{peer.name}: {peer.what}" if peer.what else peer.name,
            seconds_in_words(row.measured.median),
            f"{row.measured.over(self.copy.measured):.2f}",
            f"{self.over_fastpos(row):.1f}x",
            f"{row.error:.1e}",
            peer.table.value,
            peer.result.value,
        )

    def failures(self) -> list[str]:
        """A line for each peer that failed, and one for all those that have no form for the case."""
        failed = [f"- {row.peer.name}: {row.failure}" for row in self.peers if row.failure]
        reasons = ", ".join(f"{name} ({reason})" for name, reason in self.unfit.items())
        return [*failed, f"- without a form for this case: {reasons}"] if reasons else failed

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file; times in seconds. A peer that failed has none."""
        return {
            "name": self.name,
            "case": asdict(self.case),
            "start": self.start,
            "copy": self.copy.measured.median,
            "contenders": [self._row_as_dict(row) for row in [*self.ours.values(), *self.peers]],
        }

    def _row_as_dict(self, row: Row) -> dict[str, Any]:
        peer = row.peer
        said = {"name": peer.name, "table": peer.table.value, "result": peer.result.value, "failure": row.failure}
        if row.failure is not None:
            return said
        figures = {
            "median": row.measured.median,
            "p20": row.measured.percentile(20),
            "p80": row.measured.percentile(80),
            "rounds": len(row.measured.seconds),
            "time_over_copy": row.measured.over(self.copy.measured),
            "time_over_fastpos": self.over_fastpos(row),
            "largest_absolute_error": row.error,
        }
        return {**said, **figures}


def losses(comparisons: list[Comparison]) -> str:
    """How often something else was faster, and what never was."""
    lost: Counter[str] = Counter()
    met: Counter[str] = Counter()
    for comparison in comparisons:
        ratios = [(f"a copy ({row.peer.result.value})", row, comparison.copy) for row in comparison.ours.values()]
        # fastpos on tensors is no other.
        others = [row for row in comparison.peers if row.failure is None and row.peer.table is not Table.NONE]
        ratios += [(row.peer.name, comparison.ours[row.peer.result], row) for row in others]
        for name, ours, other in ratios:
            met[name] += 1
            lost[name] += ours.measured.over(other.measured) > 1
    slower = [f"{name} in {lost[name]} of {count}" for name, count in met.items() if lost[name]]
    never = [f"{name} ({count})" for name, count in met.items() if not lost[name]]
    return (
        f"Cases in which fastpos, with a result of the same kind, is slower than: {', '.join(slower) or 'none'}. "
        f"Never slower than (cases): {', '.join(never) or 'none'}."
    )


def overview(comparisons: list[Comparison]) -> list[str]:
    """One Markdown table for all cases: times, and in brackets how many times longer than fastpos; "-" is in no table."""
    cells: dict[Peer, dict[int, str]] = {}
    for column, comparison in enumerate(comparisons):
        for row in [comparison.copy, *comparison.ours.values()]:
            cells.setdefault(row.peer, {})[column] = seconds_in_words(row.measured.median)
        for row in comparison.peers:
            said = cells.setdefault(row.peer, {})
            if row.failure is None:
                said[column] = f"{seconds_in_words(row.measured.median)} ({comparison.over_fastpos(row):.1f}x)"
    headings = ["", "table", "result", *(comparison.name for comparison in comparisons)]
    lines = ["| " + " | ".join(headings) + " |", "|---|---|---|" + "---:|" * len(comparisons)]
    for peer in sorted(cells, key=[catalogue.COPY, *catalogue.OURS, *catalogue.PEERS].index):
        said = cells[peer]
        figures = [said.get(column, "-") for column in range(len(comparisons))]
        lines.append("| " + " | ".join([peer.name, peer.table.value, peer.result.value, *figures]) + " |")
    return lines


def markdown(comparisons: list[Comparison], setting: list[str]) -> str:
    """For a README: what it was measured on, an overview, how often fastpos lost, and folded away, every case in full."""
    headings = [heading.replace("\n", " ") for heading in HEADINGS]
    lines = [*setting, "", *LEGEND, "", *overview(comparisons), "", losses(comparisons), ""]
    lines += ["<details><summary>Each case, with errors and who took no part</summary>"]
    for comparison in comparisons:
        lines += ["", f"### {comparison.title}", "", "| " + " | ".join(headings) + " |"]
        lines += ["|---|---:|---:|---:|---:|---|---|"]
        lines += ["| " + " | ".join(cells) + " |" for cells in comparison.cells()]
        if failures := comparison.failures():
            lines += ["", "Not in this table:", "", *failures]
    return "\n".join([*lines, "", "</details>", ""])
