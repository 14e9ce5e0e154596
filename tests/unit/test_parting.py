"""Rows that part do so in enough numbers, over any number of rounds: brute force over their histories."""

import numpy as np
import pytest

from fedcluster_app.aggregation.parting import together


@pytest.mark.parametrize("least", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_rows_with_one_history_are_as_many_as_may_be_seen(least, seed):
    rng = np.random.default_rng(seed)
    groups, wanted, seen = np.zeros(60, dtype=np.int64), rng.integers(-1, 4, size=60), []
    for _ in range(8):
        wanted = np.where(rng.random(60) < 0.2, rng.integers(-1, 4, size=60), wanted)
        labels, groups = together(wanted, groups, least)
        seen.append(labels)
        if least == 1:
            np.testing.assert_array_equal(labels, wanted)
    histories, sizes = np.unique(np.stack(seen), axis=1, return_counts=True)
    assert sizes.min() >= least
    assert len(np.unique(groups)) == histories.shape[1] > 1


def test_the_few_stay_with_the_most():
    labels, groups = together(np.array([0, 0, 0, 0, 1, 2, 2, 2]), np.zeros(8, dtype=np.int64), 3)
    np.testing.assert_array_equal(labels, [0, 0, 0, 0, 0, 2, 2, 2])
    np.testing.assert_array_equal(groups, [0, 0, 0, 0, 0, 1, 1, 1])
    later, after = together(np.array([2, 0, 0, 0, 0, 2, 2, -1]), groups, 3)
    np.testing.assert_array_equal(later, labels)
    np.testing.assert_array_equal(after, groups)
    few, _ = together(np.array([0, 1]), np.zeros(2, dtype=np.int64), 5)
    np.testing.assert_array_equal(few, [0, 0])
