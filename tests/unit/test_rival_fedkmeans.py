"""Federated k-means: one site is Lloyd's iteration, the privacy threshold, drop-outs, guards."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from fedcluster_app.aggregation.fedkmeans import (
    ClusterSums,
    client_start,
    client_step,
    done,
    init,
    status,
    step,
)
from fedcluster_app.errors import ConfigError


def rows(seed, n=150, d=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 2.0 * rng.integers(0, 3, size=(n, 1))


def lloyd_step(X, centers):
    """Textbook, with loops; no cluster may be empty."""
    labels = np.array([min(range(len(centers)), key=lambda j: ((x - centers[j]) ** 2).sum()) for x in X])
    return np.stack([X[labels == j].mean(axis=0) for j in range(len(centers))])


def run(X, k, seed, rounds=100, **options):
    rng = np.random.default_rng(seed)
    state = step(init(k), {s: client_start(part, k, rng, **options) for s, part in X.items()}, rng)
    while not done(state, max_rounds=rounds):
        state = step(state, {s: client_step(part, state.centers) for s, part in X.items()}, rng)
    return state


@pytest.mark.parametrize("seed", range(4))
def test_one_site_is_lloyd_from_the_same_start(seed):
    X, rng = rows(seed), np.random.default_rng(seed)
    state = step(init(4), {"a": client_start(X, 4, rng)}, rng)
    for _ in range(6):
        wanted = lloyd_step(X, state.centers)
        sent = client_step(X, state.centers)
        assert sent.counts.min() > 1
        state = step(state, {"a": sent}, rng)
        np.testing.assert_allclose(state.centers, wanted, atol=1e-12)


def test_first_upload_is_one_lloyd_step_from_kmeans_plus_plus_seeds(monkeypatch):
    X = rows(0)
    monkeypatch.setattr(
        "fedcluster_app.aggregation.fedkmeans.kmeans_plus_plus", lambda X, k, rng: X[[0, 50, 99]]
    )
    sent = client_start(X, 3, np.random.default_rng(0))
    np.testing.assert_allclose(sent.sums / sent.counts[:, None], lloyd_step(X, X[[0, 50, 99]]))
    bare = client_start(X, 3, np.random.default_rng(0), start="kmeans++")
    np.testing.assert_allclose(bare.sums / bare.counts[:, None], X[[0, 50, 99]])
    np.testing.assert_array_equal(bare.counts, sent.counts)


def test_many_local_steps_reach_what_scikit_learn_reaches_from_the_same_start():
    X = rows(1)
    theirs = KMeans(3, init=X[:3], n_init=1, tol=0, max_iter=500).fit(X)
    sent = client_step(X, X[:3], local_steps=500)
    order = np.argsort(sent.sums[:, 0] / sent.counts)
    wanted = theirs.cluster_centers_[np.argsort(theirs.cluster_centers_[:, 0])]
    np.testing.assert_allclose((sent.sums / sent.counts[:, None])[order], wanted, atol=1e-12)


def test_three_local_steps_are_three_textbook_steps():
    X, centers = rows(6), rows(6)[[3, 40, 80, 120]]
    sent = client_step(X, centers, local_steps=3)
    wanted = lloyd_step(X, lloyd_step(X, lloyd_step(X, centers)))
    np.testing.assert_allclose(sent.sums / sent.counts[:, None], wanted, atol=1e-12)


def test_clusters_of_one_row_are_not_sent_and_centres_without_rows_are_dropped():
    X = np.array([[0.0], [0.2], [4.0], [5.0], [9.0], [9.1], [9.2]])
    sent = client_step(X, np.array([[0.0], [4.0], [5.0], [100.0], [9.0]]))
    np.testing.assert_array_equal(sent.counts, [2, 3])
    np.testing.assert_allclose(sent.sums, [[0.2], [27.3]])
    wanted = [2, 1, 1, 3]
    assert client_step(X, np.array([[0.0], [4.0], [5.0], [9.0]]), min_count=1).counts.tolist() == wanted
    # An empty centre must not be moved to some far row, as Lloyd's refilling would.
    far = client_step(X, np.array([[4.0], [100.0]]), local_steps=4, min_count=1)
    np.testing.assert_allclose(far.sums, [[X.sum()]])


def test_what_is_not_sent_is_never_a_single_row():
    X = np.array([[0.0], [0.2], [5.0], [9.0], [9.1], [9.2]])
    sent = client_step(X, np.array([[0.0], [5.0], [9.0]]))
    np.testing.assert_array_equal(sent.counts, [2, 4])  # else 5.0 would be the total less the sums
    np.testing.assert_allclose(sent.sums, [[0.2], [32.3]])
    for min_count in range(1, 7):
        hidden = len(X) - client_step(X, np.array([[0.0], [5.0], [9.0]]), min_count=min_count).counts.sum()
        assert hidden == 0 or hidden >= min_count


def test_server_step_is_weighted_kmeans_over_all_means():
    rng = np.random.default_rng(5)
    uploads = {}
    for site in "abc":
        counts = rng.integers(2, 60, size=4)
        uploads[site] = ClusterSums(counts[:, None] * rng.normal(size=(4, 2)), counts)
    means = np.concatenate([part.sums / part.counts[:, None] for part in uploads.values()])
    counts = np.concatenate([part.counts for part in uploads.values()])
    theirs = KMeans(3, n_init=50, random_state=0).fit(means, sample_weight=counts)
    mine = step(init(3), uploads, np.random.default_rng(0), n_init=50).centers
    order = np.argsort(theirs.cluster_centers_[:, 0])
    np.testing.assert_allclose(mine[np.argsort(mine[:, 0])], theirs.cluster_centers_[order])


def test_sites_that_hold_different_balls_find_all_of_them():
    rng = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0], [20.0, 20.0]])
    held = {"a": [0, 1], "b": [1, 2], "c": [2, 3, 0]}
    y = {s: np.repeat(c, 50) for s, c in held.items()}
    X = {s: middles[part] + rng.normal(size=(len(part), 2)) for s, part in y.items()}
    state = run(X, 4, seed=0)
    assert status(state) == "converged"
    found = [np.linalg.norm(X[s][:, None] - state.centers, axis=2).argmin(axis=1) for s in X]
    assert adjusted_rand_score(np.concatenate(list(y.values())), np.concatenate(found)) == 1.0


def test_order_of_the_sites_changes_nothing():
    X = {s: rows(i, n=40) for i, s in enumerate("cab")}
    sent = {s: client_start(part, 4, np.random.default_rng(1)) for s, part in X.items()}
    one = step(init(4), sent, np.random.default_rng(2))
    other = step(init(4), dict(reversed(sent.items())), np.random.default_rng(2))
    assert one.centers.tobytes() == other.centers.tobytes()


def test_a_site_that_falls_silent_keeps_its_last_upload_and_late_ones_join():
    X = {s: rows(i, n=40) for i, s in enumerate("abc")}
    rng = np.random.default_rng(0)
    sent = {s: client_start(part, 4, rng) for s, part in X.items()}
    first = step(init(4), {s: sent[s] for s in "ab"}, rng)
    again = client_step(X["a"], first.centers)
    second = step(first, {"a": again, "c": sent["c"]}, np.random.default_rng(3))
    alone = step(first, {"a": again, "b": sent["b"], "c": sent["c"]}, np.random.default_rng(3))
    assert second.centers.tobytes() == alone.centers.tobytes()
    silent = step(second, {}, np.random.default_rng(4))
    assert silent.round == 3
    assert np.isfinite(silent.centers).all()


def test_labels_keep_their_meaning_from_round_to_round():
    X = rows(3)
    state = run({"a": X}, 4, seed=1, rounds=30)
    assert status(state, max_rounds=30) == "converged"
    for seed in range(10):  # other seeds permute the server's k-means
        moved = step(state, {"a": client_step(X, state.centers)}, np.random.default_rng(seed))
        assert moved.movement <= 1e-4


def test_guards_for_sites_without_rows_fewer_rows_than_k_and_too_few_means():
    none = client_start(np.empty((0, 2)), 3, np.random.default_rng(0))
    assert none.sums.shape == (0, 2)
    state = step(init(3), {"none": none}, np.random.default_rng(0))
    assert (state.round, len(state.centers), done(state)) == (1, 0, False)
    assert client_step(np.ones((4, 2)), state.centers).counts.size == 0
    two = client_start(np.array([[0.0, 0.0], [1.0, 1.0]]), 3, np.random.default_rng(0), min_count=1)
    assert two.counts.tolist() == [1, 1]
    state = step(state, {"two": two, "none": none}, np.random.default_rng(0))
    assert state.centers.shape == (2, 2)
    same = client_start(np.ones((9, 2)), 3, np.random.default_rng(0))
    state = step(state, {"same": same}, np.random.default_rng(0))
    np.testing.assert_allclose(state.centers[np.argsort(state.centers[:, 0])], [[0, 0], [1, 1]])


def test_a_withheld_cluster_of_count_zero_is_passed_over():
    shown = ClusterSums(np.array([[2.0], [30.0]]), np.array([2, 3]))
    hidden = ClusterSums(np.array([[2.0], [0.0], [30.0]]), np.array([2, 0, 3]))
    states = [step(init(2), {"a": part}, np.random.default_rng(0)) for part in (shown, hidden)]
    assert states[0].centers.tobytes() == states[1].centers.tobytes()


def test_refusals_and_stopping():
    X = np.ones((3, 1))
    for call in (
        lambda: init(0),
        lambda: client_start(X, 0, np.random.default_rng(0)),
        lambda: client_start(X, 1, np.random.default_rng(0), start="random"),
        lambda: client_step(X, X, local_steps=0),
        lambda: client_step(X, X, min_count=0),
    ):
        with pytest.raises(ConfigError, match="expected"):
            call()
    state = run({"a": rows(0)}, 3, seed=0, rounds=2)
    assert status(state, tolerance=-1.0, max_rounds=2) == "max_rounds"
    assert status(state, tolerance=-1.0, max_rounds=3) == "running"
