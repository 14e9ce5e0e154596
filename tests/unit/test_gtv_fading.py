"""Fading edges: scales against rows, what goes off and what stays, sums, symmetry, edge cases."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedcluster_app.gtvmin import (
    Bounds,
    Graph,
    Settings,
    block_model,
    complete,
    edge_discrepancies,
    erdos_renyi,
    from_edges,
    kmeans_start,
)
from fedcluster_app.gtvmin.fading import EFFECT, LAST_OFF, OFF, fade
from fedcluster_app.mixtures import Mixture
from fedcluster_app.mixtures.sampling import sample


def at(*means: float) -> Mixture:
    k = len(means)
    return Mixture(np.full(k, 1 / k), np.array(means, float)[:, None], np.ones(k))


def starts(centers: dict[str, np.ndarray], rows: int, seed: int = 0) -> dict[str, Mixture]:
    rng = np.random.default_rng(seed)
    found = {}
    for name, means in centers.items():
        X = means[rng.integers(len(means), size=rows)] + rng.normal(size=(rows, means.shape[1]))
        found[name] = kmeans_start(X, len(means), rng, Bounds()).mixture
    return found


def ratio(graph: Graph, mixtures: dict[str, Mixture]) -> float:
    """Discrepancy in scales on the only edge."""
    faded = fade(graph, mixtures)
    return float(faded.discrepancies[0] / faded.scales[0])


def gap(target: float) -> float:
    """Distance of two unit Gaussians at which the discrepancy is `target` scales."""
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        small = ratio(from_edges([("a", "b")]), {"a": at(0), "b": at(middle)}) < target
        low, high = (middle, high) if small else (low, middle)
    return low


def test_weights_follow_the_discrepancy_and_keep_their_sum() -> None:
    graph = from_edges([("a", "b", 2.0), ("b", "c", 1.0), ("a", "c", 3.0)])
    mixtures = {"a": at(0, 5), "b": at(0.3, 5.2), "c": at(0.1, 4.7)}
    faded = fade(graph, mixtures)
    np.testing.assert_allclose(faded.discrepancies, edge_discrepancies(mixtures, graph, Settings()))
    assert faded.off == ()
    expected = np.array(graph.weights) * np.exp(-faded.discrepancies / faded.scales)
    factor = min(
        sum(graph.weights) / expected.sum(),
        5.0 / max(expected[[0, 1]].sum(), *(expected[list(ends)].sum() for ends in ((0, 2), (1, 2)))),
    )
    np.testing.assert_allclose(faded.graph.weights, factor * expected)


def test_equal_models_keep_the_base_graph() -> None:
    graph = from_edges([("a", "b", 2.0), ("b", "c", 1.0)])
    faded = fade(graph, dict.fromkeys("abc", at(0, 5)))
    assert faded.graph.edges == graph.edges
    assert faded.off == ()
    np.testing.assert_allclose(faded.graph.weights, graph.weights)


def test_the_scale_is_the_discrepancy_of_two_samples_of_one_distribution() -> None:
    rng = np.random.default_rng(0)
    mixture = Mixture(np.array([0.3, 0.7]), np.array([[0.0, 0], [4, 1]]), np.array([1.0, 0.5]))
    n, m = 12, 20
    faded = fade(from_edges([("a", "b")]), {"a": mixture, "b": mixture}, {"a": n, "b": m})
    values = []
    for _ in range(400):
        X, Y = sample(mixture, n, rng)[0], sample(mixture, m, rng)[0]
        Z = np.concatenate([X, Y])
        sign = np.concatenate([np.full(n, 1 / n), np.full(m, -1 / m)])
        squares = np.square(Z[:, None] - Z).sum(axis=2)
        K = sum(np.exp(-squares / (2 * s * s)) for s in (0.5, 1.0, 2.0, 4.0))
        values.append(sign @ K @ sign)
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values) - faded.scales[0]) < 4 * error


def test_many_rows_do_not_make_small_differences_count() -> None:
    graph = from_edges([("a", "b")])
    mixtures = {"a": at(0), "b": at(0.2)}
    few, fifty, many, unknown = (
        fade(graph, mixtures, rows).scales[0]
        for rows in ({"a": 5, "b": 25}, {"a": 50, "b": 50}, {"a": 10**6, "b": 10**6}, None)
    )
    assert fifty == pytest.approx(many)
    assert many == unknown
    assert few == pytest.approx(unknown * (1 / 5 + 1 / 25) / (2 * EFFECT))
    assert fade(graph, mixtures, {"a": 0, "b": 9}).scales[0] > few


def test_a_last_edge_stays_longer_than_others() -> None:
    apart = gap(0.5 * (OFF + LAST_OFF))
    graph = from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    # Sites a and c are alike, so are b and d: the edges between the pairs go.
    pairs = {"a": at(0), "c": at(0), "b": at(apart), "d": at(apart)}
    faded = fade(graph, pairs)
    assert faded.off == (("a", "b"), ("c", "d"))
    assert faded.graph.edges == (("a", "c"), ("b", "d"))
    # With no like neighbour the same difference is kept ...
    alone = from_edges([("a", "b")])
    assert fade(alone, {"a": at(0), "b": at(apart)}).off == ()
    # ... until it is really large.
    far = {"a": at(0), "b": at(gap(1.05 * LAST_OFF))}
    faded = fade(alone, far)
    assert faded.off == (("a", "b"),)
    assert faded.graph == Graph(("a", "b"), (), ())


def test_an_edge_comes_back_when_its_ends_are_alike() -> None:
    graph = from_edges([("a", "b"), ("b", "c"), ("a", "c")])
    before = fade(graph, {"a": at(0), "b": at(0), "c": at(30)})
    assert before.off == (("a", "c"), ("b", "c"))
    assert fade(graph, {"a": at(0), "b": at(0), "c": at(0.1)}).off == ()


def test_no_degree_outgrows_the_base_graph() -> None:
    names = [f"s{i}" for i in range(8)]
    graph = complete(names)
    mixtures = {name: at(40 * max(i - 1, 0)) for i, name in enumerate(names)}
    faded = fade(graph, mixtures)
    assert faded.graph.edges == (("s0", "s1"),)
    assert faded.graph.max_degree == pytest.approx(graph.max_degree)


@pytest.mark.parametrize("rows", [20, 50, 400])
def test_a_homogeneous_network_loses_almost_nothing(rows: int) -> None:
    lost = total = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        centers = 5 * rng.normal(size=(5, 2))
        names = [f"s{i}" for i in range(10)]
        graph = erdos_renyi(names, 0.6, rng)
        faded = fade(graph, starts(dict.fromkeys(names, centers), rows, seed), dict.fromkeys(names, rows))
        lost, total = lost + len(faded.off), total + len(graph.edges)
        assert sum(faded.graph.weights) == pytest.approx(sum(graph.weights), rel=0.35)
    assert lost <= 0.04 * total


@pytest.mark.parametrize("p_out", [0.2, 0.8])
def test_edges_between_blocks_go_and_edges_inside_stay(p_out: float) -> None:
    crossing = off_across = inside = off_inside = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        base = 5 * rng.normal(size=(5, 2))
        shifts = np.concatenate([np.zeros((1, 2)), 5 * rng.normal(size=(2, 2))])
        names = [[f"s{b}{i}" for i in range(5)] for b in range(3)]
        centers = {name: base + shifts[b] for b in range(3) for name in names[b]}
        graph = block_model(names, 0.8, p_out, rng)
        faded = fade(graph, starts(centers, 50, seed), dict.fromkeys(centers, 50))
        across = {(a, b) for a, b in graph.edges if a[1] != b[1]}
        crossing, inside = crossing + len(across), inside + len(graph.edges) - len(across)
        off_across += len(across & set(faded.off))
        off_inside += len(set(faded.off) - across)
    assert off_across >= 0.9 * crossing
    assert off_inside <= 0.04 * inside


def test_names_order_and_numbering_do_not_matter() -> None:
    mixtures = {"a": at(0, 3, 9), "b": at(0.2, 3.3), "c": at(8.8, 0.1, 3)}
    edges = list(combinations("abc", 2))
    one = fade(from_edges(edges), mixtures, {"a": 20, "b": 30, "c": 40})
    turned = {
        name: Mixture(m.weights[::-1], m.means[::-1], m.covariances[::-1]) for name, m in mixtures.items()
    }
    two = fade(
        from_edges([(b, a) for a, b in reversed(edges)]),
        dict(reversed(turned.items())),
        {"c": 40, "b": 30, "a": 20},
    )
    assert one.graph.edges == two.graph.edges
    assert one.off == two.off
    np.testing.assert_allclose(one.graph.weights, two.graph.weights, rtol=1e-9)


def test_one_site_and_no_edges() -> None:
    alone = Graph(("a",), (), ())
    faded = fade(alone, {"a": at(0)}, {"a": 3})
    assert (faded.graph, faded.off) == (alone, ())
    assert faded.discrepancies.shape == faded.scales.shape == (0,)
    island = Graph(("a", "b", "c"), (("a", "b"),), (2.0,))
    assert fade(island, dict.fromkeys("abc", at(1))).graph == island
