"""k-means: weights as repeated rows, and the invariances of Euclidean space."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.mixtures import kmeans, kmeans_plus_plus, lloyd, squared_distances

FAST = settings(deadline=None, derandomize=True, max_examples=60)
seeds = st.integers(0, 2**32 - 1)


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Rows and starting centres; some starts are far away, so that clusters begin empty."""
    rng = np.random.default_rng(seed)
    n, d, k = rng.integers(6, 40), rng.integers(1, 5), rng.integers(1, 6)
    X = rng.normal(size=(n, d)) + 4 * rng.normal(size=(3, d))[rng.integers(3, size=n)]
    centers = X[rng.permutation(n)[:k]] + np.where(rng.random((k, 1)) < 0.15, 100.0, 0.0)
    return X, centers, rng


@given(seed=seeds)
@FAST
def test_the_partition_is_consistent_and_no_worse_than_the_start(seed: int) -> None:
    X, centers, _ = random_case(seed)
    result = lloyd(X, centers)
    squared = squared_distances(X, result.centers)
    chosen = squared[np.arange(len(X)), result.labels]
    np.testing.assert_allclose(chosen, squared.min(axis=1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.inertia, chosen.sum(), rtol=1e-9, atol=1e-12)
    assert result.inertia <= squared_distances(X, centers).min(axis=1).sum() * (1 + 1e-12)


@given(seed=seeds)
@FAST
def test_no_cluster_stays_empty(seed: int) -> None:
    X, centers, _ = random_case(seed)
    assert len(np.unique(lloyd(X, centers).labels)) == len(centers)


@given(seed=seeds)
@FAST
def test_integer_weights_are_repeated_rows_in_lloyd(seed: int) -> None:
    X, _, rng = random_case(seed)
    weights = rng.integers(0, 4, size=len(X))
    weights[0] = 1
    centers = X[weights > 0][: rng.integers(1, 4)]
    weighted = lloyd(X, centers, weights=weights.astype(float))
    repeated = lloyd(np.repeat(X, weights, axis=0), centers)
    assert weighted.n_iter == repeated.n_iter
    np.testing.assert_allclose(weighted.centers, repeated.centers, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(weighted.inertia, repeated.inertia, rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(np.repeat(weighted.labels, weights), repeated.labels)


@given(seed=seeds)
@FAST
def test_integer_weights_are_repeated_rows_in_the_seeding(seed: int) -> None:
    X, _, rng = random_case(seed)
    weights = rng.integers(0, 4, size=len(X))
    weights[:3] = 1
    weighted = kmeans_plus_plus(X, 3, np.random.default_rng(seed), weights=weights.astype(float))
    repeated = kmeans_plus_plus(np.repeat(X, weights, axis=0), 3, np.random.default_rng(seed))
    np.testing.assert_array_equal(weighted, repeated)


@given(seed=seeds)
@FAST
def test_row_order_does_not_matter_to_lloyd(seed: int) -> None:
    X, centers, rng = random_case(seed)
    order = rng.permutation(len(X))
    straight, shuffled = lloyd(X, centers), lloyd(X[order], centers)
    np.testing.assert_allclose(shuffled.centers, straight.centers, rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(shuffled.labels, straight.labels[order])


@given(seed=seeds, scale=st.sampled_from([1e-3, 1.0, 1e4]))
@FAST
def test_shift_scale_and_rotation_carry_over(seed: int, scale: float) -> None:
    X, centers, rng = random_case(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(X.shape[1], X.shape[1])))
    shift = 100 * rng.normal(size=X.shape[1])
    straight = lloyd(X, centers)
    moved = lloyd(scale * (X @ Q + shift), scale * (centers @ Q + shift))
    np.testing.assert_array_equal(moved.labels, straight.labels)
    np.testing.assert_allclose(moved.inertia, scale**2 * straight.inertia, rtol=1e-8)


@given(seed=seeds)
@FAST
def test_more_runs_are_never_worse(seed: int) -> None:
    X, _, _ = random_case(seed)
    one, five = (kmeans(X, 4, np.random.default_rng(seed), n_init=n).inertia for n in (1, 5))
    assert five <= one
