"""How a node's own rows go to its components, and optionally to a uniform one that takes junk."""

from __future__ import annotations

import numpy as np

from fedcluster_app.gtvmin.pool_model import Rows
from fedcluster_app.gtvmin.pool_weights import dirichlet_evidence
from fedcluster_app.mixtures.types import FloatArray

# Prior rows of junk and of none: about one row in a hundred is junk.
_JUNK_PRIOR = np.array([1.0, 99.0])
# Log weight of an empty place: finite, and far below any that counts.
_NEVER = -1e300


def assign(
    weights: FloatArray, forms: FloatArray, junk: FloatArray, rows: Rows
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Moments of the own rows under their responsibilities, for b models at once.

    Parameters
    ----------
    weights : array of shape (b, k)
    forms : array of shape (b, k, d + 1, d + 1)
        See `pool_local.quadratic_forms`.
    junk : array of shape (b,)
        Share of the uniform component; not looked at where the rows have none.
    rows : Rows

    Returns
    -------
    own : array of shape (b, k, d + 1, d + 1)
    evidence : array of shape (b,)
        Entropy of the responsibilities; with a uniform component also the log evidence of its rows and of
        their number.
    junk : array of shape (b,)

    Notes
    -----
    **Source**: this project's pooling, step a and the optional uniform component: own rows only, never
    released, never pooled. Cost O(b n k d²).
    """
    k = weights.shape[1]
    R, entropies = responsibilities(weights, forms, junk, rows)
    real = rows.moments[..., 0]
    evidence: FloatArray = (entropies * real).sum(axis=1)
    if rows.log_uniform is not None:
        size, taken = real.sum(axis=-1), (R[:, k] * real).sum(axis=1)
        evidence += taken * rows.log_uniform
        evidence += dirichlet_evidence(np.stack([taken, size - taken], axis=1), _JUNK_PRIOR)
        junk = (taken + _JUNK_PRIOR[0]) / (size + _JUNK_PRIOR.sum())
    own = (R[:, :k] @ rows.moments).reshape(forms.shape)
    return own, evidence, junk


def responsibilities(
    weights: FloatArray, forms: FloatArray, junk: FloatArray, rows: Rows
) -> tuple[FloatArray, FloatArray]:
    """Responsibilities (b, k, n), their entropies (b, n); a uniform component is the last of k + 1.

    Parameters are those of `assign`; a component of weight 0 gets nothing.
    """
    b, k = weights.shape
    joint = np.empty((b, k + (rows.log_uniform is not None), rows.moments.shape[-2]))
    joint[:, :k] = -0.5 * forms.reshape(b, k, -1) @ rows.moments.swapaxes(-1, -2)
    joint[:, :k] += np.log(weights, where=weights > 0, out=np.full_like(weights, _NEVER))[:, :, None]
    if rows.log_uniform is not None:
        joint[:, :k] += np.log1p(-junk)[:, None, None]
        joint[:, k] = (np.log(junk) + rows.log_uniform)[:, None]
    joint -= joint.max(axis=1, keepdims=True)
    R = np.exp(joint)
    mass = R.sum(axis=1)
    R /= mass[:, None]
    # -sum R ln R, by ln R = joint - ln(mass); the joint is finite, so nothing is 0 times infinity.
    entropies: FloatArray = np.log(mass) - np.einsum("bkn,bkn->bn", R, joint)
    return R, entropies
