"""Why this package exists: without positions self-attention cannot tell one order of its tokens from another."""

import numpy as np
import pytest

import fastpos
from fastpos import Learned, Rotary, Sinusoidal

TOKENS, WIDTH = 7, 16
RNG = np.random.default_rng(3)
WEIGHTS = RNG.standard_normal((3, WIDTH, WIDTH)) / WIDTH**0.5
X = RNG.standard_normal((TOKENS, WIDTH))
ORDER = RNG.permutation(TOKENS)
ADDITIVE = [Sinusoidal(WIDTH), Learned(RNG.standard_normal((TOKENS, WIDTH)))]


def attention(x, rope=None, **where):
    """One head of self-attention over (tokens, width), not causal."""
    q, k, v = x @ WEIGHTS
    if rope is not None:
        q, k = fastpos.apply(rope, q, k, layout="td", **where)
    scores = q @ k.T / WIDTH**0.5
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v


def test_without_positions_permuted_tokens_give_permuted_results():
    assert (ORDER != np.arange(TOKENS)).any()
    np.testing.assert_allclose(attention(X[ORDER]), attention(X)[ORDER], atol=1e-12)


def test_rotated_queries_and_keys_know_the_order(backend):
    with fastpos.use_backend(backend):
        there = attention(X, Rotary(WIDTH), start=0)
        assert np.abs(attention(X[ORDER], Rotary(WIDTH), start=0) - there[ORDER]).max() > 0.01
        # Tokens that take their positions along keep their results, and so do all tokens moved by the same distance.
        np.testing.assert_allclose(attention(X[ORDER], Rotary(WIDTH), positions=ORDER), there[ORDER], atol=1e-12)
        np.testing.assert_allclose(attention(X, Rotary(WIDTH), start=10**9), there, atol=1e-12)


@pytest.mark.parametrize("encoding", ADDITIVE, ids=repr)
def test_added_positions_know_the_order(backend, encoding):
    with fastpos.use_backend(backend):
        there = attention(fastpos.apply(encoding, X, start=0))
        moved = attention(fastpos.apply(encoding, X[ORDER], start=0))
        assert np.abs(moved - there[ORDER]).max() > 0.01
        along = attention(fastpos.apply(encoding, X[ORDER], positions=ORDER))
        np.testing.assert_allclose(along, there[ORDER], atol=1e-12)
