"""GTVMin over all sites in one process: init / step / done / finish; a Flower round is the same step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import node
from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.gtvmin.node import NodeState
from fedcluster_app.gtvmin.objective import Totals
from fedcluster_app.gtvmin.progress import Progress, Status, Stop, advance, status
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.gtvmin.surrogate import Neighbour
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray

# A random stream by round, receiver and sender.
RoundDraws: TypeAlias = Callable[[int, str, str], np.random.Generator]
_STOP = Stop()


@dataclass(frozen=True, eq=False)
class NetworkState:
    """All nodes between rounds.

    Attributes
    ----------
    nodes : mapping of site name to NodeState
        In order of name.
    progress : Progress
    """

    nodes: Mapping[str, NodeState]
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True, eq=False)
class NetworkResult:
    """Every site's mixture, why the rounds ended, and the totals before each round."""

    mixtures: Mapping[str, Mixture]
    status: Status
    trace: tuple[Totals, ...]


def init(starts: Mapping[str, Mixture], graph: Graph, settings: Settings) -> NetworkState:
    """State before the first round.

    Parameters
    ----------
    starts : mapping of site name to Mixture
        One for every site of the graph.
    graph : Graph
    settings : Settings

    Raises
    ------
    ConfigError
        If sites and graph do not agree, the coupling could diverge, or the weight floor is too high.
    """
    if sorted(starts) != list(graph.names):
        differing = ", ".join(sorted(set(starts) ^ set(graph.names)))
        raise ConfigError(f"starts: expected one for every site of the graph, differing in {differing}")
    settings.check_degree(graph.max_degree)
    return NetworkState({name: node.init(starts[name], settings.bounds) for name in graph.names})


def step(
    state: NetworkState,
    tables: Mapping[str, FloatArray],
    graph: Graph,
    settings: Settings,
    draws: RoundDraws | None = None,
) -> NetworkState:
    """One synchronous round: every node steps against its neighbours' models of the round before.

    Parameters
    ----------
    state : NetworkState
    tables : mapping of site name to array of shape (n, d)
    graph : Graph
    settings : Settings
    draws : function of round, receiver and sender, optional
        Needed for KL. A stream that depends on nothing else makes the result independent of any order.

    Notes
    -----
    **Source**: arXiv:2609.19202, Algorithm 1. Cost linear in the number of edges.
    """
    nodes, reports = {}, {}
    for name, own in state.nodes.items():
        near = {
            other: Neighbour(state.nodes[other].mixture, weight)
            for other, weight in graph.neighbours(name).items()
        }
        streams = None if draws is None else partial(draws, state.progress.round, name)
        nodes[name] = node.step(own, tables[name], near, settings, streams)
        report = nodes[name].report
        assert report is not None  # a step always leaves one
        reports[name] = report
    return NetworkState(nodes, advance(state.progress, reports, settings.alpha))


def done(state: NetworkState, stop: Stop) -> bool:
    """Whether the rounds are over; see `progress.status`."""
    return status(state.progress, stop) != "running"


def finish(state: NetworkState, stop: Stop) -> NetworkResult:
    """Turn the state of a run that `done` stopped, with the same `stop`, into its result."""
    mixtures = {name: own.mixture for name, own in state.nodes.items()}
    return NetworkResult(mixtures, status(state.progress, stop), state.progress.trace)


def run(
    tables: Mapping[str, FloatArray],
    starts: Mapping[str, Mixture],
    graph: Graph,
    settings: Settings,
    draws: RoundDraws | None = None,
    stop: Stop = _STOP,
) -> NetworkResult:
    """Take rounds from a start until `done`."""
    state = init(starts, graph, settings)
    while not done(state, stop):
        state = step(state, tables, graph, settings, draws)
    return finish(state, stop)
