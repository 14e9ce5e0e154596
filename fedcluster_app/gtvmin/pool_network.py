"""Evidence-gated pooling over all sites in one process: init / step / done / finish, as in a Flower run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import pool
from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.gtvmin.pool_message import Summary
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_state import PoolResult, PoolState
from fedcluster_app.gtvmin.pool_together import together
from fedcluster_app.mixtures.types import FloatArray

# A random stream by round (0: the local fit) and site.
PoolDraws: TypeAlias = Callable[[int, str], np.random.Generator]
_LEAN = PoolSettings()


@dataclass(frozen=True, eq=False)
class PoolNetworkState:
    """All nodes between rounds, with the last summary of each; both in order of name."""

    nodes: Mapping[str, PoolState]
    mail: Mapping[str, Summary]
    round: int = 0


def init(
    tables: Mapping[str, FloatArray],
    k: int | Mapping[str, int] | None,
    graph: Graph,
    draws: PoolDraws,
    settings: PoolSettings = _LEAN,
) -> PoolNetworkState:
    """State before the first round: every site's fit to its own rows.

    Parameters
    ----------
    tables : mapping of site name to array of shape (n, d)
        One for every site of the graph.
    k : int, mapping of site name to int, or None
        Components; None if they are to be found.
    graph : Graph
        Who hears whom; its weights say nothing here, the evidence does.
    draws : function of round and site
        A stream that depends on nothing else makes the result independent of any order.
    settings : PoolSettings

    Raises
    ------
    ConfigError
        If sites and graph do not agree.
    DataError
        If a site has no rows.
    """
    if sorted(tables) != list(graph.names):
        differing = ", ".join(sorted(set(tables) ^ set(graph.names)))
        raise ConfigError(f"tables: expected one for every site of the graph, differing in {differing}")
    sizes = k if isinstance(k, Mapping) else dict.fromkeys(graph.names, k)
    begun = together(
        [pool.beginning(tables[name], sizes[name], settings, draws(0, name)) for name in graph.names]
    )
    nodes = dict(zip(graph.names, begun, strict=True))
    return PoolNetworkState(nodes, {name: pool.message(own) for name, own in nodes.items()})


def step(
    state: PoolNetworkState,
    tables: Mapping[str, FloatArray],
    graph: Graph,
    draws: PoolDraws,
    settings: PoolSettings = _LEAN,
    silent: Collection[str] = (),
) -> PoolNetworkState:
    """One synchronous round: every node steps against its neighbours' summaries of the round before.

    Parameters
    ----------
    state : PoolNetworkState
    tables, graph, draws, settings
        As in `init`.
    silent : collection of str
        Sites that take no part; their neighbours go on with their last summary.
    """
    number = state.round + 1
    taking = [name for name in state.nodes if name not in silent]
    stepped = together(
        [
            pool.stepping(
                state.nodes[name],
                tables[name],
                _heard(state, graph, name),
                settings,
                draws(number, name),
            )
            for name in taking
        ]
    )
    moved = dict(zip(taking, stepped, strict=True))
    said = {name: pool.message(own) for name, own in moved.items()}
    return PoolNetworkState({**state.nodes, **moved}, {**state.mail, **said}, number)


def done(state: PoolNetworkState, settings: PoolSettings = _LEAN) -> bool:
    """Whether the rounds are over: all were taken, or no node asks for more."""
    resting = all(pool.done(own, settings) for own in state.nodes.values())
    return resting or state.round >= settings.max_rounds


def finish(
    state: PoolNetworkState,
    tables: Mapping[str, FloatArray],
    graph: Graph,
    settings: PoolSettings = _LEAN,
) -> dict[str, PoolResult]:
    """Every site's result, once it has judged what its neighbours sent last."""
    return {
        name: pool.finish(own, tables[name], _heard(state, graph, name), settings)
        for name, own in state.nodes.items()
    }


def run(
    tables: Mapping[str, FloatArray],
    k: int | Mapping[str, int] | None,
    graph: Graph,
    draws: PoolDraws,
    settings: PoolSettings = _LEAN,
) -> dict[str, PoolResult]:
    """Take rounds from the local fits until `done`."""
    state = init(tables, k, graph, draws, settings)
    while not done(state, settings):
        state = step(state, tables, graph, draws, settings)
    return finish(state, tables, graph, settings)


def _heard(state: PoolNetworkState, graph: Graph, name: str) -> dict[str, Summary]:
    return {other: state.mail[other] for other in graph.neighbours(name)}
