from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.data.table import Table, parse_number, validated_table
from fedcluster_app.errors import DataError


def test_values_are_kept_and_read_only() -> None:
    X = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    table = validated_table(X, ["a", "b"], [1, 0, 1], where="site 's'", label_names=("no", "yes"))
    assert table.columns == ("a", "b")
    assert table.X.dtype == np.float64
    assert table.X.flags.c_contiguous
    assert table.label_names == ("no", "yes")
    assert table.labels is not None
    assert table.labels.dtype == np.int64
    assert table.n_rows == 3
    np.testing.assert_array_equal(table.X, X)
    with pytest.raises(ValueError, match="read-only"):
        table.X[0, 0] = 9.0
    with pytest.raises(ValueError, match="read-only"):
        table.labels[0] = 9


def test_the_callers_array_stays_writable_and_apart() -> None:
    X = np.zeros((2, 1))
    table = Table(X, ("a",))
    X[0, 0] = 5.0
    assert table.X[0, 0] == 0.0


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_rows_are_allowed(n: int) -> None:
    assert validated_table(
        np.zeros((n, 2)), ["a", "b"], np.zeros(n, dtype=int), where="site 's'"
    ).X.shape == (n, 2)


def test_missing_values_are_named_with_their_share() -> None:
    X = np.zeros((400, 2))
    X[:11, 1] = np.nan
    X[10, 1] = -np.inf
    X[11, 1] = -1.79e308
    message = r"^site 'a': column 'temp' has 12 of 400 values missing or not finite \(3\.0 %\); fill or drop"
    with pytest.raises(DataError, match=message):
        validated_table(X, ["id", "temp"], None, where="site 'a'")


def test_further_bad_columns_are_counted() -> None:
    with pytest.raises(DataError, match=r"column 'a' has 2 of 2 .*\(100\.0 %\), and 2 more of 3 columns"):
        validated_table(np.full((2, 3), np.nan), ["a", "b", "c"], None, where="site 's'")


def test_text_is_named_with_its_share_and_never_shown() -> None:
    X = np.array([["1", "secret"], ["2", "3"], ["4", "5"], ["6", "hidden"]], dtype=object)
    with pytest.raises(
        DataError, match=r"site 's': column 'b' has 2 of 4 .*not numbers \(50\.0 %\)"
    ) as caught:
        validated_table(X, ["a", "b"], None, where="site 's'")
    assert "secret" not in str(caught.value)


def test_numbers_written_as_text_are_numbers() -> None:
    table = validated_table(np.array([["1", " 2.5 "]]), ["a", "b"], None, where="site 's'")
    np.testing.assert_array_equal(table.X, [[1.0, 2.5]])


@pytest.mark.parametrize("mark", ["", " ", "NA", "n/a", "NaN", "null", "None", "?"])
def test_marks_of_missing_values(mark: str) -> None:
    number = parse_number(mark)
    assert number is not None
    assert np.isnan(number)


@pytest.mark.parametrize("text", ["x", "1,5", "1_000", "--1"])
def test_other_text_is_no_number(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("X", "columns", "labels", "message"),
    [
        (np.zeros((3, 0)), [], None, "no numeric column"),
        (np.zeros((3, 2)), ["a", "a"], None, "'a' occurs more than once"),
        (np.zeros((3, 2)), ["a"], None, r"shape \(3, 2\), expected \(rows, 1\)"),
        (np.zeros(3), ["a"], None, r"shape \(3,\)"),
        (np.zeros((3, 1)), ["a"], [1, 2], r"labels have shape \(2,\).*expected \(3,\)"),
        (np.zeros((2, 1)), ["a"], [0.5, 1.0], "whole numbers"),
    ],
)
def test_layout_errors(X: np.ndarray, columns: list[str], labels: list[float] | None, message: str) -> None:
    with pytest.raises(DataError, match=f"^site 's': .*{message}"):
        validated_table(X, columns, labels, where="site 's'")
