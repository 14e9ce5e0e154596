"""Silhouette widths against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import pairwise_distances
from sklearn.metrics import silhouette_samples as reference

from fedcluster_app.metrics import silhouette_from_distances, silhouette_samples


@pytest.mark.parametrize(("n", "d", "k"), [(10, 1, 2), (200, 5, 7), (3000, 16, 4), (60, 64, 59)])
def test_widths_are_those_of_scikit_learn(n: int, d: int, k: int) -> None:
    rng = np.random.default_rng(n)
    labels = rng.integers(k, size=n) * 3 - 5
    X = rng.normal(size=(n, d)) + labels[:, None] / k
    expected = reference(X, labels)
    np.testing.assert_allclose(silhouette_samples(X, labels), expected, rtol=1e-8, atol=1e-10)
    distances = pairwise_distances(X)
    np.testing.assert_allclose(silhouette_from_distances(distances, labels), expected, atol=1e-10)


def test_names_and_coincident_rows_are_handled_as_in_scikit_learn() -> None:
    X = np.repeat(np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 3.0]]), [4, 3, 2], axis=0)
    labels = np.repeat(["x", "y", "z", "w"], [4, 2, 2, 1])
    np.testing.assert_allclose(silhouette_samples(X, labels), reference(X, labels), atol=1e-12)
