"""The one EM loop of the house: init, step, done, finish over an explicit state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import Statistics, collect, mixture_from
from fedcluster_app.mixtures.types import FloatArray


@dataclass(frozen=True, eq=False)
class EMState:
    """Where an EM run stands.

    Attributes
    ----------
    mixture : Mixture
        Parameters after the last M step.
    trace : tuple of float
        One value per step: the mean log-likelihood of the mixture *before* that step, as the E step
        finds it. It never falls (with a ridge of 0).
    """

    mixture: Mixture
    trace: tuple[float, ...] = ()

    @property
    def n_iter(self) -> int:
        """Number of steps made."""
        return len(self.trace)

    @property
    def log_likelihood(self) -> float:
        """Last value of the trace; -inf before the first step."""
        return self.trace[-1] if self.trace else -np.inf

    @property
    def change(self) -> float:
        """Size of the last change in the trace; inf before the second step."""
        return abs(self.trace[-1] - self.trace[-2]) if len(self.trace) > 1 else np.inf


@dataclass(frozen=True, eq=False)
class EMResult:
    """Outcome of an EM run.

    Attributes
    ----------
    mixture : Mixture
    log_likelihood : float
        Mean per row at the last E step, so of the mixture before the last M step (scikit-learn's
        ``lower_bound_``).
    n_iter : int
    status : "converged" or "max_iter"
    trace : tuple of float
    """

    mixture: Mixture
    log_likelihood: float
    n_iter: int
    status: Literal["converged", "max_iter"]
    trace: tuple[float, ...]


def init(mixture: Mixture) -> EMState:
    """State before the first step."""
    return EMState(mixture)


def step(
    state: EMState, X: FloatArray, *, weights: FloatArray | None = None, reg_covar: float = 0.0
) -> EMState:
    """One E step and one M step on rows.

    Parameters
    ----------
    state : EMState
    X : array of shape (n, d), n >= 1
    weights : array of shape (n,), optional
        Non-negative, not all 0; a row of weight w counts like w equal rows.
    reg_covar : float, >= 0
        Added to every variance.

    Raises
    ------
    ValueError
        If a covariance collapses; a positive `reg_covar` prevents it.

    Notes
    -----
    **Source**: Bishop (2006), section 9.2.2. A component that loses all its mass keeps mean and
    covariance, with weight 0.
    """
    R, log_likelihood = responsibilities(X, state.mixture)
    if weights is not None:
        R *= weights[:, None]
    stats = collect(X, R, state.mixture.kind)
    mean = float(np.average(log_likelihood, weights=weights))
    return step_from_statistics(state, stats, mean, reg_covar=reg_covar)


def step_from_statistics(
    state: EMState, stats: Statistics, log_likelihood: float, *, reg_covar: float = 0.0
) -> EMState:
    """One M step on statistics that were collected, and merged, elsewhere.

    Parameters
    ----------
    state : EMState
    stats : Statistics
        Collected under the responsibilities of `state.mixture`, over all rows of all sites.
    log_likelihood : float
        Mean over the same rows under `state.mixture`.
    reg_covar : float, >= 0
    """
    mixture = mixture_from(stats, ridge=reg_covar, fallback=state.mixture)
    return EMState(mixture, (*state.trace, log_likelihood))


def done(state: EMState, *, tol: float = 1e-3, max_iter: int = 100) -> bool:
    """Whether to stop: change of the mean log-likelihood below `tol`, or `max_iter` steps."""
    return state.change < tol or state.n_iter >= max_iter


def finish(state: EMState, *, tol: float = 1e-3) -> EMResult:
    """Turn the state of a run that `done` stopped, with the same `tol`, into its result."""
    status: Literal["converged", "max_iter"] = "converged" if state.change < tol else "max_iter"
    return EMResult(state.mixture, state.log_likelihood, state.n_iter, status, state.trace)


def fit(
    X: FloatArray,
    mixture: Mixture,
    *,
    weights: FloatArray | None = None,
    tol: float = 1e-3,
    max_iter: int = 100,
    reg_covar: float = 1e-6,
) -> EMResult:
    """EM from a start until `done`; the same steps, stop and defaults as scikit-learn's GaussianMixture.

    Parameters
    ----------
    X : array of shape (n, d), n >= 1
    mixture : Mixture
        Start; its kind is kept.
    weights, tol, max_iter, reg_covar
        As in `step` and `done`.
    """
    state = init(mixture)
    while not done(state, tol=tol, max_iter=max_iter):
        state = step(state, X, weights=weights, reg_covar=reg_covar)
    return finish(state, tol=tol)
