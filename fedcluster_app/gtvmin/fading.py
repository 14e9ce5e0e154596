"""Edge weights that follow the models: edges between unlike sites fade and are finally switched off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin import mmd
from fedcluster_app.gtvmin.blocks import blocks
from fedcluster_app.gtvmin.graph import Edge, Graph
from fedcluster_app.gtvmin.mmd import BANDWIDTHS
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import BoolArray, FloatArray

#: A difference between sites that is never held against them, as a share of the spread within both.
EFFECT = 0.02
#: Scales beyond which an edge is off, and beyond which a site loses even its last edge.
OFF, LAST_OFF = 2.0, 4.0


@dataclass(frozen=True, eq=False)
class Faded:
    """Weights for the next rounds.

    Attributes
    ----------
    graph : Graph
        All sites, and the edges that are on.
    off : tuple of (site, site)
        Edges of the base graph that are switched off, in its order.
    discrepancies : array of shape (e,)
        Squared maximum mean discrepancy on each edge of the base graph, in its order.
    scales : array of shape (e,)
        What counts as small on that edge: its weight was multiplied by exp(-discrepancy / scale).
    """

    graph: Graph
    off: tuple[Edge, ...]
    discrepancies: FloatArray
    scales: FloatArray


def fade(
    graph: Graph,
    mixtures: Mapping[str, Mixture],
    rows: Mapping[str, int] | None = None,
    bandwidths: Sequence[float] = BANDWIDTHS,
) -> Faded:
    """Weigh the edges of the base graph by how alike the models at their ends are now.

    Start with the models before the first round, which no neighbour has touched, and repeat every few
    rounds, always from the base graph: an edge that is off comes back when its ends have become alike.

    Parameters
    ----------
    graph : Graph
        The base graph, with its own weights.
    mixtures : mapping of site name to Mixture
        Current models of all sites of the graph; the numbers of components may differ.
    rows : mapping of site name to int, optional
        Rows behind each model; without them every site is taken to be large.
    bandwidths : sequence of float, > 0

    Returns
    -------
    Faded

    Notes
    -----
    **Source**: our own, after w exp(-D / scale) with D the squared maximum mean discrepancy; symmetric, so
    that the potential stays one between two calls. The scale needs no labels and no choice: two samples of
    n_i and n_j rows of *one* distribution have D = s_i / n_i + s_j / n_j in expectation, where
    s = b - <p, p> for b bandwidths is the spread of a mixture's rows in feature space (Gretton et al., A
    kernel two-sample test, 2012). Since large samples make every difference significant, the scale is at
    least `EFFECT` times s_i + s_j, which is that noise at 50 rows. An edge is off above `OFF` scales; the
    least unlike edge of a site that would then have none stays up to `LAST_OFF`. What is on is scaled to the
    base graph's sum of weights, but no site's degree beyond the largest of the base graph, which bounds the
    steps. Cost of e evaluations of the discrepancy.
    """
    models = {name: blocks(mixtures[name]) for name in graph.names}
    norms = {name: mmd.inner(model, model, bandwidths) for name, model in models.items()}
    crossed = [mmd.inner(models[a], models[b], bandwidths) for a, b in graph.edges]
    between = np.array([norms[a] + norms[b] for a, b in graph.edges]) - 2.0 * np.array(crossed)
    discrepancies: FloatArray = np.maximum(between, 0.0)
    share = {name: EFFECT if rows is None else max(EFFECT, 1.0 / max(rows[name], 1)) for name in graph.names}
    noise = {name: share[name] * (len(bandwidths) - norms[name]) for name in graph.names}
    scales: FloatArray = np.array([noise[a] + noise[b] for a, b in graph.edges])
    ratios: FloatArray = discrepancies / scales
    on = _on(graph, ratios)
    off = tuple(edge for edge, stays in zip(graph.edges, on, strict=True) if not stays)
    return Faded(_reweighted(graph, ratios, on), off, discrepancies, scales)


def _on(graph: Graph, ratios: FloatArray) -> BoolArray:
    """Whether each edge stays on, for discrepancies in units of their scales."""
    on: BoolArray = ratios <= OFF
    nearest: dict[str, int] = {}
    for i in np.argsort(ratios, kind="stable").tolist():
        for name in graph.edges[i]:
            nearest.setdefault(name, i)
    last = np.unique(np.array(list(nearest.values()), dtype=np.int64))
    on[last] |= ratios[last] <= LAST_OFF
    return on


def _reweighted(graph: Graph, ratios: FloatArray, on: BoolArray) -> Graph:
    """Graph of the edges that are on, faded and scaled."""
    base = np.array(graph.weights)
    kept = np.flatnonzero(on)
    edges = tuple(graph.edges[i] for i in kept)
    faded = base[kept] * np.exp(-ratios[kept])
    raw = Graph(graph.names, edges, tuple(faded.tolist()))
    if not edges:
        return raw
    factor = min(base.sum() / faded.sum(), graph.max_degree / raw.max_degree)
    return Graph(graph.names, edges, tuple((factor * faded).tolist()))
