"""Silhouette widths do not look at names or order, and live in Euclidean space."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.metrics import silhouette_from_distances, silhouette_samples
from fedcluster_app.mixtures import squared_distances

FAST = settings(deadline=None, derandomize=True, max_examples=80)


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-3, 1.0, 1e4]))
@FAST
def test_invariances(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    n, d, k = rng.integers(3, 40), rng.integers(1, 5), rng.integers(2, 5)
    X, labels = rng.normal(size=(n, d)), rng.integers(k, size=n)
    labels[:2] = [0, 1]
    widths = silhouette_samples(X, labels)
    assert (np.abs(widths) <= 1).all()

    order = rng.permutation(n)
    np.testing.assert_allclose(silhouette_samples(X[order], labels[order]), widths[order], atol=1e-8)
    np.testing.assert_allclose(silhouette_samples(X, rng.permutation(k)[labels]), widths, atol=1e-12)
    Q, _ = np.linalg.qr(rng.normal(size=(d, d)))
    moved = scale * (X @ Q + 10 * rng.normal(size=d))
    np.testing.assert_allclose(silhouette_samples(moved, labels), widths, atol=1e-8)
    distances = np.sqrt(squared_distances(X, X))
    np.testing.assert_allclose(silhouette_from_distances(distances, labels), widths, atol=1e-12)
