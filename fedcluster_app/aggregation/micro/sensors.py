"""Models of the sites' sensors: none, offsets, or offsets and gains, fitted and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import Shrinkage, fit, from_partition
from fedcluster_app.aggregation.micro.offsets import (
    Alignment,
    OffsetState,
    evidence,
    init,
    log_likelihoods,
    remove,
    step,
)
from fedcluster_app.aggregation.micro.path import ABSENT, Starts, starts, whitening
from fedcluster_app.mixtures.types import FloatArray, IntArray

Model: TypeAlias = Literal["plain", "offsets", "gains"]
PLAIN: Model = "plain"
OFFSETS: Model = "offsets"
GAINS: Model = "gains"
STEPS, HELD_OUT_STEPS = 30, 20


@dataclass(frozen=True)
class Search:
    """What is tried: numbers of clusters, and how many steps each fit makes."""

    ks: Sequence[int]
    rng: np.random.Generator
    steps: int = STEPS


@dataclass(frozen=True, eq=False)
class Found:
    """The best fit of a model over all starts and numbers of clusters."""

    bic: float
    state: OffsetState
    start: str


def _cuts(cells: Cells, start: Alignment, search: Search) -> Starts:
    aligned = remove(cells, start)
    scale = whitening(aligned)
    return starts(aligned, (np.ones_like(scale), scale), search.rng)


def best_fit(cells: Cells, tried: Mapping[str, Alignment], search: Search, model: Model) -> Found:
    """Return the fit of least BIC over all starts and numbers of clusters.

    The plain model is started from the cuts of every alignment too: else better starts would look like
    offsets.
    """
    shrinkage, found = Shrinkage.of(cells), []
    for name, start in tried.items():
        where = _cuts(cells, start, search)
        for labels in (cut for k in search.ks for cut in where.cuts(k)):
            state = _fit(cells, start, labels, shrinkage, model, search.steps)
            found.append(Found(criterion(cells, state, model), state, name))
    return min(found, key=lambda one: one.bic)


def _fit(
    cells: Cells, start: Alignment, labels: IntArray, shrinkage: Shrinkage, model: Model, steps: int
) -> OffsetState:
    if model == PLAIN:
        found = fit(cells, from_partition(cells, labels, shrinkage), shrinkage, max_iter=steps)
        return init(cells, found.clusters, Alignment(0 * start.offsets, np.ones_like(start.gains)))
    state = init(cells, from_partition(remove(cells, start), labels, shrinkage), start)
    for _ in range(steps):
        state = step(state, cells, shrinkage, with_gains=model == GAINS)
    return state


def criterion(cells: Cells, state: OffsetState, model: Model) -> float:
    """Return the criterion of :func:`~.path.bic`, for offsets with the evidence in place of the likelihood.

    The prior of offsets costs q parameters that the sites tell, gains q for every site but one, that its rows
    tell.
    """
    (G, q), k = state.alignment.offsets.shape, state.clusters.k
    used = int((state.clusters.weights > ABSENT).sum()) - G
    penalty = (k * (q + q * (q + 1) / 2) + used) * np.log(cells.n_rows)
    if model == PLAIN:
        return float(penalty - 2 * log_likelihoods(cells, state).sum())
    penalty += q * np.log(G)
    if model == GAINS:
        penalty += q * (G - 1) * np.log(cells.n_rows / G)
    return float(penalty - 2 * evidence(cells, state))


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a model says of rows that it was not fitted to, at the number of clusters that is best there.

    Attributes
    ----------
    log_likelihood : (G,) array
        Of every site's rows.
    k : int
        That number.
    """

    log_likelihood: FloatArray
    k: int


def held_out(cells: Cells, model: Model, found: Found, search: Search) -> HeldOut:
    """Fit a model to either half's cells, from where it was found, and score the other half's."""
    total = np.zeros((len(search.ks), cells.n_sites))
    for half in (0, 1):
        own, other = cells.take(cells.halves == half), cells.take(cells.halves != half)
        shrinkage, where = Shrinkage.of(own), _cuts(own, found.state.alignment, search)
        # A site without cells in this half has no weights and no offset there.
        known = np.isin(np.arange(cells.n_sites), own.sites)
        for row, k in enumerate(search.ks):
            fits = [
                _fit(own, found.state.alignment, labels, shrinkage, model, HELD_OUT_STEPS)
                for labels in where.cuts(k)
            ]
            best = max(fits, key=lambda state: float(log_likelihoods(own, state).sum()))
            total[row] += known * log_likelihoods(other, best)
    chosen = int(np.argmax(total.sum(axis=1)))
    return HeldOut(total[chosen], int(search.ks[chosen]))


def settle(cells: Cells, tried: Mapping[str, Alignment], search: Search, model: Model, found: Found) -> Found:
    """Fit a model once more, for the numbers of clusters of a search, from its starts and where it was found.

    With many features the criterion asks for few clusters, and offsets then take up what is another mix of
    classes: they are better at the number that rows held out favour.
    """
    again = best_fit(cells, {found.start: found.state.alignment}, search, model)
    return min(again, best_fit(cells, tried, search, model), key=lambda one: one.bic)
