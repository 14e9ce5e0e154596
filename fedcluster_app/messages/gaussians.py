"""The messages of GTVMin's rivals that go through a server: FedEM, FedGenGMM, IFCA, and sites alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedcluster_app.data.scaling import lower_triangle
from fedcluster_app.errors import WireError
from fedcluster_app.messages.common import AgreedScaling, matrices
from fedcluster_app.messages.gtvmin import one_mixture, unstacked
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import Statistics, about, centred
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import array, layout_of, message, scalar


@message("ask.fedem.start")
class AskFedEMStart(AgreedScaling):
    """The scaling is agreed: summarise the clusters of a k-means of your own."""


@message("ask.ifca.start")
class AskIFCAStart(AgreedScaling):
    """The scaling is agreed: summarise the clusters of a k-means of your own, from which models are made."""


@message("ask.fedgengmm")
class AskFedGenGMM(AgreedScaling):
    """The scaling is agreed: fit a mixture to your rows, and summarise its components."""


@message("ask.local")
class AskLocal(AgreedScaling):
    """The scaling is agreed: fit a mixture to your rows, and send it."""


@message("gaussians", leaves_site=True)
class SiteGaussians:
    """Groups of a site's rows: clusters of k-means (FedEM, IFCA) or components of its mixture (FedGenGMM).

    Clusters of too few rows were dissolved into the others; a component of too few has 0 everywhere. Where
    together these would be fewer than `min-count`, other rows are left out with them, for the coordinator
    could find them as the difference to the greeting's moments.
    """

    k_counted: int = scalar(int, "groups that the site counted; 0 if it was told how many", low=0)
    counts: FloatArray = array(
        "k", "rows of every group (responsibilities added up); 0 or at least `min-count`", low=0.0
    )
    means: FloatArray = array("k q", "mean of these rows")
    covariances: FloatArray = array("k t", "lower triangle of their covariance")

    def __post_init__(self) -> None:
        """Refuse triangles of other features."""
        _ = self.statistics

    @classmethod
    def of(cls, stats: Statistics, k_counted: int = 0) -> SiteGaussians:
        """Return the message of a site's statistics, which may be of no group."""
        rows = np.where(stats.mass > 0, stats.mass, 1.0)[:, None, None]
        return cls(k_counted, stats.mass, stats.means, lower_triangle(stats.scatters / rows))

    @cached_property
    def statistics(self) -> Statistics:
        """The groups as statistics."""
        covariances = matrices(self.covariances, self.means, "gaussians")
        return Statistics(self.counts, self.means, covariances * self.counts[:, None, None])


@message("ask.mixtures")
class AskOfMixtures(AgreedScaling):
    """Some mixtures."""

    members: IntArray = array("m", "mixture of every component", whole=True, low=0)
    weights: FloatArray = array("m", "its weight there", low=0.0)
    means: FloatArray = array("m f", "its mean")
    covariances: FloatArray = array("m t", "lower triangle of its covariance")

    def __post_init__(self) -> None:
        """Refuse what are no mixtures."""
        _ = self.mixtures

    @cached_property
    def mixtures(self) -> tuple[Mixture, ...]:
        """The mixtures."""
        where = layout_of(type(self)).name
        return unstacked(self.members, self.weights, self.means, self.covariances, where)


@message("ask.fedem.round")
class AskFedEMRound(AskOfMixtures):
    """The shared components: make the E step with weights of your own."""


@message("ask.ifca.scores")
class AskIFCAScores(AskOfMixtures):
    """Models, one of the start of each site: say how likely they make your rows."""


@message("ask.ifca.round")
class AskIFCARound(AskOfMixtures):
    """The models of all restarts: choose one in each that suits your rows best, and make its E step."""

    runs: IntArray = array("s", "restart of every model", whole=True, low=0)

    def __post_init__(self) -> None:
        """Refuse models that are not some of every restart."""
        if len(self.runs) != len(self.mixtures) or not np.isin(np.diff(self.runs, prepend=-1), (0, 1)).all():
            raise WireError(f"ask.ifca.round: {len(self.mixtures)} models, of restarts {self.runs.tolist()}")

    @property
    def restarts(self) -> list[list[Mixture]]:
        """The models of each restart."""
        return [
            [self.mixtures[number] for number in np.flatnonzero(self.runs == run)]
            for run in range(self.runs[-1] + 1)
        ]


@message("ifca.scores", leaves_site=True)
class IFCAScores:
    """How well the models that sites start with, one of each, suit a site's rows."""

    log_likelihood: FloatArray = array("s", "log-likelihood of the rows, summed, under every model")


@message("gaussian.sums", leaves_site=True)
class GaussianSums:
    """Sums over a site's rows of an E step, which add over sites that have the same model.

    What the sums of a model leave out is nothing, or ``min-count`` rows or more.
    """

    models: IntArray = array(
        "s", "model that suits the rows best, in every restart (ifca); 0 for fedem", whole=True, low=0
    )
    log_likelihood: FloatArray = array("s", "log-likelihood of the rows, summed, before the step")
    mass: FloatArray = array(
        "k", "responsibilities added up for every component of these models; 0 or `min-count`", low=0.0
    )
    first: FloatArray = array("k q", "sum of responsibility times deviation from the component's mean")
    second: FloatArray = array("k t", "sum of responsibility times squared deviation, lower triangle")

    def statistics(self, mixtures: Sequence[Mixture]) -> list[Statistics]:
        """Return the sums as statistics; WireError if they are not for these mixtures, one a restart."""
        ends = np.cumsum([mixture.n_components for mixture in mixtures])
        if len(mixtures) != len(self.models) or ends[-1] != len(self.mass):
            raise WireError(f"gaussian.sums: {len(self.mass)} components, expected {ends[-1]}")
        second = matrices(self.second, self.first, "gaussian.sums")
        points = np.concatenate([mixture.means for mixture in mixtures])
        found = centred(self.mass, self.first, second, points)
        parts = (np.split(part, ends[:-1]) for part in (found.mass, found.means, found.scatters))
        return [Statistics(*part) for part in zip(*parts, strict=True)]


def summed(stats: Sequence[Statistics], mixtures: Sequence[Mixture]) -> dict[str, Any]:
    """Return statistics under the mixture of each as the fields ``mass, first, second`` of the sums."""
    raw = [about(part, mixture.means) for part, mixture in zip(stats, mixtures, strict=True)]
    mass, first, second = (np.concatenate(arrays) for arrays in zip(*raw, strict=True))
    return {"mass": mass, "first": first, "second": lower_triangle(second)}


@message("local.mixture", leaves_site=True)
class LocalMixture:
    """The mixture that a site has fitted to its own rows, with `method="local"`; nothing else leaves it.

    Components of fewer than ``min-count`` rows were dissolved into the others.
    """

    k_counted: int = scalar(int, "components that the site counted; 0 if it was told how many", low=0)
    weights: FloatArray = array("k", "weight of every component", low=0.0)
    means: FloatArray = array("k q", "its mean")
    covariances: FloatArray = array("k t", "lower triangle of its covariance")

    def __post_init__(self) -> None:
        """Refuse what is no mixture."""
        _ = self.mixture

    @cached_property
    def mixture(self) -> Mixture:
        """The mixture."""
        return one_mixture(self.weights, self.means, self.covariances, "local.mixture")


@message("site.fedem")
class FedEMMemory:
    """Kept by a site between two rounds of FedEM."""

    weights: FloatArray = array("k", "the site's own weights of the shared components", low=0.0)
