"""G-means: k-means that splits clusters whose rows, on the line through their halves, are not Gaussian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcluster_app.cardinality.count import Candidate, Cell, Count, Fit, Rows
from fedcluster_app.cardinality.grow import Proposal, grow, halve
from fedcluster_app.cardinality.selection import checked_axis, choose
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.types import FloatArray

#: Critical values of the Anderson-Darling statistic, mean and variance estimated, by significance level.
CRITICAL_VALUES = {1e-4: 1.8692, 1e-3: 1.4478, 1e-2: 1.0348}
#: Significance levels tried by default, the paper's own first.
SIGNIFICANCES = (1e-4, 1e-3, 1e-2)
#: Largest number of clusters by default.
K_MAX = 100
#: The small-sample factor of the statistic holds from this many rows.
FEWEST_ROWS = 8


def count_gmeans(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    significances: Sequence[float] = SIGNIFICANCES,
    k_max: int = K_MAX,
    weights: FloatArray | None = None,
) -> Count:
    """Count the clusters of a table with G-means, choosing the significance level on held-out rows.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite, float64.
    rng : numpy.random.Generator
        Draws the held-out rows; the clustering itself is deterministic.
    significances : sequence
        The grid: some of 1e-4, 1e-3 and 1e-2; of equal scores the smallest is preferred.
    k_max : int, >= 1
        Largest number of clusters.
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
    **Source**: Hamerly and Elkan, Learning the k in k-means, NIPS 2003. Deviations: a largest number of
    clusters, as discrete columns would be split to single values; and a cluster of fewer than 8 rows is
    final, as the test means nothing there.
    """
    return fit_gmeans(X, rng, significances=significances, k_max=k_max, weights=weights).count()


def fit_gmeans(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    significances: Sequence[float],
    k_max: int,
    weights: FloatArray | None = None,
) -> Fit:
    """:func:`count_gmeans`, which describes the parameters, before it is mapped back from its frame."""
    significances = checked_axis("significance", significances, 0)
    for value in significances:
        if value not in CRITICAL_VALUES:
            known = ", ".join(f"{level:g}" for level in CRITICAL_VALUES)
            raise ConfigError(f"significance: expected one of {known}, got {value!r}")
    checked_axis("k_max", [k_max], 1, whole=True)

    def fit(rows: Rows, cells: Sequence[Cell]) -> list[Candidate]:
        known: dict[bytes, Proposal | None] = {}
        candidates = []
        for cell in cells:
            critical = CRITICAL_VALUES[cell["significance"]]
            (clusters,) = grow(rows, propose, known, threshold=critical, min_size=0, k_maxes=[int(k_max)])
            candidates.append(Candidate(cell, clusters, nearest=True))
        return candidates

    return choose(X, rng, [{"significance": value} for value in significances], fit, weights=weights)


def propose(rows: Rows) -> Proposal | None:
    """Propose the two halves of a cluster, as strongly as the line through them says it is not Gaussian."""
    halves = halve(rows) if rows.masses.sum() >= FEWEST_ROWS else None
    if halves is None or halves.masses.min() == 0:
        return None
    line = halves.centers[0] - halves.centers[1]
    statistic = anderson_darling(halves.rows.X @ line, rows.weights)
    return Proposal(statistic, float(halves.masses.min()), halves.mean + halves.centers)


def anderson_darling(values: FloatArray, weights: FloatArray | None = None) -> float:
    """Anderson-Darling statistic for a Gaussian of unknown mean and variance, corrected for small samples.

    With z the standardised values in increasing order and ``r_i = 2 i - 1``::

        A^2 = -n - (1/n) sum_i [ r_i log Phi(z_i) + (2 n - r_i) log(1 - Phi(z_i)) ]

    times ``1 + 4/n - 25/n^2``. Of weighted values, r is the sum of the cumulative weights before and after
    the value, and its term counts w times: exactly the statistic of repeated values.

    Parameters
    ----------
    values : (n,), not all equal
    weights : (n,), > 0, optional
        A value of weight w counts like w equal values.

    Returns
    -------
    float
        Above :data:`CRITICAL_VALUES` the values are not Gaussian at that level.

    Notes
    -----
    **Source**: Anderson and Darling, Ann. Math. Statist. 23 (1952); factor from Stephens, J. Amer. Statist.
    Assoc. 69 (1974), as used by Hamerly and Elkan, NIPS 2003. Of the critical values 1.8692 is theirs, and
    the other two are quantiles of the limit distribution, a weighted sum of chi-squares. The factor was
    made for critical values a little larger: with a few dozen rows 1e-2 rejects 1.6 % of Gaussian samples.
    """
    from scipy.special import log_ndtr

    order = np.argsort(values, kind="stable")
    w = np.ones(len(values)) if weights is None else weights[order]
    n = float(w.sum())
    z = values[order] - w @ values[order] / n
    z /= np.sqrt(w @ z**2 / (n - 1))
    after = np.cumsum(w)
    r = 2 * after - w
    statistic = -n - float(w @ (r * log_ndtr(z) + (2 * n - r) * log_ndtr(-z))) / n
    return statistic * (1 + 4 / n - 25 / n**2)
