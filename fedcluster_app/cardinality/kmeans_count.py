"""Counting by k-means and the silhouette: the number of clusters whose labels fit held-out rows best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcluster_app.cardinality.count import Candidate, Cell, Count, Fit, Rows, moments_of
from fedcluster_app.cardinality.selection import checked_axis, choose
from fedcluster_app.mixtures.kmeans import kmeans
from fedcluster_app.mixtures.types import FloatArray

#: Numbers of clusters tried by default.
KS = tuple(range(2, 21))


def count_kmeans(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    ks: Sequence[int] = KS,
    n_init: int = 5,
    weights: FloatArray | None = None,
) -> Count:
    """Count the clusters of a table as the k of the k-means with the best silhouette on held-out rows.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite, float64.
    rng : numpy.random.Generator
        Draws the held-out rows and the seeds of k-means.
    ks : sequence
        The grid: whole numbers >= 1; of equal scores the smallest is preferred.
    n_init : int, >= 1
        Runs of k-means for each.
    weights : (n,), optional
        A row of weight w counts like w equal rows in k-means; its silhouette has weight w, too.

    Returns
    -------
    Count
        One cluster when there are fewer than 13 rows. Fewer than k where there are fewer distinct rows.

    Raises
    ------
    ConfigError
        If a parameter is out of range.
    DataError
        As :func:`~fedcluster_app.cardinality.selection.choose`.

    Notes
    -----
    **Source**: Rousseeuw, Silhouettes, J. Comput. Appl. Math. 20 (1987), section 4; deviation: the silhouette
    is that of rows that k-means has not seen, as for all estimators here.
    """
    return fit_kmeans(X, rng, ks=ks, n_init=n_init, weights=weights).count()


def fit_kmeans(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    ks: Sequence[int],
    n_init: int,
    weights: FloatArray | None = None,
) -> Fit:
    """:func:`count_kmeans`, which describes the parameters, before it is mapped back from its frame."""
    cells = [{"k": k} for k in checked_axis("k", ks, 1, whole=True)]
    checked_axis("n_init", [n_init], 1, whole=True)

    def fit(rows: Rows, cells: Sequence[Cell]) -> list[Candidate]:
        candidates = []
        for cell in cells:
            k = min(int(cell["k"]), len(rows.X))
            found = kmeans(rows.X, k, rng, n_init=int(n_init), weights=rows.weights)
            candidates.append(Candidate(cell, moments_of(rows, found.labels), nearest=True))
        return candidates

    return choose(X, rng, cells, fit, few={"k": 1}, weights=weights)
