"""IFCA for Gaussian mixtures: several models, of which every site takes the one that suits its rows best.

The number of models and that of their components are given. Models start from those of sites that lie far
apart; the run of largest likelihood counts::

    models = candidates({"a": fedem.client_start(X_a, k, rng_a), ...})
    scores = {"a": client_scores(X_a, models.values()), ...}                # at site a
    runs = []
    for rng in rngs:                                                        # five restarts
        state = init(models, scores, b, rng)
        while not done(state):
            state = step(state, {"a": client_step(X_a, state.models), ...})
        runs.append(state)
    mixture_a = client_finish(X_a, best(runs).models)                       # at site a

Before the first round every site gets the models of all. In a round it gets b models and sends the sums for
one, so the server learns which sites are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedcluster_app.aggregation.gaussians import (
    SiteSums,
    Status,
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
class IFCAState:
    """The server's memory between rounds.

    Parameters
    ----------
    models : tuple of b Mixtures
        With full covariances; weights are shared by the sites of a model.
    uploads : mapping of site name to SiteSums
        The last upload of every site, in order of site name; its `model` is the site's choice.
    trace : tuple of float
        Mean log-likelihood per row of every round, of each site under the model of its choice, before the M
        step.
    """

    models: tuple[Mixture, ...]
    uploads: Mapping[str, SiteSums] = field(default_factory=dict)
    trace: tuple[float, ...] = ()

    @property
    def log_likelihood(self) -> float:
        """Last value of the trace; -inf before the first round."""
        return self.trace[-1] if self.trace else -np.inf


def candidates(starts: Mapping[str, Statistics], *, reg_covar: float = 1e-6) -> dict[str, Mixture]:
    """Models of the sites that sent clusters (`fedem.client_start`), in order of site name.

    A site's components all have its covariance within clusters, and `reg_covar` is added to every variance.
    Mixtures that EM has fitted to a site's rows merge and split clusters, and no later round undoes it.
    """
    parts = {name: stacked([starts[name]]) for name in sorted(starts)}
    return {name: pooled_start(part, reg_covar) for name, part in parts.items() if part is not None}


def client_scores(X: FloatArray, models: Iterable[Mixture]) -> FloatArray:
    """Log-likelihood of a site's rows (n, d) under each of m models, shape (m,); sums, 0 without rows."""
    return np.array([responsibilities(X, model)[1].sum() for model in models])


def init(
    models: Mapping[str, Mixture], scores: Mapping[str, FloatArray], b: int, rng: np.random.Generator
) -> IFCAState:
    """State before the first round: models of b sites that lie far apart.

    The first is drawn uniformly, each further one with probability proportional to the log-likelihood that
    its site's rows lose under the best of the models drawn so far, against the best of all models: what the
    squared distance is to k-means++.

    Parameters
    ----------
    models : mapping of site name to Mixture
        From `candidates`, in its order.
    scores : mapping of site name to (m,) array
        From `client_scores` on the same models; sites without a model are not looked at.
    b : int, >= 1
        Models; fewer if fewer sites have one.
    rng : numpy.random.Generator

    Raises
    ------
    ConfigError
        If `b` is below 1.
    DataError
        If no site has a model, or one with a model did not score.

    Notes
    -----
    **Source**: Ghosh, Chung, Yin and Ramchandran, An efficient framework for clustered federated learning,
    NeurIPS 2020 (arXiv:2006.04088), start from random models and need good ones; this start is ours.
    """
    if b < 1:
        raise ConfigError(f"number of models: expected at least 1, got {b}")
    if not models:
        raise DataError("models of all sites: expected at least one, got none; lower the minimum count")
    if missing := [name for name in models if name not in scores]:
        raise DataError(
            f"scores: expected those of every site with a model, got none of {', '.join(missing)}"
        )
    table = np.stack([scores[name] for name in models])
    chosen = [int(rng.integers(len(table)))]
    while len(chosen) < min(b, len(table)):
        losses = table.max(axis=1) - table[:, chosen].max(axis=1)
        losses[chosen] = 0.0
        if not losses.any():
            losses[np.delete(np.arange(len(table)), chosen)] = 1.0
        chosen.append(int(rng.choice(len(table), p=losses / losses.sum())))
    drawn = list(models.values())
    return IFCAState(tuple(drawn[number] for number in chosen))


def client_step(X: FloatArray, models: Sequence[Mixture], *, min_count: float = 2) -> SiteSums:
    """One round at a site: choose the model of largest likelihood, and make its E step.

    Parameters
    ----------
    X : (n, d) array
        The site's rows, n >= 0; may be fewer than k. Without rows the sums are 0.
    models : sequence of Mixtures
        The first wins a tie.
    min_count : float, >= 0
        Components whose responsibilities at this site sum to less are withheld; 0 sends all, and only then is
        one model exactly EM on the pooled rows.

    Notes
    -----
    Cost O(n b k d^2). **Source**: Ghosh et al., NeurIPS 2020, algorithm 1 (cluster identity estimation).
    Deviation: sums go to the closed-form M step, where they average gradients or models. Withholding is ours.
    """
    found = [responsibilities(X, model) for model in models]
    totals = [float(log_likelihood.sum()) for _, log_likelihood in found]
    choice = int(np.argmax(totals))
    stats = sums_of(X, found[choice][0], min_count)
    return SiteSums(stats, totals[choice], len(X), choice)


def client_finish(X: FloatArray, models: Sequence[Mixture]) -> Mixture:
    """Mixture of a site with rows X (n, d): the model of largest likelihood."""
    return models[client_step(X, models).model]


def step(state: IFCAState, uploads: Mapping[str, SiteSums], *, reg_covar: float = 1e-6) -> IFCAState:
    """One server round: an M step for every model, from the sites that chose it.

    A site that did not answer keeps its last upload; one that answers for the first time joins; the order of
    the mapping has no effect. A model that no site chose, or a component that all withhold, stays as it is
    (the component with weight 0).

    Parameters
    ----------
    state : IFCAState
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
    Cost O(G k d^2) for G sites. **Source**: Ghosh et al., NeurIPS 2020, algorithm 1 (see `client_step`).
    """
    known = {**state.uploads, **uploads}
    known = {name: known[name] for name in sorted(known)}
    models = tuple(
        maximise([part.stats for part in known.values() if part.model == number], model, reg_covar)
        for number, model in enumerate(state.models)
    )
    return IFCAState(models, known, (*state.trace, mean_log_likelihood(known.values())))


def status(state: IFCAState, *, tolerance: float = 1e-4, max_rounds: int = 100) -> Status:
    """Tell which stopping rule has fired: ``converged``, ``max_rounds``, or none yet (``running``).

    Converged when the mean log-likelihood per row changed by less than the tolerance.
    """
    return stopped(state.trace, tolerance, max_rounds)


def done(state: IFCAState, *, tolerance: float = 1e-4, max_rounds: int = 100) -> bool:
    """Whether the rounds are over; see `status`."""
    return status(state, tolerance=tolerance, max_rounds=max_rounds) != "running"


def best(runs: Sequence[IFCAState]) -> IFCAState:
    """Of restarts, the state of largest log-likelihood; the first wins a tie."""
    return max(runs, key=lambda state: state.log_likelihood)
