"""Sites whose sensors are set apart by an offset, and by a gain: clusters and both, fitted together.

A row y of site g and cluster k is modelled as y = b_g + a_g * x, x ~ N(m_k, P_k), along every axis, with
b_g ~ N(0, diag(t)). Without gains a_g is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import Clusters, Shrinkage, log_joint, maximise, responsibilities
from fedcluster_app.mixtures.densities import logsumexp
from fedcluster_app.mixtures.types import FloatArray

LEAST_PRIOR = 1e-8
# Gains beyond this are no sensors.
LARGEST_GAIN = 20.0


@dataclass(frozen=True, eq=False)
class Alignment:
    """What sets the sites apart along every axis.

    Attributes
    ----------
    offsets, gains : (G, q) arrays
        A row of a site is offset + gain * (the row as the clusters have it).
    """

    offsets: FloatArray
    gains: FloatArray


@dataclass(frozen=True, eq=False)
class OffsetState:
    """Clusters, and what sets the sites apart.

    Attributes
    ----------
    clusters : Clusters
        Of aligned rows.
    alignment : Alignment
        Offsets sum to 0 over the sites, logarithms of gains too.
    prior : (q,) array
        Variance t of the offsets along every axis.
    log_determinants : (G,) array
        Of the posterior covariance of every site's offset.
    """

    clusters: Clusters
    alignment: Alignment
    prior: FloatArray
    log_determinants: FloatArray


def remove(cells: Cells, alignment: Alignment) -> Cells:
    """Return the micro-clusters as they were without their sites' offsets and gains."""
    scale = alignment.gains[cells.sites]
    return replace(
        cells,
        means=(cells.means - alignment.offsets[cells.sites]) / scale,
        variances=cells.variances / np.square(scale),
    )


def init(cells: Cells, clusters: Clusters, alignment: Alignment) -> OffsetState:
    """State before the first step; the prior of the offsets is as wide as they are."""
    offsets = alignment.offsets
    prior = np.maximum(np.square(offsets).mean(axis=0), 0.05 * cells.within_variance() + LEAST_PRIOR)
    return OffsetState(clusters, alignment, prior, np.tile(np.log(prior).sum(), cells.n_sites))


def step(state: OffsetState, cells: Cells, shrinkage: Shrinkage, *, with_gains: bool) -> OffsetState:
    """Make an E step, then maximise over clusters, offsets, their prior, and gains, one after the other.

    Parameters
    ----------
    state
    cells
        As they were sent.
    shrinkage
    with_gains
        Whether gains are fitted too, or stay as they are.

    Notes
    -----
    **Source**: ours; expectation conditional maximisation (Meng and Rubin, 1993). With responsibilities R and
    L_j = sum_k R_jk P_k⁻¹, an offset is the posterior mean

        b_g = V_g sum_j c_j (L_j (y_j / a) - sum_k R_jk P_k⁻¹ m_k) / a,
        V_g = (sum_j c_j L_j / (a aᵀ) + diag(1 / t))⁻¹,

    and 1 / a along an axis is the root of n - A u² + B u, see :func:`_gain_step`. Cost O(M K q²).
    """
    aligned = remove(cells, state.alignment)
    R = responsibilities(aligned, state.clusters)
    clusters = maximise(aligned, R, shrinkage, state.clusters.means)
    precisions, pulls = expected_precisions(R, clusters)
    gains = state.alignment.gains
    offsets, prior, log_determinants = offset_step(cells, gains, state.prior, precisions, pulls)
    if with_gains:
        gains = _gain_step(cells, offsets, gains, precisions, pulls)
    return _centred(OffsetState(clusters, Alignment(offsets, gains), prior, log_determinants))


def expected_precisions(R: FloatArray, clusters: Clusters) -> tuple[FloatArray, FloatArray]:
    """Return sum_k R_jk P_k⁻¹, (M, q, q), and sum_k R_jk P_k⁻¹ m_k, (M, q)."""
    k, q = clusters.means.shape
    inverses = np.linalg.inv(clusters.covariances)
    precisions: FloatArray = (R @ inverses.reshape(k, q * q)).reshape(-1, q, q)
    pulls: FloatArray = R @ np.einsum("kij,kj->ki", inverses, clusters.means)
    return precisions, pulls


def offset_step(
    cells: Cells, gains: FloatArray, prior: FloatArray, precisions: FloatArray, pulls: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return offsets (G, q), their prior (q,), and the log-determinants (G,) of their posterior."""
    scale = gains[cells.sites]
    counts = cells.counts[:, None]
    force = counts * (np.einsum("jil,jl->ji", precisions, cells.means / scale) - pulls)
    information = cells.by_site(counts[:, :, None] * precisions) / (gains[:, :, None] * gains[:, None, :])
    covariance = np.linalg.inv(information + np.diag(1.0 / prior))
    offsets = np.einsum("gil,gl->gi", covariance, cells.by_site(force) / gains)
    wide = np.square(offsets) + np.diagonal(covariance, axis1=1, axis2=2)
    prior = np.maximum(wide.mean(axis=0), LEAST_PRIOR)
    return offsets, prior, np.linalg.slogdet(covariance)[1]


def _gain_step(
    cells: Cells, offsets: FloatArray, gains: FloatArray, precisions: FloatArray, pulls: FloatArray
) -> FloatArray:
    """Return gains (G, q), each at its maximum while the other axes stay.

    As a function of u = 1 / a along axis i, the expected log-likelihood of a site's n rows is
    n log u - A u² / 2 + B u, with A = T_ii, B = h_i - sum_l≠i T_il u_l, T = sum_j c_j L_j * (z_j z_jᵀ + C_j),
    h = sum_j c_j z_j * (sum_k R_jk P_k⁻¹ m_k), and z = y - b. n log u is the Jacobian.
    """
    z = cells.means - offsets[cells.sites]
    products = z[:, :, None] * z[:, None, :]
    diagonal = np.arange(z.shape[1])
    products[:, diagonal, diagonal] += cells.variances
    T = cells.by_site(cells.counts[:, None, None] * precisions * products)
    h = cells.by_site(cells.counts[:, None] * z * pulls)
    rows = cells.by_site(cells.counts)
    u = 1.0 / gains
    for i in diagonal:
        A = np.maximum(T[:, i, i], np.finfo(np.float64).tiny)
        B = h[:, i] - np.einsum("gl,gl->g", T[:, i], u) + T[:, i, i] * u[:, i]
        root = (B + np.sqrt(np.square(B) + 4 * A * rows)) / (2 * A)
        u[:, i] = np.where(rows > 0, np.clip(root, 1 / LARGEST_GAIN, LARGEST_GAIN), u[:, i])
    return 1.0 / u


def _centred(state: OffsetState) -> OffsetState:
    """Give the clusters what all sites have in common: the rows they stand for stay the same."""
    offsets, gains = state.alignment.offsets, state.alignment.gains
    common = np.exp(np.log(gains).mean(axis=0))
    gains = gains / common
    shift = offsets.mean(axis=0) / gains.mean(axis=0)
    clusters = replace(
        state.clusters,
        means=state.clusters.means * common + shift,
        covariances=state.clusters.covariances * np.outer(common, common),
    )
    return replace(state, clusters=clusters, alignment=Alignment(offsets - shift * gains, gains))


def log_likelihoods(cells: Cells, state: OffsetState) -> FloatArray:
    """Return the log-likelihood of every site's micro-clusters as they were sent, shape (G,)."""
    joint = log_joint(remove(cells, state.alignment), state.clusters)
    jacobian = np.log(state.alignment.gains).sum(axis=1)[cells.sites]
    return cells.by_site(cells.counts * (logsumexp(joint, axis=1) - jacobian))


def evidence(cells: Cells, state: OffsetState) -> float:
    """Return the log-likelihood with the offsets integrated out (Laplace)."""
    G = cells.n_sites
    prior = np.square(state.alignment.offsets / np.sqrt(state.prior)).sum() + G * np.log(state.prior).sum()
    return float(log_likelihoods(cells, state).sum() - (prior - state.log_determinants.sum()) / 2)
