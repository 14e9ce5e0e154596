"""Federated fuzzy c-means of Stallmann and Wilbik, with both averages.

The number of clusters is given, and where rows can lie. A round is one `client_step` at
every site and one `step` at the server::

    state = init(k, low, high, rng)
    while not done(state):
        state = step(state, {"a": client_step(X_a, state.centers), ...}, rng, average="avg1")

What a site sends are sums over its rows. ``avg1`` needs only their totals over the sites, which can be
securely aggregated; ``avg2`` needs each site's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.kmeans import kmeans_plus_plus, lloyd
from fedcluster_app.mixtures.types import BoolArray, FloatArray

Average = Literal["avg1", "avg2"]
Membership = Literal["published", "squared"]
Update = Literal["released", "textbook"]
Status = Literal["running", "converged", "max_rounds"]

# Supports below this are noise of the exponentials and say nothing about where a centre belongs.
_EMPTY = 1e-10
_LLOYD_STEPS = 500


@dataclass(frozen=True, eq=False)
class FuzzySums:
    """One site's upload: weighted sums of its rows and the sums of the weights.

    Parameters
    ----------
    sums : (k, d) array
        Sum over the rows of weight times row; sums / supports are the site's centres.
    supports : (k,) array
        Sum of the weights; 0 (and sums 0) where the site has nothing to say about a cluster.
    """

    sums: FloatArray
    supports: FloatArray


@dataclass(frozen=True, eq=False)
class FFCMState:
    """The server's memory between rounds.

    Parameters
    ----------
    centers : (k, d) array
        What the sites get.
    uploads : mapping of site name to FuzzySums
        The last upload of every site, in order of site name.
    round, movement : int, float
        Server steps taken; Frobenius norm of the last change of `centers`, at first infinite.
    """

    centers: FloatArray
    uploads: Mapping[str, FuzzySums] = field(default_factory=dict)
    round: int = 0
    movement: float = float("inf")


def memberships(
    X: FloatArray, centers: FloatArray, *, fuzzifier: float = 2.0, membership: Membership = "published"
) -> FloatArray:
    """Degrees to which each row belongs to each centre.

    Parameters
    ----------
    X, centers : (n, d) and (k, d) arrays
    fuzzifier : float, > 1
        m; near 1 the memberships are almost 0 or 1.
    membership : {"published", "squared"}
        Ratios of distances to the power 2 / (m - 1), or of squared distances (FedGEM's comparison, which so
        doubles the power).

    Returns
    -------
    (n, k) array
        Rows sum to 1. A row that coincides with centres is shared equally by these alone.

    Raises ConfigError if `fuzzifier` is not above 1 or `membership` unknown.

    Notes
    -----
    Cost O(n k d). **Source**: Bezdek, Pattern recognition with fuzzy objective function algorithms (1981):
    u_ij = 1 / sum_l (|x_i - c_j| / |x_i - c_l|)^(2 / (m - 1)), evaluated in the log domain.
    """
    if not fuzzifier > 1:
        raise ConfigError(f"fuzzifier: expected more than 1, got {fuzzifier}")
    if membership not in ("published", "squared"):
        raise ConfigError(f"membership: expected published or squared, got {membership!r}")
    squared = squared_distances(X, centers)
    power = (1.0 if membership == "published" else 2.0) / (fuzzifier - 1.0)
    met = squared == 0
    logs = -power * np.log(np.where(met, 1.0, squared))
    degrees = np.exp(logs - logs.max(axis=1, keepdims=True))
    degrees = np.where(met.any(axis=1, keepdims=True), met, degrees)
    shares: FloatArray = degrees / degrees.sum(axis=1, keepdims=True)
    return shares


def client_step(
    X: FloatArray,
    centers: FloatArray,
    *,
    fuzzifier: float = 2.0,
    membership: Membership = "published",
    update: Update = "released",
    local_steps: int = 1000,
    tolerance: float = 1e-4,
    min_count: float = 0.0,
) -> FuzzySums:
    """One round at a site: fuzzy c-means from the global centres.

    Parameters
    ----------
    X : (n, d) array
        The site's rows, n >= 0; may be fewer than k.
    centers : (k, d) array
        Global centres.
    fuzzifier, membership
        See `memberships`.
    update : {"released", "textbook"}
        Rows weigh with their membership u, or with u^m as fuzzy c-means has it.
    local_steps, tolerance
        At most so many steps (1 in FedGEM's comparison), fewer when the Frobenius norm of the change of the
        memberships is below the tolerance.
    min_count : float, >= 0
        A cluster of less support is sent as zeros. If what is left out is less in all, the other clusters
        share it: whoever knows the mean of all rows could else take it from the sums.

    Returns
    -------
    FuzzySums
        Of the last step; a cluster of support below 1e-10 is sent as zeros.

    Raises ConfigError if an option is unknown or out of range.

    Notes
    -----
    Cost O(n k d local_steps). **Source**: Stallmann and Wilbik, Towards federated clustering: a federated
    fuzzy c-means algorithm (FFCM), arXiv:2201.07316, and the authors' code of that time (weights u; later
    versions of it use u^m). Deviation: supports are the sums of those weights that made the centres, where
    the authors sum u at the new centres (equal at convergence for weights u), so that what is sent are sums
    over rows, and one ``textbook`` step at every site with ``avg1`` is one step on the pooled rows.
    """
    if local_steps < 1:
        raise ConfigError(f"local steps: expected at least 1, got {local_steps}")
    if update not in ("released", "textbook"):
        raise ConfigError(f"update: expected released or textbook, got {update!r}")
    previous = np.full((len(X), len(centers)), np.inf)
    power = 1.0 if update == "released" else fuzzifier
    for _ in range(local_steps):
        at = centers
        U = memberships(X, at, fuzzifier=fuzzifier, membership=membership)
        sent = _weighted_sums(X, U**power)
        centers = _centers(sent, at)
        if np.linalg.norm(U - previous) < tolerance:
            break
        previous = U
    large = sent.supports >= min(min_count, len(X))
    if large.all():
        return sent
    if large.any() and len(X) - sent.supports[large].sum() < min_count:
        U = np.zeros_like(U)
        U[:, large] = memberships(X, at[large], fuzzifier=fuzzifier, membership=membership)
        return _weighted_sums(X, U**power)
    return FuzzySums(np.where(large[:, None], sent.sums, 0.0), np.where(large, sent.supports, 0.0))


def init(k: int, low: FloatArray, high: FloatArray, rng: np.random.Generator) -> FFCMState:
    """State before the first round: k centres drawn uniformly between two corners, (d,) each.

    Raises ConfigError if `k` is below 1. **Source**: Stallmann and Wilbik, arXiv:2201.07316, where features
    are scaled to [0, 1] and the corners are 0 and 1.
    """
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    return FFCMState(low + (high - low) * rng.random((k, len(low))))


def step(
    state: FFCMState, uploads: Mapping[str, FuzzySums], rng: np.random.Generator, *, average: Average = "avg1"
) -> FFCMState:
    """One server round: new global centres.

    A site that did not answer keeps its last upload; one that answers for the first time joins; the order of
    the mapping has no effect. A centre that no site supports stays where it is.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the seeds in the first round of ``avg2``; else unused.
    average : {"avg1", "avg2"}
        Support-weighted mean of the centres of equal number, or k-means over all sites' centres, unweighted,
        from k-means++ seeds in the first round and from the last centres later.

    Raises ConfigError if `average` is unknown.

    Notes
    -----
    Cost O(G k d), ``avg2`` O(G k^2 d) per iteration, for G sites. **Source**: Stallmann and Wilbik,
    arXiv:2201.07316, FFCM-avg1 and FFCM-avg2. Deviation: with fewer supported centres than k in the first
    round of ``avg2`` its k-means starts from the global centres, since k-means++ could not.
    """
    if average not in ("avg1", "avg2"):
        raise ConfigError(f"average: expected avg1 or avg2, got {average!r}")
    known = {**state.uploads, **uploads}
    known = {name: known[name] for name in sorted(known)}
    if not any(part.supports.any() for part in known.values()):
        return replace(state, uploads=known, round=state.round + 1)
    sums = np.stack([part.sums for part in known.values()])
    supports = np.stack([part.supports for part in known.values()])
    if average == "avg1":
        centers = _centers(FuzzySums(sums.sum(axis=0), supports.sum(axis=0)), state.centers)
    else:
        sent = sums[supports > 0] / supports[supports > 0][:, None]
        fresh = not np.isfinite(state.movement) and len(sent) >= len(state.centers)
        seeds = kmeans_plus_plus(sent, len(state.centers), rng) if fresh else state.centers
        centers = lloyd(sent, seeds, max_iter=_LLOYD_STEPS).centers
    movement = float(np.linalg.norm(centers - state.centers))
    return FFCMState(centers, known, state.round + 1, movement)


def supported(state: FFCMState, *, average: Average = "avg1") -> BoolArray:
    """Which centres (k,) the last uploads are behind: others are still where they started.

    With ``avg1`` those of some support, with ``avg2`` those that are the nearest to a site's centre.
    """
    sums = np.stack([part.sums for part in state.uploads.values()])
    supports = np.stack([part.supports for part in state.uploads.values()])
    if average == "avg1":
        return np.asarray(supports.sum(axis=0) > 0)
    sent = sums[supports > 0] / supports[supports > 0][:, None]
    return np.isin(np.arange(len(state.centers)), squared_distances(sent, state.centers).argmin(axis=1))


def status(state: FFCMState, *, tolerance: float = 1e-4, max_rounds: int = 1000) -> Status:
    """Tell which stopping rule has fired: ``converged``, ``max_rounds``, or none yet (``running``).

    Converged when the centres' matrix moved by less than `tolerance` in the Frobenius norm. The defaults are
    those of Stallmann and Wilbik; FedGEM's comparison takes 20 rounds and no tolerance (0).
    """
    if state.movement < tolerance:
        return "converged"
    return "max_rounds" if state.round >= max_rounds else "running"


def done(state: FFCMState, *, tolerance: float = 1e-4, max_rounds: int = 1000) -> bool:
    """Whether the rounds are over; see `status`."""
    return status(state, tolerance=tolerance, max_rounds=max_rounds) != "running"


def _weighted_sums(X: FloatArray, weights: FloatArray) -> FuzzySums:
    supports = weights.sum(axis=0)
    held = supports >= _EMPTY
    return FuzzySums(np.where(held[:, None], weights.T @ X, 0.0), np.where(held, supports, 0.0))


def _centers(part: FuzzySums, fallback: FloatArray) -> FloatArray:
    """Weighted means; the fallback's centre where there is no support."""
    held = part.supports > 0
    means = part.sums / np.where(held, part.supports, 1.0)[:, None]
    return np.where(held[:, None], means, fallback)
