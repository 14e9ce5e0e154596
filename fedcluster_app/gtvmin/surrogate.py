"""The function that a node descends during one round: its own loss and the pull of frozen neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import euclidean, kl, mmd
from fedcluster_app.gtvmin.blocks import Blocks, Pull, blocks, moved
from fedcluster_app.gtvmin.likelihood import fit_of
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray

# A random stream by the name of the neighbour whose rows it draws.
Draws: TypeAlias = Callable[[str], np.random.Generator]


@dataclass(frozen=True, eq=False)
class Neighbour:
    """What a node has of a neighbour in one round.

    Attributes
    ----------
    mixture : Mixture
        Its last model.
    weight : float, >= 0
        Edge weight; lower it for a model that is old.

    Raises
    ------
    ConfigError
        If the weight is negative or not a finite number.
    """

    mixture: Mixture
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight) and self.weight >= 0):
            raise ConfigError(f"weight of a neighbour: expected a number of at least 0, got {self.weight!r}")


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A node's objective with its neighbours frozen.

    Attributes
    ----------
    rows : array of shape (d, n + s)
        The node's own rows, then those drawn from its neighbours (KL).
    row_weights : array of shape (n + s,)
        1/n for own rows; the drawn ones have alpha times edge weight over number of draws.
    own : int
        n.
    alpha : float
    drawn_density : array of shape (s,)
        Log-density of the drawn rows under the neighbour that they came from.
    pull : function of Blocks, optional
        Coupling in closed form (Euclidean, MMD).
    shift : function of Blocks, optional
        Beside a pull: the weighted sum over neighbours of the squared distance, in the discrepancy's own
        geometry, between the parameters at the start of the round and others. 0 at the start.
    """

    rows: FloatArray
    row_weights: FloatArray
    own: int
    alpha: float
    drawn_density: FloatArray
    pull: Callable[[Blocks], Pull] | None
    shift: Callable[[Blocks], float] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Evaluation:
    """The surrogate at a point.

    Attributes
    ----------
    value : float
        Up to a constant of the round.
    gradient : Blocks
    mass : array of shape (k,)
        Weighted responsibilities of own and drawn rows.
    loss : float
        Mean negative log-likelihood of the own rows.
    coupling : float
        The node's share of the network's coupling, without alpha (see `Pull`); for KL half its row.
    curvature : float
        Of the pull, if it is quadratic, with alpha.
    """

    value: float
    gradient: Blocks
    mass: FloatArray
    loss: float
    coupling: float
    curvature: float = 0.0


def freeze(
    X: FloatArray,
    own: Blocks,
    neighbours: Mapping[str, Neighbour],
    settings: Settings,
    draws: Draws | None = None,
) -> Surrogate:
    """Prepare a round: match components (Euclidean), draw rows (KL), or make the union (MMD).

    Parameters
    ----------
    X : array of shape (n, d), n >= 1
    own : Blocks
        The node's parameters at the start of the round.
    neighbours : mapping of site name to Neighbour
        Used in order of name, so the order of the mapping has no effect. Without any, or with alpha = 0, the
        surrogate is the node's own loss to the last bit.
    settings : Settings
    draws : function of a neighbour's name, optional
        Gives the random stream of this round and edge; needed for KL.

    Raises
    ------
    ConfigError
        If KL has no random streams.

    Notes
    -----
    **Source**: arXiv:2609.19202, Algorithm 1. Own and drawn rows go through the likelihood together, since
    the gradient of KL is that of the log-likelihood on the drawn rows.
    """
    rows, n = np.ascontiguousarray(X.T), len(X)
    uniform, nothing = np.full(n, 1.0 / n), np.empty(0)
    if settings.alpha == 0 or not neighbours:
        return Surrogate(rows, uniform, n, 0.0, nothing, None)
    names = sorted(neighbours)
    models = [blocks(neighbours[name].mixture) for name in names]
    weights = [neighbours[name].weight for name in names]
    if settings.discrepancy == "kl":
        if draws is None:
            raise ConfigError("draws: the KL discrepancy needs a random stream for every neighbour, got none")
        drawn, density = kl.draw(models, [draws(name) for name in names], settings.samples)
        scaled = np.repeat(settings.alpha * np.array(weights) / settings.samples, settings.samples)
        both = np.concatenate([rows, drawn], axis=1), np.concatenate([uniform, scaled])
        return Surrogate(*both, n, settings.alpha, density, None)
    pull: Callable[[Blocks], Pull]
    shift: Callable[[Blocks], float]
    if settings.discrepancy == "euclidean":
        target = euclidean.freeze(own, models, weights)
        pull, shift = partial(euclidean.pull, target), partial(euclidean.shift, target, own)
    else:
        union, widths = mmd.freeze(models, weights), settings.bandwidths
        pull = partial(mmd.pull, union, bandwidths=widths)
        shift = partial(mmd.shift, union, own, bandwidths=widths)
    return Surrogate(rows, uniform, n, settings.alpha, nothing, pull, shift)


def evaluate(surrogate: Surrogate, theta: Blocks) -> Evaluation:
    """Value, gradient and parts of the surrogate at theta."""
    fit = fit_of(theta, surrogate.rows, surrogate.row_weights)
    n = surrogate.own
    if surrogate.pull is not None:
        pull = surrogate.pull(theta)
        value = fit.value + surrogate.alpha * pull.value
        gradient = moved(fit.gradient, pull.gradient, surrogate.alpha)
        curvature = surrogate.alpha * pull.curvature
        return Evaluation(value, gradient, fit.mass, fit.value, pull.share, curvature)
    if len(surrogate.row_weights) == n:
        return Evaluation(fit.value, fit.gradient, fit.mass, fit.value, 0.0)
    loss = -float(fit.log_likelihood[:n].mean())
    gap = surrogate.drawn_density - fit.log_likelihood[n:]
    coupling = float(surrogate.row_weights[n:] @ gap) / (2.0 * surrogate.alpha)
    return Evaluation(fit.value, fit.gradient, fit.mass, loss, coupling)
