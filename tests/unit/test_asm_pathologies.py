"""Awkward tables: what must be refused, and what must be survived without a warning."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.cardinality import AdaptiveSplitMerge, AdaptiveSplitMergeCV


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def select(X, **parameters):
    return AdaptiveSplitMergeCV(random_state=0, **parameters).fit(X)


@pytest.mark.parametrize(
    "X",
    [
        [[np.nan, 1.0], [0.0, 1.0]],
        [[np.inf, 1.0], [0.0, 1.0]],
        [["a", "b"], ["c", "d"]],
        np.empty((0, 3)),
        np.empty((3, 0)),
        np.ones(5),
        np.ones((5, 2), dtype=complex),
    ],
    ids=["NaN", "infinity", "text", "no rows", "no columns", "vector", "complex"],
)
@pytest.mark.parametrize(
    "estimator", [AdaptiveSplitMerge(), AdaptiveSplitMergeCV()], ids=["fixed", "selected"]
)
def test_unusable_tables_are_refused(estimator, X):
    with pytest.raises(
        ValueError, match=r"NaN|infinity|convert|0 sample|0 feature|1D|1-dimensional|[Cc]omplex"
    ):
        estimator.fit(X)


@pytest.mark.parametrize("dtype", [bool, int, np.float32])
def test_other_numbers_become_float64(dtype):
    X = (normal(60, 3) > 0).astype(dtype)
    np.testing.assert_array_equal(
        AdaptiveSplitMerge().fit(X).means_, AdaptiveSplitMerge().fit(X.astype(np.float64)).means_
    )


def test_one_column_works():
    X = np.concatenate([normal(80, 1), normal(80, 1, 1) + 12])
    assert AdaptiveSplitMerge().fit(X).n_components_ == 2


@pytest.mark.parametrize("X", [[[3.0, 4.0]], [[3.0, 4.0], [3.0, 5.0]], np.full((50, 2), 0.1)])
@pytest.mark.parametrize(
    "estimator", [AdaptiveSplitMerge(), AdaptiveSplitMergeCV()], ids=["fixed", "selected"]
)
def test_one_point_two_points_equal_points(estimator, X):
    model = estimator.fit(X)
    assert model.n_components_ == 1
    assert (model.labels_ == 0).all()
    assert np.isfinite(model.score_samples(X)).all()
    np.testing.assert_array_equal(model.predict_proba(X), 1)


def test_atoms_are_components():
    atoms = normal(5, 3)
    X = np.repeat(atoms, 40, axis=0)
    for model in (AdaptiveSplitMerge().fit(X), select(X)):
        assert model.n_components_ == 5
        np.testing.assert_array_equal(model.variances_, 0)
        np.testing.assert_allclose(model.means_[model.labels_], X, atol=1e-14)


def test_half_of_the_rows_equal():
    X = np.concatenate([np.full((100, 4), 0.1), normal(100, 4) + 5])
    assert select(X).n_components_ == 2


def test_doubled_rows_count_double():
    X = normal(300, 4)
    once, twice = (
        AdaptiveSplitMerge(alpha=0.01, min_mass=5).fit(table).n_components_
        for table in (X, np.repeat(X, 2, axis=0))
    )
    assert twice > 1.5 * once


def test_constant_columns_count_in_the_dimension_only():
    X = np.concatenate([normal(100, 3), normal(100, 3, 1) + 8])
    wide = np.column_stack([X, np.full((200, 5), 7.0)])
    model, padded = select(X), select(wide)
    assert model.n_components_ == padded.n_components_ == 2
    np.testing.assert_array_equal(padded.means_[:, 3:], 7)
    # The variance is per dimension: five dimensions more, no spread more.
    np.testing.assert_allclose(padded.variances_, model.variances_ * 3 / 8, rtol=0.05)


def test_fewer_rows_than_columns():
    assert select(normal(20, 200)).n_components_ == 1
    X = np.concatenate([normal(20, 200), normal(20, 200, 1) + 2])
    assert select(X).n_components_ == 2


@pytest.mark.parametrize("scale", [1e150, 1e-150])
def test_values_at_the_ends_of_the_range(scale):
    X = np.concatenate([normal(60, 3), normal(60, 3, 1) + 9])
    model, extreme = select(X), select(scale * X)
    np.testing.assert_array_equal(extreme.labels_, model.labels_)
    np.testing.assert_allclose(extreme.means_ / scale, model.means_, rtol=1e-10)
    np.testing.assert_allclose(extreme.variances_ / scale / scale, model.variances_, rtol=1e-10)


@pytest.mark.parametrize("scale", [1e160, 1e300, 1e-200])
@pytest.mark.parametrize(
    "estimator", [AdaptiveSplitMerge(), AdaptiveSplitMergeCV()], ids=["fixed", "selected"]
)
def test_variances_outside_the_range_are_refused(estimator, scale):
    with pytest.raises(ValueError, match="float64 cannot hold it"):
        estimator.fit(scale * normal(40, 3))


@pytest.mark.parametrize("offset", [1e9, 1e15])
def test_large_offsets_do_not_change_the_count(offset):
    X = np.concatenate([normal(60, 3), normal(60, 3, 1) + 9])
    np.testing.assert_array_equal(select(X + offset).labels_, select(X).labels_)


def test_one_large_feature_decides_alone():
    X = np.concatenate([normal(100, 3), normal(100, 3, 1) + 12])
    X[:, 2] = 1e6 * normal(200, 1, 2).ravel()
    model = AdaptiveSplitMerge(alpha=0.5).fit(X)
    sorted_labels = model.labels_[np.argsort(X[:, 2])]
    assert (np.diff(sorted_labels) != 0).sum() == model.n_components_ - 1


@pytest.mark.parametrize("sizes", [(5000, 20), (2000, 20, 20)])
def test_small_groups_far_away_are_found(sizes):
    X = np.concatenate([normal(n, 4, i) + 40 * np.eye(4)[i] for i, n in enumerate(sizes)])
    model = select(X)
    assert model.n_components_ == len(sizes)
    assert model.best_min_mass_ <= 16


@pytest.mark.parametrize("gross", [False, True])
def test_one_gross_outlier_hides_all_structure(gross):
    # Documented, not wanted: the best first split sets the outlier apart and fails the minimum mass.
    X = np.concatenate([normal(100, 3), normal(100, 3, 1) + 12, np.full((1, 3), 1e6 if gross else 6.0)])
    assert AdaptiveSplitMerge().fit(X).n_components_ == (1 if gross else 2)
