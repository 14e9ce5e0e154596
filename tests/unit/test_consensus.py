from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.cardinality import ConsensusCount, consensus, count_asm, count_consensus
from fedcluster_app.cardinality.consensus import COARSE_ALPHAS, VOTERS, VOTES, Ballot, median, vote_kmeans
from fedcluster_app.cardinality.count import Rows
from fedcluster_app.cardinality.dendrogram import cuts
from fedcluster_app.cardinality.guard import is_one_cluster, principal_scores, score_tree
from fedcluster_app.cardinality.tree import split_tree


def generator(seed=0):
    return np.random.default_rng(seed)


def blobs(k, n=60, d=5, apart=7.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(k, d))
    gaps = np.linalg.norm(centres[:, None] - centres, axis=2) + np.eye(k) * 1e9
    return np.concatenate([rng.normal(c, 1, (n, d)) for c in centres * apart / gaps.min()])


@pytest.mark.parametrize(
    ("votes", "expected"),
    [([3], 3), ([9, 1, 4], 4), ([2, 4], 3), ([2, 5], 4), ([7, 2, 5, 4], 5), ([3, 3], 3)],
)
def test_median_of_votes(votes, expected):
    assert median(votes) == expected


@pytest.mark.parametrize("k", [2, 4])
def test_count_is_the_median_of_all_votes(k):
    X = blobs(k)
    count = count_consensus(X, generator())
    assert count.status == "consensus"
    assert tuple(count.chosen) == VOTES
    assert count.k == median(list(count.chosen.values())) == k
    assert count.means.shape == (k, 5)
    np.testing.assert_allclose(count.weights, 1 / k)
    assert 0.3 < count.silhouette < 1
    # The components are those of the blobs, whichever votes there were.
    means = X.reshape(k, -1, 5).mean(axis=1)
    np.testing.assert_allclose(np.sort(count.means, axis=0), np.sort(means, axis=0), atol=0.2)
    np.testing.assert_allclose(count.variances, 1, atol=0.25)


def test_votes_that_differ(monkeypatch):
    made_up = {name: lambda ballot, k=k: k for k, name in zip((2, 3, 9, 20), VOTES, strict=True)}
    monkeypatch.setattr(consensus, "VOTERS", made_up)
    assert count_consensus(blobs(4), generator()).k == 6
    assert count_consensus(blobs(4), generator(), votes=VOTES[:3]).k == 3


@pytest.mark.parametrize("name", VOTERS)
def test_every_vote_finds_plain_blobs(name):
    assert count_consensus(blobs(4, n=80), generator(), votes=[name]).chosen == {name: 4}


def test_two_dozen_rows_and_few_dimensions():
    for X in (blobs(2, n=12), blobs(2, n=40, d=1), np.repeat(blobs(3, n=1, d=2, apart=30), 30, axis=0)):
        count = count_consensus(X, generator())
        assert 1 <= count.k <= 6
        assert count.k == len(count.weights)


@pytest.mark.parametrize(
    "X",
    [
        generator().normal(size=(300, 8)),
        generator().normal(size=(300, 16)) * np.r_[3.0, np.ones(15)],
        generator().standard_t(4, size=(300, 1)) * np.ones((1, 3)) + generator(1).normal(size=(300, 3)),
        np.ones((200, 2)),
    ],
    ids=["round", "elongated", "heavy tails", "constant"],
)
def test_one_cluster_is_one(X):
    count = count_consensus(X, generator())
    assert (count.k, count.status, count.chosen) == (1, "one cluster", {})
    assert np.isnan(count.silhouette)
    np.testing.assert_allclose(count.means[0], X.mean(axis=0), atol=1e-12)
    assert is_one_cluster(X)


def test_of_few_rows_the_guard_says_nothing():
    X = generator().normal(size=(199, 8))
    assert not is_one_cluster(X)
    assert count_consensus(X, generator()).status == "consensus"


def test_guard_joins_leaves_around_one_middle():
    rng = generator()
    X = rng.normal(size=(400, 3)) * np.where(np.arange(400)[:, None] < 300, 1.0, 6.0)
    assert len(score_tree(X).leaves(5)) > 1
    assert is_one_cluster(X)
    assert not is_one_cluster(blobs(2))


def test_principal_scores_are_the_largest_and_uncorrelated():
    X = generator().normal(size=(200, 6)) * [1, 5, 1, 3, 1, 1] + 7
    scores = principal_scores(X, 2)
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-12)
    covariance = scores.T @ scores / 200
    np.testing.assert_allclose(
        covariance, np.diag(np.linalg.eigvalsh(np.cov(X.T, bias=True))[:-3:-1]), atol=1e-9
    )
    assert principal_scores(X[:, :1], 5).shape == (200, 1)


def test_fewest_clusters_within_an_error_win():
    # Three groups in two far pairs: the silhouettes of two and three clusters are close.
    rng = generator(3)
    X = np.concatenate([rng.normal(c, 1, (40, 2)) for c in ((0, 0), (4.6, 0), (16, 0))])
    ballot = Ballot(X, Rows(X[:96]), Rows(X[96:]), generator())
    found = [vote_kmeans(ballot, errors) for errors in (0.0, 3.0)]
    assert found == [3, 2] or found[0] == found[1] == 2
    assert vote_kmeans(Ballot(np.ones((20, 2)), Rows(X), Rows(X), generator()), 1.0) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_gross_outliers_do_not_vote(count):
    X = np.concatenate([blobs(3), generator().normal(size=(count, 5)) * 1e6])
    model = ConsensusCount(random_state=0).fit(X)
    assert model.n_components_ == 3
    assert np.abs(model.means_).max() < 50
    assert model.labels_.shape == (len(X),)
    assert count_consensus(X, generator(), set_aside=0).k != 3


def test_few_rows_are_left_to_asm():
    X = blobs(2, n=6)
    count = count_consensus(X, generator())
    assert count.status == "few rows"
    np.testing.assert_array_equal(count.means, count_asm(X, generator(), alphas=COARSE_ALPHAS).means)
    assert count_consensus(X[:1], generator()).k == 1


def test_same_seed_same_count_and_scale_does_not_matter():
    X = blobs(3, apart=4)
    a, b = count_consensus(X, generator(4)), count_consensus(X, generator(4))
    assert a.means.tobytes() == b.means.tobytes()
    large = count_consensus(X * 2.0**40, generator(4))
    assert large.chosen == a.chosen
    np.testing.assert_array_equal(large.means, a.means * 2.0**40)


def test_estimator_keeps_the_votes_and_labels_by_the_nearest_mean():
    X = blobs(3)
    model = ConsensusCount(random_state=0).fit(X)
    assert model.votes_ == count_consensus(X, generator()).chosen
    nearest = ((X[:, None] - model.means_) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(model.labels_, nearest)
    np.testing.assert_array_equal(model.predict(X[:7]), nearest[:7])


@pytest.mark.parametrize("votes", [[], ["asm", "abacus"]])
def test_unknown_votes(votes):
    with pytest.raises(ValueError, match="votes"):
        count_consensus(blobs(2), generator(), votes=votes)


def test_impossible_reach():
    with pytest.raises(ValueError, match="above 1"):
        count_consensus(blobs(2), generator(), set_aside=0.5)


@pytest.mark.parametrize("atoms", [31, 50])
def test_many_points_without_spread_are_as_many_clusters(atoms):
    X = np.repeat(generator(3).normal(size=(atoms, 3)) * 10, 40, axis=0)
    count = count_consensus(X, generator())
    assert 2 <= count.k <= atoms
    assert cuts(split_tree(X, 20).leaf_moments(20), 30)[-1].counts.size >= 2


def test_rows_set_aside_are_named():
    blobs = [generator(k).normal(size=(100, 2)) + np.array([30.0 * k, 0.0]) for k in range(3)]
    X = np.concatenate([*blobs, [[1e4, 1e4]]])
    count = count_consensus(X, generator())
    assert count.k == 3
    np.testing.assert_array_equal(count.kept, np.arange(301) < 300)
    assert count_consensus(X[:300], generator()).kept is None
