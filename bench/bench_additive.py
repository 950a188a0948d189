"""Additive encodings: sinusoids and learned rows, by every contender."""

import pytest

from fastpos.commands.workloads import CASES, CONTENDERS, LEARNED, SINUSOIDAL


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("case", [case for case in CASES if case.workload == SINUSOIDAL], ids=lambda case: case.name)
def test_sinusoidal(run, case, contender):
    """Add sinusoids to embeddings."""
    run(case, contender)


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("case", [case for case in CASES if case.workload == LEARNED], ids=lambda case: case.name)
def test_learned(run, case, contender):
    """Add rows of a learned table to embeddings."""
    run(case, contender)
