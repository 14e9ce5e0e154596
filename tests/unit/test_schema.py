from __future__ import annotations

import pytest

from fedcluster_app.data.schema import first_mismatch


@pytest.mark.parametrize(
    ("reference", "other", "message"),
    [
        ("a b c", "a b c", None),
        ("a b temperature", "a b temp", "column 3 is 'temp', expected 'temperature'"),
        ("a b c", "a c b", "column 2 is 'c', expected 'b' (the same columns in another order)"),
        ("a b age", "a b", "has 2 columns, expected 3: 'age' is missing"),
        ("a b c d", "a", "has 1 columns, expected 4: 'b' and 2 more are missing"),
        ("a", "a id", "has 2 columns, expected 1: 'id' is not expected"),
        ("a b c", "a x", "has 2 columns, expected 3: 'b' and 1 more are missing, 'x' is not expected"),
    ],
)
def test_first_mismatch(reference: str, other: str, message: str | None) -> None:
    assert first_mismatch(tuple(reference.split()), tuple(other.split())) == message
