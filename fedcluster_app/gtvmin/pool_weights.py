"""Personal weights drawn to those of the attached neighbours, as far as the own rows' evidence asks for."""

from __future__ import annotations

import numpy as np

from fedcluster_app.mixtures.types import BoolArray, FloatArray

_STRENGTHS = np.array([1.0, 4.0, 16.0, 64.0, 256.0, 1024.0])


def draw_weights(
    own: FloatArray, base: FloatArray, concentration: float, active: BoolArray | bool = True
) -> tuple[FloatArray, FloatArray]:
    """Weights of the components and the evidence of the own counts.

    Parameters
    ----------
    own : array of shape (b, k)
        Counts of the own rows.
    base : array of shape (b, k)
        Counts of what is attached.
    concentration : float, > 0
        Added to every count of the base.
    active : bool array of shape (b, k), optional
        Places that hold a component, by default all; the others, which count nothing, get weight 0.

    Returns
    -------
    weights : array of shape (b, k)
        (own + S share) / (total + S) with the share of the base and the strength S of most evidence: large
        where the neighbours have the same weights, small where this site is skewed.
    log_evidence : array of shape (b,)

    Notes
    -----
    **Source**: this project's pooling, step h; Dirichlet-multinomial evidence (Minka, Estimating a Dirichlet
    distribution, 2000, equation 4, without the multinomial coefficient: the rows are in order).
    """
    counts = base + concentration * active
    size = counts.sum(axis=1, keepdims=True)
    share = counts / size
    strengths = np.minimum(_STRENGTHS, size)
    evidence = dirichlet_evidence(own[:, None], strengths[:, :, None] * share[:, None])
    best = evidence.argmax(axis=1)
    at = np.arange(len(best))
    strength = strengths[at, best][:, None]
    weights = (own + strength * share) / (own.sum(axis=1, keepdims=True) + strength)
    return weights, evidence[at, best]


def dirichlet_evidence(counts: FloatArray, alpha: FloatArray) -> FloatArray:
    """Log probability (...) of ordered labels with counts (..., k) under Dirichlet weights (..., k).

    A label of count and weight 0 does not exist.
    """
    from scipy.special import gammaln

    size, total = alpha.sum(axis=-1), counts.sum(axis=-1)
    alpha = np.where(alpha > 0.0, alpha, 1.0)
    terms: FloatArray = (gammaln(counts + alpha) - gammaln(alpha)).sum(axis=-1)
    terms += gammaln(size) - gammaln(size + total)
    return terms
