"""X-means: k-means that splits clusters while the Bayesian information criterion of two beats that of one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedcluster_app.cardinality.count import Candidate, Cell, Count, Fit, Rows
from fedcluster_app.cardinality.grow import Proposal, grow, halve
from fedcluster_app.cardinality.selection import checked_axis, choose
from fedcluster_app.cardinality.split import VARIANCE_FLOOR
from fedcluster_app.cardinality.tree import Moments
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.types import FloatArray

#: Largest numbers of clusters and least sizes of a half tried by default.
K_MAXES = (10, 20, 50)
MIN_SIZES = (5, 20)


def count_xmeans(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    k_maxes: Sequence[int] = K_MAXES,
    min_sizes: Sequence[float] = MIN_SIZES,
    k_min: int = 2,
    weights: FloatArray | None = None,
) -> Count:
    """Count the clusters of a table with X-means, choosing its cap and least size on held-out rows.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite, float64.
    rng : numpy.random.Generator
        Draws the held-out rows; the clustering itself is deterministic.
    k_maxes, min_sizes : sequences
        The grid: largest number of clusters, a whole number >= 1, never exceeded; and least rows of a half
        of a split, >= 1. Of equal scores the smaller cap and the larger least size are preferred.
    k_min : {1, 2}
        Clusters to start from. The criterion finds the first split of many alike clusters too costly in few
        dimensions, and from one cluster it would then stay at one.
    weights : (n,), optional
        A row of weight w counts like w equal rows.

    Returns
    -------
    Count

    Raises
    ------
    ConfigError
        If a parameter is out of range.
    DataError
        As :func:`~fedcluster_app.cardinality.selection.choose`.

    Notes
    -----
    Cost n d per iteration of k-means and cluster; one growing partition serves all caps.

    **Source**: Pelleg and Moore, X-means: extending k-means with efficient estimation of the number of
    clusters, ICML 2000. Deviations: the criterion has the factor d that its printed formulas drop in places,
    see :func:`bic`; halves start on the leading axis and not on a random line; the search ends when no
    cluster splits, and the last partition is kept; the least size is ours.
    """
    return fit_xmeans(X, rng, k_maxes=k_maxes, min_sizes=min_sizes, k_min=k_min, weights=weights).count()


def fit_xmeans(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    k_maxes: Sequence[int],
    min_sizes: Sequence[float],
    k_min: int,
    weights: FloatArray | None = None,
) -> Fit:
    """:func:`count_xmeans`, which describes the parameters, before it is mapped back from its frame."""
    sizes = checked_axis("min_size", min_sizes, 1)
    cells = [
        {"k_max": k_max, "min_size": size}
        for k_max in checked_axis("k_max", k_maxes, 1, whole=True)
        for size in reversed(sizes)
    ]
    if k_min not in (1, 2):
        raise ConfigError(f"k_min: expected 1 or 2, got {k_min!r}")

    def fit(rows: Rows, cells: Sequence[Cell]) -> list[Candidate]:
        caps = sorted({int(cell["k_max"]) for cell in cells})
        known: dict[bytes, Proposal | None] = {}
        found: dict[tuple[float, float], Moments] = {}
        for size in {cell["min_size"] for cell in cells}:
            path = grow(rows, propose, known, threshold=0, min_size=size, k_maxes=caps, from_two=k_min == 2)
            found |= {(cap, size): clusters for cap, clusters in zip(caps, path, strict=True)}
        return [Candidate(cell, found[cell["k_max"], cell["min_size"]], nearest=True) for cell in cells]

    return choose(X, rng, cells, fit, weights=weights)


def bic(sizes: FloatArray, within: float, d: int) -> float:
    """Bayesian information criterion of a k-means partition, as a log-likelihood: larger is better.

    The rows of cluster j are Gaussian about its mean with one spherical variance for all clusters, estimated
    without bias as ``s^2 = within / (d (n - k))``::

        sum_j n_j log(n_j / n) - (n d / 2) log(2 pi s^2) - d (n - k) / 2 - (k (d + 1) / 2) log n

    Parameters
    ----------
    sizes : (k,), > 0, with a sum n > k
        Rows of the clusters.
    within : float, > 0
        Sum of squared distances to the own centre.
    d : int, >= 1
        Number of features.

    Notes
    -----
    **Source**: Pelleg and Moore, ICML 2000, section 3.2, with k - 1 weights, k d coordinates and one variance
    as the parameters.
    """
    k, n = len(sizes), float(sizes.sum())
    variance = within / (d * (n - k))
    log_likelihood = float(sizes @ np.log(sizes / n)) - n * d / 2 * math.log(2 * math.pi * variance)
    return log_likelihood - d * (n - k) / 2 - k * (d + 1) / 2 * math.log(n)


def propose(rows: Rows) -> Proposal | None:
    """Propose the two halves of a cluster, as strongly as they raise its criterion."""
    n, d = float(rows.masses.sum()), rows.X.shape[1]
    halves = halve(rows) if n > 2 else None
    if halves is None or halves.masses.min() == 0:
        return None
    within = max(halves.within, VARIANCE_FLOOR * halves.total)
    gain = bic(halves.masses, within, d) - bic(np.array([n]), halves.total, d)
    return Proposal(gain, float(halves.masses.min()), halves.mean + halves.centers)
