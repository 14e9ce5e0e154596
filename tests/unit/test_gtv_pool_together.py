"""Nodes carried out together: what each gives alone, whoever is in the batch, and in fewer calls."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from fedcluster_app.gtvmin import complete, pool, pool_network, pool_together
from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.gtvmin.pool_local import attend
from fedcluster_app.gtvmin.pool_message import Inbox, receive
from fedcluster_app.gtvmin.pool_model import Models, Rows, rows_of
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_together import Program, Request, alone, together

SETTINGS = PoolSettings(min_count=2.0, max_rounds=3, tolerance=0.0)
CENTERS = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 7.0], [1.0, -8.0]])
# Sites of very different size, one of which has fewer rows than components, and of different degree.
SIZES = {"a": 60, "b": 25, "c": 3, "d": 140, "e": 40}
EDGES = (("a", "b"), ("a", "c"), ("a", "d"), ("b", "d"), ("d", "e"))
GRAPH = Graph(tuple(SIZES), EDGES, (1.0,) * len(EDGES))


def draws(number: int, name: str) -> np.random.Generator:
    return np.random.default_rng([number, *name.encode()])


def tables(d: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(d)
    centers = CENTERS if d == 2 else rng.normal(0.0, 4.0, size=(4, d))
    return {name: centers[np.arange(n) % 4] + rng.normal(size=(n, d)) for name, n in SIZES.items()}


@pytest.mark.parametrize("entries", [1, 2000, 1 << 19])
@pytest.mark.parametrize(("d", "uniform"), [(2, False), (2, True), (3, False)])
def test_a_network_is_its_nodes_one_after_the_other(
    d: int, uniform: bool, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = PoolSettings(min_count=2.0, max_rounds=3, tolerance=0.0, uniform=uniform)
    X, k = tables(d), dict.fromkeys(SIZES, 4) | {"e": 3}
    nodes = {name: pool.init(X[name], k[name], settings, draws(0, name)) for name in SIZES}
    for number in range(1, 4):
        mail = {name: pool.message(own) for name, own in nodes.items()}
        heard = {name: {other: mail[other] for other in GRAPH.neighbours(name)} for name in SIZES}
        nodes = {
            name: pool.step(own, X[name], heard[name], settings, draws(number, name))
            for name, own in nodes.items()
        }
    monkeypatch.setattr(pool_together, "_ENTRIES", entries)
    state = pool_network.init(X, k, GRAPH, draws, settings)
    for _ in range(3):
        state = pool_network.step(state, X, GRAPH, draws, settings)
    for name, own in nodes.items():
        found = state.nodes[name]
        for part in ("weights", "means", "covariances", "rates", "attached", "strength", "discount", "junk"):
            expected = getattr(own.models, part)
            np.testing.assert_allclose(getattr(found.models, part), expected, rtol=1e-9, atol=1e-9)
        assert found.rates == pytest.approx(own.rates, abs=1e-9)
        assert found.changes == pytest.approx(own.changes, abs=1e-9)


def entered(name: str, neighbours: str, d: int = 2) -> tuple[Models, Rows, Inbox]:
    """Return a node's models before its first round, with room for what came."""
    X = tables(d)
    begun = {one: pool.init(X[one], 3, SETTINGS, draws(0, one)) for one in (name, *neighbours)}
    rows = rows_of(X[name])
    inbox = receive({one: pool.message(begun[one]) for one in neighbours}, rows, 20.0)
    return pool._entered(begun[name], inbox), rows, inbox


def asked(models: Models, rows: Rows, inbox: Inbox) -> Program[Models]:
    answer = yield Request(attend, models, rows, inbox, SETTINGS, (3,))
    return answer


def test_what_fills_a_batch_up_counts_nothing() -> None:
    small, large = entered("b", "a"), entered("d", "abe")
    pair = together([asked(*small), asked(*large)])
    for node, found in zip((small, large), pair, strict=True):
        expected = attend(*node, SETTINGS, 3)
        for field in fields(Models):
            mine, wanted = getattr(found, field.name), getattr(expected, field.name)
            assert mine.shape == wanted.shape
            np.testing.assert_allclose(mine, wanted, rtol=1e-9, atol=1e-9, err_msg=field.name)


def test_nodes_that_ask_for_the_same_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(models: Models, *_: object) -> Models:
        calls.append(len(models.weights))
        return models

    def node(name: str, neighbours: str) -> Program[Models]:
        models, rows, inbox = entered(name, neighbours)
        for _ in range(2):
            models = yield Request(counted, models, rows, inbox, SETTINGS, ())
        return models

    def run() -> list[int]:
        calls.clear()
        together([node("a", "b"), node("b", "ae"), node("e", "d")])
        return calls

    assert run() == [3, 3]
    monkeypatch.setattr(pool_together, "_ENTRIES", 1)
    assert run() == [1] * 6


def test_programs_may_ask_for_nothing_or_end_early() -> None:
    node = entered("a", "b")

    def silent() -> Program[Models]:
        return node[0]
        yield  # makes it a program

    first, second, third = together([silent(), asked(*node), silent()])
    assert first is third is node[0]
    np.testing.assert_array_equal(second.means, alone(asked(*node)).means)
    assert together([]) == []


def test_a_silent_site_stays_as_it_is_and_is_still_heard() -> None:
    X = tables(2)
    graph = complete(tuple(SIZES))
    state = pool_network.init(X, 3, graph, draws, SETTINGS)
    after = pool_network.step(state, X, graph, draws, SETTINGS, silent=("d",))
    assert after.nodes["d"] is state.nodes["d"]
    assert after.mail["d"] is state.mail["d"]
    assert all("d" in own.rates for name, own in after.nodes.items() if name != "d")
