"""How wide the mixtures can be that sites fit to rows whose number, mean and variance are known."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.mixtures import Mixture, em
from strategies.plausible import Totals

FAST = settings(deadline=None, derandomize=True, max_examples=100)
seeds = st.integers(0, 2**32 - 1)


def rows(seed: int) -> tuple[np.ndarray, Totals, np.random.Generator]:
    rng = np.random.default_rng(seed)
    n, q = int(rng.integers(1, 60)), int(rng.integers(1, 4))
    X = rng.standard_t(2.5, size=(n, q)) * 10 ** rng.uniform(-2, 2, q) + 10 * rng.normal(size=q)
    return X, Totals(float(n), X.mean(axis=0), X.var(axis=0)), rng


@given(seed=seeds)
@FAST
def test_mixtures_of_em_are_no_wider_than_their_rows(seed: int) -> None:
    X, whole, rng = rows(seed)
    k, q = int(rng.integers(1, 4)), X.shape[1]
    around = np.stack([np.eye(q) * (X.var(axis=0).sum() + 1e-6)] * k)
    start = Mixture(np.full(k, 1 / k), X[rng.integers(len(X), size=k)], around)
    found = em.fit(X, start, max_iter=3, reg_covar=1e-9).mixture
    assert whole.problem_of_mixture(found, 0.05) is None


def test_a_mixture_wider_than_rows_is_refused_by_its_mean_width_and_by_any_component() -> None:
    whole = Totals(100.0, np.zeros(2), np.ones(2))
    means = np.zeros((2, 2))

    def said(weight: float, width: float) -> str | None:
        covariances = np.stack([np.eye(2), width * np.eye(2)])
        return whole.problem_of_mixture(Mixture(np.array([1 - weight, weight]), means, covariances), 0.05)

    # In the mean (1 - w) + w * width <= 2.05; alone width <= 205.
    assert said(0.5, 3.05) is None
    assert said(0.5, 3.2) == "it is wider than the site's rows"
    assert said(1e-9, 204.0) is None
    assert said(1e-9, 206.0) == "it is wider than the site's rows"
    far = Mixture(np.array([1 - 1e-9, 1e-9]), np.array([[0.0, 0.0], [11.0, 0.0]]), np.stack([np.eye(2)] * 2))
    assert "lies where" in str(whole.problem_of_mixture(far, 0.05))


@given(seed=seeds)
@FAST
def test_a_step_to_some_rows_is_no_wider_than_these_about_the_mean_that_was_sent(seed: int) -> None:
    X, whole, rng = rows(seed)
    q, least = X.shape[1], 5
    sent = Mixture(np.ones(1), X[:1] + rng.normal(size=(1, q)), np.eye(q)[None] * rng.uniform(0, 5))
    weights = rng.random(len(X))
    if weights.sum() >= least:
        shift = X - sent.means[0]
        there = (weights * shift.T) @ shift / weights.sum()
        moved = sent.covariances + rng.random() * (there - sent.covariances)
        assert whole.problem_of_step(moved, sent, least, 0.05) is None
    most = max(np.trace(sent.covariances[0]), np.square(X - sent.means[0]).sum() / least)
    wide = np.eye(q)[None] * (1.01 * most / q + 0.05)
    assert "wider" in str(whole.problem_of_step(wide, sent, least, 0.05))
