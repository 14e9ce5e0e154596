"""Where a node starts: k-means, or components that were found before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin.blocks import Blocks, mixture_of
from fedcluster_app.gtvmin.projection import Bounds, project
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.kmeans import kmeans
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import collect
from fedcluster_app.mixtures.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Start:
    """A feasible mixture and how many rows each of its components was made from, shape (k,)."""

    mixture: Mixture
    counts: IntArray


def kmeans_start(
    X: FloatArray, k: int, rng: np.random.Generator, bounds: Bounds, *, n_init: int = 10, min_rows: int = 1
) -> Start:
    """Mixture of the clusters of local k-means.

    Parameters
    ----------
    X : array of shape (n, d), n >= 1
    k : int, >= 1
        Components; a site with fewer rows gets one component per row.
    rng : numpy.random.Generator
    bounds : Bounds
    n_init : int, >= 1
        Starts of k-means, of which the best counts. The paper's figures come back with 1; more starts lower
        the error of the means by a third to a half.
    min_rows : int, >= 1
        See `start_from_labels`.

    Raises
    ------
    DataError
        If there are no rows.

    Notes
    -----
    **Source**: arXiv:2609.19202, Algorithm 1, initialisation.
    """
    _check_rows(X)
    labels = kmeans(X, min(k, len(X)), rng, n_init=n_init).labels
    return start_from_labels(X, labels, bounds, min_rows=min_rows)


def start_from_mixture(X: FloatArray, mixture: Mixture, bounds: Bounds, *, min_rows: int = 1) -> Start:
    """Mixture of the rows that each component of a given mixture, of any kind, takes.

    This is the way from a count that was found without labels, whose components are spherical, to full
    covariances. Parameters and errors otherwise as `kmeans_start`.
    """
    _check_rows(X)
    R, _ = responsibilities(X, mixture)
    return start_from_labels(X, R.argmax(axis=1), bounds, min_rows=min_rows)


def component_variances(mixture: Mixture) -> FloatArray:
    """Variance per feature of every component, (k,); covariances are full."""
    variances: FloatArray = np.trace(mixture.covariances, axis1=1, axis2=2) / mixture.n_features
    return variances


def within_variance(mixture: Mixture) -> float:
    """Variance of a row about the mean of its own component, per feature; covariances are full."""
    return float(mixture.weights @ component_variances(mixture))


def start_from_labels(X: FloatArray, labels: IntArray, bounds: Bounds, *, min_rows: int = 1) -> Start:
    """Mixture of labelled rows: shares, means and covariances of the clusters, made feasible.

    Parameters
    ----------
    X : array of shape (n, d), n >= 1
    labels : int array of shape (n,)
        Labels without rows give no component.
    bounds : Bounds
    min_rows : int, >= 1
        A cluster with fewer rows is dissolved into those with the nearest means, the smallest first, as long
        as there is another cluster.

    Raises
    ------
    DataError
        If there are no rows.
    ConfigError
        If the weight floor is too high for the number of components.

    Notes
    -----
    **Source**: arXiv:2609.19202 starts from k-means; that each component has the covariance of its own
    cluster, over its number of rows, is reconstructed from the figures. A cluster of one row takes the pooled
    covariance. The floor on the eigenvalues comes before anything is factorised.
    """
    _check_rows(X)
    kept = _dissolved(X, np.unique(labels, return_inverse=True)[1].reshape(-1), min_rows)
    stats = collect(X, np.eye(kept.max() + 1)[kept], "full")
    counts = np.bincount(kept)
    pooled = stats.scatters.sum(axis=0) / len(X)
    own = stats.scatters / counts[:, None, None]
    covariances = np.where((counts > 1)[:, None, None], own, pooled)
    bounds.check_components(len(counts))
    theta = project(Blocks(counts / len(X), stats.means, covariances), bounds)
    return Start(mixture_of(theta), counts)


def _dissolved(X: FloatArray, labels: IntArray, min_rows: int) -> IntArray:
    """Labels 0, 1, ... after clusters with too few rows went to their nearest neighbours."""
    while True:
        counts = np.bincount(labels)
        smallest = int(counts.argmin())
        if counts[smallest] >= min_rows or len(counts) == 1:
            return labels
        means = collect(X, np.eye(len(counts))[labels], "spherical").means
        gone = labels == smallest
        others = np.delete(np.arange(len(counts)), smallest)
        labels = labels.copy()
        labels[gone] = others[squared_distances(X[gone], means[others]).argmin(axis=1)]
        labels[labels > smallest] -= 1


def _check_rows(X: FloatArray) -> None:
    if not len(X):
        raise DataError("rows: expected at least one to start from, got none")
