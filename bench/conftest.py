"""Options and fixtures of the benchmarks. A new case belongs into ``fastpos/commands/workloads.py``, and nowhere else.

``pytest bench`` runs every case once with at most 1 MiB of inputs and checks the results; ``pytest bench
--benchmark-enable`` times them at their true sizes, up to 64 MiB of inputs, and with ``--full`` all of them.
"""

from collections.abc import Callable
from functools import lru_cache

import pytest

from fastpos.commands.workloads import COPY, Case, Contest

LARGE_BYTES = 64 << 20
# Half an ulp of the result, which is at most the sum of the operands, and as much again for float32 arithmetic.
EPSILONS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="benchmarks: every case at its true size")


# One case at a time: its contenders follow one another.
_contest = lru_cache(maxsize=1)(Contest)


@pytest.fixture
def run(benchmark, pytestconfig) -> Callable[[Case, str], None]:
    """Benchmark one contender of a case, then check what it gives."""

    def run_one(case: Case, contender: str) -> None:
        full = pytestconfig.getoption("full", False)
        if case.dtype == "bfloat16":
            pytest.importorskip("ml_dtypes")
        if benchmark.disabled and not full:
            case = case.small()
        if case.nbytes > LARGE_BYTES and not full:
            pytest.skip(f"{case.nbytes >> 20} MiB of inputs: give --full")
        contest = _contest(case)
        benchmark.group = case.name
        benchmark.extra_info["input_bytes"] = case.nbytes
        contest.contenders[COPY]()
        benchmark(contest.contenders[contender])
        if contender != COPY:
            largest = max(float(abs(x.astype("float32")).max()) for x in contest.inputs)
            assert contest.error(contender) <= EPSILONS[case.dtype] * (2 * largest + 1)

    return run_one
