"""What summaries can be of rows whose number, mean and variance are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.plausible import Totals


def totals(X):
    return Totals(float(len(X)), X.mean(axis=0), X.var(axis=0))


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 40),
    k=st.integers(1, 6),
    kind=st.sampled_from(["hard", "part", "fuzzy", "fuzzy squared"]),
    scale=st.sampled_from([1e-6, 1.0, 1e5]),
    offset=st.sampled_from([0.0, 1.0, 1e4]),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_true_groups_are_never_refused(seed, n, k, kind, scale, offset):
    rng = np.random.default_rng(seed)
    X = offset + scale * rng.standard_t(3, size=(n, 2))
    W = np.eye(k)[rng.integers(0, k, n)] if kind in ("hard", "part") else rng.dirichlet(np.ones(k), n)
    if kind == "fuzzy squared":
        W = W**2
    masses = W.sum(axis=0)
    held = masses > 0
    if kind == "part":
        held[rng.integers(0, k)] = False
    masses = masses[held]
    means = W.T[held] @ X / masses[:, None]
    if len(masses):
        assert totals(X).problem_of_part(masses, means) is None
        # That fewer rows are behind a mean than there are is no harm.
        assert totals(X).problem_of_part(masses * rng.random(len(masses)), means) is None


def test_groups_that_no_rows_can_make():
    X = np.random.default_rng(0).normal(size=(50, 2))
    whole = totals(X)
    assert whole.problem_of_part(np.array([51.0]), X[:1]) == "they hold 51 rows, the site has 50"
    far = "they lie where the site's rows cannot"
    assert whole.problem_of_part(np.array([10.0]), whole.mean[None] + 3.0) == far
    assert whole.problem_of_part(np.full(2, 25.0), whole.mean + np.array([[2.0, 0.0], [-2.0, 0.0]])) == far
    # All rows together are at their mean, and so is what is left out less what is in.
    assert whole.problem_of_part(np.array([50.0]), whole.mean[None] + 0.01) == far
    assert whole.problem_of_part(np.array([49.0]), whole.mean[None] + 0.2) == far
    assert whole.problem_of_part(np.array([49.0]), X[:49].mean(axis=0)[None]) is None


@pytest.mark.parametrize("value", [0.0, 7.0, -1e6])
def test_a_constant_feature_admits_one_value(value):
    X = np.column_stack([np.arange(6.0), np.full(6, value)])
    assert totals(X).problem_of_part(np.array([3.0]), np.array([[1.0, value]])) is None
    moved = np.array([[1.0, value + 1e-3 * (1 + abs(value))]])
    assert totals(X).problem_of_part(np.array([3.0]), moved) is not None
