"""Numbers over all sites from accepted components: by hand, and by SciPy's average linkage."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from fedcluster_app.gtvmin.pool_identity import identify

Judged = dict[str, dict[str, np.ndarray]]
NAN = float("nan")


def found(judged: Judged, **masses: list[float]) -> dict[str, list[int]]:
    identity = identify(judged, {name: np.array(own) for name, own in masses.items()})
    return {name: labels.tolist() for name, labels in identity.labels.items()}


def both(a: str, b: str, table: list[list[float]]) -> Judged:
    """Judgements of two sites of each other that agree; rows are components of b, columns of a."""
    accepted = np.array(table, dtype=float)
    return {a: {b: accepted}, b: {a: accepted.T}}


def joined(*parts: Judged) -> Judged:
    total: Judged = {}
    for part in parts:
        for site, tables in part.items():
            total.setdefault(site, {}).update(tables)
    return total


def test_two_sites_that_accept_each_other_share_numbers() -> None:
    judged = both("a", "b", [[0, 1], [1, 0]])
    identity = identify(judged, {"a": np.array([10.0, 30.0]), "b": np.array([20.0, 5.0])})
    # a's second with b's first: 50 rows; the others: 15.
    assert {name: labels.tolist() for name, labels in identity.labels.items()} == {"a": [1, 0], "b": [0, 1]}
    np.testing.assert_allclose(identity.sizes, [50, 15])


def test_what_nobody_accepts_is_a_cluster_of_its_own() -> None:
    judged = both("a", "b", [[1, 0], [0, 0]])
    assert found(judged, a=[10, 9], b=[8, 7]) == {"a": [0, 1], "b": [0, 2]}
    assert found({}, a=[10, 9], b=[8]) == {"a": [0, 1], "b": [2]}


def test_a_site_without_neighbours_has_numbers_of_its_own() -> None:
    judged = joined(both("a", "b", [[1]]), {"lone": {}})
    assert found(judged, a=[5], b=[5], lone=[20, 1]) == {"a": [1], "b": [1], "lone": [0, 2]}
    # One that is not in the table of judgements at all is the same.
    assert found(both("a", "b", [[1]]), a=[5], b=[5], lone=[20, 1])["lone"] == [0, 2]


def test_judgements_of_sites_that_have_no_mixture_are_left_out() -> None:
    assert found({"a": {"gone": np.ones((2, 1))}}, a=[3]) == {"a": [0]}


def test_a_chain_of_sites_is_one_cluster_along_its_edges() -> None:
    chain = joined(both("a", "b", [[1]]), both("b", "c", [[1]]), both("c", "d", [[1]]))
    assert found(chain, a=[1], b=[1], c=[1], d=[1]) == {name: [0] for name in "abcd"}


def test_one_wrong_match_among_many_is_outvoted() -> None:
    eye = [[1.0, 0.0], [0.0, 1.0]]
    pairs = {pair: both(*pair, eye) for pair in itertools.combinations("abcd", 2)}
    right = {name: [0, 1] for name in "abcd"}
    masses = {name: [9.0, 4.0] for name in "abcd"}
    assert found(joined(*pairs.values()), **masses) == right
    # Chains of matches would make all of it one cluster.
    pairs["a", "b"] = both("a", "b", [[1, 1], [0, 1]])
    assert found(joined(*pairs.values()), **masses) == right


def test_pieces_of_one_site_are_joined_by_most_of_its_neighbours() -> None:
    one = both("pieces", "b", [[1, 1]])
    # The site says that they are two, one neighbour that they are one: no majority.
    assert len(set(found(one, pieces=[5, 4], b=[9])["pieces"])) == 2
    two = joined(one, both("pieces", "c", [[1, 1]]), both("b", "c", [[1]]))
    assert found(two, pieces=[5, 4], b=[9], c=[9]) == {"pieces": [0, 0], "b": [0], "c": [0]}


def test_one_direction_is_evidence_enough() -> None:
    assert found({"a": {"b": np.array([[0.6]])}}, a=[1], b=[1]) == {"a": [0], "b": [0]}
    assert found({"a": {"b": np.array([[0.5]])}}, a=[1], b=[1]) == {"a": [0], "b": [1]}


@pytest.mark.parametrize(("there", "together"), [(0.0, False), (0.05, True), (1.0, True)])
def test_both_directions_count_alike(there: float, together: bool) -> None:
    labels = found({"a": {"b": np.array([[0.96]])}, "b": {"a": np.array([[there]])}}, a=[1], b=[1])
    assert (labels["a"] == labels["b"]) is together


def test_what_a_neighbour_withheld_is_not_held_against_it() -> None:
    # b's second component was withheld, so a could not judge it; b accepts a's second as its own.
    a = np.array([[1.0, 0.0], [NAN, NAN]])
    judged = {"a": {"b": a}, "b": {"a": np.array([[1.0, 0.0], [0.0, 0.9]])}}
    assert found(judged, a=[9, 5], b=[8, 4]) == {"a": [0, 1], "b": [0, 1]}
    # As a refusal it would tip the balance.
    judged["a"]["b"] = np.nan_to_num(a)
    assert found(judged, a=[9, 5], b=[8, 4]) == {"a": [0, 1], "b": [0, 2]}


def network(seed: int) -> tuple[Judged, dict[str, np.ndarray], np.random.Generator]:
    """Sites that all judge each other, in both directions; probabilities near 0 and 1, and some between."""
    rng = np.random.default_rng(seed)
    sizes = {f"s{i}": int(rng.integers(1, 5)) for i in range(int(rng.integers(2, 6)))}
    classes = {name: rng.integers(0, 4, k) for name, k in sizes.items()}
    judged: Judged = {}
    for a, b in itertools.permutations(sizes, 2):
        alike = classes[b][:, None] == classes[a]
        judged.setdefault(a, {})[b] = 1 / (1 + np.exp(2 - 4 * alike + 2 * rng.normal(size=alike.shape)))
    return judged, {name: rng.uniform(1, 50, k) for name, k in sizes.items()}, rng


def partition(labels: Mapping[str, np.ndarray]) -> set[frozenset[tuple[str, int]]]:
    groups: dict[int, set[tuple[str, int]]] = {}
    for name, own in labels.items():
        for c, label in enumerate(own.tolist()):
            groups.setdefault(label, set()).add((name, c))
    return {frozenset(group) for group in groups.values()}


@pytest.mark.parametrize("seed", range(25))
def test_where_all_is_judged_it_is_average_linkage_cut_at_half(seed: int) -> None:
    judged, masses, _ = network(seed)
    keys = [(name, c) for name in sorted(masses) for c in range(len(masses[name]))]
    distances = [
        1.0 if a == b else 1.0 - 0.5 * (judged[a][b][d, c] + judged[b][a][c, d])
        for (a, c), (b, d) in itertools.combinations(keys, 2)
    ]
    identity = identify(judged, masses)
    groups = fcluster(linkage(distances, method="average"), np.nextafter(0.5, 0), criterion="distance")
    expected: dict[int, set[tuple[str, int]]] = {}
    for key, group in zip(keys, groups.tolist(), strict=True):
        expected.setdefault(group, set()).add(key)
    assert partition(identity.labels) == {frozenset(group) for group in expected.values()}
    sums = np.zeros(identity.n_clusters)
    for name, labels in identity.labels.items():
        np.add.at(sums, labels, masses[name])
    np.testing.assert_allclose(identity.sizes, sums)
    assert (np.diff(identity.sizes) <= 0).all()
