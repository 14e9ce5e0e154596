"""Whether summaries can be of a site's rows: parts of them always can, and the bound is exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.plausible import Totals, pooled

FAST = settings(deadline=None, derandomize=True, max_examples=150)
seeds = st.integers(0, 2**32 - 1)


def totals(X: np.ndarray) -> Totals:
    return Totals(float(len(X)), X.mean(axis=0), X.var(axis=0))


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
        assert totals(X).problem_of_part(totals(part)) is None
    assert totals(X).problem_of_part(totals(X)) is None


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
    told = pooled(masses * shown, means * shown[:, None], variances * shown[:, None])
    assert totals(X).problem_of_part(told) is None


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
    assert whole.problem_of_part(Totals(float(part), mean + 0.99 * farthest, spot)) is None
    assert whole.problem_of_part(Totals(float(part), mean + farthest, spot)) is None
    text = whole.problem_of_part(Totals(float(part), mean + 1.01 * farthest, spot))
    assert text == "they lie farther from the mean of the site's rows than its variance allows"
    # Their own spread counts as well.
    assert whole.problem_of_part(Totals(float(part), mean, 0.99 * variance * n / part)) is None
    assert whole.problem_of_part(Totals(float(part), mean, 1.01 * variance * n / part)) is not None


@pytest.mark.parametrize("rows_told", [40.001, 41.0, 1e9])
def test_more_rows_than_there_are(rows_told: float) -> None:
    whole = Totals(40.0, np.zeros(2), np.ones(2))
    text = whole.problem_of_part(Totals(rows_told, np.zeros(2), np.ones(2)))
    assert text == f"they hold {rows_told:g} rows, the site said 40"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (Totals(40.0, np.array([0.0, 0.1]), np.ones(2)), "their mean is not that"),
        (Totals(40.0, np.zeros(2), np.array([1.0, 1.1])), "their variance is not that"),
        (Totals(40.0, np.zeros(2), np.array([1.0, -1.0])), "their variance is not that"),
    ],
)
def test_all_rows_must_agree_throughout(told: Totals, reason: str) -> None:
    text = Totals(40.0, np.zeros(2), np.ones(2)).problem_of_part(told)
    assert text is not None
    assert text.startswith(reason)
