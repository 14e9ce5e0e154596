"""The rivals of ASM against SciPy, scikit-learn and plain versions of their loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import anderson, norm
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.mixture import BayesianGaussianMixture

from fedcluster_app.cardinality import count_dirichlet, count_gmeans, count_kmeans, count_xmeans
from fedcluster_app.cardinality.gmeans import CRITICAL_VALUES, anderson_darling
from fedcluster_app.cardinality.selection import hold_out
from fedcluster_app.cardinality.xmeans import bic
from fedcluster_app.mixtures.kmeans import kmeans


def clumps(seed, groups=6, n=40, d=2):
    """Groups of many widths that partly overlap."""
    rng = np.random.default_rng(seed)
    parts = [
        rng.normal(rng.uniform(-9, 9, size=d), rng.uniform(0.3, 2), size=(n + 7 * j, d))
        for j in range(groups)
    ]
    return np.concatenate(parts)


def sorted_rows(means):
    return means[np.lexsort(means.T)]


# --- Anderson and Darling


# SciPy 1.17 asks for a method of finding p-values; the statistic needs none, and older ones know none.
@pytest.mark.filterwarnings("ignore:As of SciPy 1.17:FutureWarning")
@pytest.mark.parametrize("n", [8, 9, 50, 1000])
@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform", "integers"])
def test_anderson_darling_is_scipys_times_the_small_sample_factor(n, draw):
    rng = np.random.default_rng(n)
    x = rng.integers(0, 4, size=n).astype(float) if draw == "integers" else getattr(rng, draw)(size=n)
    theirs = anderson(x, "norm").statistic
    assert anderson_darling(x) == pytest.approx(theirs * (1 + 4 / n - 25 / n**2), rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_weighted_values_have_the_statistic_of_repeated_ones(seed):
    rng = np.random.default_rng(seed)
    x, weights = rng.exponential(size=30), rng.integers(1, 5, size=30)
    repeated = anderson_darling(np.repeat(x, weights))
    assert anderson_darling(x, weights.astype(float)) == pytest.approx(repeated, rel=1e-10)


def limit_of_anderson_darling(points=600):
    """Weights of the chi-squares that A^2 with estimated mean and variance tends to."""
    x = np.linspace(-8.5, 8.5, points)
    density, below, above = norm.pdf(x), norm.cdf(x), norm.sf(x)
    bridge = np.where(np.less_equal.outer(x, x), np.outer(below, above), np.outer(above, below))
    covariance = bridge - np.outer(density, density) * (1 + np.outer(x, x) / 2)
    root = np.sqrt(density * (x[1] - x[0]) / (below * above))
    weights = np.linalg.eigvalsh(root[:, None] * covariance * root)
    return weights[weights > 1e-9]


def test_critical_values_are_quantiles_of_the_limit_distribution():
    weights = limit_of_anderson_darling()

    def upper_tail(value):
        """Imhof's inversion of the characteristic function of a weighted sum of chi-squares."""

        def integrand(u):
            angle = np.arctan(weights * u).sum() / 2 - value * u / 2
            return np.sin(angle) / (u * np.exp(np.log1p((weights * u) ** 2).sum() / 4))

        edges = [1e-12, 1, 5, 10, 20, 40, 80, 160, 320]
        parts = [quad(integrand, a, b, limit=400)[0] for a, b in pairwise(edges)]
        return 0.5 + sum(parts) / np.pi

    for level, value in CRITICAL_VALUES.items():
        assert upper_tail(value) == pytest.approx(level, rel=0.01)


def test_gaussian_values_are_rejected_as_often_as_the_level_says():
    rng = np.random.default_rng(0)
    statistics = np.array([anderson_darling(rng.normal(size=400)) for _ in range(4000)])
    assert 0.006 < (statistics > CRITICAL_VALUES[1e-2]).mean() < 0.015
    assert (statistics > CRITICAL_VALUES[1e-3]).mean() < 0.003


# --- X-means and G-means


@pytest.mark.parametrize(("k", "d"), [(1, 1), (1, 3), (2, 2), (5, 4)])
def test_bic_is_the_log_likelihood_of_the_rows_less_the_penalty(k, d):
    X = clumps(k, groups=6, d=d)
    found = KMeans(k, n_init=1, random_state=0).fit(X)
    n, sizes = len(X), np.bincount(found.labels_)
    variance = found.inertia_ / (d * (n - k))
    own = norm.logpdf(X, found.cluster_centers_[found.labels_], np.sqrt(variance)).sum(axis=1)
    log_likelihood = (own + np.log(sizes / n)[found.labels_]).sum()
    parameters = (k - 1) + k * d + 1
    expected = log_likelihood - parameters / 2 * np.log(n)
    assert bic(sizes.astype(float), found.inertia_, d) == pytest.approx(expected, rel=1e-9)


def plain_growth(X, should_split):
    """Clusters are split while they should, with scikit-learn's k-means; no caps, no memory, no frames."""

    def refit(rows, centers):
        return KMeans(len(centers), init=np.array(centers), n_init=1, tol=0, random_state=0).fit(rows)

    centers = [X.mean(axis=0)]
    while True:
        labels = refit(X, centers).labels_
        centers, before = [], len(centers)
        for j in range(before):
            rows = X[labels == j]
            mean = rows.mean(axis=0)
            values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True).reshape(X.shape[1], -1))
            step = vectors[:, -1] * np.sqrt(2 * values[-1] / np.pi)
            halves = refit(rows, [mean + step, mean - step])
            centers += list(halves.cluster_centers_) if should_split(rows, halves, before) else [mean]
        if len(centers) == before:
            return np.array(centers)


@pytest.mark.parametrize("seed", range(10))
def test_xmeans_is_its_plain_loop(seed):
    X = clumps(seed, d=2 + seed % 3)
    n_min = 6

    def should_split(rows, halves, k):
        sizes = np.bincount(halves.labels_).astype(float)
        total = ((rows - rows.mean(axis=0)) ** 2).sum()
        gain = bic(sizes, halves.inertia_, X.shape[1]) - bic(sizes.sum(keepdims=True), total, X.shape[1])
        return sizes.min() >= n_min and (gain > 0 or k == 1)

    found = count_xmeans(X, np.random.default_rng(0), k_maxes=[500], min_sizes=[n_min])
    theirs = plain_growth(X, should_split)
    assert found.k == len(theirs) > 1
    np.testing.assert_allclose(sorted_rows(found.means), sorted_rows(theirs), atol=0.02)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("level", [1e-4, 1e-2])
def test_gmeans_is_its_plain_loop(seed, level):
    X = clumps(seed, d=2 + seed % 3)

    def should_split(rows, halves, k):
        if len(rows) < 8:
            return False
        line = halves.cluster_centers_[0] - halves.cluster_centers_[1]
        return anderson_darling(rows @ line) > CRITICAL_VALUES[level]

    found = count_gmeans(X, np.random.default_rng(0), significances=[level])
    theirs = plain_growth(X, should_split)
    assert found.k == len(theirs) > 1
    np.testing.assert_allclose(sorted_rows(found.means), sorted_rows(theirs), atol=0.02)


# --- k-means with the silhouette, Dirichlet process


@pytest.mark.parametrize("seed", range(4))
def test_kmeans_silhouette_scores_held_out_rows(seed):
    X = clumps(seed)
    found = count_kmeans(X, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    train, held_out = hold_out(len(X), rng)
    scores = {}
    for k in range(2, 21):
        centers = kmeans(X[train], k, rng).centers
        labels = ((X[held_out][:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        scores[k] = silhouette_score(X[held_out], labels)
    best = max(scores, key=lambda k: (round(scores[k], 9), -k))
    assert (found.k, found.chosen) == (best, {"k": best})
    assert found.silhouette == pytest.approx(scores[best], abs=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_dirichlet_counts_the_used_components_of_scikit_learn(seed, scale):
    X = scale * clumps(seed)
    found = count_dirichlet(X, np.random.default_rng(seed), concentrations=[0.02])
    spread = np.sqrt(X.var(axis=0).mean())
    Z = (X - X.mean(axis=0)) / spread
    model = BayesianGaussianMixture(
        n_components=min(50, len(X) // 10),
        covariance_type="spherical",
        weight_concentration_prior=0.02,
        init_params="k-means++",
        random_state=int(np.random.default_rng(seed).integers(2**31)),
    ).fit(Z)
    used = np.unique(model.predict(Z))
    assert found.k == len(used) > 1
    np.testing.assert_allclose(found.means, model.means_[used] * spread + X.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(found.variances, model.covariances_[used] * spread**2, rtol=1e-4)
    np.testing.assert_allclose(found.weights, model.weights_[used] / model.weights_[used].sum(), rtol=1e-4)
