"""``fastpos verify``: every usable backend on this machine against 50-digit arithmetic."""

from dataclasses import dataclass
from pathlib import Path

from ..dispatch import backends
from . import facts
from .checks import Check, Finding, checks
from .console import console, progress, table

HEADINGS = ("what", "up to", "dtype", "measure", "measured", "bound", "")
LEGEND = (
    "up to: the largest distance of a position from 0",
    "absolute error: the largest, of sines and cosines themselves or of data in [-1, 1]",
    "beyond rounding: the largest error, less half an ulp of the result, over |a| + |b| (rotation) or |x| + 1",
    "% nearest: results that are the number of their type nearest to the exact one",
)


@dataclass(frozen=True)
class Line:
    """A check on a backend, and what came out."""

    backend: str
    check: Check
    finding: Finding

    def cells(self) -> tuple[str, ...]:
        """Words and figures for ``HEADINGS``."""
        check, found = self.check, self.finding
        measured = f"{found.measured:.3f}" if found.bound >= 1 else f"{found.measured:.1e}"
        bound = f"{'>=' if found.least else '<='} {found.bound:g}"
        return check.what, check.positions, check.dtype, found.unit, measured, bound, "pass" if found.passed else "FAIL"


def markdown(lines: list[Line], setting: str) -> str:
    """The table for a README: a row for every check, a column for every backend."""
    names = list(dict.fromkeys(line.backend for line in lines))
    rows: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        *what, measured, bound, _ = line.cells()
        rows.setdefault((*what, bound), []).append(measured)
    headings = [*HEADINGS[:4], HEADINGS[5], *names]
    text = [setting, "", *(f"- {line}" for line in LEGEND), ""]
    text += ["| " + " | ".join(headings) + " |", "|---|---|---|---|" + "---:|" * (len(names) + 1)]
    text += ["| " + " | ".join([*what, *measured]) + " |" for what, measured in rows.items()]
    return "\n".join([*text, ""])


def run(markdown_file: Path | None) -> bool:
    """Print a line for every check on every usable backend; whether all passed."""
    out = console()
    usable = [backend.name for backend in backends() if backend.usable]
    out.print(f"Against 50-digit arithmetic on {facts.title()}")
    lines = []
    for backend in usable:
        with progress(out, checks(), lambda check: f"{check.what} {check.positions} {check.dtype}") as walk:
            found = [Line(backend, check, check.measure(backend)) for check in walk]
        out.print(table(f"Backend {backend}", HEADINGS, [line.cells() for line in found], left=4))
        lines += found
    out.print("\n".join(LEGEND))
    if markdown_file is not None:
        markdown_file.write_text(markdown(lines, facts.title()))
    failed = sum(not line.finding.passed for line in lines)
    out.print(f"{failed} of {len(lines)} checks failed" if failed else f"All {len(lines)} checks passed")
    return not failed
