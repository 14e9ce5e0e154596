"""The messages of GTVMin: a site's mixtures with those of its neighbours, and its own after a round."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedcluster_app.data.scaling import lower_triangle, symmetric_matrix
from fedcluster_app.errors import WireError
from fedcluster_app.messages.common import AgreedScaling
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import array, message, scalar


def stacked(mixtures: Sequence[Mixture]) -> dict[str, Any]:
    """Return mixtures of full covariances as the fields ``members, weights, means, covariances``."""
    return {
        "members": np.repeat(np.arange(len(mixtures)), [mixture.n_components for mixture in mixtures]),
        "weights": np.concatenate([mixture.weights for mixture in mixtures]),
        "means": np.concatenate([mixture.means for mixture in mixtures]),
        "covariances": lower_triangle(np.concatenate([mixture.covariances for mixture in mixtures])),
    }


def unstacked(
    members: IntArray, weights: FloatArray, means: FloatArray, triangles: FloatArray, where: str
) -> tuple[Mixture, ...]:
    """Undo :func:`stacked`, raising WireError if there are gaps or a mixture is none."""
    steps = np.diff(members, prepend=-1)
    if not np.isin(steps, (0, 1)).all() or steps[0] != 1:
        raise WireError(f"{where}.members: expected 0, 1, ... in order without gaps, got {members.tolist()}")
    try:
        covariances = symmetric_matrix(triangles, means.shape[1])
        return tuple(
            Mixture(weights[which], means[which], covariances[which])
            for which in (members == number for number in range(members[-1] + 1))
        )
    except ValueError as error:
        raise WireError(f"{where}: {error}") from None


def one_mixture(weights: FloatArray, means: FloatArray, triangles: FloatArray, where: str) -> Mixture:
    """Return the mixture of a message that has just one, raising WireError if it is none."""
    return unstacked(np.zeros(len(weights), dtype=np.int64), weights, means, triangles, where)[0]


@message("ask.gtv.start")
class AskGTVStart(AgreedScaling):
    """The scaling is agreed: make the mixture that you start with."""


@message("ask.gtv.round")
class AskGTVRound(AgreedScaling):
    """Your last mixture and those of your neighbours: take the steps of a round."""

    round: int = scalar(int, "round number", low=1)
    turn: int = scalar(
        int, "how often all sites have begun anew, and with them what is kept for held-out scores", low=0
    )
    alpha: float = scalar(float, "strength of the coupling", low=0.0)
    neighbours: tuple[str, ...] = scalar(tuple, "names of the neighbours")
    edges: FloatArray | None = array("e", "weight of the edge to each of them", low=0.0, optional=True)
    members: IntArray = array(
        "m", "mixture that every component is of: 0 the site's own, then each neighbour's", whole=True, low=0
    )
    weights: FloatArray = array("m", "weight of every component in its mixture", low=0.0)
    means: FloatArray = array("m f", "mean of every component")
    covariances: FloatArray = array("m t", "lower triangle of its covariance")

    def __post_init__(self) -> None:
        """Refuse what are not the mixtures of the site and of each neighbour."""
        edges = 0 if self.edges is None else len(self.edges)
        if edges != len(self.neighbours) or len(self.mixtures) != 1 + edges:
            raise WireError(
                f"ask.gtv.round: {len(self.mixtures)} mixtures and {edges} edges for the site and "
                f"{len(self.neighbours)} neighbours"
            )

    @cached_property
    def mixtures(self) -> tuple[Mixture, ...]:
        """The site's mixture, then that of each neighbour."""
        return unstacked(self.members, self.weights, self.means, self.covariances, "ask.gtv.round")


@message("gtv.mixture", leaves_site=True)
class GTVMixture:
    """A site's mixture, and how well mixtures that were made without some rows, and stay there, tell those.

    A component started from ``min-count`` rows or more; while fewer than that stand behind it, its weight,
    mean and covariance are sent as they last were.
    """

    k_counted: int = scalar(
        int, "components at the start, before small ones were dissolved; 0 in later rounds", low=0
    )
    weights: FloatArray = array("k", "weight of every component", low=0.0)
    means: FloatArray = array("k q", "mean of every component")
    covariances: FloatArray = array("k t", "lower triangle of its covariance")
    loss: float = scalar(float, "mean negative log-likelihood of the rows, before the steps")
    coupling: float = scalar(float, "share of the disagreement with the neighbours, before the steps")
    mapping: float = scalar(float, "norm of the gradient mapping, before the steps", low=0.0)
    halvings: int = scalar(int, "how often steps were halved", low=0)
    held_out: float = scalar(
        float, "log-likelihood of all rows, each by a mixture made without it; 0 if none is"
    )
    held_out_rows: int = scalar(int, "number of these rows", low=0)

    def __post_init__(self) -> None:
        """Refuse what is no mixture."""
        _ = self.mixture

    @cached_property
    def mixture(self) -> Mixture:
        """The site's mixture."""
        return one_mixture(self.weights, self.means, self.covariances, "gtv.mixture")


@message("site.gtv")
class GTVMemory:
    """Kept by a site between two rounds: the mixtures made without each part of its rows."""

    turn: int = scalar(int, "how often all sites had begun anew", low=0)
    members: IntArray = array(
        "k", "mixture of every component: as they are, then as they start", whole=True, low=0
    )
    weights: FloatArray = array("k", "weight of every component in its mixture", low=0.0)
    means: FloatArray = array("k q", "mean of every component")
    covariances: FloatArray = array("k t", "lower triangle of its covariance")

    @cached_property
    def mixtures(self) -> tuple[Mixture, ...]:
        """The mixtures as they are, and then as they start."""
        return unstacked(self.members, self.weights, self.means, self.covariances, "site.gtv")
