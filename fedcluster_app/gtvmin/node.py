"""One site's part of GTVMin: init / step over an explicit state; one step is one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin.blocks import blocks, mixture_of
from fedcluster_app.gtvmin.descent import descend, gradient_mapping
from fedcluster_app.gtvmin.projection import Bounds, project
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.gtvmin.surrogate import Draws, Neighbour, evaluate, freeze
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray


@dataclass(frozen=True)
class Report:
    """Scalars of one round, all about the parameters *before* its steps and the neighbours frozen in it.

    Attributes
    ----------
    loss : float
        Mean negative log-likelihood of the own rows.
    coupling : float
        The node's share of the network's coupling, without alpha: the shares of all nodes add up to the
        weighted sum of discrepancies over unordered edges (KL: of the mean of both directions, estimated).
    mapping : float
        Norm of the gradient mapping.
    halvings : int
        How often the guard halved a step or the way of the round.
    """

    loss: float
    coupling: float
    mapping: float
    halvings: int


@dataclass(frozen=True, eq=False)
class NodeState:
    """A node between rounds.

    Attributes
    ----------
    mixture : Mixture
        Full covariances, feasible.
    round : int
        Rounds taken.
    report : Report, optional
        Of the last round.
    """

    mixture: Mixture
    round: int = 0
    report: Report | None = None


def init(start: Mixture, bounds: Bounds) -> NodeState:
    """State before the first round.

    Parameters
    ----------
    start : Mixture
        Of any kind; it is written out with full covariances and made feasible.
    bounds : Bounds

    Raises
    ------
    ConfigError
        If the weight floor is too high for the number of components.
    """
    bounds.check_components(start.n_components)
    return NodeState(mixture_of(project(blocks(start), bounds)))


def step(
    state: NodeState,
    X: FloatArray,
    neighbours: Mapping[str, Neighbour],
    settings: Settings,
    draws: Draws | None = None,
) -> NodeState:
    """One round of a node: freeze the neighbours, then take the local steps.

    Parameters
    ----------
    state : NodeState
    X : array of shape (n, d), n >= 1
        The site's rows.
    neighbours : mapping of site name to Neighbour
        Models of the *last* round, never one that was already updated in this. May be empty: then the round
        is purely local.
    settings : Settings
    draws : function of a neighbour's name, optional
        Random stream of this round and edge; KL only.

    Returns
    -------
    NodeState

    Raises
    ------
    DataError
        If there are no rows, or they have another number of features than the models.
    ConfigError
        If the coupling could diverge (see `Settings.check_degree`), or KL has no random streams.

    Notes
    -----
    **Source**: arXiv:2609.19202, Algorithm 1, one node in one round.
    """
    _check_features(X, state.mixture, neighbours)
    settings.check_degree(sum(neighbour.weight for neighbour in neighbours.values()))
    theta = blocks(state.mixture)
    surrogate = freeze(X, theta, neighbours, settings, draws)
    at_theta = evaluate(surrogate, theta)
    mapping = gradient_mapping(theta, at_theta, settings.step_size, settings.bounds)
    theta, halvings = descend(surrogate, theta, at_theta, settings)
    report = Report(at_theta.loss, at_theta.coupling, mapping, halvings)
    return NodeState(mixture_of(theta), state.round + 1, report)


def _check_features(X: FloatArray, own: Mixture, neighbours: Mapping[str, Neighbour]) -> None:
    if not len(X):
        raise DataError("rows: expected at least one, got none; a site without rows cannot be a node")
    if X.shape[1] != own.n_features:
        raise DataError(f"rows: expected {own.n_features} features as in the model, got {X.shape[1]}")
    for name, neighbour in neighbours.items():
        if neighbour.mixture.n_features != own.n_features:
            found = neighbour.mixture.n_features
            raise DataError(f"neighbour {name}: expected {own.n_features} features, got {found}")
