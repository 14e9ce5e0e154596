"""FedEM for Gaussian mixtures: components shared by all sites, mixing weights of every site's own.

The number of components is given. A round is one `client_step` at every site and one `step` at the server;
the weights stay at the site::

    state = init({"a": client_start(X_a, k, rng_a), ...}, k, rng)
    weights_a = state.components.weights                                    # at site a
    while not done(state):
        sent_a, weights_a = client_step(X_a, state.components, weights_a)   # at site a
        state = step(state, {"a": sent_a, ...})
    mixture_a = client_finish(state.components, weights_a)                  # at site a

All of it is EM on the pooled rows with weights that depend on the site. The server needs no more than the
totals of the sums (`SiteSums`). Other starts: other generators, and the state of largest `log_likelihood`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedcluster_app.aggregation.gaussians import (
    SiteSums,
    Status,
    grouped,
    kmeans_statistics,
    maximise,
    mean_log_likelihood,
    pooled_start,
    stacked,
    stopped,
    sums_of,
)
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import Statistics
from fedcluster_app.mixtures.types import FloatArray


@dataclass(frozen=True, eq=False)
class FedEMState:
    """The server's memory between rounds.

    Parameters
    ----------
    components : Mixture
        Shared means and full covariances. Its weights are the components' shares in the sums of all sites: a
        start for a site's own, and no site's.
    uploads : mapping of site name to SiteSums
        The last upload of every site, in order of site name.
    trace : tuple of float
        Mean log-likelihood per row of every round, before its M step.
    """

    components: Mixture
    uploads: Mapping[str, SiteSums] = field(default_factory=dict)
    trace: tuple[float, ...] = ()

    @property
    def log_likelihood(self) -> float:
        """Last value of the trace; -inf before the first round."""
        return self.trace[-1] if self.trace else -np.inf


def client_start(
    X: FloatArray, k: int, rng: np.random.Generator, *, n_init: int = 10, min_count: float = 2
) -> Statistics:
    """First upload of a site: its own k-means clusters.

    Parameters
    ----------
    X : (n, d) array
        The site's rows, n >= 0.
    k : int, >= 1
        At most min(k, n) clusters; sites may differ.
    rng : numpy.random.Generator
    n_init : int, >= 1
        Starts of k-means.
    min_count : float, >= 0
        Clusters of fewer rows are dissolved into the others, since a mean of one row is that row.

    Raises ConfigError if `k` is below 1.

    Notes
    -----
    **Source**: ours; Marfoq et al. start from random models.
    """
    return kmeans_statistics(X, k, rng, n_init=n_init, min_count=min_count)


def client_step(
    X: FloatArray, components: Mixture, weights: FloatArray, *, min_count: float = 2
) -> tuple[SiteSums, FloatArray]:
    """One round at a site: the E step under its own weights.

    Parameters
    ----------
    X : (n, d) array
        The site's rows, n >= 0; may be fewer than k.
    components : Mixture of k shared components
    weights : (k,) array
        The site's weights, summing to 1; one of 0 stays 0.
    min_count : float, >= 0
        Components whose responsibilities at this site sum to less are withheld; 0 sends all, and only then is
        a round exactly EM. The site's weights see them either way.

    Returns
    -------
    sums : SiteSums
    weights : (k,) array
        The site's weights after the round; without rows, as they were.

    Notes
    -----
    Cost O(n k d^2). **Source**: Marfoq, Neglia, Bellet, Kameni and Vidal, Federated multi-task learning under
    a mixture of distributions, NeurIPS 2021 (arXiv:2108.10252), algorithm 1, equations 10 and 11. Deviation:
    they take gradient steps on the components; a Gaussian's maximum is in closed form, so that sums are sent.
    Withholding is ours.
    """
    R, log_likelihood = responsibilities(X, client_finish(components, weights))
    own = R.mean(axis=0) if len(X) else weights
    return SiteSums(sums_of(X, R, min_count), float(log_likelihood.sum()), len(X)), own


def client_finish(components: Mixture, weights: FloatArray) -> Mixture:
    """Mixture of a site: the shared components with its own weights (k,).

    A site that joins late has them from `mixtures.weights.site_weights`.
    """
    return Mixture(weights, components.means, components.covariances)


def weights_of(sums: SiteSums, components: Mixture) -> FloatArray:
    """Weights (k,) of a site as far as its sums tell them.

    The rows that the sums leave out are given to the components that the site withholds, in proportion to
    their weights over all sites.
    """
    mass = sums.stats.mass
    small = np.where(mass > 0, 0.0, components.weights)
    if small.any():
        mass = mass + max(sums.rows - mass.sum(), 0.0) * small / small.sum()
    own: FloatArray = mass / mass.sum()
    return own


def init(
    starts: Mapping[str, Statistics],
    k: int,
    rng: np.random.Generator,
    *,
    n_init: int = 5,
    reg_covar: float = 1e-6,
) -> FedEMState:
    """State before the first round: k-means over the sites' centres, weighted by their rows.

    All components have the covariance within the k groups of local clusters, that of the local clusters
    included.

    Parameters
    ----------
    starts : mapping of site name to Statistics
        Uploads; the sites' numbers of clusters may differ, and be 0. Their order has no effect.
    k : int, >= 1
        Fewer components if fewer clusters came.
    rng : numpy.random.Generator
    n_init : int, >= 1
        Runs of k-means, of which the best is kept.
    reg_covar : float, >= 0
        Added to every variance.

    Raises
    ------
    ConfigError
        If `k` is below 1.
    DataError
        If no site sent a cluster.

    Notes
    -----
    Cost O(m k d) per iteration for m clusters in all. **Source**: ours.
    """
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    sent = stacked(starts[name] for name in sorted(starts))
    if sent is None:
        raise DataError("clusters of all sites: expected at least one, got none; lower the minimum count")
    return FedEMState(pooled_start(grouped(sent, k, rng, n_init=n_init), reg_covar))


def step(state: FedEMState, uploads: Mapping[str, SiteSums], *, reg_covar: float = 1e-6) -> FedEMState:
    """One server round: the M step of the shared components.

    A site that did not answer keeps its last upload, as in incremental EM; one that answers for the first
    time joins; the order of the mapping has no effect. A component that every site withholds stays as it is.

    Parameters
    ----------
    state : FedEMState
    uploads : mapping of site name to SiteSums
        Answers of this round.
    reg_covar : float, >= 0
        Added to every variance, as in the house's EM; with 0 the log-likelihood never falls, but a covariance
        can collapse.

    Raises
    ------
    ValueError
        If a covariance collapses.

    Notes
    -----
    Cost O(G k d^2) for G sites. **Source**: Marfoq et al., NeurIPS 2021, algorithm 1, in closed form (see
    `client_step`).
    """
    known = {**state.uploads, **uploads}
    known = {name: known[name] for name in sorted(known)}
    components = maximise([part.stats for part in known.values()], state.components, reg_covar)
    return FedEMState(components, known, (*state.trace, mean_log_likelihood(known.values())))


def status(state: FedEMState, *, tolerance: float = 1e-4, max_rounds: int = 100) -> Status:
    """Tell which stopping rule has fired: ``converged``, ``max_rounds``, or none yet (``running``).

    Parameters
    ----------
    state : FedEMState
        State after a round.
    tolerance : float
        Converged when the mean log-likelihood per row changed by less than this.
    max_rounds : int
        Server steps.
    """
    return stopped(state.trace, tolerance, max_rounds)


def done(state: FedEMState, *, tolerance: float = 1e-4, max_rounds: int = 100) -> bool:
    """Whether the rounds are over; see `status`."""
    return status(state, tolerance=tolerance, max_rounds=max_rounds) != "running"
