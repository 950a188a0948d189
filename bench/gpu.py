"""fastpos on a GPU: ``python bench/gpu.py --out FOLDER`` checks results first, then times them, in at most six minutes.

``--dry-run`` does the same in Triton's interpreter on the CPU, with tiny sizes: it shows that the command works, and its
times mean nothing. Needs fastpos with its dependencies, PyTorch and Triton; transformers and Liger take part where they
are installed. A report is written in either case, ``gpu.md`` and ``gpu.json``; the exit status is 1 where a check fails,
and then nothing is timed.
"""

import argparse
import json
import os
import sys
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
    report: dict[str, Any] = {"dry": dry, "facts": machine.facts(), "checks": {}}
    print(report["facts"], flush=True)
    for name, check in CHECKS.items():
        try:
            said = check(machine)
        except Wrong as wrong:
            print(f"WRONG, so nothing is timed: {name}: {wrong}", file=sys.stderr)
            report["checks"][name] = f"WRONG: {wrong}"
            (folder / "gpu.json").write_text(json.dumps(report, indent=1))
            return 1
        report["checks"][name] = said
        print(f"{perf_counter() - begin:5.0f} s  {name}: {said}", flush=True)

    def enough() -> bool:
        return perf_counter() - begin < 60 * MINUTES - LAST_SECONDS

    report["copy"] = copy_ceiling(machine)
    report["prefill"], report["decode"] = [], []
    for kind, sizes, measure in (
        ("prefill", prefill_sizes(machine), measure_prefill),
        ("decode", decode_sizes(machine), measure_decode),
    ):
        for size in sizes:
            report[kind].append(measure(machine, size, enough))
            print(f"{perf_counter() - begin:5.0f} s  {size.name}, {size.dtype}", flush=True)
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
