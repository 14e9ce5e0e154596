"""Sufficient statistics: known values, lost digits, sites without rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.mixtures import Kind, Mixture, Statistics, collect, merge, merge_all, mixture_from
from fedcluster_app.mixtures.statistics import about, centred

KINDS: tuple[Kind, ...] = ("spherical", "diagonal", "full")


def moments(X: np.ndarray, kind: Kind) -> Statistics:
    return collect(X, np.ones((len(X), 1)), kind)


def test_statistics_of_four_points() -> None:
    X = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]])
    R = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.5, 0.5]])
    full = collect(X, R, "full")
    np.testing.assert_allclose(full.mass, [3.0, 1.0])
    np.testing.assert_allclose(full.means, [[1.0, 4 / 3], [1.0, 4.0]])
    np.testing.assert_allclose(
        full.scatters, [[[3.0, 0.0], [0.0, 32 / 3]], [[1.0, 0.0], [0.0, 0.0]]], atol=1e-15
    )
    np.testing.assert_allclose(collect(X, R, "diagonal").scatters, [[3.0, 32 / 3], [1.0, 0.0]])
    np.testing.assert_allclose(collect(X, R, "spherical").scatters, [41 / 3, 1.0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_offset_of_a_billion_keeps_the_variance(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3)) + 1e9
    exact = X - 1e9  # exact: the offset only cuts the last bits of the noise
    parts = [moments(part, kind) for part in np.array_split(X, [13, 400, 401])]
    np.testing.assert_allclose(
        merge_all(parts).scatters, moments(exact, kind).scatters, rtol=1e-6, atol=1e-6 * len(X)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_column_has_scatter_exactly_zero_over_any_sites(kind: Kind) -> None:
    X = np.full((17, 3), 0.1)
    merged = merge_all([moments(part, kind) for part in np.array_split(X, 5)])
    assert not merged.scatters.any()
    assert (merged.means == 0.1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_without_rows_changes_nothing(kind: Kind) -> None:
    rng = np.random.default_rng(1)
    X, R = rng.normal(size=(9, 2)) + 1e9, rng.dirichlet(np.ones(3), size=9)
    whole, nothing = collect(X, R, kind), collect(X[:0], R[:0], kind)
    assert not nothing.mass.any()
    for merged in (merge(whole, nothing), merge(nothing, whole)):
        assert merged.mass.tobytes() == whole.mass.tobytes()
        assert merged.means.tobytes() == whole.means.tobytes()
        assert merged.scatters.tobytes() == whole.scatters.tobytes()
    both = merge(nothing, nothing)
    assert not both.mass.any()
    assert np.isfinite(both.means).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_without_mass_at_one_site_takes_the_mean_of_the_other(kind: Kind) -> None:
    a = collect(np.array([[1e9 + 1], [1e9 + 4]]), np.array([[1.0, 0.0], [1.0, 0.0]]), kind)
    b = collect(np.array([[0.1], [0.1]]), np.array([[0.0, 1.0], [0.0, 1.0]]), kind)
    for merged in (merge(a, b), merge(b, a)):
        np.testing.assert_array_equal(merged.means, [[1e9 + 2.5], [0.1]])
        np.testing.assert_array_equal(merged.scatters.ravel(), [4.5, 0.0])


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_has_no_scatter(kind: Kind) -> None:
    stats = moments(np.array([[0.3, -7.1]]), kind)
    assert not stats.scatters.any()
    np.testing.assert_array_equal(stats.means, [[0.3, -7.1]])


@pytest.mark.parametrize("kind", KINDS)
def test_tight_clusters_far_apart_keep_their_variance(kind: Kind) -> None:
    rng = np.random.default_rng(2)
    noise = rng.integers(-100, 100, size=(400, 3)) * 2.0**-20
    R = np.repeat(np.eye(2), 200, axis=0)
    far = collect(noise + R @ np.array([[0.0] * 3, [1024.0] * 3]), R, kind)
    np.testing.assert_allclose(far.scatters, collect(noise, R, kind).scatters, rtol=1e-8)


def test_full_scatters_are_symmetric_to_the_last_bit() -> None:
    rng = np.random.default_rng(3)
    stats = collect(rng.normal(size=(50, 7)), rng.dirichlet(np.ones(4), size=50), "full")
    np.testing.assert_array_equal(stats.scatters, stats.scatters.transpose(0, 2, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_mixture_from_divides_by_the_mass_and_adds_the_ridge(kind: Kind) -> None:
    X = np.random.default_rng(4).normal(size=(30, 3)) * [1.0, 2.0, 3.0]
    covariance = np.cov(X.T, bias=True) + 0.25 * np.eye(3)
    expected = {"spherical": np.trace(covariance) / 3, "diagonal": np.diag(covariance), "full": covariance}
    mixture = mixture_from(moments(X, kind), ridge=0.25)
    assert mixture.kind == kind
    np.testing.assert_allclose(mixture.weights, [1.0])
    np.testing.assert_allclose(mixture.covariances[0], expected[kind], rtol=1e-12)


def test_mixture_from_refuses_collapse_and_missing_mass() -> None:
    with pytest.raises(ValueError, match="covariances: expected positive variances"):
        mixture_from(moments(np.ones((4, 2)), "diagonal"))
    with pytest.raises(ValueError, match="mass: expected positive values or a fallback, got 0 at"):
        mixture_from(collect(np.eye(2), np.array([[1.0, 0.0], [1.0, 0.0]]), "spherical"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_without_mass_falls_back(kind: Kind) -> None:
    covariances = {
        "spherical": np.full(2, 3.0),
        "diagonal": np.full((2, 2), 3.0),
        "full": np.stack([3.0 * np.eye(2)] * 2),
    }
    fallback = Mixture(np.array([0.5, 0.5]), np.full((2, 2), 7.0), covariances[kind])
    R = np.tile([1.0, 0.0], (5, 1))
    X = np.random.default_rng(5).normal(size=(5, 2))
    mixture = mixture_from(collect(X, R, kind), fallback=fallback)
    np.testing.assert_array_equal(mixture.weights, [1.0, 0.0])
    np.testing.assert_array_equal(mixture.means[1], [7.0, 7.0])
    np.testing.assert_array_equal(mixture.covariances[1], covariances[kind][1])
    np.testing.assert_allclose(mixture.means[0], X.mean(axis=0))


def test_nothing_to_merge_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        merge_all([])


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_sums_about_points_add_over_sites_and_come_back(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    X, R = scale * rng.normal(size=(30, 2)), rng.dirichlet(np.ones(3), 30)
    R[:, 2] = 0.0  # a component that is withheld
    points = scale * rng.normal(size=(3, 2))
    whole = about(collect(X, R, "full"), points)
    halves = [about(collect(X[part], R[part], "full"), points) for part in (slice(0, 9), slice(9, 30))]
    for one, two, both in zip(*halves, whole, strict=True):
        np.testing.assert_allclose(one + two, both, atol=1e-10 * scale**2)
    back, expected = centred(*whole, points), collect(X, R, "full")
    np.testing.assert_allclose(back.mass, expected.mass)
    np.testing.assert_allclose(back.means[:2], expected.means[:2])
    np.testing.assert_array_equal(back.means[2], points[2])
    np.testing.assert_allclose(back.scatters, expected.scatters, atol=1e-10 * scale**2)
    deviation = X - points[0]
    np.testing.assert_allclose(whole[2][0], (R[:, [0]] * deviation).T @ deviation)
