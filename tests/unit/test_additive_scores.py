"""Additive scores: a case by hand and degenerate clusterings."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.metrics import score_sums, scores


def test_scores_of_four_points_on_a_line() -> None:
    X, labels, centers = (
        np.array([[-1.0], [1.0], [9.0], [13.0]]),
        np.array([0, 0, 1, 1]),
        np.array([[0.0], [11.0]]),
    )
    sums = score_sums(X, labels, centers)
    np.testing.assert_array_equal(sums.rows, [2, 2])
    np.testing.assert_allclose(sums.within, [2.0, 8.0])
    np.testing.assert_allclose(sums.distance, [2.0, 4.0])
    np.testing.assert_allclose(sums.silhouette, [11 / 12 + 9 / 10, 7 / 9 + 11 / 13])
    result = scores(sums, centers)
    assert result["calinski_harabasz"] == pytest.approx((121 / 1) / (10 / 2))
    assert result["davies_bouldin"] == pytest.approx(3 / 11)
    assert result["simplified_silhouette"] == pytest.approx((11 / 12 + 9 / 10 + 7 / 9 + 11 / 13) / 4)


def test_a_row_nearer_to_another_centre_counts_against() -> None:
    centers = np.array([[0.0], [4.0]])
    sums = score_sums(np.array([[3.0]]), np.array([0]), centers)
    assert sums.silhouette[0] == pytest.approx((1 - 3) / 3)


def test_one_centre_has_no_scores_and_no_warning() -> None:
    X, centers = np.random.default_rng(0).normal(size=(5, 2)), np.zeros((1, 2))
    assert all(np.isnan(v) for v in scores(score_sums(X, np.zeros(5, dtype=int), centers), centers).values())


def test_no_rows_have_no_scores_and_no_warning() -> None:
    X, centers = np.empty((0, 2)), np.eye(2)
    sums = score_sums(X, np.empty(0, dtype=np.int64), centers)
    assert not sums.rows.any()
    assert all(np.isnan(v) for v in scores(sums, centers).values())


def test_as_many_clusters_as_rows_and_rows_on_their_centres() -> None:
    X = np.eye(3)
    every_row = scores(score_sums(X, np.arange(3), X), X)
    assert np.isnan(every_row["calinski_harabasz"])
    assert every_row["davies_bouldin"] == 0.0
    assert every_row["simplified_silhouette"] == 1.0
    twice = scores(score_sums(np.repeat(X, 2, axis=0), np.repeat(np.arange(3), 2), X), X)
    assert twice["calinski_harabasz"] == 1.0


def test_coincident_centres_give_zero_widths_not_a_division_by_zero() -> None:
    centers = np.ones((2, 2))
    result = scores(score_sums(np.ones((4, 2)), np.array([0, 0, 1, 1]), centers), centers)
    assert result["simplified_silhouette"] == 0.0
    assert result["davies_bouldin"] == 0.0


def test_a_coincident_pair_among_others_is_left_out_of_davies_bouldin() -> None:
    X, centers = np.array([[-1.0], [1.0], [11.0]]), np.array([[0.0], [0.0], [10.0]])
    result = scores(score_sums(X, np.arange(3), centers), centers)
    assert result["davies_bouldin"] == pytest.approx(2 / 10)


def test_a_centre_without_rows_counts_only_as_a_neighbour() -> None:
    rng = np.random.default_rng(1)
    X, labels, centers = rng.normal(size=(30, 2)), rng.integers(2, size=30), rng.normal(size=(2, 2))
    wider = np.vstack([centers, [[0.0, 0.0]]])
    two, three = scores(score_sums(X, labels, centers), centers), scores(score_sums(X, labels, wider), wider)
    assert three["calinski_harabasz"] == pytest.approx(two["calinski_harabasz"], rel=1e-12)
    assert three["davies_bouldin"] == pytest.approx(two["davies_bouldin"], rel=1e-12)
    assert three["simplified_silhouette"] < two["simplified_silhouette"]
