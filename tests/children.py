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


def start(code: str, *arguments: str, warnings: str = "error", **changes) -> subprocess.Popen:
    """Start a fresh process with changed variables of the environment."""
    command = [sys.executable, "-W", warnings, "-c", code, *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment(**changes), text=True, **pipes)


def finish(process: subprocess.Popen) -> tuple[str, str]:
    """Wait for a process to come to its good end, two minutes at most; its output and its messages."""
    try:
        said, warned = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, f"exit status {process.returncode}\n{said}\n{warned}"
    return said.strip(), warned.strip()


def child(code: str, *arguments: str, **changes) -> tuple[str, str]:
    """Run a fresh process; its output and its messages."""
    return finish(start(code, *arguments, **changes))
