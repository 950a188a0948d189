"""How many threads a large call may use; small calls always run on one."""

import os
from functools import cache
from pathlib import Path

import numpy as np

# Reading and writing this much takes some 60 us; a helper is awake after 26 us and waited for 22 us at the end.
THREADED_BYTES = 4 << 20

_chosen: int | None = None


def _checked(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, got {value}")
    return int(value)


def _of_environment(name: str) -> int | None:
    text = os.environ.get(name)
    if not text:
        return None
    try:
        return _checked(name, int(text))
    except ValueError:
        raise ValueError(f"{name}: expected a whole number of at least 1, got {text!r}") from None


def _of_machine() -> int:
    """Processors this process may use: affinity, then the share that a control group (version 2) grants."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return available if quota == "max" else max(1, min(available, int(quota) // int(period)))
    except (OSError, ValueError):
        return available


@cache
def _default() -> tuple[int, str]:
    if asked := _of_environment("FASTPOS_NUM_THREADS"):
        return asked, "FASTPOS_NUM_THREADS"
    machine, limit = _of_machine(), _of_environment("NUMBA_NUM_THREADS")
    if limit is not None and limit < machine:
        return limit, "NUMBA_NUM_THREADS"
    return machine, "the processors that this process may use"


def request() -> tuple[int, str]:
    """The number of threads that a large call may use, and who asks for it."""
    return (_chosen, "set_num_threads") if _chosen is not None else _default()


def get_num_threads() -> int:
    """Threads that a large call may use.

    ``set_num_threads`` goes before the environment variable FASTPOS_NUM_THREADS (read once), which goes before the number
    of processors that this process may use, or NUMBA_NUM_THREADS if that is less.

    Examples
    --------
    >>> get_num_threads() >= 1
    True
    """
    return request()[0]


def set_num_threads(n: int | None) -> None:
    """Let large calls of this process use ``n`` threads (at least 1), or again the default when None.

    Results do not depend on it, bit for bit.

    Raises
    ------
    ValueError, TypeError
        When ``n`` is below 1 or no integer.

    Examples
    --------
    >>> set_num_threads(2)
    >>> get_num_threads()
    2
    >>> set_num_threads(None)
    """
    global _chosen
    _chosen = None if n is None else _checked("n", n)
