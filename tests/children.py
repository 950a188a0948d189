"""Python in a process of its own, for what one process cannot show: its environment, its first call, its death."""

import os
import subprocess
import sys

# Whatever the parent was started with must not decide what a child does.
OURS = ("FASTPOS_", "NUMBA_")


def environment(**changes) -> dict[str, str]:
    """Give the parent's variables, less those of fastpos and Numba, and with its import path; None removes one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS) or name == "NUMBA_CACHE_DIR"}
    kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    # Or the folder of the parent would come before the import path.
    kept["PYTHONSAFEPATH"] = "1"
    kept.update({name: value for name, value in changes.items() if value is not None})
    return {name: value for name, value in kept.items() if name not in changes or changes[name] is not None}


def child(code: str, *arguments: str, warnings: str = "error", **changes) -> tuple[str, str]:
    """Run a fresh process to its good end, two minutes at most; its output and its messages."""
    done = subprocess.run(
        [sys.executable, "-W", warnings, "-c", code, *arguments],
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip(), done.stderr.strip()
