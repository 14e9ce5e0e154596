"""The grid of K, what speaks for each K, and the rules that weigh it."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.aggregation import microcluster
from fedcluster_app.aggregation.micro import votes as voting
from fedcluster_app.aggregation.micro.assembly import count_warnings
from fedcluster_app.aggregation.micro.cells import MicroClusters, halve, micro_clusters, stack
from fedcluster_app.aggregation.micro.em import Shrinkage, fit, from_partition
from fedcluster_app.aggregation.micro.path import (
    Path,
    bic,
    carried_k,
    effective_counts,
    follow,
    grid,
    largest_k,
    separation,
    starts,
    whitening,
)
from fedcluster_app.aggregation.micro.votes import Votes


def _cells(centres, rows=100, sites=4, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    centres = np.asarray(centres, dtype=float)
    uploads = {}
    for g in range(sites):
        X = centres[rng.integers(len(centres), size=rows)] + spread * rng.normal(
            size=(rows, centres.shape[1])
        )
        halves = halve(rows, rng, min_rows=5)
        uploads[f"s{g}"] = micro_clusters(X, halves, rng, min_rows=5, rows_per_cell=10, most=20)
    return stack(uploads)


FAR = [[0, 0, 0], [12, 0, 0], [0, 12, 0], [0, 0, 12]]


def test_grid_grows_by_one_then_by_twelve_per_cent():
    np.testing.assert_array_equal(grid(30)[:13], np.arange(1, 14))
    assert grid(30)[13:].tolist() == [15, 17, 19, 21, 24, 27, 30]
    assert grid(1).tolist() == [1]
    assert grid(16)[-1] == 16


def test_largest_k_is_bounded_by_counts_cells_and_rows():
    many = _cells(FAR, rows=400, sites=10)
    assert largest_k(many) == 30
    assert largest_k(many, [3, 20]) == 40
    assert largest_k(many, [90]) == 80
    few = _cells(FAR, rows=40, sites=2)
    smaller = min((few.halves == half).sum() for half in (0, 1))
    assert largest_k(few) == carried_k(few) == int(0.6 * smaller) + 1
    one = stack({"a": MicroClusters(np.zeros(1, int), np.array([9.0]), np.zeros((1, 2)), np.ones((1, 2)))})
    assert carried_k(one) == 1


def test_clear_clusters_are_counted_by_every_vote():
    cells = _cells(FAR)
    path = follow(cells, grid(largest_k(cells)), np.random.default_rng(0))
    found = voting.cast(path, [4, 4, 0, 4])
    assert (found.bic, found.hold, found.hold_98, found.sep) == (4, 4, 4, 4)
    # Weights are never quite equal, so a site's effective number is below its count.
    assert found.count in (4, 5)
    assert found.tied(4) == (4, 4)
    assert path.held_out.shape == (len(path.k), 4)
    assert np.isnan(path.separation[0])
    assert list(path.fits) == path.k.tolist()


@pytest.mark.parametrize("shape", ["round", "elongated", "uniform"])
def test_one_cluster_is_one(shape):
    rng = np.random.default_rng(1)
    q = 3 if shape == "uniform" else 6
    uploads = {}
    for g in range(5):
        X = rng.uniform(size=(150, q)) if shape == "uniform" else rng.normal(size=(150, q))
        if shape == "elongated":
            X[:, 0] *= 4
        halves = halve(150, rng, min_rows=5)
        uploads[str(g)] = micro_clusters(X, halves, rng, min_rows=5, rows_per_cell=10, most=20)
    path = follow(stack(uploads), grid(8), rng)
    found = voting.cast(path)
    assert (found.bic, found.hold) == (1, 1)
    assert voting.decide(found, "geometric", 5) == 1


def test_bic_by_hand():
    cells = _cells([[0, 0], [9, 9]], sites=2)
    found = fit(
        cells,
        from_partition(cells, (cells.means[:, 0] > 4.5).astype(int), Shrinkage.of(cells)),
        Shrinkage.of(cells),
    )
    # Two means of 2, two covariances of 3, and one weight more than sites at either site.
    expected = -2 * found.log_likelihood + (2 * 5 + 2) * np.log(200)
    assert bic(cells, found) == pytest.approx(expected)


def test_separation_by_hand():
    upload = MicroClusters(
        np.zeros(4, int), np.full(4, 10.0), np.array([[-1.0], [1.0], [9.0], [11.0]]), np.full((4, 1), 3.0)
    )
    cells = stack({"a": upload})
    found = fit(
        cells, from_partition(cells, np.array([0, 0, 1, 1]), Shrinkage(0.0, 0.0)), Shrinkage(0.0, 0.0)
    )
    # Width 2 each (variance 1 between cells and 3 within them), distance 10; the scale cancels.
    assert separation(cells, found, whitening(cells)) == pytest.approx(0.4, rel=1e-3)


def test_whitening_brings_cells_to_one_and_floors_flat_axes():
    upload = MicroClusters(
        np.zeros(2, int), np.ones(2) * 5, np.zeros((2, 2)), np.array([[4.0, 1e-9], [4.0, 1e-9]])
    )
    np.testing.assert_allclose(whitening(stack({"a": upload})), [0.5, 1 / np.sqrt(4e-3)])
    flat = MicroClusters(np.zeros(2, int), np.ones(2), np.zeros((2, 2)), np.zeros((2, 2)))
    np.testing.assert_array_equal(whitening(stack({"a": flat})), 1.0)


def test_supercells_take_over_where_there_are_many(monkeypatch):
    cells = _cells(FAR)
    monkeypatch.setattr("fedcluster_app.aggregation.micro.path.MANY", 30)
    monkeypatch.setattr("fedcluster_app.aggregation.micro.path.SUPERCELLS", 20)
    scale = whitening(cells)
    where = starts(cells, (scale,), np.random.default_rng(0))
    assert where.groups.max() + 1 <= 20
    (cut,) = where.cuts(4)
    nearest = np.square(cells.means[:, None] - np.array(FAR)).sum(axis=2).argmin(axis=1)
    assert len(set(zip(cut.tolist(), nearest.tolist(), strict=True))) == 4


def test_effective_counts():
    weights = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(effective_counts(weights), [2, 1, 3])


def _path(k, held_out=None, bic_=None, separation_=None, effective=None):
    m = len(k)
    return Path(
        np.array(k),
        np.zeros(m),
        np.zeros(m) if bic_ is None else np.array(bic_, float),
        np.zeros((m, 1)) if held_out is None else np.array(held_out, float),
        np.full(m, np.nan) if separation_ is None else np.array(separation_, float),
        np.ones((m, 1)) if effective is None else np.array(effective, float),
        {},
    )


def test_held_out_votes_by_hand():
    # The third K is best; the second loses 2, by 2 and 0 at the two sites: an error of 2.
    held = np.array([[0.0, 0.0], [49.0, 51.0], [51.0, 51.0], [50.0, 50.0]])
    assert voting.held_out_votes(np.array([1, 2, 3, 4]), held) == (3, 2, 2)
    # Of a gain of 100, 97 are not 98 %.
    assert voting.held_out_votes(np.array([1, 2, 3]), np.array([[0.0], [97.0], [100.0]])) == (3, 3, 3)
    # Where one cluster is best, nothing is given up.
    assert voting.held_out_votes(np.array([1, 2]), np.array([[5.0], [4.0]])) == (1, 1, 1)


def test_a_site_that_did_not_count_has_no_say():
    path = _path([1, 2, 3], effective=[[1, 1, 1], [2, 2, 2], [3, 3, 3]])
    assert voting.cast(path, [2, 0, 2]).count == 2
    assert voting.cast(path, [0, 0, 0]).count is None
    assert voting.cast(path).count is None
    assert voting.cast(path).sep is None


@pytest.mark.parametrize(
    ("votes", "rule", "sites", "k"),
    [
        (Votes(1, 1, 1, 1, 7, None), "geometric", 5, 1),
        (Votes(10, 11, 9, 9, 2, None), "geometric", 5, 10),  # within 10 %: nobody else is asked
        (Votes(4, 9, 9, 9, 6, None), "geometric", 5, 6),
        (Votes(4, 9, 9, 9, None, None), "geometric", 5, 6),
        (Votes(4, 9, 9, 9, 2, 9), "geometric", 5, 9),  # the sites' own counts stand in for bic
        (Votes(12, 10, 8, 9, 2, None), "median", 5, 9),
        (Votes(12, 10, 8, 9, 2, None), "median", 4, 9),
        (Votes(6, 10, 8, 9, 2, None), "median", 5, 8),
        (Votes(6, 10, 8, 9, 2, None), "median", 4, 9),
        (Votes(6, 10, 8, 9, 2, None), "bic", 5, 6),
        (Votes(6, 10, 8, 9, 2, None), "hold", 5, 10),
    ],
)
def test_rules(votes, rule, sites, k):
    assert voting.decide(votes, rule, sites) == k


def test_words_say_what_cannot_be_told():
    votes, tried = Votes(12, 11, 8, 9, 2, 7), range(1, 13)
    said = voting.in_words(votes, tried, 10, 6)
    assert said[0] == "rows held out cannot tell 8 to 11 clusters apart"
    assert said[1] == "votes: count 7, hold 11, hold_98 9, hold_1se 8, sep 2"
    assert len(said) == 2
    # Of fewer than five sites there is no standard error to go by.
    assert voting.in_words(votes, tried, 10, 4) == (
        "rows held out cannot tell 9 to 11 clusters apart",
        "votes: count 7, hold 11, hold_98 9, sep 2",
    )
    clear = voting.in_words(Votes(3, 3, 3, 3, None, None), tried, 5, 3)
    assert clear == (
        "rows held out favour 3 clusters clearly; the other votes made it 5",
        "votes: bic 3, hold 3, hold_98 3",
    )
    one = voting.in_words(Votes(1, 1, 1, 1, None, None), tried, 1, 3)
    assert one[0] == "rows held out favour 1 cluster clearly"
    assert voting.in_words(Votes(1, 1, 1, 1, None, None), [1], 1, 3) == (
        "no other number of clusters than 1 was tried",
    )


def test_the_careful_vote_needs_five_sites_for_a_standard_error():
    votes = Votes(12, 11, 8, 9, 2, 7)
    assert [votes.careful(n) for n in (1, 4, 5, 30)] == [9, 9, 8, 8]
    assert [votes.tied(n) for n in (4, 5)] == [(9, 11), (8, 11)]
    # One standard error may be more than a share of the gain.
    assert Votes(12, 11, 10, 9, 2, 7).careful(5) == 9


@pytest.mark.parametrize(
    ("hold", "tried", "k_hat", "said"),
    [
        (1, [1], 1, ["too few sites have rows for two halves"]),
        (1, [1, 2, 3], 1, ["held-out rows favour 1 cluster:"]),
        (2, [1, 2, 3], 3, ["held-out rows favour 2 clusters:", "the largest number that was tried, 3"]),
        (3, [1, 2, 3, 4], 3, []),
    ],
)
def test_warnings_say_why_the_number_may_be_wrong(hold, tried, k_hat, said):
    found = count_warnings(Votes(3, hold, hold, hold, None, None), np.array(tried), k_hat)
    assert len(found) == len(said)
    assert all(part in whole for part, whole in zip(said, found, strict=True))


def test_sites_of_one_half_are_not_held_out():
    cells = _cells(FAR, sites=4)
    # The last two sites are too small for two halves.
    whole = np.flatnonzero((cells.sites < 2) | (cells.halves == 0))
    path = follow(cells.take(whole), grid(6), np.random.default_rng(0))
    assert not path.held_out[:, 2:].any()
    assert (path.held_out[:, :2] != 0).all()
    assert voting.cast(path).hold == 4


def test_where_no_site_has_two_halves_people_are_told():
    rng = np.random.default_rng(0)
    uploads = {}
    for g in range(8):
        X = np.array(FAR, float)[rng.integers(4, size=9)] + rng.normal(size=(9, 3))
        halves = halve(9, rng, min_rows=5)
        uploads[str(g)] = micro_clusters(X, halves, rng, min_rows=5, rows_per_cell=10, most=20)
    state = microcluster.step(microcluster.init(), uploads)
    assembly = microcluster.finish(state, microcluster.Settings(), rng)
    assert assembly.k_hat == 1
    assert [said for said in assembly.warnings if "two halves of micro-clusters" in said]
    assert assembly.words == ("no other number of clusters than 1 was tried",)
