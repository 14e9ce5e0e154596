"""Statistics of a mixture's components as numbers that nodes can average and subtract."""

from __future__ import annotations

import numpy as np

from fedcluster_app.gtvmin.blocks import Blocks
from fedcluster_app.mixtures.statistics import Statistics
from fedcluster_app.mixtures.types import FloatArray

# Mass below which an estimate says nothing about a component: while estimates differ it may even be negative.
_LEAST_MASS = 1e-6


def moments_about(origin: FloatArray, stats: Statistics) -> FloatArray:
    """Mass, sums and triangles of sums of squares about a point (d,), of shape (k, 1 + d + d (d + 1) / 2)."""
    mass, shift = stats.mass[:, None], stats.means - origin
    squares = stats.scatters + mass[:, :, None] * shift[:, :, None] * shift[:, None, :]
    rows, columns = np.tril_indices(len(origin))
    return np.concatenate([mass, mass * shift, squares[:, rows, columns]], axis=1)


def parameters_from(moments: FloatArray, origin: FloatArray, last: Blocks) -> Blocks:
    """Weights, means and covariances of moments that may be estimates, with no promise to be feasible.

    Parameters
    ----------
    moments : array of shape (k, 1 + d + d (d + 1) / 2)
    origin : array of shape (d,)
    last : Blocks
        Gives mean and covariance of a component without mass, and everything where none has any.
    """
    k, d = last.means.shape
    held = moments[:, 0] > _LEAST_MASS
    if not held.any():
        return last
    mass = np.where(held, moments[:, 0], 0.0)
    divisor = np.where(held, mass, 1.0)[:, None]
    shift = moments[:, 1 : 1 + d] / divisor
    rows, columns = np.tril_indices(d)
    squares = np.empty((k, d, d))
    squares[:, rows, columns] = squares[:, columns, rows] = moments[:, 1 + d :] / divisor
    covariances = squares - shift[:, :, None] * shift[:, None, :]
    return Blocks(
        mass / mass.sum(),
        np.where(held[:, None], origin + shift, last.means),
        np.where(held[:, None, None], covariances, last.covariances),
    )
