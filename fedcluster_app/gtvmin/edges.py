"""What goes on along every edge: how far its ends disagree, and how hard each is pulled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin import euclidean, kl, mmd
from fedcluster_app.gtvmin.blocks import Blocks, blocks
from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.gtvmin.likelihood import fit_of
from fedcluster_app.gtvmin.objective import EdgeDraws, edge_discrepancies
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.mixtures.mixture import Mixture


@dataclass(frozen=True)
class EdgeReport:
    """One edge.

    Attributes
    ----------
    ends : (str, str)
        The two sites, in order of name.
    weight : float
    disagreement : float
        Discrepancy of the two mixtures, without weight and alpha.
    pulls : (float, float)
        Norm of the coupling's part in each end's gradient: alpha times weight times that of the discrepancy.
    """

    ends: tuple[str, str]
    weight: float
    disagreement: float
    pulls: tuple[float, float]


def edge_reports(
    mixtures: Mapping[str, Mixture], graph: Graph, settings: Settings, draws: EdgeDraws
) -> tuple[EdgeReport, ...]:
    """Report on every edge, in the order of ``graph.edges``.

    Parameters
    ----------
    mixtures : mapping of site name to Mixture
        One for every site of the graph.
    graph : Graph
    settings : Settings
    draws : function of receiver and sender
        Random streams of the rows drawn (KL).
    """
    between = edge_discrepancies(mixtures, graph, settings, draws)
    models = {name: blocks(mixtures[name]) for name in graph.names}
    reports = []
    for (a, b), weight, gap in zip(graph.edges, graph.weights, between.tolist(), strict=True):
        pulls = [
            settings.alpha * weight * _slope(models[own], models[other], settings, draws(own, other))
            for own, other in ((a, b), (b, a))
        ]
        reports.append(EdgeReport((a, b), weight, gap, (pulls[0], pulls[1])))
    return tuple(reports)


def _slope(own: Blocks, other: Blocks, settings: Settings, rng: np.random.Generator) -> float:
    """Return the norm of the gradient of the discrepancy in the own parameters, the other's frozen."""
    if settings.discrepancy == "euclidean":
        gradient = euclidean.pull(euclidean.freeze(own, [other], [1.0]), own).gradient
    elif settings.discrepancy == "mmd":
        gradient = mmd.pull(mmd.freeze([other], [1.0]), own, settings.bandwidths).gradient
    else:
        rows, _ = kl.draw([other], [rng], settings.samples)
        gradient = fit_of(own, rows, np.full(settings.samples, 1.0 / settings.samples)).gradient
    parts = (gradient.weights, gradient.means, gradient.covariances)
    return float(np.sqrt(sum(np.vdot(part, part) for part in parts)))
