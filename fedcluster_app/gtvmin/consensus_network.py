"""Consensus EM over all sites in one process: init / step / done / finish, as in a Flower run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import consensus_em
from fedcluster_app.gtvmin.consensus_em import ConsensusState, message
from fedcluster_app.gtvmin.consensus_gains import Filter, gains
from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.gtvmin.projection import Bounds
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray

Status: TypeAlias = Literal["running", "converged", "max_rounds"]


@dataclass(frozen=True)
class ConsensusSettings:
    """Settings that all nodes share: see `consensus_gains.gains`, `consensus_em.init` and `step`."""

    filter: Filter = "tracking"
    gain: float | None = None
    bounds: Bounds = Bounds()  # noqa: RUF009  # frozen
    min_count: float = 0.0
    step_size: float = 1.0


_PLAIN = ConsensusSettings()


@dataclass(frozen=True, eq=False)
class ConsensusNetwork:
    """All nodes between rounds, and each as it was when its neighbours last heard of it; in order of name."""

    nodes: Mapping[str, ConsensusState]
    heard: Mapping[str, ConsensusState]
    round: int = 0


def init(
    tables: Mapping[str, FloatArray],
    start: Mixture | Mapping[str, Mixture],
    graph: Graph,
    settings: ConsensusSettings = _PLAIN,
) -> ConsensusNetwork:
    """State before the first round.

    Parameters
    ----------
    tables : mapping of site name to array of shape (n, d)
        One for every site of the graph.
    start : Mixture, or mapping of site name to Mixture
        Common (see `aligned.align`), or one for each site, with matched components.
    graph : Graph
    settings : ConsensusSettings

    Raises
    ------
    ConfigError
        If sites, starts and graph do not agree, starts differ in their number of components, or a setting is
        out of range.
    """
    starts = dict.fromkeys(graph.names, start) if isinstance(start, Mixture) else start
    for what, given in (("tables", tables), ("starts", starts)):
        if sorted(given) != list(graph.names):
            differing = ", ".join(sorted(set(given) ^ set(graph.names)))
            raise ConfigError(f"{what}: expected one for every site of the graph, differing in {differing}")
    sizes = {starts[name].n_components for name in graph.names}
    if len(sizes) > 1:
        raise ConfigError(f"starts: expected the same number of components at all sites, got {sorted(sizes)}")
    gains(graph, graph.names[0], settings.filter, settings.gain)  # refuses settings before any work
    origin = np.mean([starts[name].weights @ starts[name].means for name in graph.names], axis=0)
    nodes = {
        name: consensus_em.init(
            tables[name], starts[name], origin, bounds=settings.bounds, min_count=settings.min_count
        )
        for name in graph.names
    }
    return ConsensusNetwork(nodes, nodes)


def step(
    state: ConsensusNetwork,
    tables: Mapping[str, FloatArray],
    graph: Graph,
    settings: ConsensusSettings = _PLAIN,
    *,
    silent: Collection[str] = (),
    lost: Collection[str] = (),
) -> ConsensusNetwork:
    """One synchronous round: every node steps with what it last heard of its neighbours.

    Parameters
    ----------
    state : ConsensusNetwork
    tables, graph, settings
        As in `init`.
    silent : collection of str
        Sites that take no step.
    lost : collection of str
        Sites that take a step of which nobody hears in this round.
    """
    nodes, heard = dict(state.nodes), dict(state.heard)
    leaky = settings.filter == "leaky"
    for name in graph.names:
        if name in silent:
            continue
        received = {other: message(state.heard[other], name, leaky=leaky) for other in graph.neighbours(name)}
        nodes[name] = consensus_em.step(
            state.nodes[name],
            tables[name],
            received,
            gains(graph, name, settings.filter, settings.gain),
            bounds=settings.bounds,
            min_count=settings.min_count,
            step_size=settings.step_size,
        )
        if name not in lost:
            heard[name] = nodes[name]
    return ConsensusNetwork(nodes, heard, state.round + 1)


def status(state: ConsensusNetwork, *, tolerance: float = 1e-4, max_rounds: int = 40) -> Status:
    """Tell which rule has ended the rounds: ``converged`` if no node's parameters moved by more."""
    if max(node.movement for node in state.nodes.values()) <= tolerance:
        return "converged"
    return "max_rounds" if state.round >= max_rounds else "running"


def done(state: ConsensusNetwork, *, tolerance: float = 1e-4, max_rounds: int = 40) -> bool:
    """Whether the rounds are over; see `status`."""
    return status(state, tolerance=tolerance, max_rounds=max_rounds) != "running"


def finish(state: ConsensusNetwork) -> dict[str, Mixture]:
    """Every node's mixture; they differ by as much as consensus is not reached."""
    return {name: node.mixture for name, node in state.nodes.items()}
