"""Aligned averages of k-means: one site against Lloyd, matching by brute force, the mean by hand."""

from itertools import permutations

import numpy as np
import pytest

from fedcluster_app.aggregation.fedkmeans import ClusterSums, FedKMeansState
from fedcluster_app.aggregation.fedkmeans_aligned import (
    client_start,
    client_step,
    done,
    init,
    status,
    step,
)
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.alignment import matched


def rng(seed=0):
    return np.random.default_rng(seed)


def rows(seed, n=80, k=4, spread=8.0):
    middles = spread * np.random.default_rng(99).normal(size=(k, 2))
    return middles[rng(seed).integers(0, k, size=n)] + rng(seed + 50).normal(size=(n, 2))


def lloyd_step(X, centers):
    labels = np.linalg.norm(X[:, None] - centers, axis=2).argmin(axis=1)
    own = [X[labels == j] for j in range(len(centers))]
    return np.stack([part.mean(axis=0) if len(part) else c for part, c in zip(own, centers, strict=True)])


@pytest.mark.parametrize("c", [3, 5])
def test_matching_is_the_best_of_all_injections(c):
    means, reference = rng(1).normal(size=(c, 3)), rng(2).normal(size=(5, 3))
    cost = np.square(means[:, None] - reference).sum(axis=2)
    best = min(permutations(range(5), c), key=lambda p: cost[range(c), p].sum())
    np.testing.assert_array_equal(matched(means, reference), best)


@pytest.mark.parametrize("weighting", ["sites", "clusters"])
def test_one_site_is_lloyd(weighting):
    X = rows(0)
    state = FedKMeansState(4, X[:4])
    wanted = X[:4]
    for _ in range(6):
        state = step(state, {"a": client_step(X, state.centers, min_count=1)}, weighting=weighting)
        wanted = lloyd_step(X, wanted)
        np.testing.assert_allclose(state.centers, wanted, rtol=1e-12)


def test_an_empty_cluster_keeps_the_global_centre():
    X = rows(0)
    far = np.array([500.0, 500.0])
    state = FedKMeansState(3, np.stack([X[0], far, X[1]]))
    after = step(state, {"a": client_step(X, state.centers)})
    np.testing.assert_array_equal(after.centers[1], far)
    np.testing.assert_allclose(after.centers, lloyd_step(X, state.centers))


def test_average_by_hand_with_withheld_clusters():
    centers = np.array([[0.0], [10.0], [30.0]])
    tables = {
        "a": np.array([1.0, 1.0, 1.0, 9.0, 9.0, 31.0, 31.0])[:, None],  # two clusters of two rows: withheld
        "b": np.array([2.0, 2.0, 2.0, 12.0, 12.0, 12.0, 12.0, 33.0, 33.0, 33.0])[:, None],
    }
    sent = {site: client_step(X, centers, min_count=3) for site, X in tables.items()}
    np.testing.assert_array_equal(sent["a"].counts, [3])
    by_sites = step(FedKMeansState(3, centers), sent).centers
    np.testing.assert_allclose(
        by_sites, [[(3 * 1 + 10 * 2) / 13], [(3 * 10 + 10 * 12) / 13], [(3 * 30 + 10 * 33) / 13]]
    )
    by_clusters = step(FedKMeansState(3, centers), sent, weighting="clusters").centers
    np.testing.assert_allclose(by_clusters, [[1.5], [12.0], [33.0]])


def test_weighted_by_clusters_a_round_is_lloyd_on_the_pooled_rows():
    parts = {name: rows(i, n) for i, (name, n) in enumerate([("a", 60), ("b", 25), ("c", 9)])}
    state = step(init(4), {s: client_start(X, 4, rng(3)) for s, X in parts.items()})
    sent = {s: client_step(X, state.centers, min_count=1) for s, X in parts.items()}
    after = step(state, sent, weighting="clusters")
    np.testing.assert_allclose(after.centers, lloyd_step(np.concatenate(list(parts.values())), state.centers))


def test_first_round_aligns_before_it_averages():
    middles = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    counts = np.array([5, 5, 5])
    sent = {
        site: ClusterSums(5 * (middles + shift)[order], counts)
        for site, shift, order in [("a", 0.0, [0, 1, 2]), ("b", 1.0, [2, 0, 1]), ("c", 2.0, [1, 2, 0])]
    }
    found = step(init(3), sent).centers
    np.testing.assert_allclose(found[np.lexsort(found.T)], (middles + 1.0)[np.lexsort(middles.T)])


def test_order_of_the_sites_changes_no_byte():
    parts = {name: rows(i, 40) for i, name in enumerate("cab")}
    states = []
    for names in ("abc", "cba"):
        state = step(init(4), {s: client_start(parts[s], 4, rng(7)) for s in names})
        while not done(state):
            state = step(state, {s: client_step(parts[s], state.centers) for s in names})
        states.append(state)
    assert states[0].centers.tobytes() == states[1].centers.tobytes()
    assert status(states[0]) == "converged"
    assert list(states[0].uploads) == list("abc")


def test_sites_that_show_fewer_than_k_are_completed_from_each_other():
    parts = {
        "a": np.array([[0.0], [0.2], [5.0], [5.2], [20.0]]),
        "b": np.array([[0.1], [0.3], [90.0], [90.2], [40.0]]),
    }
    sent = {s: client_start(X, 3, rng(), min_count=2) for s, X in parts.items()}
    assert max(len(part.counts) for part in sent.values()) == 2
    assert step(init(3), sent).centers.shape == (3, 1)


def test_few_rows_no_rows_coinciding_rows_and_silence():
    none = client_start(np.empty((0, 2)), 3, rng())
    state = step(init(3), {"none": none})
    assert (state.round, state.centers.shape) == (1, (0, 0))
    single = client_start(np.ones((1, 2)), 3, rng())
    assert len(single.counts) == 0  # one row is never sent
    same = client_start(np.ones((9, 2)), 3, rng())
    state = step(state, {"same": same, "single": single})
    np.testing.assert_array_equal(state.centers, np.ones((len(same.counts), 2)))
    X = rows(4)
    state = step(init(4), {"a": client_start(X, 4, rng())})
    quiet = step(state, {})
    np.testing.assert_allclose(quiet.centers, state.centers)
    assert status(quiet, max_rounds=5) == "converged"


def test_refusals():
    sent = client_start(rows(0), 5, rng())
    with pytest.raises(ConfigError, match="site b: expected at most k = 4 clusters, got 5"):
        step(init(4), {"b": sent})
    with pytest.raises(ConfigError, match="weighting"):
        step(init(5), {"b": sent}, weighting="rows")
    with pytest.raises(ConfigError, match="k: expected"):
        client_start(rows(0), 0, rng())
    with pytest.raises(ConfigError, match="minimum count"):
        client_start(rows(0), 2, rng(), min_count=0)
