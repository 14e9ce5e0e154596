from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler

from fedcluster_app.data.scaling import (
    Scaling,
    ScalingReport,
    agree_scaling,
    lower_triangle,
    symmetric_matrix,
    table_moments,
    takes_axes,
)
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.mixtures.statistics import merge_all


def agreed(X: np.ndarray, **options: object) -> tuple[Scaling, ScalingReport]:
    X = np.asarray(X, dtype=np.float64)
    names = [f"c{j}" for j in range(X.shape[1])]
    moments = table_moments(X, full=bool(options.get("pca") or options.get("share")))
    return agree_scaling(moments, names, **options)  # type: ignore[arg-type]  # of several types


def test_standard_gives_mean_zero_and_variance_one() -> None:
    X = np.random.default_rng(0).normal(5.0, [1.0, 2.0, 3.0], size=(40, 3))
    scaling, report = agreed(X)
    Z = scaling.apply(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(Z.var(axis=0), 1.0)
    assert scaling.n_features_out == 3
    assert report == ScalingReport((), (), 1.0, ())


def test_none_is_the_identity() -> None:
    X = np.random.default_rng(1).normal(5.0, 2.0, size=(10, 3))
    scaling, _ = agreed(X, method="none")
    np.testing.assert_array_equal(scaling.apply(X), X)


def test_low_variance_columns_are_left_unscaled_and_reported() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 4)) * [1.0, 1.0, 0.05, 0.2] + 3.0
    scaling, report = agreed(X)
    assert report.unscaled == ("c2",)
    assert scaling.scale[2] == 1.0
    assert scaling.apply(X)[:, 2].var() == pytest.approx(X[:, 2].var())
    assert scaling.apply(X)[:, 3].var() == pytest.approx(1.0)
    assert any("'c2'" in note and "left unscaled" in note for note in report.warnings)


def test_constant_columns_are_reported_and_do_not_move_the_median() -> None:
    # With the three constants counted, the median would be 0 and c4 would pass as ordinary.
    rng = np.random.default_rng(3)
    X = np.hstack([np.full((200, 3), 0.1), rng.normal(size=(200, 3)) * [1.0, 0.01, 1.0]])
    parts = [table_moments(part, full=False) for part in np.array_split(X, 7)]
    scaling, report = agree_scaling(merge_all(parts), [f"c{j}" for j in range(6)])
    assert report.constant == ("c0", "c1", "c2")
    assert report.unscaled == ("c4",)
    np.testing.assert_array_equal(scaling.scale[:3], 1.0)
    np.testing.assert_allclose(scaling.apply(X)[:, :3], 0.0, atol=1e-15)


@pytest.mark.parametrize("pca", [0, 1])
def test_one_row_and_equal_rows(pca: int) -> None:
    for X in (np.array([[3.0, 4.0]]), np.full((5, 2), 7.0)):
        scaling, report = agreed(X, pca=pca)
        np.testing.assert_array_equal(scaling.apply(X), np.zeros((len(X), 1 if pca else 2)))
        assert report.constant == ("c0", "c1")


def test_rounding_in_constant_columns_is_no_axis() -> None:
    far = np.full((1, 3), 1e9)
    parts = [table_moments(far * (1.0 + i * 2.2e-16), full=True) for i in range(9)]
    scaling, report = agree_scaling(merge_all(parts), ["a", "b", "c"], pca=2)
    assert report.constant == ("a", "b", "c")
    assert scaling.n_features_out == 1
    np.testing.assert_allclose(scaling.apply(far), 0.0, atol=1e-5)


def test_empty_sites_do_not_count() -> None:
    X = np.random.default_rng(4).normal(size=(9, 2))
    parts = [X[:0], X[:4], X[:0], X[4:]]
    pooled = merge_all([table_moments(part, full=True) for part in parts])
    one, _ = agree_scaling(pooled, ["a", "b"], pca=1)
    other, _ = agreed(X, pca=1)
    np.testing.assert_allclose(one.apply(X), other.apply(X), rtol=1e-12)


def test_without_a_row_there_is_nothing_to_agree_on() -> None:
    with pytest.raises(DataError, match="no site has a row"):
        agreed(np.zeros((0, 2)))


def test_pca_of_a_table_with_fewer_columns_is_none() -> None:
    X = np.random.default_rng(5).normal(size=(20, 3))
    for pca in (3, 4):
        scaling, _ = agreed(X, pca=pca)
        assert scaling.components is None
        np.testing.assert_array_equal(scaling.apply(X), agreed(X)[0].apply(X))


def test_axes_have_their_largest_loading_positive_and_explained_is_the_kept_share() -> None:
    X = np.random.default_rng(6).normal(size=(300, 6)) @ np.random.default_rng(7).normal(size=(6, 6))
    scaling, report = agreed(X, pca=3)
    assert scaling.components is not None
    axes = scaling.components
    assert (axes[np.argmax(np.abs(axes), axis=0), range(3)] > 0).all()
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(scaling.apply(X).var(axis=0), 1.0)
    plain = agreed(X, pca=3, method="none")[0].apply(X)
    assert report.explained == pytest.approx(plain.var(axis=0).sum() / X.var(axis=0).sum())


def test_axes_without_variance_are_dropped() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 6)) + 100.0
    scaling, report = agreed(X, pca=4)
    assert scaling.n_features_out == 2
    assert report.explained == pytest.approx(1.0)
    assert any("pca=4" in note for note in report.warnings)
    np.testing.assert_allclose(scaling.apply(X).var(axis=0), 1.0)


def test_a_share_keeps_two_axes_at_least_and_constant_columns_are_none() -> None:
    rng = np.random.default_rng(10)
    line = rng.normal(size=(200, 1)) @ np.ones((1, 5)) + 0.01 * rng.normal(size=(200, 5))
    scaling, report = agreed(np.insert(line, 2, 7.0, axis=1), share=0.95)
    assert scaling.n_features_out == 2
    assert report.constant == ("c2",)
    assert scaling.components is not None
    np.testing.assert_allclose(scaling.components[2], 0.0, atol=1e-12)
    assert agreed(np.ones((9, 4)), share=0.95)[0].n_features_out == 1
    exact = agreed(line[:, :1] * [1.0, 2.0, -3.0], share=0.5)[0]
    assert exact.n_features_out == 1  # there is no second direction


def test_where_pca_takes_axes_the_share_has_no_say() -> None:
    X = np.random.default_rng(11).normal(size=(50, 6))
    one, other = agreed(X, pca=3)[0], agreed(X, pca=3, share=0.5)[0]
    np.testing.assert_array_equal(one.apply(X), other.apply(X))
    assert agreed(X, pca=6, share=0.5)[0].n_features_out < 6


@pytest.mark.parametrize(
    ("d", "pca", "share", "axes"),
    [
        (5, 0, 1.0, False),
        (5, 5, 1.0, False),
        (5, 4, 1.0, True),
        (5, 0, 0.9, True),
        (5, 9, 0.9, True),
        (2, 0, 0.1, False),
        (2, 1, 0.1, True),
        (1, 1, 0.5, False),
    ],
)
def test_whether_axes_are_taken(d: int, pca: int, share: float, axes: bool) -> None:
    assert takes_axes(d, pca=pca, share=share) == axes
    X = np.random.default_rng(d).normal(size=(30, d))
    moments = table_moments(X, full=True)
    scaling, _ = agree_scaling(moments, [f"c{j}" for j in range(d)], pca=pca, share=share)
    assert (scaling.components is not None) == axes


def test_triangles_of_one_matrix_and_of_many() -> None:
    A = np.random.default_rng(12).normal(size=(4, 3, 3))
    A += A.transpose(0, 2, 1)
    np.testing.assert_array_equal(symmetric_matrix(lower_triangle(A), 3), A)
    np.testing.assert_array_equal(lower_triangle(A)[1], lower_triangle(A[1]))
    with pytest.raises(ValueError, match="expected 6 entries, got"):
        symmetric_matrix(np.ones((2, 5)), 3)


def test_a_column_that_makes_up_the_axes_is_named() -> None:
    X = np.random.default_rng(9).normal(size=(100, 3)) * [1.0, 1000.0, 1.0]
    assert any("'c1' holds 100%" in note for note in agreed(X, pca=2)[1].warnings)


def test_minmax_is_scikit_learns_between_the_extremes_and_names_what_lies_outside() -> None:
    X = np.random.default_rng(2).normal(size=(50, 3)) * [1.0, 100.0, 0.01] + [0.0, 5.0, -3.0]
    bounds = np.stack([X.min(axis=0), X.max(axis=0)], axis=1)
    scaling, report = agreed(X, method="minmax", bounds=bounds)
    np.testing.assert_allclose(scaling.apply(X), MinMaxScaler().fit_transform(X), atol=1e-12)
    assert report.warnings == ()
    above = bounds + np.array([[0.0], [1e4], [0.0]])
    said = agreed(X, method="minmax", bounds=above)[1].warnings
    assert said == ("the mean lies outside the bounds of 'c1'",)


def test_wrong_settings() -> None:
    with pytest.raises(ConfigError, match="scaling is 'robust'"):
        agreed(np.eye(2), method="robust")
    with pytest.raises(ConfigError, match="'minmax': expected bounds of every column"):
        agreed(np.eye(2), method="minmax")
    with pytest.raises(ConfigError, match="and no principal axes"):
        agreed(np.eye(3), method="minmax", bounds=np.array([[0.0, 1.0]] * 3), pca=2)
    with pytest.raises(ValueError, match="full second moments"):
        agree_scaling(table_moments(np.eye(3), full=False), "abc", pca=1)
    with pytest.raises(ValueError, match="full second moments"):
        agree_scaling(table_moments(np.eye(3), full=False), "abc", share=0.9)
