"""Agreement scores: hand-counted tables and degenerate partitions."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.metrics import adjusted_rand_index, contingency_table, normalized_mutual_info


def test_contingency_counts_pairs_of_labels_in_sorted_order() -> None:
    table = contingency_table(["b", "a", "b", "b"], [7, 7, 3, 3])
    np.testing.assert_array_equal(table, [[0, 1], [2, 1]])
    assert table.dtype == np.int64


def test_tables_of_a_common_shape_add_up_over_sites() -> None:
    a, b = np.array([0, 2, 2, 1, 0]), np.array([1, 0, 0, 1, 1])
    parts = [contingency_table(a[s], b[s], shape=(3, 2)) for s in (slice(0, 2), slice(2, 5), slice(5, 5))]
    np.testing.assert_array_equal(sum(parts), contingency_table(a, b))


def test_labels_out_of_range_or_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="b: expected labels 0 to 1, got 0 to 2"):
        contingency_table([0, 1], [0, 2], shape=(2, 2))
    with pytest.raises(ValueError, match="a: expected labels 0 to 1, got -1 to 1"):
        contingency_table([-1, 1], [0, 1], shape=(2, 2))
    with pytest.raises(ValueError, match=r"got \(2,\) and \(3,\)"):
        contingency_table([0, 1], [0, 1, 1])


def test_adjusted_rand_index_of_a_hand_counted_table() -> None:
    # Of the 15 pairs of 6 rows, 4 are together in a, 7 in b, 2 in both.
    table = np.array([[2, 1], [0, 2], [0, 1]])
    together, in_a, in_b, pairs = 2, 4, 7, 15
    expected = (together - in_a * in_b / pairs) / ((in_a + in_b) / 2 - in_a * in_b / pairs)
    assert adjusted_rand_index(table) == pytest.approx(expected, rel=1e-15)


def test_adjusted_rand_index_does_not_overflow() -> None:
    n = 3_000_000
    assert adjusted_rand_index(np.diag([n, n, n])) == 1.0
    assert adjusted_rand_index(np.full((2, 2), n)) == pytest.approx(0.0, abs=1e-6)


def test_mutual_information_of_half_known_labels() -> None:
    # b tells one of the two bits of a: I = log 2, H(a) = 2 log 2, H(b) = log 2.
    table = np.array([[5, 0], [5, 0], [0, 5], [0, 5]])
    assert normalized_mutual_info(table) == pytest.approx(2 / 3, rel=1e-14)


def test_independent_labelings_have_exactly_no_information() -> None:
    # Without care the rounding of the logarithms leaves 9e-17 here.
    assert normalized_mutual_info(np.outer([7, 6, 7, 2], [1, 7, 1])) == 0.0


@pytest.mark.parametrize(
    ("table", "ari", "nmi"),
    [
        (np.zeros((0, 0), dtype=np.int64), 1.0, 1.0),
        (np.array([[1]]), 1.0, 1.0),
        (np.array([[9]]), 1.0, 1.0),
        (np.array([[4, 5]]), 0.0, 0.0),
        (np.array([[4], [5]]), 0.0, 0.0),
        (np.eye(4, dtype=np.int64), 1.0, 1.0),
        (np.array([[0, 0, 0], [9, 0, 0]]), 1.0, 1.0),
        (np.full((3, 3), 4), -2 / 33, 0.0),
    ],
)
def test_degenerate_tables(table: np.ndarray, ari: float, nmi: float) -> None:
    assert adjusted_rand_index(table) == pytest.approx(ari, rel=1e-12)
    assert normalized_mutual_info(table) == nmi
