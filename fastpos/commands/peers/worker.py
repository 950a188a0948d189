"""The process of one peer: requests come on standard input, answers go to standard output, a line of JSON each.

``{"form": "module:function", "case": {...}, "start": n, "threads": n, "rows": [...]}`` builds, gives the results of
some rows, and warms up; ``{"burst": true}`` times one burst. An exception is an answer, too: ``{"failed": "..."}``. End of input is the end.
"""

import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from ..timing import Runner
from ..workloads import Case
from .job import Form, Job

REASON_LENGTH = 300


def serve(requests: Any) -> Iterator[dict[str, Any]]:
    """Answer each request."""
    form: Form | None = None
    runner: Runner | None = None
    for line in requests:
        request = json.loads(line)
        try:
            if "burst" in request:
                assert runner is not None, "expected a form before a burst"
                runner.burst()
                yield {"seconds": runner.seconds[-1], "calls": runner.calls}
            else:
                # The arrays of the case before go first: two large cases at once may be more than the memory.
                form = runner = None
                form = _form(request)
                answer = {"results": _sampled(form, request["rows"])}
                runner = Runner(form.call)
                yield answer
        except Exception as error:
            form = runner = None
            yield {"failed": reason(error)}


def reason(error: BaseException) -> str:
    """The kind of an exception and the first line of its text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0] if lines else 'no text'}"
    return text if len(text) <= REASON_LENGTH else text[: REASON_LENGTH - 3] + "..."


def _form(request: dict[str, Any]) -> Form:
    module, function = request["form"].split(":")
    case = {**request["case"], "heads": tuple(request["case"]["heads"])}
    job = Job(Case(**case), request["start"], request["threads"])
    made: Form = getattr(import_module(module, __package__), function)(job)
    return made


def _sampled(form: Form, rows: list[int]) -> list[Any]:
    """Some tokens of the last row of the batch, of every result."""
    return [y[-1, rows].astype(np.float64).tolist() for y in form.results()]


def main() -> None:
    """Serve until the end of input."""
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for answer in serve(sys.stdin):
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
