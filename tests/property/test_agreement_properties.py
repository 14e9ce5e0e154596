"""Agreement does not look at names, order or empty labels, and adds over sites."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.metrics import adjusted_rand_index, contingency_table, normalized_mutual_info

FAST = settings(deadline=None, derandomize=True, max_examples=100)
labelings = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40).map(
    lambda pairs: np.array(pairs).T
)
seeds = st.integers(0, 2**32 - 1)


def both(table: np.ndarray) -> tuple[float, float]:
    return adjusted_rand_index(table), normalized_mutual_info(table)


@given(labels=labelings, seed=seeds)
@FAST
def test_names_and_rows_may_be_permuted(labels: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = labels[:, rng.permutation(labels.shape[1])]
    renamed = contingency_table(rng.permutation(5)[a], rng.permutation(4)[b])
    assert both(renamed) == pytest.approx(both(contingency_table(*labels)), abs=1e-12)


@given(labels=labelings)
@FAST
def test_agreement_is_symmetric_and_bounded(labels: np.ndarray) -> None:
    table = contingency_table(*labels)
    ari, nmi = both(table)
    assert both(table.T) == pytest.approx((ari, nmi), abs=1e-12)
    assert -0.5 <= ari <= 1.0
    assert 0.0 <= nmi <= 1.0


@given(labels=labelings, cuts=st.lists(st.integers(0, 40), max_size=4))
@FAST
def test_tables_add_over_sites(labels: np.ndarray, cuts: list[int]) -> None:
    sites = np.split(labels, sorted(min(cut, labels.shape[1]) for cut in cuts), axis=1)
    total = sum(contingency_table(*site, shape=(5, 4)) for site in sites)
    np.testing.assert_array_equal(total, contingency_table(*labels, shape=(5, 4)))
    # Empty labels of the common shape change nothing.
    assert both(np.asarray(total)) == pytest.approx(both(contingency_table(*labels)), abs=1e-12)


@given(labels=labelings)
@FAST
def test_a_labeling_agrees_with_itself(labels: np.ndarray) -> None:
    assert both(contingency_table(labels[0], labels[0])) == pytest.approx((1.0, 1.0), abs=1e-12)
