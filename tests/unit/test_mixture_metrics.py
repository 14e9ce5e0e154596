from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from fedcluster_app.metrics.mixtures import center_error, effective_components


@pytest.mark.parametrize("k", [1, 2, 7])
def test_equal_weights_are_all_effective(k):
    assert effective_components(np.full(k, 1 / k)) == pytest.approx(k)


def test_weights_of_zero_do_not_count():
    assert effective_components(np.array([0.5, 0.0, 0.5])) == pytest.approx(2)
    assert effective_components(np.array([0.0, 1.0])) == pytest.approx(1)


def test_effective_components_of_a_half_and_two_quarters():
    # Entropy of 1.5 bits.
    assert effective_components(np.array([0.25, 0.5, 0.25])) == pytest.approx(2**1.5)


@pytest.mark.parametrize(("k", "k_true"), [(1, 1), (4, 4), (3, 5), (5, 3)])
def test_center_error_is_the_least_over_all_assignments(k, k_true):
    rng = np.random.default_rng(k + 10 * k_true)
    for _ in range(20):
        means, truth = rng.normal(size=(k, 3)), rng.normal(size=(k_true, 3))
        few, many = (means, truth) if k <= k_true else (truth, means)
        tried = [
            np.sqrt(((few - many[list(chosen)]) ** 2).sum(axis=1)).mean()
            for chosen in permutations(range(len(many)), len(few))
        ]
        assert center_error(means, truth) == pytest.approx(min(tried))
        assert center_error(truth, means) == pytest.approx(min(tried))


def test_center_error_is_matched_on_distances_and_not_on_their_squares():
    # In order the distances are 1 and 1; crossed they are 0 and 1.897, with the larger sum of squares.
    means, truth = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.8, 0.6]])
    assert center_error(means, truth) == pytest.approx(np.hypot(1.8, 0.6) / 2)


def test_center_error_is_zero_at_the_truth_in_any_order():
    truth = np.random.default_rng(0).normal(size=(6, 2))
    assert center_error(truth[::-1], truth) == 0


def test_features_must_agree():
    with pytest.raises(ValueError, match="expected 3 features"):
        center_error(np.zeros((2, 2)), np.zeros((2, 3)))
