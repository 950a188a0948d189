"""``fastpos bench``: one call of fastpos against NumPy as it is used today and against a plain copy."""

import json
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

from ..dispatch import choose
from ..threads import set_num_threads
from . import facts, report
from .against import run as compare
from .console import Refused, console, progress, table
from .timing import measure
from .warmup import compile_each
from .workloads import CASES, DECODE, FASTPOS, PREFILL, Case, select

ENCODINGS = {PREFILL: "rotary", DECODE: "rotary"}
SECONDS_A_CASE = 3.0
# A quick run has a minute for everything. Half of what compiling leaves of this is for timing, half for making inputs.
QUICK_SECONDS, QUICK_LEAST, QUICK_MOST = 45.0, 0.2, 1.5


def run(
    *,
    quick: bool,
    only: str,
    threads: int,
    json_file: Path | None,
    markdown_file: Path | None,
    plot_file: Path | None,
    against: str,
    position: int | None,
) -> None:
    """Measure, print a table a workload, and write the files; ``against`` names peers for a comparison instead."""
    begin = perf_counter()
    out = console()
    cases = _cases(quick, only)
    _check_files(json_file, markdown_file, plot_file)
    if against:
        if plot_file:
            raise Refused("--plot: expected no --against, whose results are not drawn")
        compare(
            *(cases, ENCODINGS),
            asked=against,
            position=position,
            quick=quick,
            threads=threads,
            json_file=json_file,
            markdown_file=markdown_file,
        )
        return
    if position is not None:
        raise Refused("--position: expected with --against alone")
    set_num_threads(threads)
    backend = choose(None)
    setting = f"{facts.title()}; backend {backend}, {threads} thread{'s' * (threads > 1)} (copy and NumPy: 1)"
    out.print(setting)
    compile_each(out, sorted({(ENCODINGS.get(case.workload, case.workload), case.dtype) for case in cases}))
    results: list[report.Result] = []
    for workload, group in groupby(cases, lambda case: case.workload):
        with progress(out, list(group), lambda case: case.name) as walk:
            for case in walk:
                left = (QUICK_SECONDS - (perf_counter() - begin)) / (len(cases) - len(results)) / 2
                results.append(_measured(case, min(max(left, QUICK_LEAST), QUICK_MOST) if quick else SECONDS_A_CASE))
        rows = [report.HEADINGS, *(result.cells() for result in results if result.case.workload == workload)]
        if out.width < report.WIDE:
            rows = [tuple(row[column] for column in report.NARROW) for row in rows]
        out.print(table(report.TITLES[workload], rows[0], rows[1:]))
    out.print("\n".join([*report.LEGEND, report.losses(results)]))
    if json_file:
        settings = {"backend": backend, "threads": threads, "quick": quick}
        json_file.write_text(json.dumps(_as_dict(results, settings), indent=1))
    if markdown_file:
        markdown_file.write_text(report.markdown(results, setting), encoding="utf-8")
    if plot_file:
        from .plot import draw

        draw(results, plot_file, setting)


def _cases(quick: bool, only: str) -> list[Case]:
    cases = select(quick, only)
    if not cases:
        kind = "quick case" if quick else "case"
        raise Refused(f"--only: no {kind} has {only!r} in its name; names are like {CASES[0].name}, {CASES[-1].name}")
    return cases


def _check_files(*files: Path | None) -> None:
    """Refuse, before minutes of measuring, files that cannot be written afterwards."""
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise Refused(f"{file}: the folder {file.absolute().parent} does not exist")
    if files[-1] is not None and find_spec("matplotlib") is None:
        raise Refused("--plot needs matplotlib, which is not installed: pip install 'fastpos[bench]'")


def _measured(case: Case, seconds: float) -> report.Result:
    contest = case.make()
    error = contest.error(FASTPOS)
    return report.Result(case, measure(contest.contenders, seconds), error)


def _as_dict(results: list[report.Result], settings: dict[str, Any]) -> dict[str, Any]:
    return {"machine": facts.as_dict(), "settings": settings, "results": [result.as_dict() for result in results]}
