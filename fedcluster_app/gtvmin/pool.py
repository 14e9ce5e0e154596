"""One site's part of evidence-gated pooling: init / step / done / finish; one step is one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin.pool_local import attend, judged, own_evidence, run_pass
from fedcluster_app.gtvmin.pool_merge import pruned
from fedcluster_app.gtvmin.pool_message import Inbox, Summary, receive, summarised
from fedcluster_app.gtvmin.pool_model import Models, Rows, rows_of
from fedcluster_app.gtvmin.pool_release import release, shown
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_start import improved, local_fit
from fedcluster_app.gtvmin.pool_state import PoolResult, PoolState, PoolStatus, status_of
from fedcluster_app.gtvmin.pool_together import Program, Request, alone
from fedcluster_app.mixtures.types import FloatArray

# Iterations of a pass.
_PASS = 3
_FIRST_RATE = 0.5
# Change when all of the weight moves.
_ALL_WEIGHT = 2.0


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
    return alone(beginning(X, k, settings, rng))


def beginning(
    X: FloatArray, k: int | None, settings: PoolSettings, rng: np.random.Generator
) -> Program[PoolState]:
    """Write `init` as a program, which can be carried out together with those of other nodes."""
    rows = _rows(X, settings)
    models = yield from local_fit(rows, k, settings, rng)
    mine = release(models, rows, settings)
    return PoolState(models, rows.origin, mine, {}, {}, float(own_evidence(models, rows)[0]), free=k is None)


def message(state: PoolState) -> Summary:
    """Say what neighbours may know: the components in the site's own rows, small ones withheld."""
    return summarised(state.release.moments, state.origin)


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
    return alone(stepping(state, X, received, settings, rng))


def stepping(
    state: PoolState,
    X: FloatArray,
    received: Mapping[str, Summary],
    settings: PoolSettings,
    rng: np.random.Generator,
) -> Program[PoolState]:
    """Write `step` as a program, which can be carried out together with those of other nodes."""
    rows = _checked(X, state, settings)
    inbox = receive(received, rows, settings.count_cap)
    if not len(inbox.moments):
        if state.free:  # nobody will tell more
            alone_here = pruned(state.models, rows, inbox, settings, on_trial=True)
            state = _heard(state, alone_here, rows, inbox, settings)
        return replace(state, changes=(*state.changes, 0.0))
    models = yield Request(attend, _entered(state, inbox), rows, inbox, settings, (_PASS,))
    number = state.round + 1
    if number in settings.start_rounds:
        first = number == settings.start_rounds[0]
        if first or _change(state.models, models) > settings.restless:
            models = yield from improved(
                models, rows, inbox, settings, rng, fresh_rates=first, free=state.free
            )
    if state.free:
        restless = _change(state.models, models) > settings.restless
        models = pruned(models, rows, inbox, settings, on_trial=restless)
    moved = _change(state.models, models)
    return replace(_heard(state, models, rows, inbox, settings), changes=(*state.changes, moved))


def status(state: PoolState, settings: PoolSettings) -> PoolStatus:
    """Tell which stopping rule has fired at a node, or ``running``; a network rests when all its nodes do."""
    return status_of(state.changes, settings)


def done(state: PoolState, settings: PoolSettings) -> bool:
    """Whether the node asks for no more rounds; see `status`."""
    return status(state, settings) != "running"


def finish(
    state: PoolState, X: FloatArray, received: Mapping[str, Summary], settings: PoolSettings
) -> PoolResult:
    """Turn the state of a run that is over into its result; parameters and errors as in `step`.

    What neighbours sent last is judged in one more pass that neither adds nor joins components: so it is told
    of their components as they are in the end. What others know of the own rows stays as it was.
    """
    rows = _checked(X, state, settings)
    inbox = receive(received, rows, settings.count_cap)
    models = _entered(state, inbox)
    if len(inbox.moments):
        models = run_pass(judged(models, rows, inbox), rows, inbox, settings, _PASS)
    seen = shown(models, state.release.moments, rows, settings.concentration)
    return PoolResult(
        seen.mixture,
        message(state).counts,
        seen.places,
        status(state, settings),
        _by_name(models.rates[0], inbox),
        _by_neighbour(models.attached[0], inbox),
        state.changes,
        float(own_evidence(models, rows)[0]) if len(inbox.moments) else state.evidence,
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
    return replace(
        state,
        models=models,
        release=release(models, rows, settings, state.release),
        rates={**state.rates, **_by_name(models.rates[0], inbox)},
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


def _by_name(rates: FloatArray, inbox: Inbox) -> dict[str, float]:
    return {name: float(rate) for name, rate in zip(inbox.names, rates, strict=True)}


def _by_neighbour(attached: FloatArray, inbox: Inbox) -> dict[str, FloatArray]:
    """Attachments (J, k) by neighbour, in the places that the components have there."""
    tables = {}
    for edge, (name, size) in enumerate(zip(inbox.names, inbox.sizes, strict=True)):
        tables[name] = np.zeros((size, attached.shape[1]))
        members = inbox.edges == edge
        tables[name][inbox.slots[members]] = attached[members]
    return tables
