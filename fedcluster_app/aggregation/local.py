"""FedGEM at a site: start, one round, the last upload, and the check against collapse."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedcluster_app.aggregation.balls import Balls, ClientStep, Components
from fedcluster_app.aggregation.radius import RadiusRule, uncertainty_radius
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.kmeans import kmeans, kmeans_plus_plus
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import Statistics, collect
from fedcluster_app.mixtures.types import FloatArray, IntArray

EMPTY_MASS = 1e-10


def initial_means(
    X: FloatArray, k: int, rng: np.random.Generator, init: Literal["kmeans", "kmeans++"] = "kmeans"
) -> FloatArray:
    """Means to start from: the best of several k-means runs, or bare k-means++ seeds.

    Parameters
    ----------
    X : (n, d) array
        The site's rows, n >= k.
    k : int
        The site's number of components, >= 1.
    rng : numpy.random.Generator
        Source of the seeds.
    init : {"kmeans", "kmeans++"}
        Local k-means (better by about .02 ARI), or its seeds alone (what the authors' code does).

    Returns
    -------
    means : (k, d) array

    Raises
    ------
    ConfigError
        If `init` is unknown.

    Notes
    -----
    **Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160 (seeds); k-means as the default is our choice.
    """
    if init == "kmeans":
        return kmeans(X, k, rng).centers
    if init == "kmeans++":
        return kmeans_plus_plus(X, k, rng)
    raise ConfigError(f"init: expected kmeans or kmeans++, got {init!r}")


def client_step(
    X: FloatArray,
    means: FloatArray,
    *,
    variance: float = 1.0,
    radius_rule: RadiusRule = "published",
    local_steps: int = 1,
) -> ClientStep:
    """One round at a site: EM on the means alone, then a ball around each new mean.

    Weights stay uniform and the variance is fixed. The radius refers to the means before the last EM step. A
    component that holds no mass (< 1e-10, so also at a site without rows) stays where it is with radius 0.

    Parameters
    ----------
    X : (n, d) array
        The site's rows.
    means : (k, d) array
        The site's means as the server returned them.
    variance : float, > 0
        The components' common variance per feature; it cancels from the radius.
    radius_rule : {"published", "gem", "released"}
        See `uncertainty_radius`.
    local_steps : int
        EM steps in this round, >= 1.

    Returns
    -------
    ClientStep

    Raises
    ------
    ConfigError
        If `radius_rule` is unknown or `local_steps` < 1.

    Notes
    -----
    Cost O(local_steps n k d). **Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160, client update.
    Deviation: responsibilities are computed in the log domain; the authors' code floors the mixture density
    at 1e-12, which in 64 dimensions replaces every posterior.
    """
    if local_steps < 1:
        raise ConfigError(f"local steps: expected at least 1, got {local_steps}")
    for _ in range(local_steps):
        before = means
        R, stats = _expectation(X, before, variance)
        held = stats.mass >= EMPTY_MASS
        means = np.where(held[:, None], stats.means, before)
    shift = np.square(means - before).sum(axis=1)
    scatter = np.divide(stats.scatters, stats.mass, out=np.zeros_like(shift), where=held)
    return ClientStep(Balls(means, uncertainty_radius(shift, scatter, radius_rule)), R, stats.mass)


def client_finish(X: FloatArray, means: FloatArray) -> Components:
    """Make the last upload: one more EM step, then the hard summaries of the rows at each final mean.

    Parameters
    ----------
    X : (n, d) array
        The site's rows.
    means : (k, d) array
        The site's means as the server returned them in the last round.

    Returns
    -------
    Components
        See `hard_summaries`.

    Notes
    -----
    **Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160, final aggregation (the step and the spread).
    Deviation: counts, centres and scatters are sent too; they let the server choose the final radius
    factor.
    """
    final = client_step(X, means).balls.means
    spread = float(np.sqrt(X.var(axis=0).mean())) if len(X) else 0.0
    return Components(final, *hard_summaries(X, final), spread, len(X))


def hard_summaries(X: FloatArray, means: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Summarise the rows nearest to each mean.

    Parameters
    ----------
    X : (n, d) array
        The site's rows.
    means : (k, d) array
        The site's means.

    Returns
    -------
    counts, centers, scatters : arrays of shape (k,), (k, d) and (k,)
        Rows nearest to each mean, their mean, and their mean squared distance to it. An empty component has
        count 0, its own mean as centre, and scatter 0.
    """
    nearest = squared_distances(X, means).argmin(axis=1)
    stats = collect(X, np.eye(len(means))[nearest], "spherical")
    filled = stats.mass > 0
    return (
        np.bincount(nearest, minlength=len(means)).astype(np.int64),
        np.where(filled[:, None], stats.means, means),
        np.divide(stats.scatters, stats.mass, out=np.zeros(len(means)), where=filled),
    )


def collapse_ratio(X: FloatArray) -> float:
    """Largest eigenvalue of the rows' covariance over the model's variance, which is 1.

    Below 1 the state in which all means of the site sit at its centre of mass attracts, and EM with unit
    variance walks into it: warn, and scale the features up.

    Parameters
    ----------
    X : (n, d) array
        The site's rows.

    Returns
    -------
    ratio : float
        0 for fewer than two rows.

    Notes
    -----
    Cost O(n d^2 + d^3). **Source**: linearisation of EM with unit variance at coinciding means: a
    displacement u of the means is mapped to C u, with C the covariance (own derivation).
    """
    if len(X) < 2:
        return 0.0
    centred = X - X.mean(axis=0)
    return float(np.linalg.eigvalsh(centred.T @ centred / len(X))[-1])


def _expectation(X: FloatArray, means: FloatArray, variance: float) -> tuple[FloatArray, Statistics]:
    """Responsibilities under uniform weights and one variance, and the moments they give."""
    k = len(means)
    R, _ = responsibilities(X, Mixture(np.full(k, 1 / k), means, np.full(k, variance)))
    return R, collect(X, R, "spherical")
