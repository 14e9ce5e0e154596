"""k-means: degenerate tables, empty clusters, determinism."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.mixtures import kmeans, kmeans_plus_plus, lloyd, squared_distances
from fedcluster_app.mixtures.kmeans import _lloyd, kmeans_runs
from fedcluster_app.mixtures.release import dissolved


def blobs(n: int = 120, d: int = 3, k: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(k, d))[rng.integers(k, size=n)] * 6 + rng.normal(size=(n, d))


def distinct(centers: np.ndarray) -> int:
    return len(np.unique(centers, axis=0))


def test_seeds_are_rows_and_cover_all_distinct_ones_first() -> None:
    X = np.repeat(np.array([[0.1, 0.2], [5.0, 5.0], [5.1, 5.0]]), [6, 3, 1], axis=0)
    for seed in range(20):
        centers = kmeans_plus_plus(X, 3, np.random.default_rng(seed))
        assert distinct(centers) == 3


def test_more_centres_than_distinct_rows_take_the_rest_without_drawing_a_row_twice() -> None:
    X = np.repeat(np.array([[1e9 + 0.1], [7.0]]), [3, 2], axis=0)
    for seed in range(20):
        centers = kmeans_plus_plus(X, 5, np.random.default_rng(seed))
        np.testing.assert_array_equal(np.sort(centers, axis=0), np.sort(X, axis=0))


def test_rows_of_weight_zero_are_never_seeds() -> None:
    X, weights = np.arange(6.0)[:, None], np.array([0.0, 1.0, 0.0, 2.0, 1.0, 0.0])
    for seed in range(50):
        drawn = kmeans_plus_plus(X, 3, np.random.default_rng(seed), weights=weights)
        np.testing.assert_array_equal(np.sort(drawn[:, 0]), [1.0, 3.0, 4.0])


class Always(np.random.Generator):
    """A Generator whose uniform numbers are all the same."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.value = value

    def random(self, size: tuple[int, ...]) -> np.ndarray:  # type: ignore[override]  # always the same
        return np.full(size, self.value)


@pytest.mark.parametrize(("uniform", "row"), [(0.0, 1.0), (np.nextafter(1.0, 0.0), 3.0)])
def test_the_extreme_uniform_numbers_draw_rows_of_positive_weight(uniform: float, row: float) -> None:
    X, weights = np.arange(5.0)[:, None], np.array([0.0, 0.1, 0.1, 0.1, 0.0])
    assert kmeans_plus_plus(X, 1, Always(uniform), weights=weights)[0, 0] == row


@pytest.mark.parametrize("k", [0, 4])
def test_a_count_that_does_not_fit_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k: expected 1 to 3 .*got {k}"):
        kmeans_plus_plus(np.eye(4), k, np.random.default_rng(0), weights=np.array([1.0, 1.0, 1.0, 0.0]))


def test_no_run_is_refused() -> None:
    with pytest.raises(ValueError, match="n_init: expected at least 1, got 0"):
        kmeans(np.eye(3), 2, np.random.default_rng(0), n_init=0)


def test_the_result_is_a_fixed_point() -> None:
    X = blobs()
    result = kmeans(X, 4, np.random.default_rng(0), tol=0.0)
    assert result.converged
    squared = squared_distances(X, result.centers)
    np.testing.assert_array_equal(result.labels, squared.argmin(axis=1))
    assert result.inertia == pytest.approx(squared.min(axis=1).sum(), rel=1e-12)
    for j in range(4):
        np.testing.assert_allclose(result.centers[j], X[result.labels == j].mean(axis=0), rtol=1e-12)


def test_labels_belong_to_the_returned_centres_when_stopped_early() -> None:
    X = blobs(seed=3)
    result = lloyd(X, X[:4], max_iter=1)
    assert (result.n_iter, result.converged) == (1, False)
    np.testing.assert_array_equal(result.labels, squared_distances(X, result.centers).argmin(axis=1))


def test_an_empty_cluster_takes_the_farthest_row() -> None:
    X = np.array([[0.0], [1.0], [2.0], [30.0]])
    result = lloyd(X, np.array([[1.0], [1000.0]]), max_iter=1)
    np.testing.assert_allclose(result.centers, [[1.0], [30.0]])
    assert result.inertia == pytest.approx(2.0)


def test_an_empty_cluster_never_takes_a_row_of_weight_zero() -> None:
    X, weights = np.array([[0.0], [1.0], [2.0], [30.0]]), np.array([1.0, 1.0, 2.0, 0.0])
    result = lloyd(X, np.array([[0.9], [1000.0]]), weights=weights, max_iter=1)
    np.testing.assert_allclose(result.centers, [[1 / 2], [2.0]])


def test_a_row_of_weight_zero_changes_nothing_but_its_own_label() -> None:
    X = blobs(200, seed=6)
    with_outlier, weights = np.vstack([X, np.full((1, 3), 1e6)]), np.append(np.ones(200), 0.0)
    alone, result = lloyd(X, X[:6]), lloyd(with_outlier, X[:6], weights=weights)
    assert alone.n_iter == result.n_iter > 2
    np.testing.assert_allclose(result.centers, alone.centers, rtol=1e-9, atol=1e-9)
    assert result.inertia == pytest.approx(alone.inertia)


def test_identical_rows_leave_spare_centres_in_place() -> None:
    X = np.full((6, 2), 0.1)
    result = kmeans(X, 3, np.random.default_rng(0))
    assert result.converged
    assert result.inertia == 0.0
    np.testing.assert_array_equal(result.labels, 0)
    np.testing.assert_array_equal(result.centers, X[:3])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_as_many_clusters_as_rows(n: int) -> None:
    X = blobs(n)
    result = kmeans(X, n, np.random.default_rng(0))
    assert result.inertia == pytest.approx(0.0, abs=1e-20)
    assert sorted(result.labels) == list(range(n))


def test_one_cluster_is_the_mean_even_at_a_large_offset() -> None:
    X = blobs() + 1e9
    result = kmeans(X, 1, np.random.default_rng(0))
    np.testing.assert_allclose(result.centers[0] - 1e9, (X - 1e9).mean(axis=0), atol=3e-7)
    assert result.inertia == pytest.approx(np.square((X - 1e9) - (X - 1e9).mean(axis=0)).sum(), rel=1e-9)


def test_the_best_of_several_runs_is_kept() -> None:
    X, n_init = blobs(k=8, seed=2), 6
    best = kmeans(X, 8, np.random.default_rng(0), n_init=n_init)
    rng = np.random.default_rng(0)
    runs = [lloyd(X, kmeans_plus_plus(X, 8, rng)).inertia for _ in range(n_init)]
    assert len(set(runs)) > 1
    assert best.inertia == min(runs)


@pytest.mark.parametrize("weighted", [False, True])
def test_runs_side_by_side_are_the_runs_alone(weighted: bool) -> None:
    # More runs than take equally long, rows that repeat, and fewer distinct ones than centres.
    for X, k in ((blobs(n=90, seed=4), 6), (np.repeat(blobs(n=4), 5, axis=0), 6)):
        weights = np.arange(len(X)) % 4 / 2.0 if weighted else None
        together = kmeans_runs(X, k, np.random.default_rng(3), n_init=8, weights=weights)
        rng = np.random.default_rng(3)
        for run in together:
            alone = lloyd(X, kmeans_plus_plus(X, k, rng, weights=weights), weights=weights)
            np.testing.assert_array_equal(run.labels, alone.labels)
            np.testing.assert_allclose(run.centers, alone.centers, rtol=1e-12)
            assert run.inertia == pytest.approx(alone.inertia, rel=1e-12, abs=1e-20)
            assert (run.n_iter, run.converged) == (alone.n_iter, alone.converged)
    assert len({run.n_iter for run in kmeans_runs(blobs(), 6, np.random.default_rng(3), n_init=8)}) > 1


@pytest.mark.parametrize("max_iter", [1, 2, 300])
def test_a_run_that_lacks_a_cluster_leaves_the_others_alone(max_iter: int) -> None:
    X = blobs(seed=5)
    starts = np.stack([X[:4], X[:4] + np.array([[0.0], [0.0], [1e3], [1e4]]), X[-4:]])
    for start, run in zip(starts, _lloyd(X, starts, None, max_iter), strict=True):
        alone = lloyd(X, start, max_iter=max_iter)
        np.testing.assert_array_equal(run.labels, alone.labels)
        np.testing.assert_allclose(run.centers, alone.centers, rtol=1e-12)
        assert (run.n_iter, run.converged) == (alone.n_iter, alone.converged)


def test_same_seed_same_bytes() -> None:
    X = blobs()
    first, second = (kmeans(X, 4, np.random.default_rng(7)) for _ in range(2))
    assert first.centers.tobytes() == second.centers.tobytes()
    assert first.labels.tobytes() == second.labels.tobytes()


@pytest.mark.parametrize("least", [1, 3, 30, 500])
def test_small_clusters_are_given_up_until_all_have_enough_rows(least: int) -> None:
    X = np.concatenate([blobs(n=60), [[40.0] * 3] * 2, [[-40.0] * 3]])
    found = kmeans(X, 8, np.random.default_rng(0))
    centers, labels = dissolved(X, found.centers, found.labels, least)
    counts = np.bincount(labels, minlength=len(centers))
    assert len(centers) == 1 or counts.min() >= least
    np.testing.assert_array_equal(labels, squared_distances(X, centers).argmin(axis=1))
    np.testing.assert_allclose(centers, [X[labels == j].mean(axis=0) for j in range(len(centers))], atol=0.05)
    if least == 1:
        assert centers is found.centers
    if least == 3:
        assert 1 < len(centers) < 8
