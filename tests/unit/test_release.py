"""What may be seen of responsibilities: of every component none or enough, never a few rows missing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.mixtures.release import released

FAST = settings(deadline=None, derandomize=True, max_examples=200)


def soft(sizes, seed):
    """Responsibilities of rows of which so many are mostly each component's."""
    sure = np.eye(len(sizes))[np.repeat(np.arange(len(sizes)), sizes)]
    mixed = sure + np.random.default_rng(seed).uniform(0, 0.3, sure.shape)
    return mixed / mixed.sum(axis=1, keepdims=True)


@given(
    sizes=st.lists(st.integers(0, 14), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) > 0),
    seed=st.integers(0, 9),
    least=st.integers(1, 8),
)
@FAST
def test_of_every_component_none_or_enough_and_so_of_what_is_missing(sizes, seed, least):
    R = soft(sizes, seed)
    kept = released(R, least)
    mass, missing = kept.sum(axis=0), len(R) - kept.sum()
    assert ((mass == 0) | (mass > least - 1e-5)).all()
    assert not kept.any() or missing < 1e-5 or missing > least - 1e-5
    # Rows and components are whole or not there.
    assert (np.isclose(kept, R) | (kept == 0)).all()


def test_all_is_released_where_all_are_large_enough():
    R = soft([10, 12], 0)
    np.testing.assert_array_equal(released(R, 5), R)
    np.testing.assert_array_equal(released(R, 0), R)


def test_small_components_that_have_enough_rows_together_cost_no_other_row():
    R = np.eye(3)[np.repeat([0, 1, 2], [20, 3, 2])]
    np.testing.assert_array_equal(released(R, 5), R * [1, 0, 0])


@pytest.mark.parametrize("few", [1, 2, 3, 4])
def test_no_more_other_rows_are_left_out_than_it_takes(few):
    R = np.eye(2)[np.repeat([0, 1], [20, few])]
    kept = released(R, 5)
    assert not kept[:, 1].any()
    assert kept.sum() == 20 - (5 - few)


def test_nothing_is_released_where_too_little_would_be_left():
    R = np.eye(2)[np.repeat([0, 1], [6, 3])]
    assert not released(R, 5).any()
