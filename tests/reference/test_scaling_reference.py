from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from fedcluster_app.data.scaling import agree_scaling, table_moments
from fedcluster_app.mixtures.statistics import merge_all

TOLERANCE = 1e-8


def sites(X: np.ndarray, count: int, *, full: bool) -> list:
    """Moments of `count` sites of very different sizes."""
    edges = np.sort(np.random.default_rng(0).choice(len(X), size=count - 1))
    return [table_moments(part, full=full) for part in np.split(X, edges)]


@pytest.fixture(scope="module")
def skewed() -> np.ndarray:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(700, 12)) @ rng.normal(size=(12, 12))
    X[:, 0] += 1e6  # an offset that raw sums of squares would not survive
    X[np.argsort(X[:, 3])] = X.copy()
    return X


def test_standard_equals_standard_scaler(skewed: np.ndarray) -> None:
    scaling, _ = agree_scaling(merge_all(sites(skewed, 23, full=False)), [str(j) for j in range(12)])
    np.testing.assert_allclose(scaling.apply(skewed), StandardScaler().fit_transform(skewed), atol=TOLERANCE)


def same_up_to_sign(Z: np.ndarray, reference: np.ndarray) -> None:
    signs = np.sign((Z * reference).sum(axis=0))
    np.testing.assert_allclose(Z, reference * signs, atol=TOLERANCE * np.abs(reference).max())


def test_standard_with_axes_equals_pca_then_standard_scaler(skewed: np.ndarray) -> None:
    pooled = merge_all(sites(skewed, 23, full=True))
    scaling, report = agree_scaling(pooled, [str(j) for j in range(12)], pca=5)
    reference = PCA(5, svd_solver="full")
    scores = reference.fit_transform(skewed)
    same_up_to_sign(scaling.apply(skewed), StandardScaler().fit_transform(scores))
    assert report.explained == pytest.approx(reference.explained_variance_ratio_.sum(), abs=TOLERANCE)


def test_none_with_axes_equals_pca(skewed: np.ndarray) -> None:
    pooled = merge_all(sites(skewed, 23, full=True))
    scaling, _ = agree_scaling(pooled, [str(j) for j in range(12)], method="none", pca=5)
    same_up_to_sign(scaling.apply(skewed), PCA(5, svd_solver="full").fit_transform(skewed))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8, 0.95, 0.9999])
def test_a_share_of_the_standardised_columns_equals_pca(skewed: np.ndarray, share: float) -> None:
    pooled = merge_all(sites(skewed, 23, full=True))
    scaling, report = agree_scaling(pooled, [str(j) for j in range(12)], share=share)
    Z = StandardScaler().fit_transform(skewed)
    reference = PCA(share, svd_solver="full").fit(Z)
    q = max(2, reference.n_components_)
    reference = PCA(q, svd_solver="full").fit(Z)
    same_up_to_sign(scaling.apply(skewed), reference.transform(Z))
    assert report.explained == pytest.approx(reference.explained_variance_ratio_.sum(), abs=TOLERANCE)
    assert scaling.score_scale is None


def test_a_share_of_columns_as_they_are_equals_pca(skewed: np.ndarray) -> None:
    pooled = merge_all(sites(skewed, 23, full=True))
    scaling, _ = agree_scaling(pooled, [str(j) for j in range(12)], method="none", share=0.9)
    same_up_to_sign(scaling.apply(skewed), PCA(0.9, svd_solver="full").fit_transform(skewed))


def test_published_preparation_of_the_digits() -> None:
    X = load_digits().data
    scaling, report = agree_scaling(merge_all(sites(X, 10, full=True)), [str(j) for j in range(64)], pca=10)
    scores = PCA(10, svd_solver="full").fit_transform(X)
    same_up_to_sign(scaling.apply(X), StandardScaler().fit_transform(scores))
    assert report.unscaled == ()
    assert report.constant == ("0", "32", "39")
