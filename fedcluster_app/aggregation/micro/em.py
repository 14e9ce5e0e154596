"""EM on micro-clusters: global clusters of full covariance, mixing weights of every site's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.mixtures.densities import logsumexp
from fedcluster_app.mixtures.types import FloatArray, IntArray

# Share of a row by which every site may hold every cluster, so that no weight is ever 0.
WEIGHT_FLOOR = 1e-9
# Entries of one block of whitened means (cells x clusters x features): 8 MB.
_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class Clusters:
    """Global clusters, and how much of each site lies in each of them.

    Attributes
    ----------
    weights : (G, K) array
        Mixing weights of every site; rows sum to 1.
    means : (K, q) array
    covariances : (K, q, q) array
        Positive definite.
    masses : (K,) array
        Rows of every cluster over all sites.
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    masses: FloatArray

    @property
    def k(self) -> int:
        """Number of clusters K."""
        return len(self.means)

    @property
    def global_weights(self) -> FloatArray:
        """Share of every cluster (K,) in the rows of all sites."""
        shares: FloatArray = self.masses / self.masses.sum()
        return shares


@dataclass(frozen=True)
class Shrinkage:
    """How covariances of clusters with few rows are steadied.

    Attributes
    ----------
    rows : float
        Rows that the covariance within all clusters counts for in each of them; the specification of the
        method takes twice the number of features.
    ridge : float
        Added to the variance along every axis.
    """

    rows: float
    ridge: float

    @classmethod
    def of(cls, cells: Cells) -> Shrinkage:
        """Return 2 q rows, and a ten-thousandth of the mean variance of all rows."""
        q = cells.n_features
        return cls(2.0 * q, 1e-4 * float(np.trace(cells.total_covariance())) / q or 1e-12)

    def apply(self, masses: FloatArray, scatters: FloatArray, pooled: FloatArray | None = None) -> FloatArray:
        """Return covariances (K, q, q) from masses (K,) and scatter matrices (K, q, q), sums over rows.

        They are drawn towards ``pooled`` (q, q), the covariance within all clusters if it is not given.
        """
        if pooled is None:
            pooled = scatters.sum(axis=0) / masses.sum()
        total = (masses + self.rows)[:, None, None]
        # A cluster without rows has the covariance of all.
        total = np.where(total > 0, total, 1.0)
        covariances: FloatArray = (scatters + self.rows * pooled) / total
        if self.rows == 0:
            covariances[masses == 0] = pooled
        diagonal = np.arange(covariances.shape[1])
        covariances[:, diagonal, diagonal] += self.ridge
        return covariances


def log_joint(cells: Cells, clusters: Clusters) -> FloatArray:
    """Return the score of every cell in every cluster, shape (M, K).

    Notes
    -----
    **Source**: ours. log N(mu_j; m_k, P_k) - tr(P_k⁻¹ C_j) / 2 + log pi_{s(j), k}: the mean log-density of
    the rows of a cell of mean mu_j and variances C_j, and the weight of the cluster at the cell's site. The
    number of rows is not in the exponent: a cell is as sure of its cluster as one of its rows. Cost
    O(M K q²).
    """
    factors = np.linalg.cholesky(clusters.covariances)
    whiteners = np.linalg.inv(factors)
    k, q = clusters.means.shape
    stacked = np.ascontiguousarray(whiteners.reshape(k * q, q).T)
    centres = np.einsum("kij,kj->ki", whiteners, clusters.means).ravel()
    # Of two triangular factors, the second sums to the diagonal of P⁻¹.
    distances: FloatArray = cells.variances @ np.square(whiteners).sum(axis=1).T
    step = max(1, _BLOCK // (k * q))
    for first in range(0, cells.n_cells, step):
        part = slice(first, first + step)
        white = cells.means[part] @ stacked
        white -= centres
        np.square(white, out=white)
        distances[part] += white.reshape(-1, k, q).sum(axis=2)
    log_det = 2.0 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    distances += log_det + q * np.log(2.0 * np.pi)
    distances *= -0.5
    distances += np.log(clusters.weights)[cells.sites]
    return distances


def responsibilities(cells: Cells, clusters: Clusters) -> FloatArray:
    """Return how much of every cell is in every cluster, shape (M, K): the E step."""
    return _softmax(log_joint(cells, clusters))


def moments(cells: Cells, R: FloatArray, fallback: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return masses (K,), means (K, q) and scatter matrices (K, q, q) of cells under responsibilities (M, K).

    A cluster without any row takes its mean from ``fallback`` (K, q) and has scatter 0.
    """
    mass = R * cells.counts[:, None]
    masses = mass.sum(axis=0)
    k, q = R.shape[1], cells.n_features
    means, scatters = fallback.copy(), np.zeros((k, q, q))
    diagonal = np.arange(q)
    for j in np.flatnonzero(masses):
        rows = np.flatnonzero(mass[:, j])
        share, points = mass[rows, j], cells.means[rows]
        means[j] = share @ points / masses[j]
        deviation = (points - means[j]) * np.sqrt(share)[:, None]
        scatters[j] = deviation.T @ deviation
        scatters[j, diagonal, diagonal] += share @ cells.variances[rows]
    return masses, means, scatters


def weights_by_site(cells: Cells, R: FloatArray) -> FloatArray:
    """Return every site's mixing weights (G, K) under responsibilities (M, K)."""
    weights = cells.by_site(R * cells.counts[:, None]) + WEIGHT_FLOOR
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def maximise(cells: Cells, R: FloatArray, shrinkage: Shrinkage, fallback: FloatArray) -> Clusters:
    """Return the clusters that responsibilities (M, K) make of the cells: the M step."""
    masses, means, scatters = moments(cells, R, fallback)
    return Clusters(weights_by_site(cells, R), means, shrinkage.apply(masses, scatters), masses)


def from_partition(cells: Cells, labels: IntArray, shrinkage: Shrinkage) -> Clusters:
    """Return the clusters of a partition of the cells, labels (M,) from 0, with equal weights everywhere."""
    R = np.eye(int(labels.max()) + 1)[labels]
    clusters = maximise(cells, R, shrinkage, np.zeros((R.shape[1], cells.n_features)))
    weights = np.tile(clusters.global_weights, (cells.n_sites, 1))
    return Clusters(weights, clusters.means, clusters.covariances, clusters.masses)


@dataclass(frozen=True, eq=False)
class MicroEMState:
    """Where a run stands.

    Attributes
    ----------
    clusters : Clusters
    joint : (M, K) array
        Their :func:`log_joint`.
    trace : tuple of float
        Log-likelihood of the clusters at the start and after every step.
    """

    clusters: Clusters
    joint: FloatArray
    trace: tuple[float, ...]

    @property
    def log_likelihood(self) -> float:
        """Sum over rows of the log-density, as cells can tell it."""
        return self.trace[-1]


@dataclass(frozen=True, eq=False)
class MicroFit:
    """Clusters that were fitted to cells.

    Attributes
    ----------
    clusters : Clusters
    responsibilities : (M, K) array
    log_likelihood : float
        Of these clusters.
    """

    clusters: Clusters
    responsibilities: FloatArray
    log_likelihood: float


def init(cells: Cells, clusters: Clusters) -> MicroEMState:
    """State before the first step."""
    joint = log_joint(cells, clusters)
    return MicroEMState(clusters, joint, (_total(cells, joint),))


def step(state: MicroEMState, cells: Cells, shrinkage: Shrinkage) -> MicroEMState:
    """Make an M step and an E step.

    Notes
    -----
    **Source**: ours; EM for the density of :func:`log_joint`. Without shrinkage the likelihood never falls.
    """
    clusters = maximise(cells, _softmax(state.joint), shrinkage, state.clusters.means)
    joint = log_joint(cells, clusters)
    return MicroEMState(clusters, joint, (*state.trace, _total(cells, joint)))


def done(state: MicroEMState, *, max_iter: int = 25, tol: float = 1e-6) -> bool:
    """Whether to stop: relative change of the likelihood below ``tol``, or ``max_iter`` steps."""
    return len(state.trace) > max_iter or _still(state, tol)


def finish(state: MicroEMState) -> MicroFit:
    """Turn the state of a run that :func:`done` stopped into its result."""
    return MicroFit(state.clusters, _softmax(state.joint), state.log_likelihood)


def fit(
    cells: Cells, start: Clusters, shrinkage: Shrinkage, *, max_iter: int = 25, tol: float = 1e-6
) -> MicroFit:
    """Run :func:`step` from a start until :func:`done`."""
    state = init(cells, start)
    while not done(state, max_iter=max_iter, tol=tol):
        state = step(state, cells, shrinkage)
    return finish(state)


def by_site(cells: Cells, clusters: Clusters) -> FloatArray:
    """Return the log-likelihood of the cells of every site, shape (G,)."""
    return cells.by_site(cells.counts * logsumexp(log_joint(cells, clusters), axis=1))


def _still(state: MicroEMState, tol: float) -> bool:
    return len(state.trace) > 1 and abs(state.trace[-1] - state.trace[-2]) <= tol * abs(state.trace[-1])


def _total(cells: Cells, joint: FloatArray) -> float:
    return float(cells.counts @ logsumexp(joint, axis=1))


def _softmax(joint: FloatArray) -> FloatArray:
    R: FloatArray = np.exp(joint - logsumexp(joint, axis=1)[:, None])
    return R
