"""What the rivals with full Gaussian mixtures share: starts and sums of a site, M step over sites, stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.kmeans import kmeans
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.release import dissolved, released
from fedcluster_app.mixtures.statistics import Statistics, collect, merge_all, mixture_from
from fedcluster_app.mixtures.types import FloatArray, IntArray

Status = Literal["running", "converged", "max_rounds"]


@dataclass(frozen=True, eq=False)
class SiteSums:
    """A site's upload of one E step.

    Parameters
    ----------
    stats : Statistics
        Mass, mean and scatter (full) of each component; mass 0 where it is withheld. One to one with the sums
        s0 = mass, s1 = mass mean, s2 = scatter + mass mean meanᵀ, whose totals are all the server needs while
        every site answers, so that they could be securely aggregated.
    log_likelihood : float
        Sum over the site's rows, before the M step.
    rows : int
    model : int
        Which of the server's models they are for.
    """

    stats: Statistics
    log_likelihood: float
    rows: int
    model: int = 0


def kmeans_statistics(
    X: FloatArray, k: int, rng: np.random.Generator, *, n_init: int = 5, min_count: float = 0
) -> Statistics:
    """Statistics of the clusters of a site's k-means, at most min(k, n); none at a site without rows.

    Clusters of fewer rows than `min_count` are dissolved into the others; a site that has no more rows sends
    nothing. Raises ConfigError if `k` is below 1.
    """
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    if not len(X):
        return collect(X, np.empty((0, 0)), "full")
    found = kmeans(X, min(k, len(X)), rng, n_init=n_init)
    labels = dissolved(X, found.centers, found.labels, min_count)[1]
    return sums_of(X, _members(labels), min_count)


def sums_of(X: FloatArray, R: FloatArray, min_count: float) -> Statistics:
    """Statistics of the rows (n, d) under responsibilities (n, k), as far as they may be released; else 0."""
    stats = collect(X, released(R, min_count), "full")
    return replace(stats, means=np.where(stats.mass[:, None] > 0, stats.means, 0.0))


def grouped(stats: Statistics, k: int, rng: np.random.Generator, *, n_init: int = 5) -> Statistics:
    """Statistics of at most k groups of components, by k-means over their means weighted by their mass."""
    found = kmeans(stats.means, min(k, len(stats.means)), rng, n_init=n_init, weights=stats.mass)
    members = _members(found.labels)
    between = collect(stats.means, members * stats.mass[:, None], "full")
    scatters = between.scatters + np.tensordot(members.T, stats.scatters, axes=1)
    return Statistics(between.mass, between.means, scatters)


def pooled_start(stats: Statistics, reg_covar: float) -> Mixture:
    """Mixture of clusters, all with the covariance within clusters, which bears clusters of one row."""
    k, d = stats.means.shape
    within = stats.scatters.sum(axis=0) / stats.mass.sum() + reg_covar * np.eye(d)
    return Mixture(stats.mass / stats.mass.sum(), stats.means, np.tile(within, (k, 1, 1)))


def _members(labels: IntArray) -> FloatArray:
    """Return indicators (n, k) of labels (n,); one that coinciding points left unused gets no column."""
    used, own = np.unique(labels, return_inverse=True)
    indicators: FloatArray = np.eye(len(used))[own.reshape(-1)]
    return indicators


def stacked(parts: Iterable[Statistics]) -> Statistics | None:
    """Put the components that have mass side by side, in the order given; None if there are none."""
    filled = [
        Statistics(part.mass[held], part.means[held], part.scatters[held])
        for part in parts
        if (held := part.mass > 0).any()
    ]
    if not filled:
        return None
    return Statistics(
        np.concatenate([part.mass for part in filled]),
        np.concatenate([part.means for part in filled]),
        np.concatenate([part.scatters for part in filled]),
    )


def maximise(parts: Sequence[Statistics], before: Mixture, reg_covar: float) -> Mixture:
    """Mixture of the statistics of all sites (the M step).

    A component that nobody sends keeps mean and covariance, with weight 0; without any, nothing moves.
    """
    if not any(part.mass.any() for part in parts):
        return before
    return mixture_from(merge_all(parts), ridge=reg_covar, fallback=before)


def mean_log_likelihood(uploads: Iterable[SiteSums]) -> float:
    """Mean over the rows of all sites; -inf without rows."""
    sent = list(uploads)
    rows = sum(part.rows for part in sent)
    return sum(part.log_likelihood for part in sent) / rows if rows else -np.inf


def stopped(trace: Sequence[float], tolerance: float, max_rounds: int) -> Status:
    """Tell which rule has stopped rounds of this trace; ``running`` if none has."""
    if len(trace) > 1 and abs(trace[-1] - trace[-2]) < tolerance:
        return "converged"
    return "max_rounds" if len(trace) >= max_rounds else "running"
