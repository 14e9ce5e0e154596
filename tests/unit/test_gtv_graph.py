"""Graphs over sites: what is refused and how it is said, and what the builders build."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import (
    Graph,
    block_model,
    check_connected,
    complete,
    erdos_renyi,
    from_edges,
    nearest,
    ring,
)

ABC = ("a", "b", "c")


def test_the_order_and_direction_of_the_input_do_not_matter() -> None:
    one = Graph(("c", "a", "b"), (("c", "a"), ("b", "a")), (2.0, 0.5))
    two = Graph(ABC, (("a", "b"), ("a", "c")), (0.5, 2.0))
    assert one == two
    assert one.names == ABC
    assert list(one.neighbours("a").items()) == [("b", 0.5), ("c", 2.0)]
    assert dict(one.neighbours("c")) == {"a": 2.0}
    assert (one.degree("a"), one.max_degree) == (2.5, 2.5)


@pytest.mark.parametrize(
    ("edges", "weights", "text"),
    [
        ((("a", "x"),), (1.0,), "unknown site x"),
        ((("a", "a"),), (1.0,), "self loop at a"),
        ((("a", "b"), ("b", "a")), (1.0, 1.0), "duplicate of a - b"),
        ((("a", "b"),), (0.0,), "positive weight for a - b"),
        ((("a", "b"),), (-1.0,), "positive weight for a - b"),
        ((("a", "b"),), (float("nan"),), "positive weight for a - b"),
        ((("a", "b"),), (), "expected 1 weights"),
        ((("a", "b"),), ("2",), "positive weight for a - b, got '2'"),
        ((("a", "b"),), (True,), "positive weight for a - b, got True"),
    ],
)
def test_each_error_is_named(edges: tuple, weights: tuple, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Graph(ABC, edges, weights)


@pytest.mark.parametrize("used", [False, True])
def test_a_graph_can_be_copied_and_pickled_also_after_use(used: bool) -> None:
    graph = from_edges([("a", "b", 2.0), ("b", "c")])
    if used:
        assert graph.max_degree == 3
        assert graph.islands == (ABC,)
    for copy in (deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert copy == graph
        assert dict(copy.neighbours("b")) == {"a": 2.0, "c": 1.0}


def test_nobody_changes_a_graph_through_its_neighbours() -> None:
    with pytest.raises(TypeError):
        ring(ABC).neighbours("a")["b"] = 5.0  # type: ignore[index]  # wrong on purpose


def test_a_site_named_twice_or_no_site_is_refused() -> None:
    with pytest.raises(ConfigError, match="got a more than once"):
        Graph(("a", "a", "b"), (), ())
    with pytest.raises(ConfigError, match="at least one site"):
        Graph((), (), ())


def test_isolated_and_disconnected_sites_are_named_apart() -> None:
    with pytest.raises(ConfigError, match="none for c, d"):
        from_edges([("a", "b")], ["a", "b", "c", "d"])
    with pytest.raises(ConfigError, match=r"2 parts \(a, b; c, d\)"):
        from_edges([("a", "b"), ("c", "d")])
    islands = from_edges([("a", "b"), ("c", "d")], connected=False)
    assert islands.islands == (("a", "b"), ("c", "d"))


def test_long_lists_of_names_are_cut_in_messages() -> None:
    names = [f"site-{i:02d}" for i in range(30)]
    with pytest.raises(ConfigError, match="and 20 more"):
        from_edges([("site-00", "site-01")], names)


def test_one_site_is_a_connected_graph() -> None:
    for graph in (ring(["a"]), complete(["a"]), nearest(["a"], np.zeros((1, 1)), 3)):
        assert check_connected(graph).edges == ()
        assert dict(graph.neighbours("a")) == {}
        assert graph.max_degree == 0


def test_an_unknown_site_has_no_neighbours() -> None:
    with pytest.raises(ConfigError, match="no site 'z'"):
        ring(ABC).neighbours("z")


def test_two_sites_in_a_ring_share_one_edge() -> None:
    assert ring(["b", "a"]).edges == (("a", "b"),)
    assert ring(ABC).edges == (("a", "b"), ("a", "c"), ("b", "c"))


def test_complete_has_all_pairs() -> None:
    graph = complete([str(i) for i in range(7)])
    assert len(graph.edges) == 21
    assert all(graph.degree(name) == 6 for name in graph.names)


def test_erdos_renyi_holds_the_ring_and_about_p_of_the_rest() -> None:
    names = [f"{i:03d}" for i in range(60)]
    graph = erdos_renyi(names, 0.3, np.random.default_rng(0))
    assert set(ring(names).edges) <= set(graph.edges)
    rest = 60 * 59 / 2 - 60
    assert abs((len(graph.edges) - 60) / rest - 0.3) < 0.04
    assert erdos_renyi(names, 0.0, np.random.default_rng(0)) == ring(names)
    assert erdos_renyi(names, 1.0, np.random.default_rng(0)) == complete(names)
    assert erdos_renyi(names[::-1], 0.3, np.random.default_rng(0)) == graph


def test_blocks_are_chained_and_rarely_joined() -> None:
    blocks = [[f"{b}{i:02d}" for i in range(20)] for b in "xyz"]
    graph = block_model(blocks, 0.8, 0.1, np.random.default_rng(1))
    inside = [edge for edge in graph.edges if edge[0][0] == edge[1][0]]
    for block in blocks:
        assert all(block[i + 1] in graph.neighbours(block[i]) for i in range(19))
    assert abs(len(inside) / (3 * 190) - 0.82) < 0.05
    assert abs((len(graph.edges) - len(inside)) / 1200 - 0.1) < 0.03
    apart = block_model(blocks, 0.0, 0.0, np.random.default_rng(1))
    assert apart.islands == tuple(tuple(block) for block in blocks)


def test_a_site_in_two_blocks_and_impossible_probabilities_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="more than once"):
        block_model([["a", "b"], ["b", "c"]], 0.5, 0.5, rng)
    with pytest.raises(ConfigError, match="p_out: expected a probability"):
        block_model([["a"], ["b"]], 0.5, -0.1, rng)
    with pytest.raises(ConfigError, match="p: expected a probability"):
        erdos_renyi(ABC, float("nan"), rng)


def test_nearest_joins_who_chose_whom() -> None:
    place = {"far": 9.0, "a": 0.0, "b": 1.0, "c": 2.5}
    names = list(place)
    position = np.array(list(place.values()))
    distances = np.abs(position[:, None] - position)
    assert nearest(names, distances, 1).edges == (("a", "b"), ("b", "c"), ("c", "far"))
    assert nearest(names, distances, 3) == complete(names)
    with pytest.raises(ConfigError, match="1 to 3 of 4"):
        nearest(names, distances, 4)
    with pytest.raises(ConfigError, match=r"shape \(4, 4\)"):
        nearest(names, distances[:2], 1)
    np.fill_diagonal(distances, np.nan)
    assert nearest(names, distances, 1).edges == (("a", "b"), ("b", "c"), ("c", "far"))
    for wrong in (np.inf, np.nan):
        distances[0, 1] = wrong
        with pytest.raises(ConfigError, match="finite numbers off the diagonal"):
            nearest(names, distances, 1)
