"""Results as Markdown and JSON, with what was predicted before the first run beside them."""

from typing import Any

from gpu_speed import COPY, OURS, OURS_NUMBER, Row

from fastpos.commands.report import seconds_in_words
from fastpos.commands.timing import Timing

# Written down before a GPU was at hand, for an H200: a kind of time, a case, who, and what was expected.
PROMPT, TOKEN = "rotary, 65536 tokens", "decode, 1 sequence"
PREDICTIONS = (
    ("device", PROMPT, OURS, "325 to 345 us (3.9 to 4.1 TB/s)"),
    ("device", PROMPT, "torch.compile", "340 to 380 us, and 10 us for the table"),
    ("device", PROMPT, "torch.compile, own table", "700 us or more"),
    ("device", PROMPT, "Liger", "340 to 420 us"),
    ("device", PROMPT, "torch eager", "about 10 times fastpos"),
    ("graphs", TOKEN, OURS, "1.5 to 2.5 us"),
    ("host", TOKEN, OURS_NUMBER, "4 to 5 us"),
)
WHERE = {"device": "device", "graphs": "in a graph", "host": "host"}
BARS = (("torch.compile", 1.0), ("torch.compile, own table", 2.0), ("Liger", 1.0))
LEAST_OF_COPY = 0.9
WARNING = "Dry run in Triton's interpreter on the CPU: every time here is meaningless."
LEGEND = (
    "- device: median of rounds in which all take turns, by events on the device; each input is read once and written "
    "once (the floor), and of copy compares the floor's bytes a second with those of the large copy",
    "- torch.compile is given its table, as are torch eager, transformers and Liger; own table: made in the call",
    "- fastpos, Liger and the copy write into memory that exists, the others into new tensors",
)


def _ratio(row: Row, name: str) -> float:
    return row.device[name].over(row.device[OURS])


def _bandwidth(row: Row, name: str) -> float:
    return row.bytes / row.device[name].median


def bars(prefill: list[Row], ceiling: float) -> list[tuple[str, str, str]]:
    """What was asked for, what came, and whether that holds; only a full run has the case."""
    found: list[tuple[str, str, str]] = []
    for row in (row for row in prefill if row.size.name == PROMPT and row.size.dtype == "bfloat16"):
        share = _bandwidth(row, OURS) / ceiling
        found.append((f">= {LEAST_OF_COPY:.0%} of a copy", f"{share:.1%}", _holds(share >= LEAST_OF_COPY)))
        for name, least in BARS:
            if name in row.failures:
                found.append((f">= {least:.1f}x {name}", f"not measured: {row.failures[name]}", "open"))
            else:
                ratio = _ratio(row, name)
                found.append((f">= {least:.1f}x {name}", f"{ratio:.2f}x", _holds(ratio >= least)))
    return found


def predictions(report: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """What was predicted, and what came."""
    rows = {row.size.name: row for row in (*report["prefill"], *report["decode"]) if row.size.dtype == "bfloat16"}
    found = []
    for kind, name, who, words in PREDICTIONS:
        measured = getattr(rows[name], kind).get(who) if name in rows else None
        said = seconds_in_words(measured) if isinstance(measured, float) else _measured(measured)
        found.append((f"{name}, bfloat16", WHERE[kind], who, words, said))
    return found


def _holds(passed: bool) -> str:
    return "holds" if passed else "MISSED"


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]], left: int) -> list[str]:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * left + "---:|" * (len(headings) - left)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def _measured(timing: Timing | str | None) -> str:
    return timing if isinstance(timing, str) else "-" if timing is None else seconds_in_words(timing.median)


def markdown(report: dict[str, Any]) -> str:
    """The whole report as text."""
    facts, ceiling = report["facts"], report["copy"]["bytes_per_second"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    lines = ["# fastpos on a GPU", "", f"{facts['device']}; {versions}", ""]
    lines += [WARNING, ""] if report["dry"] else []
    lines += ["## Correctness", ""]
    lines += _table(("check", "result"), list(report["checks"].items()), 2)
    speeds = " and ".join(f"{speed / 1e12:.3f}" for speed in report["copy"]["of_two_runs"])
    lines += ["## Copy", "", f"{report['copy']['bytes']} bytes, read and written: {speeds} TB/s", ""]
    lines += ["## Prefill", "", *LEGEND, ""]
    headings = ("what", "dtype", "who", "device", "TB/s of the floor", "of copy", "x fastpos")
    rows = [
        (
            *(row.size.name, row.size.dtype, name, seconds_in_words(timing.median)),
            f"{_bandwidth(row, name) / 1e12:.3f}",
            f"{_bandwidth(row, name) / ceiling:.1%}",
            f"{_ratio(row, name):.2f}",
        )
        for row in report["prefill"]
        for name, timing in row.device.items()
    ]
    lines += _table(headings, rows, 3)
    lines += [
        "## Decode",
        "",
        "- in a graph: device time a call; one by one: the same without; host: until the call returns",
        "",
    ]
    rows = [
        (row.size.name, name, *map(_measured, (row.graphs.get(name), row.device.get(name))), seconds_in_words(host))
        for row in report["decode"]
        for name, host in row.host.items()
    ]
    lines += _table(("what", "who", "in a graph", "one by one", "host"), rows, 2)
    lines += ["## Peers that took no part", "", *_failures(report), ""]
    lines += ["## Bars", "", *_table(("asked for", "measured", ""), bars(report["prefill"], ceiling), 3)]
    lines += ["## Predictions", "", "For an H200, written down before the first run.", ""]
    lines += _table(("what", "time", "who", "predicted", "measured"), predictions(report), 5)
    return "\n".join(lines)


def _failures(report: dict[str, Any]) -> list[str]:
    rows = [*report["prefill"], *report["decode"]]
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, reason in row.failures.items():
            found.setdefault((name, reason), []).append(f"{row.size.name} ({row.size.dtype})")
    said = [f"- {name}: {reason} ({', '.join(cases)})" for (name, reason), cases in found.items()]
    return said or ["None."]


def as_dict(report: dict[str, Any]) -> dict[str, Any]:
    """The same for a JSON file; times in seconds."""
    rows = {name: [_row_as_dict(row) for row in report[name]] for name in ("prefill", "decode")}
    asked = [dict(zip(("bar", "measured", "verdict"), bar, strict=True))
             for bar in bars(report["prefill"], report["copy"]["bytes_per_second"])]  # fmt: skip
    return {**report, **rows, "bars": asked, "predictions": predictions(report)}


def _row_as_dict(row: Row) -> dict[str, Any]:
    size = row.size
    return {
        "name": size.name,
        "dtype": size.dtype,
        "batch": size.batch,
        "tokens": size.tokens,
        "floor_bytes": row.bytes,
        "device": {name: _timing_as_dict(timing) for name, timing in row.device.items()},
        "graphs": {name: _timing_as_dict(timing) for name, timing in row.graphs.items()},
        "host": row.host,
        "of_copy_here": row.device[OURS].over(row.device[COPY]) if COPY in row.device else None,
        "failures": row.failures,
    }


def _timing_as_dict(timing: Timing | str) -> dict[str, Any] | str:
    if isinstance(timing, str):
        return timing
    found = {"median": timing.median, "p20": timing.percentile(20), "p80": timing.percentile(80)}
    return {**found, "rounds": len(timing.seconds), "calls_a_round": timing.calls}
