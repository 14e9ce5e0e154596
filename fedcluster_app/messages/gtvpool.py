"""The messages of evidence-gated pooling: what a site's own rows are like, and in the end its mixture."""

from __future__ import annotations

from functools import cached_property

from fedcluster_app.errors import WireError
from fedcluster_app.gtvmin.pool_message import Summary
from fedcluster_app.messages.common import AgreedScaling, matrices
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import array, layout_of, message, scalar


@message("ask.pool.start")
class AskPoolStart(AgreedScaling):
    """The scaling is agreed: fit a mixture to your own rows."""


@message("ask.pool.round")
class AskPoolRound(AgreedScaling):
    """What your neighbours last said of their rows: take a round."""

    round: int = scalar(int, "round number", low=1)
    neighbours: tuple[str, ...] = scalar(tuple, "names of the neighbours")
    members: IntArray | None = array(
        "m", "neighbour that every component is of, by its place", whole=True, low=0, optional=True
    )
    counts: FloatArray | None = array("m", "rows of every component", low=0.0, optional=True)
    means: FloatArray | None = array("m f", "mean of these rows", optional=True)
    covariances: FloatArray | None = array("m t", "lower triangle of their covariance", optional=True)

    def __post_init__(self) -> None:
        """Refuse what is not one list of components, some of each neighbour."""
        parts, name = (self.members, self.counts, self.means, self.covariances), layout_of(type(self)).name
        if len({part is None for part in parts}) > 1:
            raise WireError(f"{name}: expected all of a component, or no component")
        told = set() if self.members is None else set(self.members.tolist())
        if told != set(range(len(self.neighbours))):
            raise WireError(f"{name}: components of {len(told)} neighbours for {len(self.neighbours)} names")
        _ = self.summaries

    @cached_property
    def summaries(self) -> dict[str, Summary]:
        """The components of each neighbour."""
        if self.members is None or self.counts is None or self.means is None or self.covariances is None:
            return {}
        covariances = matrices(self.covariances, self.means, layout_of(type(self)).name)
        which = {name: self.members == number for number, name in enumerate(self.neighbours)}
        return {name: Summary(self.counts[w], self.means[w], covariances[w]) for name, w in which.items()}


@message("ask.pool.end")
class AskPoolEnd(AskPoolRound):
    """The rounds are over: take what your neighbours said last, and say what you have come to."""


@message("pool.summary", leaves_site=True)
class PoolSummary:
    """The components of a site in its own rows alone; those of too few rows have 0 everywhere.

    Where together these would be fewer than `min-count`, other rows are left out with them, for the
    coordinator could find them as the difference to the moments of the greeting. With `pool-guard` a
    component that differs by fewer rows from what was told before is told as it was.
    """

    counts: FloatArray = array(
        "k", "rows of every component (responsibilities added up); 0 or at least `min-count`", low=0.0
    )
    means: FloatArray = array("k q", "mean of these rows")
    covariances: FloatArray = array("k t", "lower triangle of their covariance")
    change: float = scalar(float, "how far the site's mixture moved in the round", low=0.0)
    evidence: float = scalar(float, "log evidence of the rows, given what is taken from neighbours")

    def __post_init__(self) -> None:
        """Refuse triangles of other features."""
        _ = self.summary

    @cached_property
    def summary(self) -> Summary:
        """The components."""
        return Summary(self.counts, self.means, matrices(self.covariances, self.means, "pool.summary"))


@message("pool.end", leaves_site=True)
class PoolEnd:
    """A site's mixture of its rows and what it takes from neighbours, and how far it trusts them."""

    weights: FloatArray = array("k", "weight of every component", low=0.0)
    means: FloatArray = array("k q", "mean of every component")
    covariances: FloatArray = array("k t", "lower triangle of its covariance")
    counts: FloatArray = array("s", "those of the site's last summary, to tell which one that was", low=0.0)
    places: IntArray = array("k", "place of every component in that summary", whole=True, low=0)
    trust: FloatArray | None = array(
        "e",
        "share of the components of each neighbour that are the site's too",
        low=0.0,
        high=1.0,
        optional=True,
    )
    attached: FloatArray | None = array(
        "m k", "probability that a neighbour's component is the site's", low=0.0, high=1.0, optional=True
    )
    evidence: float = scalar(float, "log evidence of the rows, given what is taken from neighbours")

    def __post_init__(self) -> None:
        """Refuse what is no mixture of components in places of their own."""
        _ = self.mixture
        places, most = self.places.tolist(), len(self.counts)
        if len(set(places)) < len(places) or max(places) >= most:
            raise WireError(f"pool.end.places: expected different ones under {most}, got {places}")

    @cached_property
    def mixture(self) -> Mixture:
        """The site's mixture."""
        covariances = matrices(self.covariances, self.means, "pool.end")
        try:
            return Mixture(self.weights, self.means, covariances)
        except ValueError as error:
            raise WireError(f"pool.end: {error}") from None


@message("site.pool")
class PoolMemory:
    """Kept by a site between two rounds: its model, and its trust in neighbours."""

    weights: FloatArray = array("k", "weight of every component", low=0.0)
    means: FloatArray = array("k q", "mean of every component, about the origin")
    covariances: FloatArray = array("k q q", "covariance of every component")
    within: FloatArray = array("q q", "common covariance")
    strength: float = scalar(float, "rows that it counts for", low=0.0)
    discount: float = scalar(float, "share at which everything borrowed counts", low=0.0)
    own: FloatArray = array("k p p", "moments of the own rows in every component")
    told: FloatArray = array("k p p", "moments that others know")
    shares: FloatArray = array("k n", "of every row in every component, as far as told", low=0.0)
    before: FloatArray | None = array("b n", "all different shares ever told", low=0.0, optional=True)
    junk: float = scalar(float, "share of the uniform component", low=0.0)
    origin: FloatArray = array("q", "mean of the rows")
    neighbours: tuple[str, ...] = scalar(tuple, "names of all neighbours that ever spoke")
    trust: FloatArray | None = array("e", "trust in each of them", low=0.0, high=1.0, optional=True)
    evidence: float = scalar(float, "log evidence of the rows")
    changes: FloatArray | None = array(
        "r", "how far the mixture moved in every round", low=0.0, optional=True
    )
