"""Squared maximum mean discrepancy of two Gaussian mixtures, in closed form over several bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin.blocks import Blocks, Pull
from fedcluster_app.gtvmin.kernels import kernel_means

BANDWIDTHS = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, eq=False)
class Union:
    """All neighbours of a node as one unnormalised mixture.

    Attributes
    ----------
    mixture : Blocks
        All components; weights are edge weight times weight in the neighbour.
    degree : float
        Sum of the edge weights.
    """

    mixture: Blocks
    degree: float


def freeze(neighbours: Sequence[Blocks], weights: Sequence[float]) -> Union:
    """Union of the neighbours, at least one, with edge weights that do not contain alpha."""
    scaled = [weight * other.weights for other, weight in zip(neighbours, weights, strict=True)]
    mixture = Blocks(
        np.concatenate(scaled),
        np.concatenate([other.means for other in neighbours]),
        np.concatenate([other.covariances for other in neighbours]),
    )
    return Union(mixture, float(sum(weights)))


def inner(p: Blocks, q: Blocks, bandwidths: Sequence[float] = BANDWIDTHS) -> float:
    """Inner product of two mixtures: the summed kernels' mean over independent rows of each."""
    return float(p.weights @ kernel_means(p, q, bandwidths).values.sum(axis=0) @ q.weights)


def discrepancy(p: Blocks, q: Blocks, bandwidths: Sequence[float] = BANDWIDTHS) -> float:
    """Squared maximum mean discrepancy.

    Parameters
    ----------
    p, q : Blocks
        Of the same d; the counts may differ.
    bandwidths : sequence of float, > 0
        Of Gaussian kernels exp(-|x - y|² / 2s²), which are added up; in units of the features.

    Returns
    -------
    float, from 0 to twice the number of bandwidths
        Symmetric, 0 for equal mixtures, independent of the order of the components.

    Notes
    -----
    **Source**: arXiv:2609.19202, the MMD discrepancy. For two Gaussians the kernel's mean is
    s^d |S|^(-1/2) exp(-½ Δᵀ S⁻¹ Δ) with S = Sigma + Sigma' + s² I. A difference of numbers of order 1: near
    0 it is exact to about 1e-15, and never negative.
    """
    value = inner(p, p, bandwidths) - 2.0 * inner(p, q, bandwidths) + inner(q, q, bandwidths)
    return max(value, 0.0)


def pull(union: Union, theta: Blocks, bandwidths: Sequence[float] = BANDWIDTHS) -> Pull:
    """Value, without the neighbours' own norms, and gradient of the weighted sum of discrepancies.

    Notes
    -----
    **Source**: arXiv:2609.19202. Summed over neighbours q_j of weights a_j the discrepancies are
    <p, a p - 2 q> plus a constant, with a = sum a_j and q = sum a_j q_j, and their gradient is twice the
    gradient of <p, r> at the signed mixture r = a p - q held fixed (both slots of <p, p> move, and the kernel
    is symmetric). So one batch of pairs, own components against own and all neighbours', gives everything.
    Cost O(k k' d³) for k' components of all neighbours and the node itself, in one factorisation per pair.
    """
    k = len(theta.weights)
    other = union.mixture
    signed = Blocks(
        np.concatenate([union.degree * theta.weights, -other.weights]),
        np.concatenate([theta.means, other.means]),
        np.concatenate([theta.covariances, other.covariances]),
    )
    pairs = kernel_means(theta, signed, bandwidths)
    totals = pairs.values.sum(axis=0)
    slopes = totals @ signed.weights
    share = float(theta.weights @ slopes)
    crossed = float(theta.weights @ (totals[:, k:] @ other.weights))
    means, covariances = pairs.slopes(pairs.values * signed.weights)
    own = theta.weights[:, None]
    gradient = Blocks(2.0 * slopes, -2.0 * own * means, own[:, :, None] * covariances)
    return Pull(share - crossed, gradient, share)


def shift(union: Union, start: Blocks, theta: Blocks, bandwidths: Sequence[float] = BANDWIDTHS) -> float:
    """Weighted sum over the neighbours of the discrepancy to the own mixture at the round's start."""
    return union.degree * discrepancy(theta, start, bandwidths)
