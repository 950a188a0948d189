"""The parent's side of a peer's process: starting it, asking it, and ending it whatever it does."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from threading import Event, Timer
from time import perf_counter
from typing import Any, Self

import numpy as np

from ..timing import Timing
from ..workloads import Array, Case

# glibc gives blocks of some MiB back to the system when they are freed, and every new array then costs page faults: 5 times
# the arithmetic of a rotation as models write it (512 tokens, 40 heads x 128, float32: 20 ms against 4).
KEEP_BLOCKS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_ARENA_MAX": "1"}
WORKER = f"{__package__}.worker"
# Compiling a case takes PyTorch some 20 s on two slow processors.
BUILD_SECONDS, BURST_SECONDS = 180.0, 60.0


class PeerFailed(Exception):
    """A peer could not do what it was asked; the text says why."""


def environment(threads: int) -> dict[str, str]:
    """Variables as here, the same import path, and for every library as many threads as fastpos has."""
    count = str(threads)
    limits = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
    return {
        **os.environ,
        **dict.fromkeys(limits, count),
        "JAX_PLATFORMS": "cpu",
        **KEEP_BLOCKS,
        # Or PyTorch compiles in helpers of its own, which would still be there when bursts begin.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONSAFEPATH": "1",
    }


class PeerProcess:
    """A peer in a process of its own that takes turns like a ``Runner``; it ends with the ``with`` block.

    A failure ends the process, is kept as ``failure``, and leaves ``burst`` nothing to do; ``build`` starts anew.
    """

    def __init__(self, form: str, threads: int) -> None:
        self.form, self.threads = form, threads
        self.failure: str | None = None
        self.calls, self.seconds, self.used = 0, list[float](), 0.0
        self._process: subprocess.Popen[str] | None = None
        self._messages: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def build(self, case: Case, start: int) -> list[Array]:
        """Make a case ready; the results of its sampled tokens.

        Raises
        ------
        PeerFailed
            When the peer raises, dies or does not answer in time.
        """
        self.failure, self.calls, self.seconds, self.used = None, 0, [], 0.0
        if self._process is None:
            self._start()
        request = {"form": self.form, "case": asdict(case), "start": start}
        request |= {"threads": self.threads, "rows": case.sampled().tolist()}
        answer = self._ask(request, BUILD_SECONDS)
        return [np.array(rows, np.float64) for rows in answer["results"]]

    def burst(self) -> None:
        """Time some calls there."""
        begin = perf_counter()
        if self.failure is None:
            try:
                answer = self._ask({"burst": True}, BURST_SECONDS)
                self.calls = answer["calls"]
                self.seconds.append(answer["seconds"])
            except PeerFailed:
                # It is in ``failure``; the others go on.
                self.used = float("inf")
        self.used += perf_counter() - begin

    def timing(self) -> Timing:
        """What the bursts took."""
        return Timing(self.calls, tuple(self.seconds))

    def fail(self, reason: str) -> PeerFailed:
        """End the process, and keep the reason."""
        self.failure = reason
        self.end()
        return PeerFailed(reason)

    def end(self) -> None:
        """Kill the process and what it started; nothing where none runs."""
        if self._process is None:
            return
        self._kill()
        self._process.communicate()
        self._messages.close()
        self._process = None

    def _start(self) -> None:
        self._messages = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-m", WORKER],
            env=environment(self.threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
            # A group of its own: a compiler that it started ends with it.
            start_new_session=True,
        )

    def _kill(self) -> None:
        assert self._process is not None
        if sys.platform == "win32":
            self._process.kill()
        elif self._process.returncode is None:
            # Once it has been waited for, its number may be that of another.
            os.killpg(self._process.pid, signal.SIGKILL)

    def _ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = Event()

        def end_it() -> None:
            late.set()
            self._kill()

        watch = Timer(limit, end_it)
        watch.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        try:
            status = None if line else self._process.wait()
        finally:
            watch.cancel()
            watch.join()
        if late.is_set():
            raise self.fail(f"no answer within {limit:g} s")
        if status is not None:
            raise self.fail(f"its process ended with exit status {status}{self._last_message()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise self.fail(answer["failed"])
        return answer

    def _last_message(self) -> str:
        self._messages.seek(0)
        said = [line.strip() for line in self._messages if line.strip()]
        return f": {said[-1][:300]}" if said else ""
