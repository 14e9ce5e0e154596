"""Silhouette widths: a case by hand and the conventions."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.metrics import silhouette, silhouette_from_distances, silhouette_samples, silhouette_score


def test_widths_of_three_points_on_a_line() -> None:
    X = np.array([[0.0], [1.0], [5.0]])
    np.testing.assert_allclose(silhouette_samples(X, [0, 0, 1]), [4 / 5, 3 / 4, 0.0], rtol=1e-14)
    np.testing.assert_allclose(silhouette_samples(X, [0, 1, 0]), [-4 / 5, 0.0, -1 / 5], rtol=1e-14)
    assert silhouette_score(X, [0, 0, 1]) == pytest.approx(31 / 60)


def test_one_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 clusters, got 1"):
        silhouette_samples(np.eye(3), [1, 1, 1])
    with pytest.raises(ValueError, match="at least 2 clusters, got 0"):
        silhouette_from_distances(np.empty((0, 0)), [])


def test_rows_alone_and_coincident_rows_have_width_zero() -> None:
    np.testing.assert_array_equal(silhouette_samples(np.eye(3), [0, 1, 2]), 0.0)
    np.testing.assert_array_equal(silhouette_samples(np.full((4, 2), 0.1), [0, 0, 1, 1]), 0.0)


def test_coincident_rows_far_apart_have_width_one_exactly() -> None:
    X = np.repeat(np.array([[0.1, 1e6], [0.3, -1e6]]), 5, axis=0)
    np.testing.assert_array_equal(silhouette_samples(X, np.repeat(["a", "b"], 5)), 1.0)


def test_blocks_do_not_change_the_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(101, 3)), rng.integers(4, size=101)
    whole = silhouette_samples(X, labels)
    monkeypatch.setattr(silhouette, "_BLOCK", 700)
    np.testing.assert_allclose(silhouette_samples(X, labels), whole, rtol=1e-11, atol=1e-13)
