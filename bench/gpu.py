"""fastpos on a GPU: ``python bench/gpu.py --out FOLDER`` checks results first, then times them, in at most six minutes.

``--dry-run`` does the same in Triton's interpreter on the CPU, with tiny sizes: it shows that the command works, and its
times mean nothing. Needs fastpos with its dependencies, PyTorch and Triton; transformers and Liger take part where they
are installed. The report is ``gpu.md`` and ``gpu.json``. Where a check fails, the exit status is 1, nothing is timed from
there on, and ``gpu.json`` alone says why.
"""

import argparse
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

MINUTES = 6.0
# What is left of the time when no further peer is begun with: compiling one takes up to half a minute.
LAST_SECONDS = 75.0


def main() -> int:
    """Read the options and run; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu.md and gpu.json; made if missing")
    parser.add_argument("--dry-run", action="store_true", help="in Triton's interpreter, on the CPU")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.dry_run:
        # Settled when Triton is imported, so it must stand here.
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    if not options.dry_run and not torch.cuda.is_available():
        print("PyTorch sees no GPU here; --dry-run shows that the command works", file=sys.stderr)
        return 2
    return run(torch.device("cpu" if options.dry_run else "cuda:0"), options.dry_run, options.out)


def run(device: Any, dry: bool, folder: Path) -> int:
    """Check, measure, and write the report; the exit status."""
    from gpu_checks import CHECKS
    from gpu_machine import Machine
    from gpu_report import as_dict, markdown
    from gpu_speed import copy_ceiling, decode_sizes, measure_decode, measure_prefill, prefill_sizes
    from gpu_truth import Wrong

    begin, machine = perf_counter(), Machine(device, dry)
    report: dict[str, Any] = {"dry": dry, "facts": machine.facts(), "checks": {}, "prefill": [], "decode": []}
    print(report["facts"], flush=True)

    def done(what: str) -> None:
        print(f"{perf_counter() - begin:5.0f} s  {what}", flush=True)

    def enough() -> bool:
        return perf_counter() - begin < 60 * MINUTES - LAST_SECONDS

    name = ""
    try:
        for name, check in CHECKS.items():
            report["checks"][name] = check(machine)
            done(f"{name}: {report['checks'][name]}")
        name, report["copy"] = "copy", copy_ceiling(machine)
        for kind, sizes, measure in (
            ("prefill", prefill_sizes(machine), measure_prefill),
            ("decode", decode_sizes(machine), measure_decode),
        ):
            for size in sizes:
                name = f"{size.name}, {size.dtype}"
                report[kind].append(measure(machine, size, enough))
                done(name)
    except Exception as error:  # a wrong result, or a fault of ours: either ends the run, and is kept
        if not isinstance(error, Wrong):
            traceback.print_exc()
        said = f"{'WRONG' if isinstance(error, Wrong) else type(error).__name__}: {error}"
        print(f"stopped at {name}, and nothing more is timed: {said}", file=sys.stderr)
        failed = {key: report[key] for key in ("dry", "facts", "checks")} | {"stopped_at": name, "error": said}
        (folder / "gpu.json").write_text(json.dumps(failed, indent=1))
        return 1
    report["seconds"] = perf_counter() - begin
    text = markdown(report)
    (folder / "gpu.md").write_text(text, encoding="utf-8")
    (folder / "gpu.json").write_text(json.dumps(as_dict(report), indent=1))
    print(text)
    return 0


if __name__ == "__main__":
    # PyTorch's compiler uses parts of its own that it has deprecated.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    sys.exit(main())
