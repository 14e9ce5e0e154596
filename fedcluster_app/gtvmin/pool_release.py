"""What a pooling node may let out: components of enough own rows, and a mixture that shows no others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin.niw import moments_of, summaries_of
from fedcluster_app.gtvmin.pool_local import common_covariance, components, quadratic_forms
from fedcluster_app.gtvmin.pool_message import Summary
from fedcluster_app.gtvmin.pool_model import LEAST_VARIANCE, Models, Rows
from fedcluster_app.gtvmin.pool_rows import responsibilities
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_weights import draw_weights
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.release import NEARLY, released
from fedcluster_app.mixtures.types import FloatArray, IntArray

# Least count, of own rows and borrowed ones, of a component of the mixture that is shown.
_LEAST_COUNT = 0.5


@dataclass(frozen=True, eq=False)
class Shown:
    """A mixture that may be seen, and the place of each of its components at the node."""

    mixture: Mixture
    places: IntArray


@dataclass(frozen=True, eq=False)
class Release:
    """What others may know of a node's own rows, and all that they were told before.

    Attributes
    ----------
    moments : array of shape (k, d + 1, d + 1)
        Of the rows in every component, about their mean; 0 for components that are withheld.
    shares : array of shape (k, n)
        Of every row in every component, as far as it is told.
    before : array of shape (t, n)
        All different shares that were ever told; (0, n) if the node is not guarded.
    """

    moments: FloatArray
    shares: FloatArray
    before: FloatArray


def release(models: Models, rows: Rows, settings: PoolSettings, last: Release | None = None) -> Release:
    """Decide what others may know now.

    Parameters
    ----------
    models : Models
        A batch of one.
    rows : Rows
    settings : PoolSettings
        A component of fewer rows than ``min_count`` is withheld, junk too, and never fewer rows than that are
        missing of all: see `mixtures.release.released`. With ``guard`` the same is asked of differences to
        what was told before.
    last : Release, optional
        Of the round before.

    Notes
    -----
    **Source**: this project's. The guard compares every component with all earlier ones, and with those of
    the last release that went into it together: where it differs by fewer rows, it is told as it was. It does
    not look at sums of several rounds or of other components: no rule of this kind can look at all.
    """
    k, n = models.means.shape[1], len(rows.X)
    forms = quadratic_forms(models.means, models.covariances)
    R = responsibilities(models.weights, forms, models.junk, rows)[0][0, :k]
    shares = released(R.T, settings.min_count).T
    before = np.zeros((0, n))
    if settings.guard:
        if last is not None:
            shares, before = _as_before(shares, last, settings.min_count - NEARLY), last.before
        before = np.unique(np.concatenate([before, shares[shares.any(axis=1)]]), axis=0)
    return Release((shares @ rows.moments).reshape(models.own[0].shape), shares, before)


def _as_before(shares: FloatArray, last: Release, least: float) -> FloatArray:
    """Shares (k, n), those told as they were that differ from it by too few rows."""
    # What was told last, in the components that it went into.
    into = [int(np.minimum(shares, told).sum(axis=1).argmax()) for told in last.shares]
    coarse = np.array([last.shares[[c == place for place in into]].sum(axis=0) for c in range(len(shares))])
    told = shares.copy()
    for c in np.flatnonzero(shares.any(axis=1)):
        known = np.concatenate([coarse[[c]], last.before])
        gaps = np.abs(shares[c] - known).sum(axis=1)
        if gaps.min() < least:
            told[c] = known[gaps.argmin()]
    # Some as they were and some not may tell of a row twice, or lack a few of all rows; then nothing is new.
    rows = told.sum(axis=0)
    twice, missing = bool((rows > 1.0 + NEARLY).any()), float(len(rows) - rows.sum())
    return coarse if twice or NEARLY < missing < least else told


def shown(models: Models, own: FloatArray, rows: Rows, concentration: float) -> Shown:
    """Fit the mixture once more to what may be seen of the own rows, and to all that is attached.

    Whoever knows what the neighbours sent could take it out of the node's own mixture. So own rows that are
    withheld are in neither means nor weights, nor in the common covariance.

    Parameters
    ----------
    models : Models
        A batch of one.
    own : array of shape (k, d + 1, d + 1)
        See `Release`.
    rows : Rows
    concentration : float, > 0
        As in `PoolSettings`.

    Returns
    -------
    Shown
        Without components that nothing stands behind; one of all rows where that would be none.
    """
    lent = models.discount[0] * models.borrowed[0]
    if (own + lent)[:, 0, 0].max() < _LEAST_COUNT:
        own = np.zeros_like(own)
        own[0] = rows.moments.sum(axis=0).reshape(own.shape[1:])
    totals = own + lent
    within = common_covariance(totals[None], rows.spread)
    means, covariances = components(totals[None], within, models.strength)
    weights, _ = draw_weights(own[None, :, 0, 0], lent[None, :, 0, 0], concentration)
    places = np.flatnonzero(totals[:, 0, 0] >= _LEAST_COUNT)
    left = weights[0, places]
    return Shown(Mixture(left / left.sum(), means[0, places] + rows.origin, covariances[0, places]), places)


def mixture_of(summary: Summary) -> Shown | None:
    """Make a mixture of what a node released, covariances drawn to their common one; None of nothing.

    Raises
    ------
    ValueError
        If the covariances cannot be those of rows.
    """
    places = np.flatnonzero(summary.counts > 0)
    if not len(places):
        return None
    counts, d = summary.counts[places], summary.means.shape[1]
    origin = counts @ summary.means[places] / counts.sum()
    own = moments_of(counts, summary.means[places] - origin, summary.covariances[places])[None]
    spread = max(float(np.trace(summaries_of(own.sum(axis=1))[2][0])), LEAST_VARIANCE * d)
    means, covariances = components(own, common_covariance(own, spread), np.array([d + 1.0]))
    return Shown(Mixture(counts / counts.sum(), means[0] + origin, covariances[0]), places)
