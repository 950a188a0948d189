"""Threads that help with one large call.

The kernel is one and the same: it takes pieces of work from a counter until none is left, so it does not matter who
comes, or when. Numba's own threading layers are not used: one kills a forked child, another aborts on two callers at
once, and a waiting OpenMP thread spins for 4-40 ms against a descheduled one. Here the caller works from the start,
offers tickets, and revokes those that nobody took by the time the work is gone.
"""

import os
import threading
from queue import SimpleQueue


class _Ticket:
    """One offer to help, taken by a helper or revoked by the caller, whichever is first.

    ``work`` keeps the arrays alive that it writes to: a caller that is interrupted while it waits lets go of them.
    """

    def __init__(self, work):
        self.work = work
        self.claim = threading.Lock()
        self.done = threading.Lock()
        self.done.acquire()

    def serve(self):
        if self.claim.acquire(blocking=False):
            try:
                self.work()
            finally:
                self.work = None
                self.done.release()

    def settle(self):
        if self.claim.acquire(blocking=False):
            self.work = None
        else:
            self.done.acquire()


class _Helpers:
    def __init__(self):
        self.tickets = SimpleQueue()
        self.count = 0
        self.growing = threading.Lock()

    def grow(self, count: int):
        with self.growing:
            while self.count < count:
                threading.Thread(target=self._serve, name="fastpos-helper", daemon=True).start()
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
    """Run ``work`` here and in up to ``threads - 1`` helpers at once; it must stop by itself once nothing is left."""
    helpers = _helpers
    if helpers.count < threads - 1:
        helpers.grow(threads - 1)
    tickets = [_Ticket(work) for _ in range(threads - 1)]
    for ticket in tickets:
        helpers.tickets.put(ticket)
    work()
    for ticket in tickets:
        ticket.settle()
