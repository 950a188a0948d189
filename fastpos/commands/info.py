"""``fastpos info``: what a call on this machine gets, and why."""

import platform

from .. import threads
from ..dispatch import backends, choose, find, request
from . import facts
from .console import console, table


def run() -> None:
    """Print the machine, the backends, the threads and the cache of compiled kernels."""
    wanted, source = request(None)
    chosen = choose(None)
    count = threads.get_num_threads()
    numba = find("numba").usable
    out = console()
    lines = [
        ("processor", facts.processor()),
        ("cores", facts.cores()),
        ("largest cache", facts.largest_cache()),
        ("system", f"{platform.system()} {platform.machine()}"),
        *facts.versions().items(),
    ]
    if numba:
        name, features = facts.target()
        lines += [("compiled for", f"{name}: {features}"), ("compiled kernels", facts.kernel_folder())]
    least = threads.THREADED_BYTES >> 20
    lines += [
        ("backend", f"{chosen} for NumPy arrays ({source} says {wanted})"),
        ("threads", f"{count} for calls that move {least} MiB or more, 1 for others"),
        ("threads chosen by", threads.request()[1]),
    ]
    out.print(table("This machine", ("what", "value"), lines, left=2))
    rows = [(b.name, "usable" if b.usable else f"not usable: {b.reason}", ", ".join(b.versions)) for b in backends()]
    out.print(table("Backends", ("backend", "state", "versions"), rows, left=3))
