"""The rivals of ASM: what they find, what they survive, and what they refuse."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fedcluster_app.cardinality import count_dirichlet, count_gmeans, count_kmeans, count_xmeans
from fedcluster_app.cardinality.count import Rows
from fedcluster_app.cardinality.gmeans import CRITICAL_VALUES, anderson_darling
from fedcluster_app.cardinality.grow import grow, halve
from fedcluster_app.cardinality.xmeans import propose
from fedcluster_app.errors import ConfigError, DataError

RIVALS = {
    count_xmeans: {"k_max": (10, 20, 50), "min_size": (5, 20)},
    count_gmeans: {"significance": tuple(CRITICAL_VALUES)},
    count_dirichlet: {"concentration": (0.001, 0.02, 1.0)},
    count_kmeans: {"k": range(2, 21)},
}
every_rival = pytest.mark.parametrize("count", RIVALS)


def rng(seed=0):
    return np.random.default_rng(seed)


def balls(k, n=60, d=3, seed=0):
    """k round balls, 12 standard deviations apart on axes and their negatives."""
    ends = 12.0 * np.concatenate([np.eye(d), -np.eye(d)])[:k]
    return np.concatenate([rng(seed + j).normal(end, 1.0, size=(n, d)) for j, end in enumerate(ends)])


@every_rival
@pytest.mark.parametrize("k", [2, 3, 5])
def test_separated_balls_are_counted(count, k):
    found = count(balls(k), rng())
    assert (found.k, found.status) == (k, "selected")
    assert found.silhouette > 0.6
    assert set(found.chosen) == set(RIVALS[count])
    assert all(found.chosen[name] in values for name, values in RIVALS[count].items())
    np.testing.assert_allclose(found.weights, 1 / k, atol=0.05)
    if count is not count_dirichlet:  # the prior draws its variances to that of the table
        np.testing.assert_allclose(found.variances, 1.0, atol=0.4)
    nearest = np.linalg.norm(found.means[:, None] - balls(k).reshape(k, 60, 3).mean(axis=1), axis=2)
    assert (nearest.min(axis=0) < 0.5).all()


@pytest.mark.parametrize(
    ("count", "grid"),
    [
        (count_xmeans, {"k_maxes": [20], "min_sizes": [5], "k_min": 1}),
        (count_gmeans, {"significances": [1e-4]}),
        (count_dirichlet, {"concentrations": [0.001]}),
        (count_kmeans, {"ks": [1]}),
    ],
)
def test_one_ball_is_one_cluster_without_a_selection(count, grid):
    X = rng(1).normal(size=(300, 4))
    found = count(X, rng(), **grid)
    assert (found.k, found.status) == (1, "fixed")
    assert np.isnan(found.silhouette)
    np.testing.assert_allclose(found.means, [X.mean(axis=0)], atol=0.05)
    np.testing.assert_allclose(found.variances, X.var(axis=0).mean(), rtol=0.05)


@every_rival
@pytest.mark.parametrize("n", [1, 2, 12, 13, 80])
def test_equal_rows_are_one_cluster(count, n):
    found = count(np.full((n, 2), 0.1), rng())
    assert (found.k, found.status) == (1, "few rows" if n < 13 else "unscored")
    np.testing.assert_array_equal(found.means, [[0.1, 0.1]])
    np.testing.assert_array_equal(found.variances, [0.0])
    np.testing.assert_array_equal(found.weights, [1.0])


@every_rival
def test_two_rows_are_one_cluster(count):
    found = count(np.array([[0.0, 1.0], [2.0, 1.0]]), rng())
    assert (found.k, found.means.tolist(), found.variances.tolist()) == (1, [[1.0, 1.0]], [0.5])


@every_rival
@pytest.mark.parametrize(
    "X", [np.empty((0, 2)), np.empty((3, 0)), np.array([[np.nan]]), np.array([[0.0], [np.inf]])]
)
def test_unusable_tables_are_refused(count, X):
    with pytest.raises(DataError):
        count(X, rng())


@every_rival
def test_same_seed_same_bytes(count):
    X = rng(5).normal(size=(150, 3))
    first, again = count(X, rng(1)), count(X, rng(1))
    assert first.means.tobytes() == again.means.tobytes()
    assert (first.chosen, first.status) == (again.chosen, again.status)
    np.testing.assert_array_equal(first.silhouette, again.silhouette)


@every_rival
def test_atoms_and_awkward_scales(count):
    atoms = np.repeat(balls(4, n=1), 30, axis=0)
    for scale, offset in ((1.0, 0.0), (1e-120, 0.0), (1e120, 0.0), (1.0, 1e9)):
        found = count(scale * atoms + offset, rng())
        assert found.k == 4
        assert (found.variances / scale / scale < (5 if count is count_dirichlet else 1e-5)).all()


@every_rival
def test_wide_tables(count):
    X = np.concatenate([rng(j).normal(shift, 1.0, size=(20, 150)) for j, shift in enumerate((0, 3))])
    assert count(X, rng()).k == 2


@pytest.mark.parametrize("count", [count_xmeans, count_gmeans, count_dirichlet])
@pytest.mark.parametrize("k_max", [1, 2, 3, 7])
def test_the_largest_number_is_never_exceeded(count, k_max):
    # Discrete columns and many groups: without a limit all of these go further.
    X = np.concatenate([balls(6), rng().integers(0, 4, size=(200, 3)).astype(float)])
    caps = {"k_maxes": [k_max]} if count is count_xmeans else {"k_max": k_max}
    found = count(X, rng(), **caps)
    assert 1 <= found.k <= k_max
    assert (found.k == 1) == (k_max == 1)


def test_the_strongest_splits_are_made_when_there_is_no_room_for_all():
    # Two pairs on a line; only one of the pairs can be split, and the farther one gains more.
    X = np.concatenate([rng(j).normal(end, 0.2, size=(50, 1)) for j, end in enumerate((-55, -45, 48, 52))])
    found = count_xmeans(X, rng(), k_maxes=[3], min_sizes=[5])
    np.testing.assert_allclose(np.sort(found.means.ravel()), [-55, -45, 50], atol=0.2)


def test_halves_smaller_than_the_least_size_are_not_made():
    X = np.concatenate([rng(0).normal(0, 1, size=(100, 2)), rng(1).normal(30, 1, size=(12, 2))])
    counts = [count_xmeans(X, rng(), k_maxes=[9], min_sizes=[size]).k for size in (12, 13)]
    assert counts == [2, 1]


def test_halves_start_apart_even_when_the_rows_are_far_from_zero():
    for offset in (0.0, 1e8):
        halves = halve(Rows(balls(2, d=2) + offset))
        assert sorted(halves.masses.tolist()) == [60, 60]
        assert halves.within < halves.total / 10
        np.testing.assert_allclose(halves.mean, balls(2, d=2).mean(axis=0) + offset, rtol=1e-12)
    assert halve(Rows(np.full((9, 2), 0.1))) is None


@pytest.mark.parametrize("seed", range(4))
def test_one_growing_partition_serves_all_largest_numbers(seed):
    # Sixteen groups that grow in size and width.
    spots = [
        rng(seed + j).normal((30 * (j % 4), 30 * (j // 4)), 2 ** (j / 4), (20 + 10 * j, 2)) for j in range(16)
    ]
    rows = Rows(np.concatenate(spots))
    caps = [1, 2, 3, 4, 6, 7, 13, 50]
    together = grow(rows, propose, {}, threshold=0, min_size=3, k_maxes=caps, from_two=True)
    counts = [len(clusters.counts) for clusters in together]
    assert all(k <= cap for k, cap in zip(counts, caps, strict=True))
    assert counts == sorted(counts)
    assert len(set(counts)) > 5
    for cap, clusters in zip(caps, together, strict=True):
        (alone,) = grow(rows, propose, {}, threshold=0, min_size=3, k_maxes=[cap], from_two=True)
        np.testing.assert_array_equal(alone.means, clusters.means)
        np.testing.assert_array_equal(alone.counts, clusters.counts)


@pytest.mark.parametrize(
    ("count", "grid"),
    [(count_xmeans, {"k_maxes": [30], "min_sizes": [4]}), (count_gmeans, {"significances": [1e-2]})],
)
def test_a_weight_counts_like_equal_rows_and_row_order_not_at_all(count, grid):
    X = np.concatenate([balls(4, n=25), rng(9).normal(size=(60, 3)) ** 3])
    weights = rng(2).integers(0, 4, size=len(X)).astype(float)
    weighted = count(X, rng(), weights=weights, **grid)
    repeated = np.repeat(X, weights.astype(int), axis=0)
    for table in (repeated, rng(3).permutation(repeated)):
        plain = count(table, rng(), **grid)
        assert plain.k == weighted.k > 3
        order, other = np.lexsort(plain.means.T), np.lexsort(weighted.means.T)
        np.testing.assert_allclose(plain.means[order], weighted.means[other], atol=1e-9)
        np.testing.assert_allclose(plain.weights[order], weighted.weights[other], atol=1e-9)
        np.testing.assert_allclose(plain.variances[order], weighted.variances[other], atol=1e-9)


@pytest.mark.parametrize("count", [count_xmeans, count_gmeans, count_kmeans])
def test_rows_of_weight_zero_are_not_there(count):
    X = balls(3)
    far = np.concatenate([X, np.full((40, 3), 1e6)])
    found, same = count(far, rng(), weights=np.repeat([1.0, 0.0], [180, 40])), count(X, rng())
    np.testing.assert_array_equal(found.means, same.means)
    assert found.silhouette == same.silhouette
    for bad in (np.zeros(180), np.ones(9), np.full(180, -1.0), np.full(180, np.nan)):
        with pytest.raises(DataError, match="weights"):
            count(X, rng(), weights=bad)


def test_small_clusters_are_never_called_not_gaussian():
    line = np.array([[0.0], [0.0], [0.0], [0.0], [9.0], [9.0], [9.0]])
    assert count_gmeans(line, rng(), significances=[1e-2]).k == 1
    assert count_gmeans(np.repeat(line, 9, axis=0), rng(), significances=[1e-2]).k == 2
    assert count_gmeans(line, rng(), significances=[1e-2], weights=np.full(7, 9.0)).k == 2


def test_anderson_darling_does_not_see_location_and_scale():
    x = rng(0).normal(size=50)
    assert anderson_darling(7 - 3 * x) == pytest.approx(anderson_darling(x), rel=1e-9)
    assert anderson_darling(np.sign(x)) > 5 > anderson_darling(x)


@pytest.mark.parametrize(
    ("count", "bad"),
    [
        (count_xmeans, {"k_maxes": [0]}),
        (count_xmeans, {"k_maxes": [2.5]}),
        (count_xmeans, {"k_maxes": []}),
        (count_xmeans, {"min_sizes": [0.5]}),
        (count_xmeans, {"min_sizes": [np.nan]}),
        (count_xmeans, {"k_min": 3}),
        (count_gmeans, {"significances": [0.05]}),
        (count_gmeans, {"significances": []}),
        (count_gmeans, {"k_max": 0}),
        (count_dirichlet, {"concentrations": [0.0]}),
        (count_dirichlet, {"k_max": 1.5}),
        (count_kmeans, {"ks": [0]}),
        (count_kmeans, {"ks": [2.5]}),
        (count_kmeans, {"n_init": 0}),
    ],
)
def test_parameters_out_of_range_are_refused(count, bad):
    with pytest.raises(ConfigError, match="expected"):
        count(balls(2), rng(), **bad)


def test_counting_imports_scikit_learn_only_where_it_is_the_method():
    code = (
        "import sys, numpy as np; from fedcluster_app.cardinality.registry import ESTIMATORS; "
        "X, rng = np.random.default_rng(0).normal(size=(60, 2)), np.random.default_rng(0); "
        "[ESTIMATORS[name].load()(X, rng) for name in ('asm', 'xmeans', 'gmeans', 'kmeans-silhouette')]; "
        "assert 'sklearn' not in sys.modules; ESTIMATORS['dirichlet'].load(); "
        "sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
