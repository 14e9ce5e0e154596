"""Evidence of summaries: Student-t predictives, sequential updating, brute-force integration, rounding."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, multigammaln

from fedcluster_app.gtvmin.niw import (
    Prior,
    log_bayes_factor,
    log_evidence,
    log_gamma,
    log_predictive,
    moments_of,
    prior_of,
    row_moments,
    summaries_of,
)
from fedcluster_app.gtvmin.pool_weights import dirichlet_evidence


def a_prior(d: int, seed: int = 0) -> Prior:
    root = np.random.default_rng(seed).normal(size=(d, d))
    return Prior(np.array(0.4), np.array(d + 1.7), root @ root.T + np.eye(d))


def student_logpdf(x: np.ndarray, seen: np.ndarray, prior: Prior) -> float:
    """One-point predictive by the textbook's posterior parameters, the density by SciPy."""
    n, d = seen.shape
    kappa, nu = prior.kappa + n, prior.nu + n
    mean = seen.sum(axis=0) / kappa
    psi = prior.psi + seen.T @ seen - kappa * np.outer(mean, mean)
    freedom = float(nu - d + 1)
    shape = psi * (kappa + 1) / (kappa * freedom)
    return float(stats.multivariate_t.logpdf(x, mean, shape, df=freedom))


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_the_evidence_is_the_product_of_student_predictives(d: int) -> None:
    X = np.random.default_rng(d).normal(size=(9, d)) * 2 + 1
    prior = a_prior(d)
    chain = sum(student_logpdf(X[i], X[:i], prior) for i in range(len(X)))
    assert log_evidence(row_moments(X).sum(axis=0), prior) == pytest.approx(chain, abs=1e-9)


def test_sequential_updating_gives_what_all_at_once_gives() -> None:
    X = np.random.default_rng(1).normal(size=(12, 3))
    prior, rows = a_prior(3), row_moments(X)
    parts = [rows[:2].sum(axis=0), rows[2:7].sum(axis=0), rows[7:].sum(axis=0)]
    steps = sum(log_predictive(part, sum(parts[:i], np.zeros((4, 4))), prior) for i, part in enumerate(parts))
    assert steps == pytest.approx(log_evidence(rows.sum(axis=0), prior), abs=1e-10)


def test_a_batch_has_a_prior_for_each_of_its_first_axes() -> None:
    rng = np.random.default_rng(2)
    known, added = (
        row_moments(rng.normal(size=(24, 2))).reshape(2, 3, 4, 3, 3).sum(axis=2) for _ in range(2)
    )
    psi = np.array([[[1.0, 0.4], [0.4, 2.0]], [[0.3, 0.0], [0.0, 5.0]]])
    priors = Prior(np.array([0.2, 1.0]), np.array([4.0, 9.0]), psi)
    found = log_predictive(added, known, priors)
    for b, c in np.ndindex(2, 3):
        prior = Prior(priors.kappa[b], priors.nu[b], psi[b])
        expected = log_evidence(known[b, c] + added[b, c], prior) - log_evidence(known[b, c], prior)
        assert found[b, c] == pytest.approx(float(expected), abs=1e-10)
    listed = log_predictive(added.reshape(6, 3, 3), known.reshape(6, 3, 3), priors, which=np.arange(6) // 3)
    np.testing.assert_allclose(listed, found.ravel(), rtol=1e-12)


def test_one_feature_agrees_with_integration_over_mean_and_variance() -> None:
    x = np.array([0.3, -0.8, 1.1])
    prior = Prior(np.array(0.5), np.array(3.0), np.array([[1.4]]))

    # In ln(variance) and in units of its root about the data the tails are light: plain sums do.
    variance = np.exp(np.linspace(-9.0, 14.0, 801))[:, None]
    mean = x.mean() + np.linspace(-10.0, 10.0, 401) * np.sqrt(variance)
    density = stats.invgamma.pdf(variance, 1.5, scale=0.7) * variance
    density = density * stats.norm.pdf(mean, 0.0, np.sqrt(variance / 0.5)) * np.sqrt(variance)
    density *= stats.norm.pdf(x[:, None, None], mean, np.sqrt(variance)).prod(axis=0)
    total = density.sum() * (23.0 / 800) * (20.0 / 400)
    found = log_evidence(row_moments(x[:, None]).sum(axis=0), prior)
    assert found == pytest.approx(np.log(total), abs=1e-6)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 10])
def test_the_duplication_formula(d: int) -> None:
    nu, count = np.array([d + 0.1, d + 3.0, 400.0]), np.array([0.3, 17.0, 1e4])
    expected = multigammaln((nu[0] + count[0]) / 2, d) - multigammaln(nu[0] / 2, d)
    assert (log_gamma(nu + count, d) - log_gamma(nu, d))[0] == pytest.approx(expected, abs=1e-10)
    for i in (1, 2):
        expected = multigammaln((nu[i] + count[i]) / 2, d) - multigammaln(nu[i] / 2, d)
        assert (log_gamma(nu + count, d) - log_gamma(nu, d))[i] == pytest.approx(expected, rel=1e-12)


def test_no_rows_say_nothing() -> None:
    assert log_evidence(np.zeros((3, 3)), a_prior(2)) == pytest.approx(0.0, abs=1e-12)


def test_a_batch_of_priors_and_summaries_is_each_by_itself() -> None:
    rng = np.random.default_rng(3)
    within = np.stack([a_prior(2, seed).psi for seed in range(3)])
    prior = prior_of(within, np.array([1.0, 10.0, 300.0]), 6.0)
    moments = row_moments(rng.normal(size=(20, 2))).reshape(4, 5, 3, 3).cumsum(axis=0)
    kept = moments.copy()
    batch = log_evidence(moments[None], prior)
    assert batch.shape == (3, 4, 5)
    for b in range(3):
        alone = Prior(prior.kappa[b], prior.nu[b], prior.psi[b])
        np.testing.assert_allclose(batch[b, 2, 1], log_evidence(moments[2, 1], alone), rtol=1e-12)
    np.testing.assert_array_equal(moments, kept)


def test_the_evidence_leaves_its_arguments_alone() -> None:
    # A batch of one is contiguous however its axes are moved: a view would be eaten by the elimination.
    prior = prior_of(np.eye(2)[None], np.array([3.0]), 2.0)
    moments = row_moments(np.ones((1, 2)))
    before = moments.copy(), prior.psi.copy()
    first = log_evidence(moments, prior)
    np.testing.assert_array_equal(first, log_evidence(moments, prior))
    np.testing.assert_array_equal(moments, before[0])
    np.testing.assert_array_equal(prior.psi, before[1])


def test_the_bayes_factor_tells_equal_from_shifted() -> None:
    rng = np.random.default_rng(4)
    prior = prior_of(np.eye(2), np.array(10.0), 20.0)
    X = rng.normal(size=(40, 2))
    first = row_moments(X).sum(axis=0)
    factors = [
        float(log_bayes_factor(first, row_moments(rng.normal(size=(40, 2)) + shift).sum(axis=0), prior))
        for shift in (0.0, 1.0, 2.0, 4.0)
    ]
    assert factors[0] > 2.0
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] < -50.0


def test_moments_and_summaries_are_inverse() -> None:
    X = np.random.default_rng(5).normal(size=(8, 3)) + 2
    counts, means, covariances = summaries_of(row_moments(X).sum(axis=0)[None])
    np.testing.assert_allclose(means[0], X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(covariances[0], np.cov(X.T, bias=True), atol=1e-12)
    np.testing.assert_allclose(
        moments_of(counts, means, covariances)[0], row_moments(X).sum(axis=0), atol=1e-10
    )


def test_subtracted_moments_far_away_stay_finite() -> None:
    prior = prior_of(np.eye(2), np.array(3.0), 2.0)
    far = moments_of(np.array([1e3]), np.full((1, 2), 1e8), np.eye(2)[None] * 1e-9)[0]
    assert np.isfinite(log_evidence(far - (1 - 1e-15) * far, prior))
    assert np.isfinite(log_evidence(far, prior))


def expected_log_density(moments: np.ndarray, totals: np.ndarray, prior: Prior) -> np.ndarray:
    """Of summaries (j, p, p) under the posteriors given totals (k, p, p): Bishop (2006), section 10.2.1."""
    d = moments.shape[-1] - 1
    columns = []
    for total in totals:
        kappa, nu = prior.kappa + total[0, 0], prior.nu + total[0, 0]
        m = total[0, 1:] / kappa
        psi = prior.psi + total[1:, 1:] - kappa * np.outer(m, m)
        log_det = digamma((nu - np.arange(d)) / 2).sum() + d * np.log(2) - np.linalg.slogdet(psi)[1]
        about = np.r_[np.eye(d + 1)[:1], np.c_[-m, np.eye(d)]]
        moved = (about @ moments @ about.T)[:, 1:, 1:]
        quadratic = nu * np.einsum("jpq,qp->j", moved, np.linalg.inv(psi)) + moments[:, 0, 0] * d / kappa
        columns.append(0.5 * (moments[:, 0, 0] * (log_det - d * np.log(2 * np.pi)) - quadratic))
    return np.stack(columns, axis=1)


def softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def entropy(p: np.ndarray) -> float:
    return -float((p[p > 0] * np.log(p[p > 0])).sum())


@pytest.mark.parametrize("seed", range(4))
def test_the_variational_row_update_never_lowers_the_bound(seed: int) -> None:
    """The bound that pooling is built on: evidence of totals, labels and attachments, and entropies."""
    rng, k, rate = np.random.default_rng(seed), 3, 0.4
    X = 3 * rng.normal(size=(k, 2))[np.arange(30) % k] + rng.normal(size=(30, 2))
    rows, prior, alpha = row_moments(X), prior_of(np.eye(2), np.array(5.0), 20.0), np.full(k, 2.0)
    received = np.stack(
        [row_moments(3 * rng.normal(size=2) + rng.normal(size=(12, 2))).sum(axis=0) for _ in "abcde"]
    )
    separate = log_evidence(received, prior)
    r, p = rng.dirichlet(np.ones(k), 30), rng.dirichlet(np.ones(k + 1), 5)
    bounds = []
    for _ in range(30):
        totals = np.einsum("ic,ipq->cpq", r, rows) + np.einsum("jc,jpq->cpq", p[:, :k], received)
        bound = log_evidence(totals, prior).sum() + dirichlet_evidence(r.sum(axis=0), alpha)
        bound += entropy(r) + entropy(p) + p[:, k] @ (separate + np.log(1 - rate))
        bounds.append(float(bound + p[:, :k].sum() * np.log(rate / k)))
        expected_weights = digamma(alpha + r.sum(axis=0)) - digamma(alpha.sum() + 30)
        r = softmax(expected_weights + expected_log_density(rows, totals, prior))
        scores = expected_log_density(received, totals, prior) + np.log(rate / k)
        p = softmax(np.c_[scores, separate + np.log(1 - rate)])
    assert np.diff(bounds).min() > -1e-9
    assert bounds[-1] > bounds[0] + 10
