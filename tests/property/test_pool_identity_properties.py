"""Invariances of the numbering by accepted components: order and names of sites, order of components."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.gtvmin.pool_identity import identify

FAST = settings(deadline=None, derandomize=True, max_examples=50)
seeds = st.integers(0, 2**32 - 1)
Judged = dict[str, dict[str, np.ndarray]]


def network(seed: int) -> tuple[Judged, dict[str, np.ndarray], np.random.Generator]:
    """A graph of sites, some edges judged from one end only, some components withheld."""
    rng = np.random.default_rng(seed)
    names = [f"s{i}" for i in range(int(rng.integers(1, 7)))]
    classes = {name: rng.integers(0, 4, int(rng.integers(1, 5))) for name in names}
    judged: Judged = {}
    for a, b in itertools.permutations(names, 2):
        if rng.random() < 0.6:
            alike = classes[b][:, None] == classes[a]
            table = 1 / (1 + np.exp(2 - 4 * alike + 2 * rng.normal(size=alike.shape)))
            table[rng.random(len(table)) < 0.1] = np.nan
            judged.setdefault(a, {})[b] = table
    return judged, {name: rng.uniform(1, 50, len(own)) for name, own in classes.items()}, rng


@given(seed=seeds)
@FAST
def test_the_order_of_sites_and_components_does_not_matter(seed: int) -> None:
    judged, masses, rng = network(seed)
    orders = {name: rng.permutation(len(own)) for name, own in masses.items()}
    names = rng.permutation(sorted(masses)).tolist()
    one = identify(judged, masses)
    two = identify(
        {
            name: {
                other: judged[name][other][np.ix_(orders[other], orders[name])]
                for other in names[::-1]
                if other in judged[name]
            }
            for name in names
            if name in judged
        },
        {name: masses[name][orders[name]] for name in names},
    )
    np.testing.assert_allclose(one.sizes, two.sizes)
    for name in masses:
        np.testing.assert_array_equal(one.labels[name][orders[name]], two.labels[name])


@given(seed=seeds)
@FAST
def test_what_sites_are_called_does_not_matter(seed: int) -> None:
    judged, masses, rng = network(seed)
    called = dict(zip(sorted(masses), rng.permutation([f"t{i}" for i in range(len(masses))]), strict=True))
    one = identify(judged, masses)
    two = identify(
        {called[a]: {called[b]: table for b, table in tables.items()} for a, tables in judged.items()},
        {called[name]: own for name, own in masses.items()},
    )
    for name in masses:
        np.testing.assert_array_equal(one.labels[name], two.labels[called[name]])


@given(seed=seeds)
@FAST
def test_sizes_add_up_and_a_cluster_is_held_together_by_evidence(seed: int) -> None:
    judged, masses, _ = network(seed)
    identity = identify(judged, masses)
    sums = np.zeros(identity.n_clusters)
    for name, labels in identity.labels.items():
        assert labels.shape == masses[name].shape
        np.add.at(sums, labels, masses[name])
    np.testing.assert_allclose(sums, identity.sizes)
    for label in range(identity.n_clusters):
        inside = [
            judged[a][b][d, c]
            for a, b in itertools.permutations(masses, 2)
            for c, d in itertools.product(*(np.flatnonzero(identity.labels[s] == label) for s in (a, b)))
            if b in judged.get(a, {})
        ]
        members = sum(int((own == label).sum()) for own in identity.labels.values())
        assert members == 1 or np.nanmax(inside) > 0.5
