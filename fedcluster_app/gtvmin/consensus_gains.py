"""How strongly a node of consensus EM follows its neighbours: gains of the two filters on a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.graph import Graph

Filter: TypeAlias = Literal["tracking", "leaky"]


@dataclass(frozen=True)
class Gains:
    """How strongly a node follows its neighbours, by name, and itself (leaky only)."""

    neighbours: Mapping[str, float]
    own: float = 0.0

    @property
    def leaky(self) -> bool:
        """Which filter this is."""
        return self.own > 0


def gains(graph: Graph, name: str, filter_: Filter = "tracking", gain: float | None = None) -> Gains:
    """Gains of a node's filter.

    Parameters
    ----------
    graph : Graph
    name : str
        Site.
    filter_ : {"tracking", "leaky"}
    gain : float, optional
        Leaky: at most 1 / (2 (largest degree) + 2), which is the default; beyond it the filter may oscillate.

    Raises
    ------
    ConfigError
        If the filter is unknown, the gain out of range, or the site not in the graph.

    Notes
    -----
    **Source**: tracking has the Metropolis weights w / (1 + larger degree) of Xiao, Boyd and Lall,
    Distributed average consensus with time-varying Metropolis weights (2006), with w = 1 there: symmetric, so
    that nothing is lost on an edge, and positive for the node itself. Leaky: Gu, see `step`; edge weights
    multiply its gain.
    """
    near = graph.neighbours(name)
    if filter_ == "tracking":
        own = graph.degree(name)
        return Gains({other: w / (1.0 + max(own, graph.degree(other))) for other, w in near.items()})
    if filter_ != "leaky":
        raise ConfigError(f"filter: expected tracking or leaky, got {filter_!r}")
    most = 0.5 / (graph.max_degree + 1.0)
    gain = most if gain is None else gain
    if not 0 < gain <= most:
        raise ConfigError(
            f"gain: expected more than 0 and at most 1 / (2 × largest degree + 2) = {most:.4g}, got {gain!r}"
        )
    return Gains({other: gain * w for other, w in near.items()}, gain)
