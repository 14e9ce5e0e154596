"""The intersection point lies in both balls always; with the sign of the authors' code in about 6 %."""

import numpy as np
import pytest

from fedcluster_app.aggregation.scan import intersection_points


def overlapping_pairs(rng, wanted):
    """Centres from N(0, I_3), squared radii from U(0, 1), kept if the balls overlap."""
    kept = []
    while sum(len(part[0]) for part in kept) < wanted:
        centers = rng.normal(size=(2, wanted, 3))
        radii = np.sqrt(rng.uniform(size=(2, wanted)))
        touch = np.linalg.norm(centers[0] - centers[1], axis=1) <= radii.sum(axis=0)
        kept.append((*centers[:, touch], *radii[:, touch]))
    return [np.concatenate(part)[:wanted] for part in zip(*kept, strict=True)]


@pytest.mark.parametrize("seed", range(3))
def test_share_of_points_inside_both_balls(seed):
    a, b, r, s = overlapping_pairs(np.random.default_rng(seed), 20_000)
    point = intersection_points(a, b, r, s, np.linalg.norm(a - b, axis=1))

    def inside_both(x):
        in_a = np.linalg.norm(x - a, axis=1) <= r + 1e-9
        return (in_a & (np.linalg.norm(x - b, axis=1) <= s + 1e-9)).mean()

    assert inside_both(point) == 1.0
    flipped = 2 * a - point  # a + lambda (a - b)
    assert 0.05 <= inside_both(flipped) <= 0.07
