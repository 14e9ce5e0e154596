"""One site's part of evidence-gated pooling: init / step / done / finish; one step is one round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin.pool_local import judged, own_evidence, run_pass, update_prior
from fedcluster_app.gtvmin.pool_merge import pruned
from fedcluster_app.gtvmin.pool_message import Inbox, Summary, receive, summarised
from fedcluster_app.gtvmin.pool_model import Models, Rows, rows_of
from fedcluster_app.gtvmin.pool_release import released, shown
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_start import improved, local_fit
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray

PoolStatus: TypeAlias = Literal["running", "settled", "max_rounds"]
# Iterations of a pass.
_PASS = 3
_FIRST_RATE = 0.5
# Change when all of the weight moves.
_ALL_WEIGHT = 2.0


@dataclass(frozen=True, eq=False)
class PoolState:
    """A pooling node between rounds.

    Attributes
    ----------
    models : Models
        A batch of one, about the origin.
    origin : array of shape (d,)
        Mean of the site's rows.
    released : array of shape (k, d + 1, d + 1)
        Moments of the own rows about it that others may know; 0 for components that are withheld.
    rates : mapping of site name to float
        Trust in each neighbour that ever spoke, from 0 to 1.
    attachments : mapping of site name to array of shape (k of the neighbour, k)
        Of the last round: probability that the neighbour's component is the own one; rows of 0 for
        components that were withheld, dropped or unmatched.
    evidence : float
        Log evidence of the own rows, given all that is attached: what neighbours are worth.
    changes : tuple of float
        How far the model moved in each round: means in standard deviations of a component, plus weights.
    free : bool
        Whether the number of components is not given but found: then it may fall, or follow another start.
    """

    models: Models
    origin: FloatArray
    released: FloatArray
    rates: Mapping[str, float]
    attachments: Mapping[str, FloatArray]
    evidence: float
    changes: tuple[float, ...] = ()
    free: bool = False

    @property
    def round(self) -> int:
        """Rounds taken."""
        return len(self.changes)

    @property
    def mixture(self) -> Mixture:
        """The personal mixture, in the coordinates of the rows."""
        own = self.models
        return Mixture(own.weights[0], own.means[0] + self.origin, own.covariances[0])


@dataclass(frozen=True, eq=False)
class PoolResult:
    """What a site has come to.

    Attributes
    ----------
    mixture : Mixture
        Of the neighbours' components that are attached and of the own rows, but for those of components too
        small to be released.
    places : int array of shape (k of the mixture,)
        Place of each of its components in the summary.
    status : PoolStatus
        Why the rounds ended.
    rates, attachments : mappings of site name
        As in `PoolState`, of the last summaries; columns are places in the own summary.
    changes, evidence
        As in `PoolState`.
    """

    mixture: Mixture
    places: IntArray
    status: PoolStatus
    rates: Mapping[str, float]
    attachments: Mapping[str, FloatArray]
    changes: tuple[float, ...]
    evidence: float


def init(X: FloatArray, k: int | None, settings: PoolSettings, rng: np.random.Generator) -> PoolState:
    """State before the first round: the fit to the site's own rows.

    Parameters
    ----------
    X : array of shape (n, d), n >= 1
        Scaled to about unit variance.
    k : int, >= 1, or None
        Components; a site with fewer rows gets one per row. Neighbours may have another number. None if it is
        not known: then the site starts with many, and merges them on the evidence of its own rows and what it
        receives. Where two clusters are closer than about two standard deviations they may be one.
    settings : PoolSettings
    rng : numpy.random.Generator

    Raises
    ------
    DataError
        If there are no rows.
    """
    rows = _rows(X, settings)
    models = local_fit(rows, k, settings, rng)
    mine = released(models, rows, settings.min_count)
    return PoolState(models, rows.origin, mine, {}, {}, float(own_evidence(models, rows)[0]), free=k is None)


def message(state: PoolState) -> Summary:
    """Say what neighbours may know: the components in the site's own rows, small ones withheld."""
    return summarised(state.released, state.origin)


def step(
    state: PoolState,
    X: FloatArray,
    received: Mapping[str, Summary],
    settings: PoolSettings,
    rng: np.random.Generator,
) -> PoolState:
    """One round of a node: attach what came, refit on own rows and attachments, perhaps try other starts.

    Parameters
    ----------
    state : PoolState
    X : array of shape (n, d), n >= 1
        The site's rows, the same in every round.
    received : mapping of site name to Summary
        Of the round before; of a silent neighbour the last one, or nothing. Anything may be in it. Without
        one usable component the round changes nothing.
    settings : PoolSettings
    rng : numpy.random.Generator
        Of this round; used for other starts only.

    Returns
    -------
    PoolState

    Raises
    ------
    DataError
        If there are no rows, or they have another number of features than the model.

    Notes
    -----
    **Source**: this project's evidence-gated pooling: two passes of three local iterations, the prior and the
    discount renewed between them, then other starts. Cost linear in the number of received components.
    """
    rows = _checked(X, state, settings)
    inbox = receive(received, rows, settings.count_cap)
    if not len(inbox.moments):
        return replace(state, changes=(*state.changes, 0.0))
    models = run_pass(judged(_entered(state, inbox), rows, inbox), rows, inbox, settings, _PASS)
    models = run_pass(update_prior(models, rows, inbox, settings), rows, inbox, settings, _PASS)
    number = state.round + 1
    if number in settings.start_rounds:
        first = number == settings.start_rounds[0]
        if first or _change(state.models, models) > settings.restless:
            models = improved(models, rows, inbox, settings, rng, fresh_rates=first, free=state.free)
    if state.free:
        restless = _change(state.models, models) > settings.restless
        models = pruned(models, rows, inbox, settings, on_trial=restless)
    moved = _change(state.models, models)
    return replace(_heard(state, models, rows, inbox, settings), changes=(*state.changes, moved))


def status(state: PoolState, settings: PoolSettings) -> PoolStatus:
    """Tell which stopping rule has fired at a node, or ``running``; a network rests when all its nodes do."""
    return status_of(state.changes, settings)


def status_of(changes: Sequence[float], settings: PoolSettings) -> PoolStatus:
    """Tell the same from how far a node moved in each of its rounds: all that others need to know for it."""
    recent = changes[-settings.patience :]
    ripe = len(changes) > settings.least_rounds and len(recent) == settings.patience
    if ripe and max(recent) < settings.tolerance:
        return "settled"
    return "max_rounds" if len(changes) >= settings.max_rounds else "running"


def done(state: PoolState, settings: PoolSettings) -> bool:
    """Whether the node asks for no more rounds; see `status`."""
    return status(state, settings) != "running"


def finish(
    state: PoolState, X: FloatArray, received: Mapping[str, Summary], settings: PoolSettings
) -> PoolResult:
    """Turn the state of a run that is over into its result; parameters and errors as in `step`.

    What neighbours sent last is judged in one more pass that neither adds nor joins components: so it is told
    of their components as they are in the end.
    """
    rows = _checked(X, state, settings)
    inbox = receive(received, rows, settings.count_cap)
    if len(inbox.moments):
        models = judged(_entered(state, inbox), rows, inbox)
        models = run_pass(models, rows, inbox, settings, _PASS)
        state = _heard(state, models, rows, inbox, settings)
    seen = shown(state.models, state.released, rows, settings.concentration)
    return PoolResult(
        seen.mixture,
        seen.places,
        status(state, settings),
        {name: state.rates[name] for name in inbox.names if name in state.rates},
        state.attachments if len(inbox.moments) else {},
        state.changes,
        state.evidence,
    )


def _rows(X: FloatArray, settings: PoolSettings) -> Rows:
    if not len(X):
        raise DataError("rows: expected at least one, got none; a site without rows cannot be a node")
    return rows_of(X, uniform=settings.uniform)


def _checked(X: FloatArray, state: PoolState, settings: PoolSettings) -> Rows:
    if X.shape[1:] != state.origin.shape:
        raise DataError(f"rows: expected {len(state.origin)} features as in the model, got {X.shape[1]}")
    return _rows(X, settings)


def _heard(state: PoolState, models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings) -> PoolState:
    """State with the models that came of what was received."""
    rates = {name: float(rate) for name, rate in zip(inbox.names, models.rates[0], strict=True)}
    return replace(
        state,
        models=models,
        released=released(models, rows, settings.min_count),
        rates={**state.rates, **rates},
        attachments=_by_neighbour(models.attached[0], inbox),
        evidence=float(own_evidence(models, rows)[0]),
    )


def _entered(state: PoolState, inbox: Inbox) -> Models:
    """Models with room for what came; attachments are never older than the pass."""
    rates = np.array([[state.rates.get(name, _FIRST_RATE) for name in inbox.names]])
    attached = np.zeros((1, len(inbox.edges), state.models.weights.shape[1]))
    return replace(state.models, rates=rates, attached=attached)


def _change(before: Models, after: Models) -> float:
    """Movement of the means, weighted and in standard deviations, plus that of the weights.

    If their number has changed, that counts as all of the weight.
    """
    if before.weights.shape != after.weights.shape:
        return _ALL_WEIGHT
    scale = float(np.sqrt(np.trace(after.within[0])))
    moved = np.linalg.norm(after.means[0] - before.means[0], axis=1)
    return float(after.weights[0] @ moved / scale + np.abs(after.weights[0] - before.weights[0]).sum())


def _by_neighbour(attached: FloatArray, inbox: Inbox) -> dict[str, FloatArray]:
    """Attachments (J, k) by neighbour, in the places that the components have there."""
    tables = {}
    for edge, (name, size) in enumerate(zip(inbox.names, inbox.sizes, strict=True)):
        tables[name] = np.zeros((size, attached.shape[1]))
        members = inbox.edges == edge
        tables[name][inbox.slots[members]] = attached[members]
    return tables
