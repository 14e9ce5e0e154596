"""Every block of every gradient against central differences, and the identities of the likelihood's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedcluster_app.gtvmin import euclidean, kl, mmd
from fedcluster_app.gtvmin.blocks import Blocks, blocks, mixture_of, moved
from fedcluster_app.gtvmin.kernels import PlaneKernels, _spectral, kernel_means
from fedcluster_app.gtvmin.likelihood import fit_of
from fedcluster_app.mixtures import Mixture, collect, em, responsibilities

CASES = [(d, k) for d in (1, 2, 3, 5) for k in (1, 2, 4)]
EDGE_WEIGHTS = [1.0, 0.5, 2.0]


def some_blocks(rng: np.random.Generator, k: int, d: int) -> Blocks:
    roots = 0.5 * rng.normal(size=(k, d, d))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(d)
    return Blocks(rng.dirichlet(np.full(k, 5.0)), 2 * rng.normal(size=(k, d)), covariances)


def differences(value: Callable[[Blocks], float], theta: Blocks, step: float = 1e-5) -> Blocks:
    """Central differences; a covariance is moved symmetrically, half of it in each of the two entries."""

    def slope(name: str, direction: np.ndarray) -> float:
        up, down = (
            value(replace(theta, **{name: getattr(theta, name) + sign * step * direction}))
            for sign in (1, -1)
        )
        return (up - down) / (2 * step)

    slopes = {}
    for name in ("weights", "means", "covariances"):
        slopes[name] = np.zeros_like(getattr(theta, name))
        for index in np.ndindex(slopes[name].shape):
            direction = np.zeros_like(slopes[name])
            direction[index] += 1.0
            if name == "covariances":
                direction = 0.5 * (direction + direction.transpose(0, 2, 1))
            slopes[name][index] = slope(name, direction)
    return Blocks(**slopes)


def assert_gradient(value: Callable[[Blocks], float], gradient: Blocks, theta: Blocks) -> None:
    found = differences(value, theta)
    for name in ("weights", "means", "covariances"):
        np.testing.assert_allclose(
            getattr(gradient, name), getattr(found, name), rtol=1e-6, atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize(("d", "k"), CASES)
def test_likelihood(d: int, k: int) -> None:
    rng = np.random.default_rng([d, k])
    theta, rows, weights = some_blocks(rng, k, d), 2 * rng.normal(size=(d, 40)), rng.random(40)
    assert_gradient(lambda t: fit_of(t, rows, weights).value, fit_of(theta, rows, weights).gradient, theta)


@pytest.mark.parametrize(("d", "k"), CASES)
def test_kl_is_the_likelihood_of_the_drawn_rows(d: int, k: int) -> None:
    rng = np.random.default_rng([1, d, k])
    theta, other = some_blocks(rng, k, d), some_blocks(rng, 3, d)
    rows, _ = kl.draw([other], [np.random.default_rng(7)], 50)
    gradient = fit_of(theta, rows, np.full(50, 1 / 50)).gradient
    assert_gradient(lambda t: kl.discrepancy(t, other, np.random.default_rng(7)), gradient, theta)


@pytest.mark.parametrize(("d", "k"), CASES)
def test_mmd_pull_is_the_gradient_of_the_sum_of_discrepancies(d: int, k: int) -> None:
    rng = np.random.default_rng([2, d, k])
    theta, others = some_blocks(rng, k, d), [some_blocks(rng, n, d) for n in (k, 3, 1)]
    pull = mmd.pull(mmd.freeze(others, EDGE_WEIGHTS), theta)

    def total(t: Blocks) -> float:
        return sum(w * mmd.discrepancy(t, q) for w, q in zip(EDGE_WEIGHTS, others, strict=True))

    assert_gradient(total, pull.gradient, theta)
    norms = sum(w * mmd.inner(q, q) for w, q in zip(EDGE_WEIGHTS, others, strict=True))
    assert pull.value + norms == pytest.approx(total(theta), abs=1e-12)


@pytest.mark.parametrize(("d", "k"), CASES)
def test_euclidean_pull_is_the_gradient_of_the_sum_of_discrepancies(d: int, k: int) -> None:
    rng = np.random.default_rng([3, d, k])
    theta, others = some_blocks(rng, k, d), [some_blocks(rng, n, d) for n in (k, 3, 1)]
    pull = euclidean.pull(euclidean.freeze(theta, others, EDGE_WEIGHTS), theta)

    def total(t: Blocks) -> float:
        return sum(w * euclidean.discrepancy(t, q) for w, q in zip(EDGE_WEIGHTS, others, strict=True))

    assert_gradient(total, pull.gradient, theta)
    assert pull.value == pytest.approx(total(theta), rel=1e-12)


@pytest.mark.parametrize(("d", "n"), [(1, 30), (2, 50), (3, 5000)])
def test_the_loss_is_that_of_the_mixture_module(d: int, n: int) -> None:
    rng = np.random.default_rng(d)
    theta, X, weights = some_blocks(rng, 3, d), 3 * rng.normal(size=(n, d)), rng.random(n)
    fit = fit_of(theta, np.ascontiguousarray(X.T), weights)
    R, log_likelihood = responsibilities(X, mixture_of(theta))
    np.testing.assert_allclose(fit.log_likelihood, log_likelihood, rtol=1e-10)
    np.testing.assert_allclose(fit.mass, weights @ R, rtol=1e-9)
    assert fit.value == pytest.approx(-weights @ log_likelihood, rel=1e-12)


def test_the_scaled_gradient_is_the_em_step() -> None:
    rng = np.random.default_rng(5)
    theta, X = some_blocks(rng, 3, 2), 2 * rng.normal(size=(80, 2))
    fit = fit_of(theta, np.ascontiguousarray(X.T), np.full(80, 1 / 80))
    after = em.step(em.init(mixture_of(theta)), X).mixture
    S, mass = theta.covariances, fit.mass
    means = theta.means - (S @ fit.gradient.means[:, :, None])[:, :, 0] / mass[:, None]
    np.testing.assert_allclose(means, after.means, atol=1e-13)
    about_old = S - (2 / mass)[:, None, None] * (S @ fit.gradient.covariances @ S)
    shift = after.means - theta.means
    expected = after.covariances + shift[:, :, None] * shift[:, None, :]
    np.testing.assert_allclose(about_old, expected, atol=1e-12)
    np.testing.assert_allclose(mass, after.weights, atol=1e-14)
    R, _ = responsibilities(X, mixture_of(theta))
    np.testing.assert_allclose(collect(X, R, "full").mass / 80, mass, rtol=1e-12)


def test_a_row_that_no_component_explains_keeps_everything_finite() -> None:
    theta = Blocks(np.full(2, 0.5), np.array([[0.0, 0.0], [1.0, 1.0]]), np.full((2, 1, 1), 0.01) * np.eye(2))
    fit = fit_of(theta, np.array([[0.0, 1e4], [0.0, -1e4]]), np.full(2, 0.5))
    assert np.isfinite(fit.value)
    assert fit.mass.sum() == pytest.approx(1.0)
    assert all(np.isfinite(getattr(fit.gradient, name)).all() for name in ("weights", "means", "covariances"))
    nothing = fit_of(theta, np.array([[0.0], [0.0]]), np.zeros(1))
    np.testing.assert_array_equal(nothing.gradient.means, np.zeros((2, 2)))


def test_two_dimensions_are_written_out_correctly() -> None:
    rng = np.random.default_rng(9)
    p, q = some_blocks(rng, 3, 2), some_blocks(rng, 5, 2)
    widths = (0.5, 1.0, 4.0)
    plane = kernel_means(p, q, widths)
    assert isinstance(plane, PlaneKernels)
    S, delta = p.covariances[:, None] + q.covariances, p.means[:, None] - q.means
    spectral = _spectral(S, delta, np.square(widths))
    np.testing.assert_allclose(plane.values, spectral.values, rtol=1e-12)
    factors = rng.normal(size=plane.values.shape)
    for a, b in zip(plane.slopes(factors), spectral.slopes(factors), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_many_dimensions_do_not_overflow() -> None:
    d = 400
    p = Blocks(np.ones(1), np.zeros((1, d)), np.eye(d)[None])
    q = moved(p, Blocks(np.zeros(1), np.full((1, d), 0.1), np.zeros((1, d, d))), 1.0)
    assert 0 <= mmd.discrepancy(p, q, (0.5, 20.0, 100.0)) <= 6
    assert mmd.discrepancy(p, q, (20.0,)) > 1e-4


def test_mixtures_of_every_kind_are_written_out_with_full_matrices() -> None:
    means = np.zeros((2, 3))
    spherical = blocks(Mixture(np.full(2, 0.5), means, np.array([1.0, 2.0])))
    diagonal = blocks(Mixture(np.full(2, 0.5), means, np.array([[1.0, 1, 1], [2, 2, 2]])))
    np.testing.assert_array_equal(spherical.covariances, diagonal.covariances)
    np.testing.assert_array_equal(spherical.covariances[1], 2 * np.eye(3))
