"""Agreement against scikit-learn, on random and degenerate labelings."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from fedcluster_app.metrics import adjusted_rand_index, contingency_table, normalized_mutual_info

CASES = [(2, 2, 2), (5, 3, 3), (50, 4, 6), (50, 1, 5), (50, 50, 1), (50, 1, 1), (30, 400, 400), (2000, 12, 9)]


@pytest.mark.parametrize(("n", "ra", "cb"), CASES)
@pytest.mark.parametrize("related", [False, True])
def test_agreement_is_that_of_scikit_learn(n: int, ra: int, cb: int, related: bool) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        a, b = rng.integers(ra, size=n), rng.integers(cb, size=n)
        b = np.where(rng.random(n) < 0.7, a, b) if related else b
        table = contingency_table(a, b)
        np.testing.assert_array_equal(table, contingency_matrix(a, b))
        assert adjusted_rand_index(table) == pytest.approx(adjusted_rand_score(a, b), abs=1e-14)
        assert normalized_mutual_info(table) == pytest.approx(normalized_mutual_info_score(a, b), abs=1e-12)
