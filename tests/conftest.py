"""What every test may use: the backends, seeded data, and the folder of helpers on the import path."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import fastpos

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    "fastpos", derandomize=True, deadline=None, max_examples=25, suppress_health_check=list(HealthCheck)
)
settings.load_profile("fastpos")


@pytest.fixture(params=["numpy", "numba"])
def backend(request):
    """Each backend that runs on every machine."""
    return request.param


@pytest.fixture
def rng():
    """Random numbers that are the same in every run."""
    return np.random.default_rng(20240917)


@pytest.fixture
def threads(monkeypatch):
    """Let even the smallest call run on so many threads; plans made before keep what they chose."""

    def choose(count):
        monkeypatch.setattr(fastpos.threads, "THREADED_BYTES", 1 if count > 1 else 1 << 60)
        fastpos.set_num_threads(count)

    yield choose
    fastpos.set_num_threads(None)


@pytest.fixture
def streamed(monkeypatch):
    """Let even the smallest call out of place write past the caches; plans made before keep what they chose."""
    monkeypatch.setattr(fastpos.machine, "last_level_cache", lambda: 0)
