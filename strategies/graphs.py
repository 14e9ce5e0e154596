"""Laying a graph over the sites that are here: by rule, from a file, or by how near their mixtures are."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedcluster_app.config import GRAPH_FILES, RunConfig
from fedcluster_app.coupling import bandwidths_of
from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import block_model, complete, erdos_renyi, nearest, parse_graph, ring
from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.gtvmin.objective import mmd_distances
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.streams import stream


@dataclass(frozen=True)
class Laid:
    """A graph over all sites of a run, and what there is to say about it."""

    graph: Graph
    warnings: tuple[str, ...] = ()


def read_file(graph: str) -> Graph | None:
    """Return the graph of a file, or None if the setting is the name of a rule.

    Raises
    ------
    ConfigError
        If the file cannot be read, or is not one valid, connected graph.
    """
    path = Path(graph)
    if path.suffix.lower() not in GRAPH_FILES:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"graph: cannot read {path} ({error}); give the path of a text file") from error
    return parse_graph(text, path.suffix)


def lay_graph(
    config: RunConfig,
    file: Graph | None,
    names: tuple[str, ...],
    able: tuple[str, ...],
    mixtures: Mapping[str, Mixture],
) -> Laid:
    """Lay the configured graph over the sites.

    Parameters
    ----------
    config
        Settings of the run.
    file
        What :func:`read_file` found.
    names
        Sites that take part.
    able
        Those among them that can send mixtures.
    mixtures : mapping of site name to Mixture
        What sites start with; for "nearest" alone, where a site that has none gets no edge.

    Raises
    ------
    ConfigError
        If the rule does not fit the number of sites, or no edge of a file joins two of them.
    """
    graph = part_of(file, names) if file is not None else _by_rule(config, names, mixtures)
    parts, warnings = part_of(graph, able).islands, []
    alone = [part[0] for part in parts if len(part) == 1 and len(able) > 1]
    if file is not None and (absent := sorted(set(file.names) - set(names))):
        if not graph.edges and len(names) > 1:
            raise ConfigError(
                f"graph: no edge joins two sites that are here ({', '.join(sorted(names))}); the file names "
                f"{', '.join(file.names)}"
            )
        meant = {name: difflib.get_close_matches(name, set(names) - set(file.names), n=1) for name in absent}
        told = [f"{name} (did you mean {close[0]!r}?)" if close else name for name, close in meant.items()]
        warnings.append(f"the graph names sites {', '.join(told)}, which are not here")
    if alone:
        warnings.append(f"sites {', '.join(alone)} have no neighbour here, so they fit their mixtures alone")
    if len(parts) - len(alone) > 1:
        shown = "; ".join(", ".join(part) for part in parts if len(part) > 1)
        warnings.append(f"no edge joins these parts of the graph: {shown}")
    return Laid(graph, tuple(warnings))


def part_of(graph: Graph, names: Collection[str]) -> Graph:
    """Return the graph over some sites, with the edges of which both ends are among them."""
    here = [(edge, w) for edge, w in zip(graph.edges, graph.weights, strict=True) if set(edge) <= set(names)]
    return Graph(tuple(names), tuple(edge for edge, _ in here), tuple(weight for _, weight in here))


def _distances(mixtures: Sequence[Mixture]) -> FloatArray:
    return mmd_distances(mixtures, bandwidths_of(mixtures[0].n_features))


def _by_rule(config: RunConfig, names: tuple[str, ...], mixtures: Mapping[str, Mixture]) -> Graph:
    rule, rng = config.graph, stream(config.seed, "graph")
    if rule.graph == "ring":
        return ring(names)
    if rule.graph == "complete":
        return complete(names)
    if rule.graph == "sbm":
        if rule.blocks > len(names):
            raise ConfigError(
                f"graph-blocks: expected at most {len(names)}, one site each, got {rule.blocks}"
            )
        blocks = [part.tolist() for part in np.array_split(sorted(names), rule.blocks)]
        return block_model(blocks, rule.p_in, rule.p_out, rng)
    if rule.graph == "nearest":
        here = tuple(sorted(mixtures))
        if len(here) < 2:
            return Graph(names, (), ())
        near = min(rule.nearest, max(1, len(here) - 1))
        found = nearest(here, _distances([mixtures[name] for name in here]), near)
        return replace(found, names=names)
    return erdos_renyi(names, rule.p, rng)
