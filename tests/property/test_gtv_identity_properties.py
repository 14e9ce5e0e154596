"""Invariances of component identity: order of sites and components, units, names that keep their order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.gtvmin.identity import identify
from fedcluster_app.mixtures import Mixture

FAST = settings(deadline=None, derandomize=True, max_examples=40)
seeds = st.integers(0, 2**32 - 1)


def network(seed: int) -> tuple[dict[str, Mixture], np.random.Generator]:
    rng = np.random.default_rng(seed)
    d, g = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    centers = 3 * rng.normal(size=(6, d))
    mixtures = {}
    for i in range(g):
        k = int(rng.integers(1, 6))
        roots = np.eye(d) + 0.4 * rng.normal(size=(k, d, d))
        means = centers[rng.permutation(6)[:k]] + 0.4 * rng.normal(size=(k, d))
        covariances = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(d)
        mixtures[f"s{i}"] = Mixture(rng.dirichlet(np.full(k, 4.0)), means, covariances)
    return mixtures, rng


def taken(mixture: Mixture, order: np.ndarray) -> Mixture:
    return Mixture(mixture.weights[order], mixture.means[order], mixture.covariances[order])


@given(seed=seeds)
@FAST
def test_the_order_of_sites_and_components_does_not_matter(seed: int) -> None:
    mixtures, rng = network(seed)
    orders = {name: rng.permutation(mixture.n_components) for name, mixture in mixtures.items()}
    names = rng.permutation(sorted(mixtures)).tolist()
    one = identify(mixtures)
    two = identify({name: taken(mixtures[name], orders[name]) for name in names})
    np.testing.assert_array_equal(one.sizes, two.sizes)
    for name in mixtures:
        np.testing.assert_array_equal(one.labels[name][orders[name]], two.labels[name])


@given(seed=seeds)
@FAST
def test_every_cluster_holds_a_site_once_and_sizes_add_up(seed: int) -> None:
    mixtures, rng = network(seed)
    rows = {name: int(rng.integers(1, 500)) for name in mixtures}
    identity = identify(mixtures, rows)
    masses = np.zeros(identity.n_clusters)
    for name, labels in identity.labels.items():
        assert labels.shape == (mixtures[name].n_components,)
        assert len(np.unique(labels)) == len(labels)
        masses[labels] += rows[name] * mixtures[name].weights
    np.testing.assert_allclose(masses, identity.sizes)
    assert (np.diff(identity.sizes) <= 1e-9 * identity.sizes[0]).all()


@given(seed=seeds, scale=st.floats(1e-3, 1e3))
@FAST
def test_units_rotation_and_origin_do_not_matter(seed: int, scale: float) -> None:
    mixtures, rng = network(seed)
    d = next(iter(mixtures.values())).n_features
    turn = scale * np.linalg.qr(rng.normal(size=(d, d)))[0] @ np.diag(rng.uniform(0.3, 3, size=d))
    origin = 10 * scale * rng.normal(size=d)
    moved = {}
    for name, mixture in mixtures.items():
        covariances = turn @ mixture.covariances @ turn.T
        symmetric = 0.5 * (covariances + covariances.transpose(0, 2, 1))
        moved[name] = Mixture(mixture.weights, mixture.means @ turn.T + origin, symmetric)
    one, two = identify(mixtures), identify(moved)
    np.testing.assert_allclose(one.sizes, two.sizes)
    pairs = {
        (a, b)
        for name in mixtures
        for a, b in zip(one.labels[name].tolist(), two.labels[name].tolist(), strict=True)
    }
    assert len(pairs) == one.n_clusters == two.n_clusters


@given(seed=seeds)
@FAST
def test_sites_with_the_same_model_agree_on_every_component(seed: int) -> None:
    mixtures, rng = network(seed)
    model = mixtures["s0"]
    order = rng.permutation(model.n_components)
    identity = identify({"a": model, "b": taken(model, order), "c": model})
    np.testing.assert_array_equal(identity.labels["a"], identity.labels["c"])
    np.testing.assert_array_equal(identity.labels["a"][order], identity.labels["b"])
    assert identity.n_clusters == model.n_components
