"""SPAHM: local cluster centres matched across sites by a Beta-Bernoulli process; finds their number.

A site sends its centres once; the matching happens at the server and takes no further rounds::

    sent = client_step(X, k_local, rng)                               # at every site
    state = init({"a": sent_a.centers, "b": sent_b.centers})
    while not done(state):                                            # at the server
        state = step(state, rng)
    result = finish(state)
    labels_a = result.labels["a"][sent_a.labels]                      # at site a

Two centres of one site never share a cluster. Centres are not sums over the sites, so they cannot be securely
aggregated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedcluster_app.aggregation.balls import site_of_component, split_by_site
from fedcluster_app.aggregation.kfed import LocalCenters, local_centers
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.mixtures.kmeans import kmeans
from fedcluster_app.mixtures.types import FloatArray, IntArray

Status = Literal["running", "converged", "max_sweeps"]

_MOST_POPULAR = 10  # the released cap on the count behind a cluster's popularity
_MOST_CLUSTERS = 700  # beyond this many clusters a site may open one at a time
_FLOOR = 1e-6  # least variance, as a share of the atoms' variance in that feature


@dataclass(frozen=True, eq=False)
class Prior:
    """Gaussian prior of the global centres and noise of the local ones, per feature.

    Parameters
    ----------
    mean, spread : m0 and s0 > 0, mean and variance of a global centre, (d,) each
    noise : s > 0, variance of a local centre about its global one, (d,)
    concentration : g > 0, the larger, the more clusters are expected
    """

    mean: FloatArray
    spread: FloatArray
    noise: FloatArray
    concentration: float = 1.0


@dataclass(frozen=True, eq=False)
class SpahmState:
    """The matching between sweeps.

    Parameters
    ----------
    parts, labels : mapping of site name to (k_g, d) array, and (m,) int array
        The sites' centres in order of site name, and the cluster of each, numbered by first appearance.
    prior, learn : Prior and whether it is learned from `labels` after each sweep
    sweep, settled : sweeps taken and whether the last one changed nothing
    """

    parts: Mapping[str, FloatArray]
    labels: IntArray
    prior: Prior
    learn: bool = True
    sweep: int = 0
    settled: bool = False


@dataclass(frozen=True, eq=False)
class SpahmResult:
    """Global clusters, whose number K is found.

    Parameters
    ----------
    centers, counts : posterior means, (K, d), and numbers of sites in them, (K,)
    labels : for each site in order of name, the cluster of each of its centres, (k_g,)
    """

    centers: FloatArray
    counts: IntArray
    labels: Mapping[str, IntArray]


def client_step(X: FloatArray, k: int, rng: np.random.Generator, *, n_init: int = 8) -> LocalCenters:
    """Cluster a site's rows into min(k, n) by k-means (so few rows go as they are), as the authors do."""
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    if len(X) == 0:
        return LocalCenters(X.copy(), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    return local_centers(kmeans(X, min(k, len(X)), rng, n_init=n_init))


def gain_matrix(
    atoms: FloatArray, sums: FloatArray, counts: IntArray, prior: Prior, sites: int
) -> FloatArray:
    """Twice the gain in log posterior of every place for every centre of one site.

    Parameters
    ----------
    atoms : v, the centres of one site, (k, d)
    sums, counts : T, (L, d), and m >= 1, (L,): sum and number of the other sites' centres in each cluster
    prior : m0, s0, s and g
    sites : J, the number of sites in all

    Returns
    -------
    (k, L + q) array
        First the L clusters, then q = min(k, max(700 - L, 1)) new ones, each worth less than the one before.
        Each row is up to a constant of its own, which no assignment of all rows can tell.

    Notes
    -----
    Cost O(k L d). **Source**: Yurochkin, Agarwal, Ghosh, Greenewald and Hoang, Statistical model aggregation
    via parameter matching, NeurIPS 2019, proposition 1 with Gaussian marginals and the Indian buffet process,
    and their code. Deviations: values are taken about the prior mean, which changes each row by a constant
    and cancels no digits; the popularity count, capped at 10 as in the code, is also capped at J - 1, so that
    2 log(c / (J - c)) is finite whatever number of sites is given.
    """
    s, s0 = prior.noise, prior.spread
    u, U, m = atoms - prior.mean, sums - counts[:, None] * prior.mean, counts[:, None]
    ratio, one = s0 / s, s0 + s
    before, after = m * s0 + s, (m + 1) * s0 + s
    joint = np.stack([(ratio * np.square(v + U) / after).sum(axis=1) for v in u])
    alone = (np.log(before) - np.log(after) - ratio * np.square(U) / before).sum(axis=1)
    popular = np.minimum(np.minimum(counts, _MOST_POPULAR), max(sites - 1, 1)).astype(np.float64)
    match = joint + alone + 2.0 * np.log(popular / np.maximum(sites - popular, 1.0))
    fresh = (ratio * np.square(u) / one + np.log(s) - np.log(one)).sum(axis=1)
    fresh += 2.0 * np.log(prior.concentration / sites)
    order = np.arange(1, min(len(atoms), max(_MOST_CLUSTERS - len(counts), 1)) + 1)
    return np.hstack([match, fresh[:, None] - 2.0 * np.log(order)])


def init(
    centers: Mapping[str, FloatArray],
    *,
    spread: float = 1.0,
    noise: float = 1.0,
    concentration: float = 1.0,
    learn: bool = True,
) -> SpahmState:
    """First matching: sites in decreasing number of centres, ties by name; the first site's are the start.

    Parameters
    ----------
    centers : uploads by site name, (k_g, d) each; k_g may differ, and be 0
    spread, noise, concentration : float, > 0
        s0, s and g to begin with, 1 as released: a bad start where centres spread much more widely, since far
        ones are matched, widen the noise and stay together. Scale, or raise `spread`.
    learn : whether mean, spread and noise are learned from the matching

    Raises ConfigError if a number is not positive, and DataError if no site has a centre. **Source**: `step`.
    """
    if not min(spread, noise, concentration) > 0:
        raise ConfigError(f"spread, noise, g: expected > 0, got {spread}, {noise}, {concentration}")
    parts = {name: centers[name] for name in sorted(centers)}
    if not any(len(part) for part in parts.values()):
        raise DataError("centres of all sites: expected at least one, got none")
    atoms, site = np.concatenate(list(parts.values())), site_of_component(parts)
    d = atoms.shape[1]
    prior = Prior(atoms.mean(axis=0), np.full(d, spread), np.full(d, noise), concentration)
    labels = np.full(len(atoms), -1)
    sizes = np.bincount(site, minlength=len(parts))
    for g in np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]:
        labels = _rematch(atoms, site, labels, int(g), prior)
    labels = _by_appearance(labels)
    return SpahmState(parts, labels, _learned(atoms, labels, prior) if learn else prior, learn)


def step(state: SpahmState, rng: np.random.Generator) -> SpahmState:
    """One sweep: each site in random order is taken out and matched again; then the prior is learned.

    Cost O(m K d + K^3) per site. **Source**: Yurochkin et al., NeurIPS 2019, algorithm 1, and their code.
    Deviations: sums are taken anew for each site, since subtracting loses digits; the noise is kept where no
    cluster holds two centres, and spread and noise are at least 1e-6 of the variance of all centres, where
    the code divides by 0 or goes on with a variance below 0.
    """
    atoms, site = np.concatenate(list(state.parts.values())), site_of_component(state.parts)
    labels = state.labels
    for g in rng.permutation(len(state.parts)):
        labels = _rematch(atoms, site, labels, int(g), state.prior)
    labels = _by_appearance(labels)
    prior = _learned(atoms, labels, state.prior) if state.learn else state.prior
    # The prior follows from the labels, so with them it is the same as before.
    settled = np.array_equal(labels, state.labels)
    return replace(state, labels=labels, prior=prior, sweep=state.sweep + 1, settled=settled)


def status(state: SpahmState, *, max_sweeps: int = 10) -> Status:
    """Tell which rule has stopped the sweeps; the authors' code takes all (10, on topics 100)."""
    if state.settled:
        return "converged"
    return "max_sweeps" if state.sweep >= max_sweeps else "running"


def done(state: SpahmState, *, max_sweeps: int = 10) -> bool:
    """Whether the sweeps are over; see `status`."""
    return status(state, max_sweeps=max_sweeps) != "running"


def finish(state: SpahmState) -> SpahmResult:
    """Posterior mean of each global centre: (m0 s + T s0) / (m s0 + s)."""
    prior = state.prior
    sums, counts = _totals(np.concatenate(list(state.parts.values())), state.labels)
    shrunk = prior.mean * prior.noise + sums * prior.spread
    centers = shrunk / (counts[:, None] * prior.spread + prior.noise)
    return SpahmResult(centers, counts, split_by_site(state.labels, state.parts))


def _rematch(atoms: FloatArray, site: IntArray, labels: IntArray, g: int, prior: Prior) -> IntArray:
    """Labels after the centres of site `g` were taken out and placed where they gain most."""
    from scipy.optimize import linear_sum_assignment

    own = site == g
    placed = ~own & (labels >= 0)
    others = np.full(len(labels), -1)
    others[placed] = np.unique(labels[placed], return_inverse=True)[1]
    if not own.any():
        return others
    gains = gain_matrix(atoms[own], *_totals(atoms[placed], others[placed]), prior, len(np.unique(site)))
    others[own] = linear_sum_assignment(gains, maximize=True)[1]
    return others


def _totals(atoms: FloatArray, labels: IntArray) -> tuple[FloatArray, IntArray]:
    members = np.eye(int(labels.max(initial=-1)) + 1)[labels]
    return members.T @ atoms, members.sum(axis=0).astype(np.int64)


def _learned(atoms: FloatArray, labels: IntArray, prior: Prior) -> Prior:
    """Moment estimates of the prior from a matching."""
    sums, counts = _totals(atoms, labels)
    means, surplus = sums / counts[:, None], len(atoms) - len(counts)
    variance, noise = atoms.var(axis=0), prior.noise
    floor = _FLOOR * np.where(variance > 0, variance, 1.0)
    if surplus > 0:
        noise = np.maximum(np.square(atoms - means[labels]).sum(axis=0) / surplus, floor)
    spread = np.maximum(means.var(axis=0) - noise * (1.0 / counts).mean(), floor)
    return replace(prior, mean=means.mean(axis=0), spread=spread, noise=noise)


def _by_appearance(labels: IntArray) -> IntArray:
    first, inverse = np.unique(labels, return_index=True, return_inverse=True)[1:]
    numbers: IntArray = np.argsort(np.argsort(first))[inverse]
    return numbers
