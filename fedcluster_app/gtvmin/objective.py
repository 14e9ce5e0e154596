"""The network's objective, the potential that rounds really descend, and Proposition 1's certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import euclidean, kl, mmd
from fedcluster_app.gtvmin.blocks import Blocks, blocks
from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.gtvmin.node import Report
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray

# A random stream by the names of the receiver and of the sender of a model.
EdgeDraws: TypeAlias = Callable[[str, str], np.random.Generator]


@dataclass(frozen=True)
class Totals:
    """The network at one moment, added up over its nodes.

    Attributes
    ----------
    loss : float
        Sum of the nodes' mean negative log-likelihoods.
    coupling : float
        Sum of the weighted discrepancies over unordered edges, without alpha (KL: of the mean of both
        directions).
    alpha : float
    mapping : float
        Norm of the gradient mapping of all nodes together.
    halvings : int
        How often the guard halved in the round, over all nodes.
    """

    loss: float
    coupling: float
    alpha: float
    mapping: float = math.nan
    halvings: int = 0

    @property
    def objective(self) -> float:
        """F, the published objective: it meets every edge from both ends.

        Not what Algorithm 1 descends. For a symmetric discrepancy its gradient has twice the coupling that
        the nodes use, and for KL a node knows one of the two divergences only: F may rise in a correct run.
        """
        return self.loss + 2.0 * self.alpha * self.coupling

    @property
    def potential(self) -> float:
        """F~, in which an edge counts once: Euclidean and MMD rounds are projected gradient steps on it.

        For KL there is no potential; the number is then only the same sum.
        """
        return self.loss + self.alpha * self.coupling


def total(reports: Mapping[str, Report], alpha: float) -> Totals:
    """Totals of one round from the nodes' scalars; no model is needed.

    Parameters
    ----------
    reports : mapping of site name to Report
        Of the same round, from all nodes. With neighbours that are old the coupling is an approximation.
    alpha : float
    """
    return Totals(
        loss=math.fsum(report.loss for report in reports.values()),
        coupling=math.fsum(report.coupling for report in reports.values()),
        alpha=alpha,
        mapping=math.hypot(*(report.mapping for report in reports.values())),
        halvings=sum(report.halvings for report in reports.values()),
    )


def measure(
    tables: Mapping[str, FloatArray],
    mixtures: Mapping[str, Mixture],
    graph: Graph,
    settings: Settings,
    draws: EdgeDraws | None = None,
) -> Totals:
    """Totals from the definition, with rows and models at hand; the mapping is left out.

    Notes
    -----
    **Source**: arXiv:2609.19202, objective F; see `Totals` for the potential.
    """
    losses = (-float(responsibilities(X, mixtures[name])[1].mean()) for name, X in tables.items())
    between = edge_discrepancies(mixtures, graph, settings, draws)
    return Totals(math.fsum(losses), math.fsum(between * np.array(graph.weights)), settings.alpha)


def edge_discrepancies(
    mixtures: Mapping[str, Mixture], graph: Graph, settings: Settings, draws: EdgeDraws | None = None
) -> FloatArray:
    """Discrepancy between the two ends of every edge, without its weight.

    Parameters
    ----------
    mixtures : mapping of site name to Mixture
    graph : Graph
    settings : Settings
    draws : function of receiver and sender, optional
        Needed for KL.

    Returns
    -------
    array of shape (e,)
        In the order of ``graph.edges``. KL: mean of the estimates in both directions.

    Notes
    -----
    MMD: the norm of every mixture is computed once, not once per edge.
    """
    models = {name: blocks(mixtures[name]) for name in graph.names}
    if settings.discrepancy == "mmd":
        return _mmd_on_edges(models, graph, settings.bandwidths)
    if settings.discrepancy == "euclidean":
        return np.array([euclidean.discrepancy(models[a], models[b]) for a, b in graph.edges])
    if draws is None:
        raise ConfigError("draws: the KL discrepancy needs a random stream for every edge, got none")
    m = settings.samples
    both = [
        [kl.discrepancy(models[i], models[j], draws(i, j), m) for i, j in ((a, b), (b, a))]
        for a, b in graph.edges
    ]
    means: FloatArray = np.array(both).reshape(-1, 2).mean(axis=1)
    return means


def mmd_distances(mixtures: Sequence[Mixture], bandwidths: tuple[float, ...] = mmd.BANDWIDTHS) -> FloatArray:
    """Squared maximum mean discrepancy between every two of n mixtures, shape (n, n)."""
    names = tuple(f"{number:09d}" for number in range(len(mixtures)))
    pairs = tuple(combinations(names, 2))
    models = {name: blocks(mixture) for name, mixture in zip(names, mixtures, strict=True)}
    i, j = np.triu_indices(len(names), 1)
    distances = np.zeros((len(names), len(names)))
    distances[i, j] = distances[j, i] = _mmd_on_edges(
        models, Graph(names, pairs, (1.0,) * len(pairs)), bandwidths
    )
    return distances


def _mmd_on_edges(models: Mapping[str, Blocks], graph: Graph, bandwidths: tuple[float, ...]) -> FloatArray:
    norms = {name: mmd.inner(model, model, bandwidths) for name, model in models.items()}
    values = [norms[a] - 2.0 * mmd.inner(models[a], models[b], bandwidths) + norms[b] for a, b in graph.edges]
    clipped: FloatArray = np.maximum(np.array(values), 0.0)
    return clipped


@dataclass(frozen=True)
class Certificate:
    """Proposition 1 as a running check that needs no unknown minimum.

    Attributes
    ----------
    first : float
        Potential before the first round.
    last : float
        Potential now.
    squared : float
        Sum over rounds of the squared norm of the gradient mapping.
    rounds : int
    halvings : int
        How often the guard halved in these rounds.
    """

    first: float
    last: float
    squared: float = 0.0
    rounds: int = 0
    halvings: int = 0

    def applies(self, settings: Settings) -> bool:
        """Whether the rounds were single, whole projected gradient steps on a potential.

        Otherwise numbers say nothing: KL has no potential, and of several, scaled or halved steps the mapping
        at the start of a round does not tell how far they went. Where it applies and does not hold, the step
        size is too large.
        """
        plain = settings.update == "gradient" and settings.local_steps == 1 and self.halvings == 0
        return plain and settings.discrepancy != "kl"

    @property
    def mean_squared_mapping(self) -> float:
        """Mean over rounds of the squared norm of the gradient mapping; nan before the first."""
        return self.squared / self.rounds if self.rounds else math.nan

    def bound(self, step_size: float) -> float:
        """Give what the mean may not exceed, 2 (F~_0 - F~_t) / (step size t); nan before the first round."""
        return 2.0 * (self.first - self.last) / (step_size * self.rounds) if self.rounds else math.nan

    def holds(self, step_size: float) -> bool:
        """Whether the mean is within the bound, up to rounding of the potential; see `applies` first."""
        allowed = 2e-12 * max(1.0, abs(self.first)) / step_size
        return self.rounds == 0 or self.squared <= self.rounds * self.bound(step_size) + allowed


def certificate(trace: tuple[Totals, ...]) -> Certificate:
    """Certificate of a run whose totals before each round, and after the last one, are given.

    Parameters
    ----------
    trace : tuple of Totals, at least one
        The last is about the present parameters; its mapping is not read.

    Notes
    -----
    **Source**: arXiv:2609.19202, Proposition 1, for MMD with one local step and a step size below 1/β: every
    round lowers the objective by at least step size / 2 times the squared gradient mapping. Deviation: it
    holds for the potential, in which an edge counts once, not for F; the unknown least value is replaced by
    the present one, which makes the bound checkable at any time, and stronger; and it is used for the
    Euclidean discrepancy too, where matching anew can only lower the potential further.
    """
    squared = math.fsum(totals.mapping**2 for totals in trace[:-1])
    halvings = sum(totals.halvings for totals in trace[:-1])
    return Certificate(trace[0].potential, trace[-1].potential, squared, len(trace) - 1, halvings)
