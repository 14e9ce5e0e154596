"""Component identity: tiny cases by hand, against the definition by brute force, and a network."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin import Bounds, kmeans_start
from fedcluster_app.gtvmin.blocks import blocks
from fedcluster_app.gtvmin.identity import BANDWIDTHS, OVERLAP, Identity, identify
from fedcluster_app.mixtures import Mixture


def line(*means: float, variance: float = 1.0, weights: list[float] | None = None) -> Mixture:
    k = len(means)
    shares = np.full(k, 1 / k) if weights is None else np.array(weights)
    return Mixture(shares, np.array(means, float)[:, None], np.full(k, variance))


def found(identity: Identity) -> dict[str, list[int]]:
    return {name: labels.tolist() for name, labels in identity.labels.items()}


def correlations(mixtures: dict[str, Mixture]) -> tuple[list[tuple[str, int]], np.ndarray]:
    """Normalised kernel means of all pairs, by normal densities: s^d (2 pi)^(d/2) N(delta; 0, S)."""
    keys = [(name, c) for name in sorted(mixtures) for c in range(mixtures[name].n_components)]
    d = next(iter(mixtures.values())).n_features
    weights = [mixtures[n].weights[c] for n, c in keys]
    means = [mixtures[n].means[c] for n, c in keys]
    covariances = [blocks(mixtures[n]).covariances[c] for n, c in keys]
    precision = sum(w * np.linalg.inv(S) for w, S in zip(weights, covariances, strict=True)) / sum(weights)
    width = np.linalg.inv(precision)
    inner = np.zeros((len(keys), len(keys)))
    for i, j in itertools.product(range(len(keys)), repeat=2):
        for s in BANDWIDTHS:
            S = covariances[i] + covariances[j] + s**2 * width
            inner[i, j] += s**d * multivariate_normal.pdf(means[i] - means[j], np.zeros(d), S)
    length = np.sqrt(np.diag(inner))
    return keys, inner / length[:, None] / length


def complete_linkage(mixtures: dict[str, Mixture]) -> set[frozenset[tuple[str, int]]]:
    """Merge the two groups whose least alike members are the most alike, from the definition."""
    keys, alike = correlations(mixtures)
    groups = [frozenset([i]) for i in range(len(keys))]
    while True:
        pairs = [
            (min(alike[i, j] for i in a for j in b), a, b)
            for a, b in itertools.combinations(groups, 2)
            if not {keys[i][0] for i in a} & {keys[j][0] for j in b}
        ]
        value, a, b = max(pairs, key=lambda pair: pair[0], default=(0.0, None, None))
        if value < OVERLAP or a is None or b is None:
            return {frozenset(keys[i] for i in group) for group in groups}
        groups = [group for group in groups if group not in (a, b)] + [a | b]


@pytest.mark.parametrize("seed", range(12))
def test_the_groups_are_those_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = 1 + seed % 3
    centers = 2.5 * rng.normal(size=(5, d))
    mixtures = {}
    for name in "abcd":
        k = int(rng.integers(1, 5))
        roots = np.eye(d) + 0.3 * rng.normal(size=(k, d, d))
        means = centers[rng.permutation(5)[:k]] + 0.5 * rng.normal(size=(k, d))
        mixtures[name] = Mixture(rng.dirichlet(np.ones(k) * 5), means, roots @ roots.transpose(0, 2, 1))
    identity = identify(mixtures)
    groups: dict[int, set[tuple[str, int]]] = {}
    for name, labels in identity.labels.items():
        for c, label in enumerate(labels.tolist()):
            groups.setdefault(label, set()).add((name, c))
    assert {frozenset(group) for group in groups.values()} == complete_linkage(mixtures)
    assert sorted(groups) == list(range(identity.n_clusters))


def test_like_components_get_one_number_and_others_their_own() -> None:
    mixtures = {"a": line(0, 10, 20), "b": line(20.3, 0.2), "c": line(9.8, 30)}
    identity = identify(mixtures)
    # Sizes 1/3 + 1/2, the same, 1/3 + 1/2 again and 1/2: ties go to the component found first.
    assert found(identity) == {"a": [0, 1, 2], "b": [2, 0], "c": [1, 3]}
    np.testing.assert_allclose(identity.sizes, [5 / 6, 5 / 6, 5 / 6, 1 / 2])


def test_clusters_are_numbered_by_rows() -> None:
    mixtures = {"a": line(0, 10, weights=[0.9, 0.1]), "b": line(10, 20)}
    assert found(identify(mixtures)) == {"a": [0, 1], "b": [1, 2]}
    by_rows = identify(mixtures, {"a": 10, "b": 100})
    assert found(by_rows) == {"a": [2, 0], "b": [0, 1]}
    np.testing.assert_allclose(by_rows.sizes, [51, 50, 9])


def test_a_site_never_has_two_components_in_one_cluster() -> None:
    identity = identify({"a": line(0, 0.1), "b": line(0.05), "c": line(0.12, 0.02)})
    for labels in identity.labels.values():
        assert len(set(labels.tolist())) == len(labels)
    assert identity.n_clusters == 2


def test_a_chain_of_overlaps_is_not_one_cluster() -> None:
    steps = {name: line(1.5 * i) for i, name in enumerate("abcdef")}
    identity = identify(steps)
    _, alike = correlations(steps)
    labels = np.concatenate([identity.labels[name] for name in "abcdef"])
    assert np.diag(alike, 1).min() > OVERLAP
    assert identity.n_clusters > 1
    assert alike[labels[:, None] == labels].min() >= OVERLAP


@pytest.mark.parametrize(("distance", "clusters"), [(2.6, 1), (2.8, 2)])
def test_the_border_in_one_dimension(distance: float, clusters: int) -> None:
    assert identify({"a": line(0), "b": line(distance)}).n_clusters == clusters


def test_one_site_and_one_component() -> None:
    assert found(identify({"a": line(3)})) == {"a": [0]}
    assert found(identify({"a": line(0, 0, 5, weights=[0.2, 0.3, 0.5])})) == {"a": [2, 1, 0]}


def test_wide_and_narrow_components_do_not_blur_each_other() -> None:
    # Beside a wide cloud narrow clusters one unit apart stay different; so do wide and narrow at one place.
    cloud = line(0, 1, 2, weights=[0.4, 0.3, 0.3])
    variances = np.array([900.0, 0.01, 0.01])
    a = Mixture(cloud.weights, cloud.means, variances)
    b = Mixture(cloud.weights, cloud.means + np.array([[2.0], [0.05], [1.0]]), variances)
    assert found(identify({"a": a, "b": b})) == {"a": [0, 1, 2], "b": [0, 1, 3]}
    wide, tight = (Mixture(np.ones(1), np.zeros((1, 3)), np.array([v])) for v in (400.0, 0.01))
    assert identify({"a": wide, "b": tight}).n_clusters == 2


def test_sites_that_learn_from_rows_agree_on_separated_clusters() -> None:
    rng = np.random.default_rng(3)
    centers = np.array([[0, 0], [8, 0], [0, 8], [8, 8]], float)
    mixtures, held = {}, {}
    for i, site in enumerate("abcde"):
        held[site] = sorted({0, i % 4, (i + 1) % 4})
        labels = np.repeat(held[site], 12)
        X = centers[labels] + rng.normal(size=(len(labels), 2))
        mixtures[site] = kmeans_start(X, len(held[site]), rng, Bounds()).mixture
    identity = identify(mixtures)
    assert identity.n_clusters == 4
    seen = {}
    for site, mixture in mixtures.items():
        truth = np.square(mixture.means[:, None] - centers).sum(axis=2).argmin(axis=1)
        for label, true in zip(identity.labels[site].tolist(), truth.tolist(), strict=True):
            assert seen.setdefault(label, true) == true


def test_blocks_of_pairs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    mixtures = {
        name: Mixture(np.full(4, 0.25), 5 * rng.normal(size=(4, 2)), np.ones((4, 2))) for name in "abcde"
    }
    at_once = found(identify(mixtures))
    monkeypatch.setattr("fedcluster_app.gtvmin.identity._BLOCK", 60)
    assert found(identify(mixtures)) == at_once


def test_what_cannot_be_identified_is_named() -> None:
    with pytest.raises(DataError, match="expected at least one"):
        identify({})
    plane = Mixture(np.ones(1), np.zeros((1, 2)), np.ones(1))
    with pytest.raises(DataError, match="expected 1 features as at a, got 2 at b"):
        identify({"a": line(0), "b": plane})
