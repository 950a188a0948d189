"""Threads that help with one large call.

The kernel is one and the same: it takes pieces of work from a counter until none is left, so it does not matter who
comes, or when. Numba's own threading layers are not used: one kills a forked child, another aborts on two callers at
once, and a waiting OpenMP thread spins for 4-40 ms against a descheduled one. Here the caller works from the start,
offers tickets, and revokes those that nobody took by the time the work is gone.
"""

import os
import threading
from queue import SimpleQueue


class Forked(RuntimeError):
    """A child waits for helpers that only its parent has."""


class _Ticket:
    """One offer to help, taken by a helper or revoked by the caller, whichever is first."""

    def __init__(self, work):
        self.work = work
        self.claim = threading.Lock()
        self.done = threading.Event()

    def serve(self):
        try:
            if self.claim.acquire(blocking=False):
                self.work()
        finally:
            self.work = None
            self.done.set()

    def settle(self, helpers):
        """Revoke the offer or wait until it is served; may be called again after an interrupt, wherever that fell."""
        if self.claim.acquire(blocking=False):
            return
        while not self.done.wait(1.0):
            if helpers is not _helpers:
                raise RuntimeError(
                    "fastpos: this process was forked in the middle of a call, whose result is incomplete"
                )


class _Helpers:
    def __init__(self):
        self.tickets = SimpleQueue()
        self.count = 0
        self.growing = threading.Lock()

    def grow(self, count: int):
        with self.growing:
            while self.count < count:
                try:
                    threading.Thread(target=self._serve, name="fastpos-helper", daemon=True).start()
                except RuntimeError:
                    # The system gives no more threads. Those there are do the work, the caller at least.
                    return
                self.count += 1

    def _serve(self):
        while True:
            self.tickets.get().serve()


_helpers = _Helpers()


def _forget():
    # A forked child has the objects but not the threads.
    global _helpers
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def share(work, threads: int):
    """Run ``work`` here and in up to ``threads - 1`` helpers at once; it must stop by itself once nothing is left.

    Nobody works any more when this returns or raises: an interrupt (Python delivers it as soon as the kernel is back)
    must not leave a helper writing to arrays that the caller lets go of.
    """
    helpers, interrupt = _helpers, None
    if helpers.count < threads - 1:
        helpers.grow(threads - 1)
    tickets = [_Ticket(work) for _ in range(min(threads - 1, helpers.count))]
    try:
        for ticket in tickets:
            helpers.tickets.put(ticket)
        work()
    finally:
        while tickets:
            try:
                tickets[-1].settle(helpers)
                tickets.pop()
            except Forked:
                raise
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
