"""Which received component is one of a node's own: evidence, two rules, and the rate of each edge."""

from __future__ import annotations

import numpy as np

from fedcluster_app.gtvmin.pool_message import Inbox
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray

_RATE_PASSES = 3
# An edge is trusted above this rate.
_TRUSTED = 0.5


def attach(
    scores: FloatArray,
    separate: FloatArray,
    rates: FloatArray,
    inbox: Inbox,
    rate_prior: float,
    sizes: IntArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Probability that each received component is each own one, and the edges' rates of acceptance.

    Parameters
    ----------
    scores : array of shape (b, J, k)
        Log evidence of the received components under the own ones, for b models at once; -inf where ruled
        out.
    separate : array of shape (b, J)
        Log evidence of the received components by themselves.
    rates : array of shape (b, E)
        Before.
    inbox : Inbox
    rate_prior : float, > 0
        Both parameters of the rates' beta prior. Far below 1, it holds them near 0 and 1: an edge whose
        components mostly match is trusted, one whose components mostly do not is switched off.
    sizes : int array of shape (b,), optional
        Components of each model, by default k; scores in other places are -inf.

    Returns
    -------
    attached : array of shape (b, J, k)
        Sums over k to the probability that the component matches at all.
    rates : array of shape (b, E)

    Notes
    -----
    **Source**: this project's pooling, steps d and e; coordinate ascent in the mixture of the k components
    and the answer "none", prior rate / k each and 1 - rate.
    """
    sizes = np.full(len(scores), scores.shape[2]) if sizes is None else sizes
    scores = np.where(one_to_one(scores - separate[:, :, None], inbox, sizes), scores, -np.inf)
    peak = np.maximum(scores.max(axis=2, initial=-np.inf), separate)
    joint = np.exp(scores - peak[:, :, None])
    mass, none = joint.sum(axis=2), sizes[:, None] * np.exp(separate - peak)
    size = 2.0 * rate_prior + inbox.incidence.sum(axis=-1)
    for _ in range(_RATE_PASSES):
        trust = _at_components(rates, inbox)
        yes = trust * mass
        matched = yes / (yes + (1.0 - trust) * none)
        rates = (rate_prior + (inbox.incidence @ matched[:, :, None])[:, :, 0]) / size
    attached: FloatArray = joint * (matched / np.where(mass > 0, mass, 1.0))[:, :, None]
    return attached, rates


def supported(
    rates: FloatArray, own_counts: FloatArray, attached: FloatArray | None, inbox: Inbox
) -> BoolArray:
    """Whether a received component may go to an own one, (b, J, k): an untrusted edge cannot fill a dead one.

    Parameters
    ----------
    rates : array of shape (b, E)
    own_counts : array of shape (b, k)
        Own rows of the components.
    attached : array of shape (b, J, k), optional
        The last one; without it only own rows count.
    inbox : Inbox

    Notes
    -----
    **Source**: this project's pooling, step c. On an edge that is not trusted, a component must have more
    than one row of its own or from trusted edges; else dead components drift to whatever is far away.
    """
    trusted = _at_components(rates > _TRUSTED, inbox) > 0.0
    counts = own_counts
    if attached is not None:
        counts = own_counts + ((trusted * inbox.counts)[:, None, :] @ attached)[:, 0]
    allowed: BoolArray = trusted[:, :, None] | (counts > 1.0)[:, None, :]
    return allowed


def one_to_one(gains: FloatArray, inbox: Inbox, sizes: IntArray | None = None) -> BoolArray:
    """Which pairs remain when on each edge every own component is taken at most once, (b, J, k).

    Parameters
    ----------
    gains : array of shape (b, J, k)
        Log evidence for "the same" over "apart"; what is not positive does not count.
    inbox : Inbox
    sizes : int array of shape (b,), optional
        Components of each model, by default k.

    Returns
    -------
    bool array of shape (b, J, k)
        A component that the best assignment gives a gain keeps only its partner. One that it gives none
        keeps what is left on its edge; or everything, if its sender has more components than there are here:
        pieces of one cluster may then share it.

    Notes
    -----
    **Source**: this project's pooling, step d. Where the best partners on an edge differ they are the
    assignment; only the other edges need the solver (exact). Deviation: an assignment without gain is taken
    for none, as which of them the solver returns depends on the order of the components.
    """
    gains = np.maximum(gains, 0.0)
    partner = (gains.argmax(axis=2)[:, :, None] == np.arange(gains.shape[2])) & (gains > 0.0)
    claims = inbox.incidence @ partner.astype(np.float64)
    incidence = np.broadcast_to(inbox.incidence, (len(gains), *inbox.incidence.shape[-2:]))
    for b, edge in zip(*np.nonzero((claims > 1.0).any(axis=2)), strict=True):
        members = np.flatnonzero(incidence[b, edge])
        partner[b, members] = _assigned(gains[b, members])
        claims[b, edge] = partner[b, members].sum(axis=0)
    sizes = np.full(len(gains), gains.shape[2]) if sizes is None else sizes
    crowded = inbox.incidence.sum(axis=-1) > sizes[:, None]
    free = (claims == 0.0) | crowded[:, :, None]
    remaining = inbox.incidence.swapaxes(-1, -2) @ free.astype(np.float64) > 0.0
    kept: BoolArray = np.where(partner.any(axis=2)[:, :, None], partner, remaining)
    return kept


def _at_components(values: FloatArray | BoolArray, inbox: Inbox) -> FloatArray:
    """Values (b, E) of the edges at the components that came over them, (b, J)."""
    there: FloatArray = (values.astype(np.float64)[:, None, :] @ inbox.incidence)[:, 0]
    return there


def _assigned(gains: FloatArray) -> BoolArray:
    """Pairs of the assignment (j, k) with the largest sum of gains, those without a gain left out."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(gains, maximize=True)
    pairs = np.zeros(gains.shape, dtype=np.bool_)
    pairs[rows, columns] = gains[rows, columns] > 0.0
    return pairs
