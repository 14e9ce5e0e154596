"""Label-free scores from sums over rows, so that the sums of several sites give the scores of the whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """Sums over the rows of each of k clusters; those of disjoint sets of rows add.

    Attributes
    ----------
    rows : int array of shape (k,)
        Number of rows.
    within : array of shape (k,)
        Sum of squared distances to the own centre.
    distance : array of shape (k,)
        Sum of distances to the own centre.
    silhouette : array of shape (k,)
        Sum of simplified silhouette widths; 0 when there is one centre only.
    """

    rows: IntArray
    within: FloatArray
    distance: FloatArray
    silhouette: FloatArray


def score_sums(X: FloatArray, labels: IntArray, centers: FloatArray) -> ScoreSums:
    """Collect the sums of one set of rows.

    Parameters
    ----------
    X : array of shape (n, d), n >= 0
    labels : int array of shape (n,)
        Row i belongs to ``centers[labels[i]]``, which need not be the nearest.
    centers : array of shape (k, d)
        The same for all sets of rows that are to be merged.

    Returns
    -------
    ScoreSums

    Notes
    -----
    **Source**: simplified silhouette (b - a) / max(a, b) with a the distance to the own centre and b to
    the nearest other one: Hruschka, de Castro and Campello, Evolutionary algorithms for clustering
    gene-expression data, ICDM 2004. Cost O(n k d), against O(n² d) of the full silhouette.
    """
    k, rows = centers.shape[0], np.arange(X.shape[0])
    squared = squared_distances(X, centers)
    within = squared[rows, labels]
    a = np.sqrt(within)
    width = np.zeros_like(a)
    if k > 1:
        squared[rows, labels] = np.inf
        b = np.sqrt(squared.min(axis=1))
        largest = np.maximum(a, b)
        np.divide(b - a, largest, out=width, where=largest > 0)
    counts = np.bincount(labels, minlength=k).astype(np.int64)
    return ScoreSums(
        counts, *(np.bincount(labels, weights=w, minlength=k).astype(np.float64) for w in (within, a, width))
    )


def merge(a: ScoreSums, b: ScoreSums) -> ScoreSums:
    """Add the sums of two disjoint sets of rows."""
    return ScoreSums(
        a.rows + b.rows, a.within + b.within, a.distance + b.distance, a.silhouette + b.silhouette
    )


def scores(sums: ScoreSums, centers: FloatArray) -> dict[str, float]:
    """Label-free scores of a clustering.

    Parameters
    ----------
    sums : ScoreSums
        Over all rows.
    centers : array of shape (k, d)
        The centres that the sums were collected with. Centres without rows are left out, except from
        the simplified silhouette, whose widths already compared with them.

    Returns
    -------
    dict with keys
        "simplified_silhouette" : in [-1, 1], high is good; nan with one centre or no row.
        "calinski_harabasz" : >= 0, high is good; 1 if all rows lie on their centres; nan with fewer
        than two occupied clusters or no more rows than clusters.
        "davies_bouldin" : >= 0, low is good; nan with fewer than two occupied clusters.

    Notes
    -----
    **Source**: Calinski and Harabasz (1974) and Davies and Bouldin (1979), as in scikit-learn, to which
    they are equal when the centres are the means of their rows. Deviation: the given centres are used
    throughout, so that no sums of rows need to leave a site; the between part is the scatter of the
    given centres, weighted by rows, about their weighted mean.
    """
    n = int(sums.rows.sum())
    silhouette = float(sums.silhouette.sum()) / n if n and centers.shape[0] > 1 else np.nan
    occupied = sums.rows > 0
    rows, within = sums.rows[occupied], float(sums.within[occupied].sum())
    means = centers[occupied]
    return {
        "simplified_silhouette": silhouette,
        "calinski_harabasz": _calinski_harabasz(rows, within, means),
        "davies_bouldin": _davies_bouldin(sums.distance[occupied] / rows, means),
    }


def _calinski_harabasz(rows: IntArray, within: float, centers: FloatArray) -> float:
    n, k = int(rows.sum()), rows.size
    if k < 2 or n <= k:
        return np.nan
    if within == 0.0:
        return 1.0
    overall = rows @ centers / n
    between = float(rows @ np.square(centers - overall).sum(axis=1))
    return (between / (k - 1)) / (within / (n - k))


def _davies_bouldin(spread: FloatArray, centers: FloatArray) -> float:
    if spread.size < 2:
        return np.nan
    apart = np.sqrt(squared_distances(centers, centers))
    if np.allclose(spread, 0.0) or np.allclose(apart, 0.0):
        return 0.0
    apart[apart == 0.0] = np.inf
    ratios = (spread[:, None] + spread) / apart
    return float(ratios.max(axis=1).mean())
