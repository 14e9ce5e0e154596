"""FedGrEM: shrinkage against a numeric minimiser, the step against EM and gradients, guards; local fits."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.mixture import GaussianMixture

from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.gtvmin import Bounds, Start, kmeans_start, local
from fedcluster_app.gtvmin.aligned import align
from fedcluster_app.gtvmin.blocks import blocks
from fedcluster_app.gtvmin.fedgrem import (
    PUBLISHED,
    GrEMSettings,
    SiteModel,
    client_step,
    done,
    init,
    model_for,
    shrink,
    status,
    step,
)
from fedcluster_app.gtvmin.likelihood import fit_of
from fedcluster_app.mixtures import Mixture, em, log_joint, responsibilities, sample

BOUNDS = Bounds()
TRUTH = Mixture(np.full(3, 1 / 3), 6.0 * np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]), np.ones(3))


def rng(seed=0):
    return np.random.default_rng(seed)


def tables(shifts=(0.0, 0.0, 0.0, 9.0), n=60):
    return {f"s{i}": sample(TRUTH, n, rng(i))[0] + shift for i, shift in enumerate(shifts)}


def starts(parts, k=3):
    return {name: kmeans_start(X, k, rng(5), BOUNDS) for name, X in parts.items()}


def rounds(parts, number, settings=GrEMSettings(), begun=None):  # noqa: B008  # frozen
    state = init(begun or starts(parts), 3)
    for _ in range(number):
        sent = {name: client_step(X, model_for(state, name), settings) for name, X in parts.items()}
        state = step(state, sent, settings)
    return state


@pytest.mark.parametrize("seed", range(3))
def test_shrinkage_minimises_its_objective(seed):
    sites, p = 6, 2
    values, w = 2.0 * rng(seed).normal(size=(sites, p)), rng(seed).integers(5, 50, size=sites).astype(float)
    limits = 5.0 / np.sqrt(w)

    def objective(x):
        common, own = x[:p], x[p:].reshape(sites, p)
        misfit = np.square(values - common - own).sum(axis=1) / 2
        # Smoothed at 0, where a numeric minimiser cannot follow the kink.
        return w @ (misfit + limits * np.sqrt(np.square(own).sum(axis=1) + 1e-14))

    shrunk, common = shrink(values[:, None], w, limits, 2000)
    mine = np.concatenate([common[0], (shrunk[:, 0] - common).ravel()])
    numeric = min(
        (
            minimize(objective, x, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
            for x in (np.zeros_like(mine), mine + 0.1)
        ),
        key=lambda found: found.fun,
    )
    assert objective(mine) <= numeric.fun + 1e-4
    np.testing.assert_allclose(common[0], numeric.x[:p], atol=2e-3)
    alone = np.linalg.norm(values - common, axis=1) > limits
    assert 0 < alone.sum() < sites  # both cases have been met


def test_shrinkage_at_its_ends():
    values, w = rng(1).normal(size=(4, 2, 3)), np.array([1.0, 2.0, 3.0, 4.0])
    pooled, common = shrink(values, w, np.full(4, 1e9), 3)
    np.testing.assert_allclose(common, np.average(values, axis=0, weights=w))
    np.testing.assert_allclose(pooled, np.broadcast_to(common, values.shape))
    alone, _ = shrink(values, w, np.zeros(4), 3)
    np.testing.assert_allclose(alone, values)
    one, common = shrink(values[:1], w[:1], np.ones(1), 3)
    np.testing.assert_allclose(one[0], values[0])
    np.testing.assert_allclose(common, values[0])


def test_strength_follows_its_recursion_to_its_limit():
    parts = tables()
    settings = GrEMSettings(penalty=1.5, decay=0.4)
    state, wanted = init(starts(parts), 3), 1.0
    for _ in range(30):
        state = step(state, {n: SiteModel(model_for(state, n), 60) for n in parts}, settings)
        wanted = 0.4 * wanted + 1.5 * np.sqrt(2 + np.log(3))
        assert state.strength == pytest.approx(wanted, rel=1e-12)
    assert state.strength == pytest.approx(1.5 * np.sqrt(2 + np.log(3)) / 0.6)


def unsettled():
    """A mixture whose weights are not those of its next E step."""
    found = starts(tables())["s0"].mixture
    return Mixture(np.array([0.5, 0.3, 0.2]), found.means + 0.5, found.covariances)


def test_a_full_step_is_em_but_for_the_old_mean_in_the_covariance():
    X, model = tables()["s0"], unsettled()
    sent = client_step(X, model, GrEMSettings(step_size=1.0)).mixture
    wanted = em.step(em.init(model), X).mixture
    np.testing.assert_allclose(sent.weights, wanted.weights, rtol=1e-9)
    grown = wanted.weights >= model.weights
    assert 0 < grown.sum() < 3  # the others go only a part of the way
    np.testing.assert_allclose(sent.means[grown], wanted.means[grown], rtol=1e-9)
    shift = wanted.means - model.means
    about = wanted.covariances + shift[:, :, None] * shift[:, None, :]
    np.testing.assert_allclose(sent.covariances[grown], about[grown], rtol=1e-8, atol=1e-12)


def test_step_goes_along_the_scaled_gradient_of_the_log_likelihood():
    X, theta = tables()["s0"], blocks(unsettled())
    fit = fit_of(theta, np.ascontiguousarray(X.T), np.full(len(X), 1 / len(X)))
    S, N = theta.covariances, fit.mass[:, None]
    way = 0.3 * np.minimum(1.0, N / theta.weights[:, None])
    assert way.min() < 0.29  # the mass of some component fell
    sent = client_step(X, unsettled(), GrEMSettings(step_size=0.3)).mixture
    mean = theta.means - way * np.einsum("kij,kj->ki", S, fit.gradient.means) / N
    np.testing.assert_allclose(sent.means, mean, rtol=1e-9)
    np.testing.assert_allclose(
        sent.covariances,
        S - 2 * (way / N)[:, :, None] * (S @ fit.gradient.covariances @ S),
        rtol=1e-8,
        atol=1e-12,
    )


def test_plain_step_is_the_gradient_of_the_mean_log_likelihood():
    X, model = tables()["s0"], unsettled()
    sent = client_step(X, model, GrEMSettings(step="plain", step_size=0.1)).mixture
    fit = fit_of(blocks(model), np.ascontiguousarray(X.T), np.full(len(X), 1 / len(X)))
    np.testing.assert_allclose(sent.means, model.means - 0.1 * fit.gradient.means, rtol=1e-9)
    np.testing.assert_allclose(
        sent.covariances, model.covariances - 0.1 * fit.gradient.covariances, rtol=1e-8, atol=1e-12
    )


def test_published_variant_moves_means_alone_under_unit_covariance():
    parts = tables(n=200)
    state = rounds(parts, 40, PUBLISHED)
    for name in parts:
        np.testing.assert_array_equal(state.models[name].covariances, np.tile(np.eye(2), (3, 1, 1)))
        truth = TRUTH.means + (9.0 if name == "s3" else 0.0)
        gaps = np.linalg.norm(state.models[name].means[:, None] - truth, axis=2)
        assert gaps.min(axis=0).max() < 0.7
    model = model_for(state, "s0")
    grid = responsibilities(parts["s0"], model)[0]
    centre = grid.T @ parts["s0"] / grid.sum(axis=0)[:, None]
    sent = client_step(parts["s0"], model, PUBLISHED).mixture
    way = 0.95 * np.minimum(1.0, grid.mean(axis=0) / model.weights)[:, None]
    np.testing.assert_allclose(sent.means, model.means + way * (centre - model.means), rtol=1e-9)


def test_like_sites_become_one_and_the_odd_one_keeps_its_distance():
    # Components of the odd site are aligned as its own shift leaves them.
    state = rounds(tables(n=100), 40)
    means = {name: mixture.means for name, mixture in state.models.items()}
    np.testing.assert_allclose(means["s0"], means["s1"], atol=1e-6)
    np.testing.assert_allclose(means["s0"], means["s2"], atol=1e-6)
    assert np.linalg.norm(means["s3"] - means["s0"], axis=1).min() > 2


def test_without_penalty_every_site_ends_in_its_own_maximum():
    parts = tables()
    state = init(starts(parts), 3)
    settings = GrEMSettings(penalty=0.0, decay=0.0, step_size=1.0)
    while not done(state, tolerance=1e-8, max_rounds=2000):
        sent = {name: client_step(X, model_for(state, name), settings) for name, X in parts.items()}
        state = step(state, sent, settings)
    assert status(state, tolerance=1e-8, max_rounds=2000) == "converged"
    X, found = parts["s0"], state.models["s0"]
    wanted = em.fit(X, found, tol=1e-13, max_iter=2000, reg_covar=0.0).mixture
    np.testing.assert_allclose(found.means, wanted.means, atol=1e-5)
    np.testing.assert_allclose(found.covariances, wanted.covariances, atol=1e-4)


def test_order_of_the_sites_changes_no_byte():
    parts = tables()
    one, other = (
        rounds(dict(order), 5, begun=dict(order_starts))
        for order, order_starts in [
            (parts.items(), starts(parts).items()),
            (reversed(parts.items()), reversed(starts(parts).items())),
        ]
    )
    for name in parts:
        assert one.models[name].means.tobytes() == other.models[name].means.tobytes()
        assert one.models[name].covariances.tobytes() == other.models[name].covariances.tobytes()
    assert list(one.models) == list(other.models) == sorted(parts)


def test_sites_with_few_rows_none_and_late_ones_go_with_the_pooled_part():
    parts = tables() | {"few": TRUTH.means[:2] + 0.1, "none": np.empty((0, 2))}
    begun = starts({name: X for name, X in parts.items() if len(X)})
    assert begun["few"].mixture.n_components == 2
    state = init(begun, 3)
    assert "few" not in state.models
    assert model_for(state, "few") is state.pooled
    state = rounds(parts, 40, begun=begun)
    for name in ("few", "none"):
        np.testing.assert_allclose(state.models[name].means, state.pooled.means, atol=1e-6)
    assert status(state, max_rounds=40) in ("converged", "max_rounds")


def test_silent_sites_keep_their_say_and_their_start():
    parts = tables()
    state = init(starts(parts), 3)
    first = step(state, {"s0": client_step(parts["s0"], state.models["s0"])})
    assert first.models["s2"] is state.models["s2"]
    assert list(first.models) == sorted(parts)
    nobody = step(state, {})
    assert (nobody.round, nobody.models) == (1, state.models)
    assert status(nobody, max_rounds=1) == "max_rounds"


def test_coinciding_rows_and_small_components():
    same = client_step(np.ones((20, 2)), TRUTH).mixture
    assert np.isfinite(same.means).all()
    X = np.concatenate([tables()["s0"], [[80.0, 80.0]]])
    model = Mixture(np.full(2, 0.5), np.array([[4.0, 4.0], [49.0, 0.0]]), np.ones(2))
    held = client_step(X, model, min_count=5.0).mixture
    np.testing.assert_array_equal(held.means[1], [49.0, 0.0])
    assert not np.array_equal(held.means[0], [4.0, 4.0])


@pytest.mark.parametrize("few", [2, 5])
def test_a_few_rows_cannot_be_had_as_the_difference_to_all(few):
    """From what a full step sends follow masses of the components that moved; the rest is enough rows."""
    X = np.concatenate(
        [rng(1).normal(size=(40, 2)), rng(2).normal(size=(60, 2)) + 12.0, np.full((few, 2), 30.0)]
    )
    centers = np.array([[0.0, 0.0], [12.0, 12.0], [30.0, 30.0]])
    model = Mixture(np.array([0.4, 0.5, 0.1]), centers - 0.5, np.ones(3))
    sent = client_step(X, model, GrEMSettings(step_size=1.0), min_count=5.0).mixture
    np.testing.assert_allclose(sent.weights.sum(), 1.0)
    if few == 5:
        np.testing.assert_allclose(sent.weights * len(X), [40, 60, 5], rtol=1e-6)
        return
    np.testing.assert_array_equal(sent.means[2], model.means[2])
    held = sent.weights[:2] * len(X)
    assert len(X) - held.sum() >= 5.0 - 1e-5
    assert np.abs(held - np.rint(held)).max() < 1e-6  # other rows are left out whole
    assert (held < [40, 60]).any()


def test_alignment_pools_as_if_the_rows_had_been_put_together():
    parts = {name: sample(TRUTH, n, rng(n))[0] for name, n in [("b", 90), ("a", 40), ("c", 70)]}
    aligned = align(starts(parts), 3)
    for mixture in aligned.mixtures.values():
        assert np.linalg.norm(mixture.means - aligned.pooled.means, axis=1).max() < 2
    X = np.concatenate(list(parts.values()))
    middle = aligned.pooled.weights @ aligned.pooled.means
    np.testing.assert_allclose(middle, X.mean(axis=0), rtol=1e-9)
    total = np.einsum("k,kij->ij", aligned.pooled.weights, aligned.pooled.covariances)
    deviation = aligned.pooled.means - middle
    total += np.einsum("k,ki,kj->ij", aligned.pooled.weights, deviation, deviation)
    np.testing.assert_allclose(total, np.cov(X.T, bias=True), rtol=1e-9)


def test_local_fit_is_as_good_as_scikit_learn_and_feasible():
    X = tables(n=200)["s0"]
    found = local.fit(X, 3, rng(), BOUNDS)
    theirs = GaussianMixture(3, n_init=5, random_state=0).fit(X)
    likelihood = np.logaddexp.reduce(log_joint(X, found.mixture), axis=1).mean()
    assert likelihood == pytest.approx(theirs.score(X), abs=2e-3)
    assert found.counts.sum() == 200
    tight = local.fit(np.repeat([[0.0, 0.0], [1.0, 1.0]], 10, axis=0), 3, rng(), BOUNDS).mixture
    assert np.linalg.eigvalsh(tight.covariances).min() >= BOUNDS.variance_floor * (1 - 1e-9)
    assert local.fit(np.ones((1, 2)), 3, rng(), BOUNDS).mixture.n_components == 1
    few = local.fit(np.concatenate([X, [[90.0, 90.0]]]), 4, rng(), BOUNDS, min_rows=5)
    assert (few.mixture.weights * 201).min() >= 5 - 1e-6
    with pytest.raises(DataError, match="rows"):
        local.fit(np.empty((0, 2)), 3, rng(), BOUNDS)


def test_local_components_that_lose_their_rows_in_em_are_dissolved():
    sizes = []
    for seed in range(12):
        X = rng(seed).normal(size=(30, 2))  # one cluster, of which k-means makes three of seven rows or more
        assert kmeans_start(X, 3, rng(), BOUNDS, min_rows=7).counts.min() >= 7
        found = local.fit(X, 3, rng(), BOUNDS, min_rows=7)
        assert found.counts.sum() == 30
        assert (found.mixture.weights * 30).min() >= 7 - 1e-9
        sizes.append(found.mixture.n_components)
    assert min(sizes) < 3


def test_refusals():
    begun = starts(tables())
    with pytest.raises(ConfigError, match="site s0: expected k = 2 components"):
        init(begun, 2)
    with pytest.raises(DataError, match="expected a site with k = 4"):
        init(begun, 4)
    state = init(begun, 3)
    alien = Mixture(np.ones(1), np.zeros((1, 2)), np.ones((1, 2, 2)) * 0.5 + np.eye(2))
    with pytest.raises(ConfigError, match="site x: expected components and features"):
        step(state, {"x": SiteModel(alien, 5)})
    for wrong in (
        {"step": "long"},
        {"step_size": 0.0},
        {"step_size": 1.5},
        {"penalty": -1.0},
        {"penalty": float("nan")},
        {"decay": 1.0},
        {"passes": 0},
        {"covariances": "spherical"},
    ):
        with pytest.raises(ConfigError, match=next(iter(wrong)).replace("_", " ")):
            GrEMSettings(**wrong)
    assert isinstance(begun["s0"], Start)
