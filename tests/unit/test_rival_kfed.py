"""k-FED: the local start by hand, the server's farthest-first rule by brute force, guards."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from fedcluster_app.aggregation.kfed import client_step, server_step
from fedcluster_app.errors import ConfigError, DataError


def ball_sites(seed, clusters=6, d=4, per=60):
    """Sites that hold two to four of several well separated balls, at most a third of them each."""
    rng = np.random.default_rng(seed)
    middles = 40 * np.eye(clusters, d + clusters)[:, :d] + 30 * rng.normal(size=(clusters, d))
    held = {"a": [0, 1, 2], "b": [2, 3], "c": [3, 4, 5, 0], "d": [5, 1]}
    rows = {s: np.repeat(c, per) for s, c in held.items()}
    X = {s: middles[y] + 0.5 * rng.normal(size=(len(y), d)) for s, y in rows.items()}
    return X, rows, {s: len(c) for s, c in held.items()}, middles


@pytest.mark.parametrize("seed", range(5))
def test_well_separated_balls_are_recovered_though_sites_differ_in_k(seed):
    X, y, k, middles = ball_sites(seed)
    rng = np.random.default_rng(seed)
    sent = {s: client_step(X[s], k[s], rng) for s in X}
    result = server_step({s: part.centers for s, part in sent.items()}, len(middles))
    found = np.concatenate([result.labels[s][sent[s].labels] for s in X])
    assert adjusted_rand_score(np.concatenate(list(y.values())), found) == 1.0
    gap = np.linalg.norm(result.centers[:, None] - middles, axis=2)
    assert gap.min(axis=0).max() < 0.5
    assert result.centers.shape == middles.shape


def test_order_of_the_sites_changes_nothing():
    X, _, k, middles = ball_sites(1)
    centers = {s: client_step(X[s], k[s], np.random.default_rng(7)).centers for s in X}
    one = server_step(centers, len(middles))
    other = server_step(dict(reversed(centers.items())), len(middles))
    assert one.centers.tobytes() == other.centers.tobytes()
    assert list(one.labels) == list(other.labels) == sorted(X)
    for site in X:
        np.testing.assert_array_equal(one.labels[site], other.labels[site])


def test_local_clusters_are_a_fixed_point_of_lloyd_at_the_quality_of_scikit_learn():
    X, _, k, _ = ball_sites(2)
    mine = client_step(X["c"], k["c"], np.random.default_rng(0))
    theirs = KMeans(k["c"], n_init=10, random_state=0).fit(X["c"])
    inertia = np.square(X["c"] - mine.centers[mine.labels]).sum()
    assert inertia == pytest.approx(theirs.inertia_, rel=1e-9)
    np.testing.assert_array_equal(mine.counts, np.bincount(mine.labels))


def test_start_averages_only_the_rows_three_times_nearer_to_their_seed(monkeypatch):
    # Two axes, so that the projection keeps everything. By three to one, the row at 3.2 is on no seed's side,
    # nor is the one at (1, 2.6), which is three times nearer to the first than to the second alone.
    X = np.array([[0.0, 0], [0, 1], [10, 0], [10, 1], [3.2, 0], [2.4, 0], [0, 9], [1, 2.6]])
    starts = []

    def seeds(P, k, rng):
        return P[[0, 2, 6]]

    def catch(X, centers, **_):
        starts.append(centers)
        raise KeyError

    monkeypatch.setattr("fedcluster_app.aggregation.kfed.kmeans_plus_plus", seeds)
    monkeypatch.setattr("fedcluster_app.aggregation.kfed.lloyd", catch)
    with pytest.raises(KeyError):
        client_step(X, 3, np.random.default_rng(0))
    wanted = [X[[0, 1, 5]].mean(axis=0), X[[2, 3]].mean(axis=0), X[6]]
    np.testing.assert_allclose(starts[0], wanted, atol=1e-12)


@pytest.mark.parametrize("farthest", ["nearest", "mean"])
def test_server_starts_from_the_largest_fitting_site_and_adds_the_farthest(farthest):
    rng = np.random.default_rng(3)
    centers = {"a": rng.normal(size=(2, 3)), "b": rng.normal(size=(3, 3)), "c": rng.normal(size=(7, 3))}
    stacked = np.concatenate(list(centers.values()))
    chosen = [2, 3, 4]  # all of b: c has more than k, a fewer
    while len(chosen) < 5:
        distance = np.linalg.norm(stacked[:, None] - stacked[chosen], axis=2)
        score = distance.min(axis=1) if farthest == "nearest" else distance.mean(axis=1)
        score[chosen] = -1
        chosen.append(int(score.argmax()))
    nearest = np.linalg.norm(stacked[:, None] - stacked[chosen], axis=2).argmin(axis=1)
    wanted = np.stack([stacked[nearest == j].mean(axis=0) for j in range(5)])
    result = server_step(centers, 5, farthest=farthest, max_iter=1)
    np.testing.assert_allclose(result.centers, wanted)


def test_sites_with_no_more_rows_than_k_send_their_rows_and_may_be_empty():
    X = np.arange(6.0).reshape(3, 2)
    few = client_step(X, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(few.centers, X)
    np.testing.assert_array_equal(few.counts, [1, 1, 1])
    none = client_step(np.empty((0, 2)), 5, np.random.default_rng(0))
    assert none.centers.shape == (0, 2)
    result = server_step({"few": few.centers, "none": none.centers}, 2)
    assert result.labels["none"].shape == (0,)
    assert len(result.centers) == 2


def test_coinciding_rows_and_centres_give_no_empty_cluster():
    same = client_step(np.ones((20, 3)), 4, np.random.default_rng(0))
    assert (same.counts > 0).all()
    assert same.counts.sum() == 20
    np.testing.assert_array_equal(same.centers[same.labels], np.ones((20, 3)))
    twice = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 0.0]])
    result = server_step({"a": twice, "b": twice}, 3)
    np.testing.assert_allclose(np.sort(result.centers[:, 0]), [0.0, 5.0])
    assert result.labels["a"].tolist() == result.labels["b"].tolist()


def test_one_cluster_and_more_axes_than_columns():
    X = np.random.default_rng(0).normal(size=(30, 2))
    np.testing.assert_allclose(client_step(X, 1, np.random.default_rng(0)).centers, [X.mean(axis=0)])
    assert client_step(X, 5, np.random.default_rng(0)).centers.shape == (5, 2)


def test_where_every_site_has_more_centres_than_k_the_traversal_starts_at_one_centre():
    a = np.array([[0.0], [0.1], [9.0]])
    result = server_step({"a": a, "b": a + 0.05}, 2)
    np.testing.assert_allclose(np.sort(result.centers.ravel()), [0.075, 9.025])


def test_refusals():
    X = np.zeros((4, 2))
    with pytest.raises(ConfigError, match="k: expected at least 1"):
        client_step(X, 0, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="start"):
        client_step(X, 2, np.random.default_rng(0), start="random")
    with pytest.raises(DataError, match="at least k = 5, got 4"):
        server_step({"a": X}, 5)
    with pytest.raises(DataError, match="got 0"):
        server_step({}, 1)
    with pytest.raises(ConfigError, match="farthest"):
        server_step({"a": X}, 2, farthest="median")
    with pytest.raises(ConfigError, match="k: expected"):
        server_step({"a": X}, 0)
