"""What the rivals' sites release: never a centre with fewer than ``min-count`` rows behind it."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.aggregation import kfed, spahm
from fedcluster_app.steps.centers import released


@pytest.mark.parametrize("client_step", [kfed.client_step, spahm.client_step])
@pytest.mark.parametrize("min_count", [1, 2, 5, 12])
@pytest.mark.parametrize("n", [12, 13, 40])
def test_every_centre_is_the_mean_of_enough_rows(client_step, min_count, n):
    rng = np.random.default_rng(n)
    for _ in range(10):
        X = rng.normal(size=(n, 2)) + 5 * rng.integers(0, 3, size=(n, 1))
        centers = released(X, client_step(X, 15, rng), min_count)
        assert len(X) >= min_count * len(centers)
        # Every centre is the mean of rows that are no other's; k-means may stop a hair before its end.
        nearest = np.square(X[:, None] - centers).sum(axis=2).argmin(axis=1)
        means = np.stack([X[nearest == j].mean(axis=0) for j in range(len(centers))])
        np.testing.assert_allclose(centers, means, atol=0.1)
        assert np.bincount(nearest, minlength=len(centers)).min() >= min_count - 1
        if min_count == 1:
            assert len(centers) == min(n, 15)


def test_dissolving_keeps_what_is_large():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(30, 2)), rng.normal(20.0, 1.0, (30, 2)), [[10.0, 10.0]] * 3])
    centers = released(X, kfed.client_step(X, 3, rng), 5)
    assert len(centers) == 2
    np.testing.assert_allclose(np.sort(centers[:, 0]), [0.0, 20.0], atol=1.5)
