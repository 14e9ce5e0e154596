from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.cardinality.frame import frame_of
from fedcluster_app.errors import DataError


def table(seed=0, n=40, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("scale", [1e-150, 1e-3, 1.0, 1e7, 1e150])
def test_rows_are_centred_and_within_one(scale):
    X = scale * (table() + 2)
    Y = frame_of(X).apply(X)
    assert 0.5 <= np.abs(Y).max() <= 1
    np.testing.assert_allclose(Y.mean(axis=0), 0, atol=1e-15)


def test_moments_map_back():
    X = 1000 * table() + 5
    frame = frame_of(X)
    Y = frame.apply(X)
    np.testing.assert_allclose(frame.means(Y[:4]), X[:4], rtol=1e-14)
    np.testing.assert_allclose(frame.variances(Y.var(axis=0)), X.var(axis=0), rtol=1e-13)


@pytest.mark.parametrize("power", [-400, -3, 1, 60, 400])
def test_power_of_two_changes_no_bit(power):
    X = table()
    Y = np.ldexp(X, power)
    np.testing.assert_array_equal(frame_of(X).apply(X), frame_of(Y).apply(Y))


def test_constant_columns_are_exactly_zero():
    X = np.column_stack([np.full(10, 0.1), np.arange(10.0), np.full(10, 1e300)])
    X[:, 2] = -1e15
    Y = frame_of(X).apply(X)
    np.testing.assert_array_equal(Y[:, [0, 2]], 0.0)


def test_offset_keeps_the_digits():
    X = np.round(table(), 3)
    shifted = X + 1e9
    difference = frame_of(X).apply(X) - frame_of(shifted).apply(shifted)
    assert np.abs(difference).max() < 1e-6


def test_new_rows_far_away_stay_finite():
    frame = frame_of(table())
    assert np.isfinite(frame.apply(np.array([[1e308, -1e308, 0.0]]))).all()


@pytest.mark.parametrize("scale", [1e160, 1e300, 1e-200, 1e-310])
def test_variance_outside_float64_is_refused(scale):
    X = scale * table()
    frame = frame_of(X)
    with pytest.raises(DataError, match="float64 cannot hold it"):
        frame.variances(np.array([frame.apply(X).var()]))


def test_zero_variance_is_always_representable():
    np.testing.assert_array_equal(frame_of(1e-200 * table()).variances(np.zeros(2)), 0)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.empty((0, 2)), "at least one row"),
        (np.empty((2, 0)), "one column"),
        (np.ones(3), "reshape"),
        (np.array([[1.0, np.nan]]), "finite"),
        (np.array([[1.0, np.inf]]), "finite"),
        (np.array([[1.7e308], [-1.7e308]]), "overflows"),
    ],
)
def test_unusable_tables_are_refused(X, message):
    with pytest.raises(DataError, match=message):
        frame_of(X)
