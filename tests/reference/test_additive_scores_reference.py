"""Additive scores against scikit-learn (centres = label means) and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score

from fedcluster_app.metrics import score_sums, scores


def case(n: int, d: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    # Two rows at least in each: scikit-learn puts a single row 1e-7 away from itself.
    labels = np.concatenate([np.tile(np.arange(k), 2), rng.integers(k, size=n - 2 * k)])
    X = rng.normal(size=(n, d)) + labels[:, None]
    return X, labels, np.array([X[labels == j].mean(axis=0) for j in range(k)])


@pytest.mark.parametrize(("n", "d", "k"), [(6, 1, 2), (200, 5, 7), (3000, 16, 4), (60, 32, 29)])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scores_at_the_label_means_are_those_of_scikit_learn(n: int, d: int, k: int, offset: float) -> None:
    X, labels, means = case(n, d, k)
    result = scores(score_sums(X + offset, labels, means + offset), means + offset)
    assert result["calinski_harabasz"] == pytest.approx(calinski_harabasz_score(X, labels), rel=1e-8)
    assert result["davies_bouldin"] == pytest.approx(davies_bouldin_score(X, labels), rel=1e-8)


def test_simplified_silhouette_by_brute_force() -> None:
    X, labels, _ = case(80, 3, 5)
    centers = np.random.default_rng(0).normal(size=(5, 3)) * 3
    widths = []
    for x, label in zip(X, labels, strict=True):
        distances = [np.linalg.norm(x - center) for center in centers]
        a = distances.pop(label)
        widths.append((min(distances) - a) / max(min(distances), a))
    result = scores(score_sums(X, labels, centers), centers)
    assert result["simplified_silhouette"] == pytest.approx(np.mean(widths), rel=1e-12)
