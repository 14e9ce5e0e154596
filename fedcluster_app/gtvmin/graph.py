"""The undirected, weighted graph over site names along which personal mixtures are coupled."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from types import MappingProxyType
from typing import TypeAlias

from fedcluster_app.errors import ConfigError

Edge: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Graph:
    """An undirected graph, checked once; two graphs with the same sites, edges and weights are equal.

    Parameters
    ----------
    names : tuple of str
        Sites; kept sorted.
    edges : tuple of (str, str)
        Each edge once, in either direction; kept with the smaller name first, sorted.
    weights : tuple of float
        One positive weight per edge, in the order of `edges`.

    Raises
    ------
    ConfigError
        If a site is named twice or unknown, an edge joins a site with itself or comes twice (also once in
        each direction), or a weight is not a positive number.
    """

    names: tuple[str, ...]
    edges: tuple[Edge, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.edges):
            raise ConfigError(f"graph: expected {len(self.edges)} weights, got {len(self.weights)}")
        names = tuple(sorted(self.names))
        ordered = [(min(edge), max(edge)) for edge in self.edges]
        _check_names(names)
        _check_edges(ordered, names)
        _check_weights(ordered, self.weights)
        pairs = sorted(zip(ordered, self.weights, strict=True))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "edges", tuple(edge for edge, _ in pairs))
        object.__setattr__(self, "weights", tuple(float(weight) for _, weight in pairs))

    @cached_property
    def _adjacency(self) -> dict[str, dict[str, float]]:
        adjacency: dict[str, dict[str, float]] = {name: {} for name in self.names}
        for (a, b), weight in zip(self.edges, self.weights, strict=True):
            adjacency[a][b] = adjacency[b][a] = weight
        return {name: dict(sorted(near.items())) for name, near in adjacency.items()}

    def neighbours(self, name: str) -> Mapping[str, float]:
        """Weights of the edges of a site, by the other site's name, in order of name.

        Raises ConfigError if the graph does not have the site.
        """
        if name not in self._adjacency:
            raise ConfigError(f"graph: no site {name!r}; it has {_listed(self.names)}")
        return MappingProxyType(self._adjacency[name])

    def degree(self, name: str) -> float:
        """Sum of the weights of the edges of a site."""
        return math.fsum(self.neighbours(name).values())

    @cached_property
    def max_degree(self) -> float:
        """Largest degree of any site; 0 without edges."""
        return max(self.degree(name) for name in self.names)

    @cached_property
    def islands(self) -> tuple[tuple[str, ...], ...]:
        """Connected parts, each sorted, in order of their first site. Cost O(n log n + e)."""
        parts, seen = [], set[str]()
        for name in self.names:
            if name in seen:
                continue
            part, ahead = {name}, [name]
            while ahead:
                new = self.neighbours(ahead.pop()).keys() - part
                part |= new
                ahead.extend(new)
            seen |= part
            parts.append(tuple(sorted(part)))
        return tuple(parts)


def from_edges(
    edges: Iterable[tuple[str, str] | tuple[str, str, float]],
    names: Collection[str] | None = None,
    *,
    connected: bool = True,
) -> Graph:
    """Graph of an edge list.

    Parameters
    ----------
    edges : iterable of (site, site) or (site, site, weight)
        Weight 1 where none is given.
    names : collection of str, optional
        All sites; by default those that the edges name.
    connected : bool
        Refuse a graph in which a site has no neighbour or no path leads from some site to some other.

    Raises
    ------
    ConfigError
        As `Graph`, and if the graph is not connected although it should be; the text names the sites.
    """
    triples = [(a, b, rest[0] if rest else 1.0) for a, b, *rest in edges]
    if names is None:
        names = {name for a, b, _ in triples for name in (a, b)}
    graph = Graph(tuple(names), tuple((a, b) for a, b, _ in triples), tuple(w for _, _, w in triples))
    return check_connected(graph) if connected else graph


def check_connected(graph: Graph) -> Graph:
    """Return the graph if it is connected; a single site is.

    Raises
    ------
    ConfigError
        Naming the sites without a neighbour, or the parts that no path joins.
    """
    parts = graph.islands
    if len(parts) < 2:
        return graph
    isolated = [part[0] for part in parts if len(part) == 1]
    if isolated:
        raise ConfigError(
            f"graph: expected a neighbour for every site, got none for {_listed(isolated)}; "
            "add an edge or leave the site out"
        )
    shown = "; ".join(_listed(part) for part in parts)
    raise ConfigError(f"graph: expected one connected graph, got {len(parts)} parts ({shown}); join them")


def _check_names(names: tuple[str, ...]) -> None:
    if not names:
        raise ConfigError("graph: expected at least one site, got none")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"graph: expected every site once, got {_listed(twice)} more than once")


def _check_edges(edges: list[Edge], names: tuple[str, ...]) -> None:
    known = set(names)
    unknown = sorted({name for edge in edges for name in edge} - known)
    if unknown:
        raise ConfigError(
            f"graph: expected edges between {_listed(names)}, got the unknown site {_listed(unknown)}"
        )
    loops = sorted({a for a, b in edges if a == b})
    if loops:
        raise ConfigError(f"graph: expected edges between two sites, got a self loop at {_listed(loops)}")
    twice = sorted(edge for edge, count in Counter(edges).items() if count > 1)
    if twice:
        shown = _listed([f"{a} - {b}" for a, b in twice])
        raise ConfigError(
            f"graph: expected every edge once (it has no direction), got a duplicate of {shown}"
        )


def _check_weights(edges: list[Edge], weights: tuple[float, ...]) -> None:
    for (a, b), weight in zip(edges, weights, strict=True):
        # Graphs are also made of edge lists from elsewhere, whatever their types say.
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not (number and math.isfinite(weight) and weight > 0):
            raise ConfigError(
                f"graph: expected a positive weight for {a} - {b}, got {weight!r}; leave the edge out "
                "to have none"
            )


def _listed(names: Collection[str], most: int = 8) -> str:
    """Names for a message, the first few of many."""
    shown = ", ".join(list(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
