"""The messages of GTVMin's rivals FedGrEM and consensus EM: mixtures, and statistics along edges."""

from __future__ import annotations

from functools import cached_property

from fedcluster_app.errors import WireError
from fedcluster_app.messages.gaussians import AskOfMixtures
from fedcluster_app.messages.gtvmin import one_mixture
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.wire import array, message, scalar


@message("ask.fedgrem.round")
class AskGrEMRound(AskOfMixtures):
    """Take a gradient EM step from this one mixture."""


@message("fedgrem.mixture", leaves_site=True)
class GrEMMixture:
    """A site's mixture after a step from the one it was sent.

    Components of fewer than ``min-count`` rows come back as they were sent, but for their weights, which are
    in the proportions that they were sent with; where together these rows would be fewer than that, others
    are left out with them.
    """

    weights: FloatArray = array("k", "weight of every component", low=0.0)
    means: FloatArray = array("k q", "mean of every component")
    covariances: FloatArray = array("k t", "lower triangle of its covariance")

    def __post_init__(self) -> None:
        """Refuse what is no mixture."""
        _ = self.mixture

    @cached_property
    def mixture(self) -> Mixture:
        """The site's mixture."""
        return one_mixture(self.weights, self.means, self.covariances, "fedgrem.mixture")


@message("ask.consensus.round")
class AskConsensusRound(AskOfMixtures):
    """The mixture that all sites start from, and what your neighbours last sent you: take a round."""

    round: int = scalar(int, "round number; 0 is the start", low=0)
    last: int = scalar(int, "round of the site's last answer that was used; -1: none was", low=-1)
    own_gain: float = scalar(float, "gain of the site's own statistics (leaky filter)", low=0.0)
    neighbours: tuple[str, ...] = scalar(tuple, "names of the neighbours")
    gains: FloatArray | None = array("e", "gain of each of them", low=0.0, optional=True)
    estimates: FloatArray | None = array("e k p", "estimate of each of them", optional=True)
    parts: FloatArray | None = array(
        "e k p", "own statistics of each of them, or what has flowed to it on the edge", optional=True
    )

    def __post_init__(self) -> None:
        """Refuse what is no mixture, and no message of each neighbour."""
        super().__post_init__()
        sizes = [0 if part is None else len(part) for part in (self.gains, self.estimates, self.parts)]
        if set(sizes) != {len(self.neighbours)}:
            raise WireError(
                "ask.consensus.round: {} gains, {} estimates and {} parts for {} neighbours".format(
                    *sizes, len(self.neighbours)
                )
            )

    @property
    def origin(self) -> FloatArray:
        """Point about which all sites take their sums: the mean of the start."""
        return mean_of(self.mixtures[0])


@message("consensus.sums", leaves_site=True)
class ConsensusSums:
    """What a site has for its neighbours: its estimate of the network's mean statistics, and a part for each.

    For every component statistics are a mass, sums and a triangle of sums of squares, about a common point.
    The coordinator can work out the site's own from them, and so can a site that is its only neighbour. In
    round 1 all neighbours are handed the site's own, since an estimate begins as these, and with the leaky
    filter in every round. What a round adds to them is of components of ``min-count`` rows or more; where
    fewer would be missing, other rows are left out with them.
    """

    estimate: FloatArray = array("k p", "estimate of the mean statistics of the network")
    own: FloatArray | None = array("k p", "own statistics, with the leaky filter", optional=True)
    flows: FloatArray | None = array(
        "e k p",
        "what has flowed into the estimate from each neighbour, with tracking; the rest is the site's own",
        optional=True,
    )
    movement: float = scalar(float, "how far the site's mixture moved; 0 at the start", low=0.0)
    log_likelihood: float = scalar(float, "mean log-likelihood of the site's rows")


@message("site.consensus")
class ConsensusMemory:
    """Kept by a site between two rounds of consensus EM."""

    weights: FloatArray = array("k", "weight of every component", low=0.0)
    means: FloatArray = array("k q", "mean of every component")
    covariances: FloatArray = array("k q q", "covariance of every component")
    own: FloatArray = array("k p", "own statistics")
    estimate: FloatArray = array("k p", "estimate of the mean statistics of the network")
    neighbours: tuple[str, ...] = scalar(tuple, "names of the neighbours")
    flows: FloatArray | None = array(
        "e k p", "what has flowed into the estimate from each of them", optional=True
    )
    round: int = scalar(int, "round that it is of", low=0)

    @property
    def named_flows(self) -> dict[str, FloatArray]:
        """What has flowed from each neighbour."""
        return {} if self.flows is None else dict(zip(self.neighbours, self.flows, strict=True))


@message("site.consensus.answered")
class ConsensusAnswered(ConsensusMemory):
    """What a site kept of its last answer that the coordinator had: it goes back to that if one is lost."""


def mean_of(mixture: Mixture) -> FloatArray:
    """Return the mean (q,) of all rows of a mixture, about which sites take their sums."""
    mean: FloatArray = mixture.weights @ mixture.means
    return mean
