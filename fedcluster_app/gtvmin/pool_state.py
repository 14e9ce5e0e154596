"""A pooling node between rounds, what it has come to in the end, and when that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedcluster_app.gtvmin.pool_model import Models
from fedcluster_app.gtvmin.pool_release import Release
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray

PoolStatus: TypeAlias = Literal["running", "settled", "max_rounds"]


@dataclass(frozen=True, eq=False)
class PoolState:
    """A pooling node between rounds.

    Attributes
    ----------
    models : Models
        A batch of one, about the origin.
    origin : array of shape (d,)
        Mean of the site's rows.
    release : Release
        What others may know of the own rows.
    rates : mapping of site name to float
        Trust in each neighbour that ever spoke, from 0 to 1.
    attachments : mapping of site name to array of shape (k of the neighbour, k)
        Of the last round: probability that the neighbour's component is the own one; rows of 0 for
        components that were withheld, dropped or unmatched.
    evidence : float
        Log evidence of the own rows, given all that is attached: what neighbours are worth.
    changes : tuple of float
        How far the model moved in each round: means in standard deviations of a component, plus weights.
    free : bool
        Whether the number of components is not given but found: then it may fall, or follow another start.
    """

    models: Models
    origin: FloatArray
    release: Release
    rates: Mapping[str, float]
    attachments: Mapping[str, FloatArray]
    evidence: float
    changes: tuple[float, ...] = ()
    free: bool = False

    @property
    def round(self) -> int:
        """Rounds taken."""
        return len(self.changes)

    @property
    def mixture(self) -> Mixture:
        """The personal mixture, in the coordinates of the rows."""
        own = self.models
        return Mixture(own.weights[0], own.means[0] + self.origin, own.covariances[0])


@dataclass(frozen=True, eq=False)
class PoolResult:
    """What a site has come to.

    Attributes
    ----------
    mixture : Mixture
        Of the neighbours' components that are attached and of the own rows, but for those of components too
        small to be released.
    counts : array of shape (k,)
        Of the summary that it belongs to.
    places : int array of shape (k of the mixture,)
        Place of each of its components in that summary.
    status : PoolStatus
        Why the rounds ended.
    rates, attachments : mappings of site name
        As in `PoolState`, of the last summaries; columns are places in the own summary.
    changes, evidence
        As in `PoolState`.
    """

    mixture: Mixture
    counts: FloatArray
    places: IntArray
    status: PoolStatus
    rates: Mapping[str, float]
    attachments: Mapping[str, FloatArray]
    changes: tuple[float, ...]
    evidence: float


def status_of(changes: Sequence[float], settings: PoolSettings) -> PoolStatus:
    """Tell the same from how far a node moved in each of its rounds: all that others need to know for it."""
    recent = changes[-settings.patience :]
    ripe = len(changes) > settings.least_rounds and len(recent) == settings.patience
    if ripe and max(recent) < settings.tolerance:
        return "settled"
    return "max_rounds" if len(changes) >= settings.max_rounds else "running"
