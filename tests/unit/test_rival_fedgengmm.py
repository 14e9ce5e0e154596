"""FedGenGMM: the union of local mixtures, the fit to rows drawn from it, guards."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from fedcluster_app.aggregation.fedgengmm import best_fit, client_step, server_step
from fedcluster_app.aggregation.gaussians import kmeans_statistics, pooled_start
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.metrics.mixtures import center_error
from fedcluster_app.mixtures import em, log_joint, logsumexp
from fedcluster_app.mixtures.statistics import Statistics

MIDDLES = np.array([[0.0, 0.0], [7.0, 1.0], [1.0, 8.0], [-6.0, 5.0]])


def rng(seed=0):
    return np.random.default_rng(seed)


def rows(seed, held, n):
    return MIDDLES[rng(seed).choice(held, size=n)] + rng(seed + 100).normal(size=(n, 2))


def density(statistics, x):
    """Of a site's mixture at a point, from its upload, with loops."""
    shares = statistics.mass / statistics.mass.sum()
    covariances = statistics.scatters / statistics.mass[:, None, None] + 1e-6 * np.eye(2)
    parts = zip(shares, statistics.means, covariances, strict=True)
    return sum(w * multivariate_normal.pdf(x, m, S) for w, m, S in parts)


def test_the_unions_density_is_the_size_weighted_sum_of_the_sites():
    X = {"a": rows(0, [0, 1], 80), "b": rows(1, [2], 40), "c": rows(2, [1, 2, 3], 120)}
    sent = {s: client_step(part, k, rng()) for (s, part), k in zip(X.items(), (2, 1, 3), strict=True)}
    result = server_step(sent, 4, rng())
    assert result.union.n_components == 6
    points = rng(5).normal(size=(20, 2)) * 4
    wanted = [sum(len(X[s]) * density(sent[s], x) for s in X) / 240 for x in points]
    np.testing.assert_allclose(np.exp(logsumexp(log_joint(points, result.union))), wanted, rtol=1e-9)
    assert result.draws == 800  # 100 k d are more than the 240 rows
    assert center_error(result.mixture.means, MIDDLES) < 0.5
    assert server_step(sent, 1, rng()).draws == 240


def test_one_site_and_many_draws_give_back_its_mixture():
    sent = client_step(rows(3, [0, 1, 2], 150), 3, rng())
    result = server_step({"a": sent}, 3, rng(), draws=40_000, tol=1e-6)
    order = np.linalg.norm(result.mixture.means[:, None] - result.union.means, axis=2).argmin(axis=0)
    np.testing.assert_allclose(result.mixture.means[order], result.union.means, atol=0.05)
    np.testing.assert_allclose(result.mixture.weights[order], result.union.weights, atol=0.01)
    np.testing.assert_allclose(result.mixture.covariances[order], result.union.covariances, atol=0.06)


def test_a_site_sends_its_local_em_mixture():
    X = rows(4, [0, 1, 2], 200)
    sent = client_step(X, 3, rng(), min_count=0, tol=1e-9, max_iter=500)
    theirs = GaussianMixture(3, n_init=5, tol=1e-9, max_iter=500, random_state=0).fit(X)
    order = np.linalg.norm(sent.means[:, None] - theirs.means_, axis=2).argmin(axis=0)
    np.testing.assert_allclose(sent.means[order], theirs.means_, atol=1e-3)
    np.testing.assert_allclose(sent.mass[order] / 200, theirs.weights_, atol=1e-3)
    np.testing.assert_allclose(sent.mass.sum(), 200)
    spread = sent.scatters / sent.mass[:, None, None]
    np.testing.assert_allclose(spread[order], theirs.covariances_, atol=1e-3)


def test_the_best_of_the_starts_is_kept():
    X = rows(5, [0, 1, 2, 3], 90)
    draws = rng(1)
    starts = [pooled_start(kmeans_statistics(X, 6, draws, n_init=1), 1e-6) for _ in range(6)]
    runs = [em.fit(X, begun) for begun in starts]
    wanted = max(runs, key=lambda one: one.log_likelihood)
    assert wanted.log_likelihood > min(one.log_likelihood for one in runs)
    found = best_fit(X, 6, rng(1), n_init=6)
    assert found.means.tobytes() == wanted.mixture.means.tobytes()


def test_order_of_the_sites_changes_nothing():
    sent = {s: client_step(rows(i, [0, 1, 2], 50), 3, rng(i)) for i, s in enumerate("cab")}
    one, other = (server_step(part, 3, rng()) for part in (sent, dict(reversed(sent.items()))))
    assert one.mixture.means.tobytes() == other.mixture.means.tobytes()
    assert one.union.means.tobytes() == other.union.means.tobytes()


def test_small_components_are_withheld_and_leave_the_union():
    X = np.concatenate([rows(6, [0], 30), [[60.0, 60.0]]])
    sent = client_step(X, 2, rng())
    assert sorted(sent.mass)[0] == 0.0
    assert not sent.means[sent.mass == 0].any()
    result = server_step({"a": sent}, 1, rng())
    assert result.union.n_components == 1
    assert np.linalg.norm(result.mixture.means) < 1


def test_guards_for_sites_with_few_rows_or_none():
    none, one = client_step(np.empty((0, 2)), 3, rng()), client_step(np.ones((1, 2)), 3, rng())
    assert none.means.shape == (0, 2)
    assert not one.mass.any()
    twins = client_step(np.ones((5, 2)), 3, rng())
    np.testing.assert_allclose(twins.mass, [5.0])
    result = server_step(
        {"none": none, "one": one, "twins": twins, "b": client_step(rows(7, [1], 40), 2, rng())}, 2, rng()
    )
    assert result.union.n_components == 3
    with pytest.raises(DataError, match="got none"):
        server_step({"none": none, "one": one}, 2, rng())
    wrong = (
        lambda: server_step({"b": twins}, 0, rng()),
        lambda: server_step({"b": twins}, 1, rng(), draws=0),
        lambda: client_step(np.empty((0, 2)), 0, rng()),
        lambda: client_step(np.ones((3, 2)), 1, rng(), n_init=0),
    )
    for call in wrong:
        with pytest.raises(ConfigError, match="at least 1"):
            call()
    assert isinstance(none, Statistics)
