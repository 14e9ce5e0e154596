"""What a pooling node may let out: components of enough own rows, and a mixture that shows no others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin.niw import moments_of, summaries_of
from fedcluster_app.gtvmin.pool_local import common_covariance, components, quadratic_forms
from fedcluster_app.gtvmin.pool_message import Summary
from fedcluster_app.gtvmin.pool_model import Models, Rows
from fedcluster_app.gtvmin.pool_rows import responsibilities
from fedcluster_app.gtvmin.pool_weights import draw_weights
from fedcluster_app.mixtures import release
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.release import NEARLY
from fedcluster_app.mixtures.types import FloatArray, IntArray

# Least count, of own rows and borrowed ones, of a component of the mixture that is shown.
_LEAST_COUNT = 0.5
# Variance of a feature that is taken for the least, where all that was released is one point.
_LEAST_VARIANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Shown:
    """A mixture that may be seen, and the place of each of its components at the node."""

    mixture: Mixture
    places: IntArray


def released(models: Models, rows: Rows, min_count: float) -> FloatArray:
    """Moments of the own rows that others may know, (k, d + 1, d + 1); 0 for components that are withheld.

    Parameters
    ----------
    models : Models
        A batch of one.
    rows : Rows
    min_count : float, >= 0
        A component of fewer rows is withheld. It is not merged with another: a summary of two clusters helps
        nobody. Where fewer rows than this would be missing, junk among them, others are left out with them:
        see `mixtures.release.released`.
    """
    own, least = models.own[0], min_count - NEARLY
    seen = own[:, 0, 0] >= max(least, NEARLY)
    if NEARLY < len(rows.X) - own[seen, 0, 0].sum() < least:
        forms = quadratic_forms(models.means, models.covariances)
        R = responsibilities(models.weights, forms, models.junk, rows)[0][0, : len(own)]
        own = (release.released(R.T, min_count).T @ rows.moments).reshape(own.shape)
        seen &= own[:, 0, 0] > 0
    moments: FloatArray = own * seen[:, None, None]
    return moments


def shown(models: Models, own: FloatArray, rows: Rows, concentration: float) -> Shown:
    """Fit the mixture once more to what may be seen of the own rows, and to all that is attached.

    Whoever knows what the neighbours sent could take it out of the node's own mixture. So own rows that are
    withheld are in neither means nor weights, nor in the common covariance.

    Parameters
    ----------
    models : Models
        A batch of one.
    own : array of shape (k, d + 1, d + 1)
        See `released`.
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
    spread = max(float(np.trace(summaries_of(own.sum(axis=1))[2][0])), _LEAST_VARIANCE * d)
    means, covariances = components(own, common_covariance(own, spread), np.array([d + 1.0]))
    return Shown(Mixture(counts / counts.sum(), means[0] + origin, covariances[0]), places)
