"""What summaries can be of rows whose number, mean and variance are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import Statistics
from strategies.gaussians import problem_of_likelihoods
from strategies.plausible import Totals, problem_of_extremes

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


@given(
    seed=seeds,
    n=st.integers(1, 40),
    q=st.integers(1, 3),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 1e4]),
    offset=st.sampled_from([0.0, 1e4]),
    full=st.booleans(),
)
@FAST
def test_extremes_of_rows_are_those_of_their_moments(seed, n, q, scale, offset, full):
    rng = np.random.default_rng(seed)
    X = offset + scale * rng.standard_t(2, size=(n, q))
    if seed % 3 == 0:  # two values alone: the bound on the variance is met
        X = offset + scale * rng.integers(0, 2, (n, q)).astype(float)
    S = (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))
    moments = Statistics(np.array([float(n)]), X.mean(axis=0)[None], (S if full else np.diagonal(S))[None])
    assert problem_of_extremes(moments, X.min(axis=0), X.max(axis=0)) is None


def mixture_of(rng, k, q):
    roots = rng.normal(size=(k, q, q)) * 10.0 ** rng.uniform(-1, 1)
    covariances = roots @ roots.transpose(0, 2, 1) + 1e-3 * np.eye(q)
    return Mixture(rng.dirichlet(np.ones(k)), 3 * rng.normal(size=(k, q)), covariances)


def likelihood(X, mixture, weights):
    """By SciPy."""
    parts = [
        np.log(w) + np.atleast_1d(multivariate_normal(m, S).logpdf(X))
        for w, m, S in zip(weights, mixture.means, mixture.covariances, strict=True)
        if w > 0
    ]
    return np.logaddexp.reduce(parts, axis=0).sum()


@given(seed=seeds, n=st.integers(1, 30), k=st.integers(1, 4), q=st.integers(1, 3), own=st.booleans())
@FAST
def test_true_likelihoods_are_never_refused(seed, n, k, q, own):
    rng = np.random.default_rng(seed)
    X, mixture = rng.normal(size=(n, q)) * 10.0 ** rng.uniform(-3, 3), mixture_of(rng, k, q)
    # Weights of the site's own may be anything, such as all on one component.
    weights = np.eye(k)[rng.integers(k)] if own else mixture.weights
    told = np.array([likelihood(X, mixture, weights)])
    assert problem_of_likelihoods(totals(X), told, [mixture], own_weights=own) is None


@pytest.mark.parametrize("own", [True, False])
def test_the_least_likelihood_is_that_of_one_component_in_one_column(own):
    """Where moments say all there is to say, and of rows at one place likewise."""
    rng = np.random.default_rng(0)
    for X, mixture in (
        (rng.normal(size=(20, 1)), mixture_of(rng, 1, 1)),
        (np.ones((9, 3)), mixture_of(rng, 1, 3)),
    ):
        told = np.array([likelihood(X, mixture, mixture.weights)])
        assert problem_of_likelihoods(totals(X), told, [mixture], own_weights=own) is None
        low = told - 1e-3 * (1.0 + abs(told))
        assert problem_of_likelihoods(totals(X), low, [mixture], own_weights=own) == (
            "its rows cannot be so unlikely"
        )


def test_with_known_weights_the_best_component_bounds_the_likelihood():
    X = np.zeros((10, 1))
    mixture = Mixture(np.array([0.5, 0.5]), np.array([[0.0], [1e3]]), np.ones((2, 1, 1)))
    told = np.array([-500.0])  # near the first they are about -16, by the second alone -5e6
    assert problem_of_likelihoods(totals(X), told, [mixture]) == "its rows cannot be so unlikely"
    assert problem_of_likelihoods(totals(X), told, [mixture], own_weights=True) is None
