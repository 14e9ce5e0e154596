"""FedGEM at a site: the M step, the balls, the last upload, the collapse check."""

import numpy as np
import pytest

from fedcluster_app.aggregation.fedgem import client_finish, client_step, collapse_ratio, initial_means
from fedcluster_app.aggregation.radius import uncertainty_radius
from fedcluster_app.errors import ConfigError

RULES = ("published", "gem", "released")


def blobs(seed, k=3, n=90, d=4):
    rng = np.random.default_rng(seed)
    centers = rng.normal(0, 4, (k, d))
    X = centers[rng.integers(0, k, n)] + rng.normal(size=(n, d))
    return X, centers + rng.normal(0, 0.7, (k, d))


def expected_log_likelihood(X, R, k, mean):
    """Terms of the expected complete-data log-likelihood that depend on the mean of component k."""
    return -0.5 * (R[:, k] * np.square(X - mean).sum(axis=1)).sum()


def test_radii_by_hand():
    # One component: theta = 0, rows at 2 and 4, so M = 3, D = 9, W / Gamma = 1, Q / Gamma = 10.
    X, means = np.array([[2.0], [4.0]]), np.zeros((1, 1))
    expected = {"published": np.sqrt(10) - 1, "gem": 3.0, "released": 3 / np.sqrt(2)}
    for rule in RULES:
        balls = client_step(X, means, radius_rule=rule).balls
        np.testing.assert_allclose(balls.means, [[3.0]])
        np.testing.assert_allclose(balls.radii, [expected[rule]])


def test_published_radius_is_inside_the_gem_ball_and_meets_it_without_scatter():
    shift = np.array([0.0, 1e-20, 1e-3, 1.0, 1e6])
    for scatter in (0.0, 1e-12, 1.0, 60.0):
        published = uncertainty_radius(shift, np.full(5, scatter))
        assert (published <= uncertainty_radius(shift, np.full(5, scatter), "gem") * (1 + 1e-15)).all()
    np.testing.assert_allclose(uncertainty_radius(shift, np.zeros(5)), np.sqrt(shift), rtol=1e-15)


def test_published_radius_keeps_its_digits_near_convergence():
    # sqrt(s + D) - sqrt(s) is 0 in floating point here; the limit is D / (2 sqrt(s)).
    radius = uncertainty_radius(np.array([1e-18]), np.array([64.0]))
    np.testing.assert_allclose(radius, 1e-18 / 16)


@pytest.mark.parametrize("seed", range(5))
def test_m_step_is_stationary(seed):
    X, theta = blobs(seed)
    step = client_step(X, theta)
    for k, mean in enumerate(step.balls.means):
        for j in range(X.shape[1]):
            h = np.zeros(X.shape[1])
            h[j] = 1e-4
            up, down = (expected_log_likelihood(X, step.responsibilities, k, m) for m in (mean + h, mean - h))
            assert abs(up - down) / 2e-4 < 1e-5 * max(1.0, step.mass[k])


@pytest.mark.parametrize("rule", RULES)
def test_no_point_of_a_ball_is_worse_than_the_old_mean(rule):
    rng = np.random.default_rng(3)
    for seed in range(5):
        X, theta = blobs(seed)
        step = client_step(X, theta, radius_rule=rule)
        for k, (mean, radius) in enumerate(zip(step.balls.means, step.balls.radii, strict=True)):
            old = expected_log_likelihood(X, step.responsibilities, k, theta[k])
            for u in rng.normal(size=(20, X.shape[1])):
                rim = mean + radius * u / np.linalg.norm(u)
                assert expected_log_likelihood(X, step.responsibilities, k, rim) >= old - 1e-9 * abs(old)


def test_the_gem_ball_cannot_be_larger():
    X, theta = blobs(1)
    step = client_step(X, theta, radius_rule="gem")
    for k, (mean, radius) in enumerate(zip(step.balls.means, step.balls.radii, strict=True)):
        outside = mean + np.eye(X.shape[1])[0] * radius * 1.001
        old = expected_log_likelihood(X, step.responsibilities, k, theta[k])
        assert expected_log_likelihood(X, step.responsibilities, k, outside) < old


def test_local_steps_chain_and_the_radius_refers_to_the_last():
    X, theta = blobs(2)
    once = client_step(X, theta)
    twice = client_step(X, once.balls.means)
    chained = client_step(X, theta, local_steps=2)
    np.testing.assert_array_equal(chained.balls.means, twice.balls.means)
    np.testing.assert_array_equal(chained.balls.radii, twice.balls.radii)


def test_responsibilities_stay_posteriors_where_every_density_underflows():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(m, 1, (50, 600)) for m in (-1.0, 1.0)])
    step = client_step(X, np.stack([np.full(600, -0.9), np.full(600, 0.9)]))
    np.testing.assert_allclose(step.responsibilities.sum(axis=1), 1)
    np.testing.assert_allclose(step.mass, [50, 50])


@pytest.mark.parametrize("rule", RULES)
def test_component_without_mass_stays_with_radius_zero(rule):
    X, theta = blobs(4)
    theta[1] = 1e4
    step = client_step(X, theta, radius_rule=rule)
    assert step.mass[1] < 1e-10
    np.testing.assert_array_equal(step.balls.means[1], theta[1])
    assert step.balls.radii[1] == 0
    assert (step.balls.radii[[0, 2]] > 0).all()


@pytest.mark.parametrize("n", [0, 1, 2])
def test_sites_of_few_rows(n):
    X = np.arange(3.0 * n).reshape(n, 3)
    theta = np.ones((2, 3))
    step, last = client_step(X, theta), client_finish(X, theta)
    assert step.responsibilities.shape == (n, 2)
    assert np.isfinite(step.balls.means).all()
    assert np.isfinite(step.balls.radii).all()
    assert last.rows == n == last.counts.sum()
    if n == 0:
        np.testing.assert_array_equal(step.balls.means, theta)
        assert last.spread == 0


def test_last_upload_summarises_the_rows_nearest_to_each_final_mean():
    X, theta = blobs(5)
    theta = np.concatenate([theta, np.full((1, 4), 1e3)])
    last = client_finish(X, theta)
    np.testing.assert_array_equal(last.means, client_step(X, theta).balls.means)
    nearest = np.square(X[:, None] - last.means).sum(axis=2).argmin(axis=1)
    for k in range(3):
        rows = X[nearest == k]
        assert last.counts[k] == len(rows)
        np.testing.assert_allclose(last.centers[k], rows.mean(axis=0))
        np.testing.assert_allclose(last.scatters[k], rows.var(axis=0).sum())
    assert last.counts[3] == 0
    assert last.scatters[3] == 0
    np.testing.assert_array_equal(last.centers[3], theta[3])
    assert last.spread == pytest.approx(np.sqrt(np.trace(np.cov(X.T, bias=True)) / 4))
    assert last.rows == len(X)


def test_collapse_ratio_is_the_largest_eigenvalue():
    X, _ = blobs(6)
    assert collapse_ratio(X) == pytest.approx(np.linalg.svd(X - X.mean(0))[1][0] ** 2 / len(X))
    assert collapse_ratio(X[:1]) == 0
    assert collapse_ratio(X[:0]) == 0


@pytest.mark.parametrize(("scale", "falls"), [(0.7, True), (1.4, False)])
def test_means_collapse_exactly_when_the_ratio_is_below_one(scale, falls):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 3))
    X *= scale / np.sqrt(collapse_ratio(X))
    assert (collapse_ratio(X) < 1) == falls
    means = np.array([[-0.01, 0, 0], [0.01, 0, 0]])
    for _ in range(60):
        means = client_step(X, means).balls.means
    assert (np.linalg.norm(means[0] - means[1]) < 1e-6) == falls


def test_initial_means():
    X, _ = blobs(8)
    seeds = initial_means(X, 3, np.random.default_rng(0), "kmeans++")
    assert all((seed == X).all(axis=1).any() for seed in seeds)
    best = initial_means(X, 3, np.random.default_rng(0))

    def inertia(means):
        return np.square(X[:, None] - means).sum(axis=2).min(axis=1).sum()

    assert inertia(best) < inertia(seeds)


def test_unknown_options_are_named():
    X, theta = blobs(9)
    with pytest.raises(ConfigError, match="radius rule: expected published, gem or released, got 'exact'"):
        client_step(X, theta, radius_rule="exact")
    with pytest.raises(ConfigError, match="local steps"):
        client_step(X, theta, local_steps=0)
    with pytest.raises(ConfigError, match="init"):
        initial_means(X, 2, np.random.default_rng(0), "random")
