"""Rotary encodings: prefill and one decoded token, by every contender."""

import pytest

from fastpos.commands.workloads import CASES, CONTENDERS, DECODE, PREFILL


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("case", [case for case in CASES if case.workload == PREFILL], ids=lambda case: case.name)
def test_prefill(run, case, contender):
    """Rotate the queries and keys of whole prompts."""
    run(case, contender)


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("case", [case for case in CASES if case.workload == DECODE], ids=lambda case: case.name)
def test_decode(run, case, contender):
    """Rotate the query and key of one token behind a cache."""
    run(case, contender)
