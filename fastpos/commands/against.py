"""``fastpos bench --against``: fastpos against what users have installed, a process a peer, all taking turns."""

import json
from contextlib import ExitStack
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np

from ..dispatch import choose as choose_backend
from ..threads import set_num_threads
from . import facts
from .against_report import HEADINGS, LEFT, LEGEND, Comparison, Row, losses, markdown
from .console import Refused, console, progress, table
from .peers.catalogue import COPY, OURS, Peer, choose
from .peers.job import Job
from .peers.process import PeerFailed, PeerProcess
from .timing import interleave
from .warmup import compile_each
from .workloads import LEARNED, Case, largest_error

# For each contender of a case.
SECONDS, QUICK_SECONDS = 1.0, 0.3
# Every peer holds inputs, results and temporary arrays of its own, and all peers are there at once.
MOST_BYTES = 128 << 20
# Half an ulp for the result and for each of cosine, sine and two products in x's type, with room; see ``_bound``.
EPSILONS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def run(
    cases: list[Case],
    encodings: dict[str, str],
    *,
    asked: str,
    position: int | None,
    quick: bool,
    threads: int,
    json_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Measure, print a table a case, and write the files."""
    peers, missing = choose(asked)
    out = console()
    set_num_threads(threads)
    backend = choose_backend(None)
    # Peers write where they do by nature, so cases that differ in that alone are one.
    cases = list(dict.fromkeys(replace(case, in_place=False) for case in cases))
    fit = [case for case in cases if case.nbytes <= MOST_BYTES]
    if not fit:
        raise Refused(
            f"--only: every case of this name has more than {MOST_BYTES >> 20} MiB, which every peer would hold"
        )
    setting = [
        f"{facts.title()}; backend {backend}, {threads} thread{'s' * (threads > 1)} (copy: 1)",
        f"Peers: {', '.join(_versions(peers)) or 'none'}",
        *(f"Not here: {name}: {reason}" for name, reason in missing.items()),
    ]
    if left_out := len(cases) - len(fit):
        setting.append(f"Left out: {left_out} cases of more than {MOST_BYTES >> 20} MiB, which every peer would hold")
    out.print("\n".join(setting))
    compile_each(out, sorted({(encodings.get(case.workload, case.workload), case.dtype) for case in fit}))
    comparisons = []
    with ExitStack() as stack, progress(out, fit, lambda case: case.name) as walk:
        processes = {peer: stack.enter_context(PeerProcess(peer.form, threads)) for peer in (COPY, *OURS, *peers)}
        for case in walk:
            start = case.start if position is None or case.workload == LEARNED else position
            comparison = compare(case, start, processes, QUICK_SECONDS if quick else SECONDS)
            comparisons.append(comparison)
            out.print(table(comparison.title, HEADINGS, comparison.cells(), left=LEFT))
            out.print("\n".join([*comparison.failures(), ""]))
    out.print("\n".join([*LEGEND, losses(comparisons)]))
    if json_file:
        settings = {"backend": backend, "threads": threads, "quick": quick, "against": asked, "missing": missing}
        results = [comparison.as_dict() for comparison in comparisons]
        json_file.write_text(
            json.dumps({"machine": facts.as_dict(), "settings": settings, "results": results}, indent=1)
        )
    if markdown_file:
        markdown_file.write_text(markdown(comparisons, setting), encoding="utf-8")


def compare(case: Case, start: int, processes: dict[Peer, PeerProcess], seconds: float) -> Comparison:
    """Check every contender of a case, then let those that passed take turns."""
    unfit = {peer.name: reason for peer in processes if (reason := peer.unfit(case))}
    fit = {peer: process for peer, process in processes.items() if peer.name not in unfit}
    job = Job(case, start, 1)
    errors = {peer: _error(job, peer, process) for peer, process in fit.items()}
    ready = [process for peer, process in fit.items() if isinstance(errors[peer], float)]
    interleave(ready, seconds * len(ready))
    rows = {}
    for peer, process in fit.items():
        error = errors[peer]
        failure = error if isinstance(error, str) else process.failure
        if failure is not None and peer in (COPY, *OURS):
            raise Refused(f"--against: {peer.name}, {peer.result.value}: {failure}")
        rows[peer] = Row(peer, failure) if failure is not None else Row(peer, None, float(error), process.timing())
    ours = {peer.result: rows[peer] for peer in OURS}
    return Comparison(case, start, rows[COPY], ours, [rows[peer] for peer in fit if peer not in (COPY, *OURS)], unfit)


def _error(job: Job, peer: Peer, process: PeerProcess) -> float | str:
    """The error of a contender's results, or why it takes no part."""
    try:
        results = process.build(job.case, job.start)
    except PeerFailed as failed:
        return str(failed)
    tokens = job.case.sampled()
    inputs = [x[-1, tokens] for x in job.inputs]
    shapes = [x.shape for x in inputs]
    if [y.shape for y in results] != shapes:
        return f"wrong: expected results of shapes {shapes}, got {[y.shape for y in results]}"
    if peer is COPY:
        return float("nan")
    error, bound = largest_error(job.encoding, job.start + tokens, zip(inputs, results, strict=True)), _bound(job)
    # Not "error > bound", which NaN would pass.
    return error if error <= bound else f"wrong: its error is {error:.1e}, and none up to {bound:.1e} is explained"


def _bound(job: Job) -> float:
    """What rounding explains: some ulps of x's type, and angles that are float32 products of position and frequency."""
    largest = float(np.max([np.abs(x.astype(np.float32)).max() for x in job.inputs])) + 1
    angle = 4 * (job.start + job.case.tokens) * 2.0**-24
    return 2 * largest * (8 * EPSILONS[job.case.dtype] + angle)


def _versions(peers: list[Peer]) -> list[str]:
    # A module's name need not be that of what was installed: onnxruntime comes as onnxruntime-gpu, too.
    known = metadata.packages_distributions()
    found = dict.fromkeys(name for peer in peers for module in peer.modules for name in known.get(module, [])[:1])
    return [f"{name} {metadata.version(name)}" for name in found]
