"""What summaries can be of rows whose number, mean and variance are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.plausible import Totals

FAST = settings(deadline=None, derandomize=True, max_examples=150)
seeds = st.integers(0, 2**32 - 1)


def totals(X):
    return Totals(float(len(X)), X.mean(axis=0), X.var(axis=0))


def part_of(X: np.ndarray, told: Totals) -> str | None:
    return totals(X).problem_of_part(np.array([told.rows]), told.mean[None], told.variance[None])


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


def rows(seed: int) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    n, q = int(rng.integers(1, 60)), int(rng.integers(1, 4))
    X = rng.standard_t(2.5, size=(n, q)) * 10 ** rng.uniform(-2, 2, q) + 10 * rng.normal(size=q)
    if rng.random() < 0.3:
        X[:, 0] = X[0, 0]
    return X, rng


@given(seed=seeds)
@FAST
def test_some_of_the_rows_always_pass(seed: int) -> None:
    X, rng = rows(seed)
    part = X[rng.random(len(X)) < rng.random()]
    if len(part):
        assert part_of(X, totals(part)) is None
    assert part_of(X, totals(X)) is None


@given(seed=seeds)
@FAST
def test_components_by_responsibilities_always_pass(seed: int) -> None:
    X, rng = rows(seed)
    k = int(rng.integers(1, 6))
    R = rng.dirichlet(np.full(k, 0.3), size=len(X))
    shown = rng.random(k) < 0.7
    shown[int(rng.integers(k))] = True
    masses = R.sum(axis=0)
    means = (R.T @ X) / masses[:, None]
    variances = np.array([R[:, c] @ np.square(X - means[c]) / masses[c] for c in range(k)])
    # The withheld ones are there with 0 everywhere.
    told = (masses * shown, means * shown[:, None], variances * shown[:, None])
    assert totals(X).problem_of_part(*told) is None


@given(seed=seeds)
@FAST
def test_the_farthest_that_some_rows_can_lie_is_the_border(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 200))
    part = int(rng.integers(1, n - 1))
    mean, variance = rng.normal(size=1), np.array([rng.uniform(0.1, 9)])
    whole = Totals(float(n), mean, variance)
    # All of the part at one point, all others at another: variance = part / (n - part) times its distance².
    farthest = np.sqrt(variance * (n - part) / part) * rng.choice([-1, 1])
    spot = np.zeros(1)
    assert (
        whole.problem_of_part(np.array([float(part)]), (mean + 0.99 * farthest)[None], (spot)[None]) is None
    )
    assert whole.problem_of_part(np.array([float(part)]), (mean + farthest)[None], (spot)[None]) is None
    text = whole.problem_of_part(np.array([float(part)]), (mean + 1.01 * farthest)[None], (spot)[None])
    assert text == "they lie where the site's rows cannot"
    # Their own spread counts as well.
    assert (
        whole.problem_of_part(np.array([float(part)]), (mean)[None], (0.99 * variance * n / part)[None])
        is None
    )
    assert (
        whole.problem_of_part(np.array([float(part)]), (mean)[None], (1.01 * variance * n / part)[None])
        is not None
    )
