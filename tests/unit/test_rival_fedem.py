"""FedEM: EM on pooled rows with weights of every site's own, against loops and scikit-learn; guards."""

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from fedcluster_app.aggregation.fedem import (
    FedEMState,
    client_finish,
    client_start,
    client_step,
    done,
    init,
    status,
    step,
    weights_of,
)
from fedcluster_app.aggregation.gaussians import SiteSums
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.metrics.mixtures import center_error
from fedcluster_app.mixtures import Mixture, em
from fedcluster_app.mixtures.statistics import Statistics

MIDDLES = np.array([[0.0, 0.0], [6.0, 1.0], [1.0, 7.0]])


def rows(seed, shares=(1, 1, 1), n=60):
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=n, p=np.array(shares) / sum(shares))
    return MIDDLES[labels] + rng.normal(size=(n, 2)) @ np.array([[1.0, 0.4], [0.0, 0.8]])


SITES = {"a": rows(0), "b": rows(1, (1, 0, 3), 45), "c": rows(2, (0, 5, 1), 30)}


def start(seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, 2, 2))
    return Mixture(
        np.array([0.2, 0.5, 0.3]), 3 + rng.normal(size=(3, 2)), A @ A.transpose(0, 2, 1) + np.eye(2)
    )


def one_round(state, X, weights, *, min_count=0.0, reg_covar=0.0):
    sent = {s: client_step(part, state.components, weights[s], min_count=min_count) for s, part in X.items()}
    state = step(state, {s: sums for s, (sums, _) in sent.items()}, reg_covar=reg_covar)
    return state, {s: own for s, (_, own) in sent.items()}


def run(X, components, rounds, **options):
    state, weights = FedEMState(components), dict.fromkeys(X, components.weights)
    for _ in range(rounds):
        state, weights = one_round(state, X, weights, **options)
    return state, weights


def assert_same(one, other, atol=1e-10):
    np.testing.assert_allclose(one.weights, other.weights, atol=atol)
    np.testing.assert_allclose(one.means, other.means, atol=atol)
    np.testing.assert_allclose(one.covariances, other.covariances, atol=atol)


def brute_force(X, components, rounds):
    """EM on pooled rows with weights by site, with loops and SciPy's density."""
    pi = {s: list(components.weights) for s in X}
    mu, sigma = list(components.means), list(components.covariances)
    trace = []
    for _ in range(rounds):
        r, total = {}, 0.0
        for s, part in X.items():
            for i, x in enumerate(part):
                joint = [pi[s][c] * multivariate_normal.pdf(x, mu[c], sigma[c]) for c in range(3)]
                total += np.log(sum(joint))
                for c in range(3):
                    r[s, i, c] = joint[c] / sum(joint)
        trace.append(total / sum(len(part) for part in X.values()))
        for s, part in X.items():
            pi[s] = [sum(r[s, i, c] for i in range(len(part))) / len(part) for c in range(3)]
        for c in range(3):
            pairs = [(r[s, i, c], x) for s, part in X.items() for i, x in enumerate(part)]
            mass = sum(w for w, _ in pairs)
            mu[c] = sum(w * x for w, x in pairs) / mass
            sigma[c] = sum(w * np.outer(x - mu[c], x - mu[c]) for w, x in pairs) / mass
    return pi, np.array(mu), np.array(sigma), trace


def test_rounds_are_pooled_em_with_weights_by_site():
    state, weights = run(SITES, start(), 4)
    pi, mu, sigma, trace = brute_force(SITES, start(), 4)
    for site in SITES:
        assert_same(client_finish(state.components, weights[site]), Mixture(np.array(pi[site]), mu, sigma))
    np.testing.assert_allclose(state.trace, trace, atol=1e-12)
    assert np.abs(weights["b"] - weights["c"]).max() > 0.2


@pytest.mark.parametrize("reg_covar", [0.0, 1e-2])
def test_one_site_is_the_houses_em(reg_covar):
    X, wanted = rows(3), em.init(start())
    for _ in range(5):
        wanted = em.step(wanted, X, reg_covar=reg_covar)
    state, weights = run({"a": X}, start(), 5, reg_covar=reg_covar)
    assert_same(client_finish(state.components, weights["a"]), wanted.mixture)
    np.testing.assert_allclose(state.trace, wanted.trace)


def test_copies_at_every_site_are_em_on_the_rows_as_scikit_learn_has_it():
    X, begun = rows(4), start(1)
    theirs = GaussianMixture(
        3,
        weights_init=begun.weights,
        means_init=begun.means,
        precisions_init=np.linalg.inv(begun.covariances),
        max_iter=6,
        tol=0,
        reg_covar=1e-3,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(X)
    state, weights = run({"a": X, "b": X, "c": X}, begun, 6, reg_covar=1e-3)
    for own in weights.values():
        found = client_finish(state.components, own)
        assert_same(found, Mixture(theirs.weights_, theirs.means_, theirs.covariances_))


def test_the_log_likelihood_never_falls_and_the_rounds_stop():
    state, weights = FedEMState(start(2)), dict.fromkeys(SITES, start(2).weights)
    while not done(state, tolerance=1e-6, max_rounds=400):
        state, weights = one_round(state, SITES, weights)
    assert np.diff(state.trace).min() > -1e-12
    assert status(state, tolerance=1e-6, max_rounds=400) == "converged"
    assert status(state, tolerance=0.0, max_rounds=len(state.trace)) == "max_rounds"
    assert status(FedEMState(start())) == "running"


def test_clusters_that_sites_hold_in_unequal_shares_are_found_from_the_start():
    rng = np.random.default_rng(0)
    state = init({s: client_start(part, 3, rng) for s, part in SITES.items()}, 3, rng)
    weights = dict.fromkeys(SITES, state.components.weights)
    while not done(state):
        state, weights = one_round(state, SITES, weights, min_count=2, reg_covar=1e-6)
    assert center_error(state.components.means, MIDDLES) < 0.4
    empty = np.linalg.norm(state.components.means - MIDDLES[1], axis=1).argmin()
    assert weights["b"][empty] < 0.05 < weights["c"][empty]


def test_the_start_is_weighted_kmeans_of_centres_with_the_covariance_within_groups():
    rng = np.random.default_rng(0)
    X = {"a": np.repeat(MIDDLES[:2], 30, axis=0), "b": np.repeat(MIDDLES[1:], 15, axis=0) + 0.5}
    X = {s: part + 0.1 * rng.normal(size=part.shape) for s, part in X.items()}
    state = init({s: client_start(part, 2, rng) for s, part in X.items()}, 3, rng)
    pooled = np.concatenate(list(X.values()))
    labels = np.linalg.norm(pooled[:, None] - MIDDLES, axis=2).argmin(axis=1)
    groups = [pooled[labels == c] for c in range(3)]
    within = sum(len(part) * np.cov(part.T, bias=True) for part in groups) / len(pooled)
    order = np.linalg.norm(state.components.means[:, None] - MIDDLES, axis=2).argmin(axis=0)
    np.testing.assert_allclose(state.components.means[order], [part.mean(axis=0) for part in groups])
    np.testing.assert_allclose(state.components.weights[order], np.array([30, 45, 15]) / 90)
    np.testing.assert_allclose(state.components.covariances, np.tile(within + 1e-6 * np.eye(2), (3, 1, 1)))


def test_at_the_start_a_centre_counts_with_its_rows():
    mass, means = np.array([100.0, 1.0, 1.0]), np.array([[0.0], [1.0], [2.2]])
    sent = {"a": Statistics(mass, means, np.ones((3, 1, 1)))}
    found = init(sent, 2, np.random.default_rng(0)).components
    np.testing.assert_allclose(np.sort(found.means[:, 0]), [0.0, 1.6])  # without weights 0.5 and 2.2


def test_small_components_are_withheld_and_the_sites_weights_still_see_them():
    X = np.array([[0.0, 0.0], [0.3, 0.1], [0.1, -0.2], [9.0, 9.0]])
    shared = Mixture(
        np.full(2, 0.5), np.array([[0.0, 0.0], [9.0, 9.0]]), np.ones(2)[:, None, None] * np.eye(2)
    )
    sums, weights = client_step(X, shared, shared.weights)
    # One row missing would be known as the difference to all, so another is missing with it.
    np.testing.assert_allclose(sums.stats.mass, [2.0, 0.0])
    np.testing.assert_allclose(sums.stats.means[0], X[1:3].mean(axis=0))
    assert not sums.stats.means[1].any()
    assert not sums.stats.scatters[1].any()
    np.testing.assert_allclose(weights, [0.75, 0.25])
    state = step(FedEMState(shared), {"a": sums})
    np.testing.assert_array_equal(state.components.means[1], shared.means[1])  # nobody sent it
    np.testing.assert_array_equal(state.components.covariances[1], np.eye(2))
    alone = step(FedEMState(shared), {"a": client_step(X, shared, shared.weights, min_count=9)[0]})
    assert_same(alone.components, shared)
    clusters = client_start(X, 2, np.random.default_rng(0))
    assert clusters.mass.tolist() == [4.0]  # the row is given to the others, if only for the start


def test_order_of_the_sites_changes_nothing():
    rng = np.random.default_rng
    sent = {s: client_start(part, 3, rng(1)) for s, part in SITES.items()}
    one, other = init(sent, 3, rng(2)), init(dict(reversed(sent.items())), 3, rng(2))
    assert one.components.means.tobytes() == other.components.means.tobytes()
    sums = {s: client_step(part, one.components, one.components.weights)[0] for s, part in SITES.items()}
    one, other = step(one, sums), step(other, dict(reversed(sums.items())))
    assert one.components.covariances.tobytes() == other.components.covariances.tobytes()
    assert one.trace == other.trace


def test_a_silent_site_keeps_its_last_sums_and_late_ones_join():
    begun = FedEMState(start())
    sums = {s: client_step(part, begun.components, begun.components.weights)[0] for s, part in SITES.items()}
    late = step(step(begun, {s: sums[s] for s in "ac"}), {"b": sums["b"]})
    assert_same(late.components, step(begun, sums).components, atol=0)


def test_guards_for_sites_with_few_rows_or_none():
    rng = np.random.default_rng(0)
    few = {"none": np.empty((0, 2)), "one": rows(5, n=1), "two": rows(6, n=2), "twin": np.ones((4, 2))}
    assert [len(client_start(part, 3, rng, min_count=0).mass) for part in few.values()] == [0, 1, 2, 1]
    X = few | {"many": rows(7)}
    sent = {s: client_start(part, 4 if s == "many" else 3, rng) for s, part in X.items()}
    state = init(sent, 3, rng)
    shared = state.components.weights
    weights = dict.fromkeys(X, shared)
    for _ in range(3):
        state, weights = one_round(state, X, weights, min_count=2, reg_covar=1e-6)
    np.testing.assert_array_equal(weights["none"], shared)
    assert all(abs(own.sum() - 1) < 1e-9 for own in weights.values())
    assert len(init({"twin": sent["twin"]}, 3, rng).components.weights) == 1  # fewer clusters came than k
    with pytest.raises(DataError, match="got none"):
        init({"none": sent["none"]}, 3, rng)
    for wrong in (lambda: init(sent, 0, rng), lambda: client_start(X["many"], 0, rng)):
        with pytest.raises(ConfigError, match="at least 1"):
            wrong()
    nothing = SiteSums(Statistics(np.zeros(3), np.zeros((3, 2)), np.zeros((3, 2, 2))), 0.0, 0)
    idle = step(FedEMState(start()), {"none": nothing})
    assert idle.trace == (-np.inf,)
    assert_same(idle.components, start(), atol=0)


def test_weights_follow_from_sums_and_what_is_left_out_goes_to_withheld_components():
    X = np.concatenate([rows(0)[:40], rows(0)[:2] + 50.0])
    shared = Mixture(
        np.array([0.3, 0.3, 0.1, 0.3]),
        np.array([[0.0, 0.0], [6.0, 0.0], [50.0, 50.0], [50.0, -50.0]]),
        np.tile(np.eye(2), (4, 1, 1)),
    )
    all_sent, own = client_step(X, shared, shared.weights, min_count=0)
    np.testing.assert_allclose(weights_of(all_sent, shared), own, atol=1e-6)
    some_sent, _ = client_step(X, shared, shared.weights, min_count=3)
    found = weights_of(some_sent, shared)
    missing = 1 - some_sent.stats.mass.sum() / len(X)
    np.testing.assert_allclose(found[:2], some_sent.stats.mass[:2] / len(X))
    np.testing.assert_allclose(found[2:], [missing / 4, missing * 3 / 4])
    nothing, _ = client_step(X, shared, shared.weights, min_count=99)
    np.testing.assert_allclose(weights_of(nothing, shared), shared.weights)
