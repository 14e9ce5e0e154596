"""EM over a graph by consensus on its sufficient statistics: one node, init / step over an explicit state.

Every node has a copy of one mixture for the whole network. What it passes to its neighbours is its estimate
of the network's statistics (mass, sums and sums of squares of each component, about a common origin), from
which its M step is taken; its E step corrects the estimate by how its own statistics have changed::

    state = init(X, start, origin)
    state = step(state, X, {"b": message_from_b, ...}, gains(graph, "a"))
    message_to_b = message(state, "b")

Two filters bring the estimates together. ``tracking`` ends in EM on the pooled rows: every node has their
network's average. ``leaky`` (as published) ends near it, the nearer the denser the graph.

What is sent are sums over a node's rows and those of others; whoever carries all messages of a node can work
out its own sums, and so can a node that is another's only neighbour. In round 1 all neighbours have
them, since an estimate begins as the node's own sums; in all rounds with the leaky filter, which sends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.blocks import blocks, mixture_of, squared_distance
from fedcluster_app.gtvmin.consensus_gains import Gains
from fedcluster_app.gtvmin.consensus_moments import moments_about, parameters_from
from fedcluster_app.gtvmin.projection import Bounds, project
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.release import released
from fedcluster_app.mixtures.statistics import collect
from fedcluster_app.mixtures.types import FloatArray

_BOUNDS = Bounds()


@dataclass(frozen=True, eq=False)
class Message:
    """What one node sends to one neighbour in a round; p = 1 + d + d (d + 1) / 2.

    Attributes
    ----------
    estimate : array of shape (k, p)
        Of the network's statistics.
    own : array of shape (k, p)
        Leaky: the node's own statistics. Tracking: what has flowed into its estimate on this edge so far.
    """

    estimate: FloatArray
    own: FloatArray


@dataclass(frozen=True, eq=False)
class ConsensusState:
    """A node between rounds.

    Attributes
    ----------
    mixture : Mixture
        From the last estimate; full covariances, feasible.
    origin : array of shape (d,)
        Point about which all nodes take their statistics.
    own : array of shape (k, p)
        Statistics of the own rows under the mixture: mass, sums, sums of squares. With steps below 1 also
        under those before.
    estimate : array of shape (k, p)
        Of the network's average of `own`.
    flows : mapping of site name to array of shape (k, p)
        Tracking: what has come over each edge; with `own` they add up to the estimate.
    round : int
        Rounds taken.
    movement : float
        Size of the last change of the mixture's parameters.
    log_likelihood : float
        Mean over the own rows under the mixture; nan without rows.
    """

    mixture: Mixture
    origin: FloatArray
    own: FloatArray
    estimate: FloatArray
    flows: Mapping[str, FloatArray] = field(default_factory=dict)
    round: int = 0
    movement: float = float("inf")
    log_likelihood: float = float("nan")


def init(
    X: FloatArray, start: Mixture, origin: FloatArray, *, bounds: Bounds = _BOUNDS, min_count: float = 0.0
) -> ConsensusState:
    """State before the first round: the node's own statistics under the start.

    Parameters
    ----------
    X : array of shape (n, d), n >= 0
        May be fewer rows than components, or none: such a node passes on what it hears.
    start : Mixture
        The same at all nodes (see `aligned.align`), or else with the same numbers of components and matched,
        since statistics of different numbers are never compared.
    origin : array of shape (d,)
        The same at all nodes, near the rows: squares are taken about it.
    bounds : Bounds
        What the mixtures must satisfy; without them an estimate of little mass could be anything.
    min_count : float, >= 0
        Statistics of components with less mass count as 0, and other rows may be left out with theirs: see
        `mixtures.release.released`. The sums over the network are then of what is shown.

    Raises
    ------
    ConfigError
        If the weight floor is too high for the number of components.
    """
    bounds.check_components(start.n_components)
    mixture = mixture_of(project(blocks(start), bounds))
    own, log_likelihood = _expectation(X, mixture, origin, min_count)
    return ConsensusState(mixture, origin, own, own, log_likelihood=log_likelihood)


def message(state: ConsensusState, receiver: str, *, leaky: bool = False) -> Message:
    """Return what a node has to tell a neighbour after its last step."""
    if leaky:
        return Message(state.estimate, state.own)
    return Message(state.estimate, state.flows.get(receiver, np.zeros_like(state.own)))


def follow(
    estimate: FloatArray,
    own: FloatArray,
    flows: Mapping[str, FloatArray],
    received: Mapping[str, Message],
    gains: Gains,
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Filter of a round (see `step`): what messages make of an estimate (k, p), and of flows if it tracks.

    Nothing in it is of rows, so whoever carries the messages can work it out, too. Flows are by name.
    """
    mail = {name: received[name] for name in sorted(received)}
    if gains.leaky:
        moved = estimate + gains.own * (own - estimate)
        for name, sent in mail.items():
            moved = moved + gains.neighbours[name] * (sent.estimate + sent.own - 2.0 * estimate)
        return moved, {}
    new: dict[str, FloatArray] = {}
    for name, sent in mail.items():
        flow = 0.5 * (flows.get(name, np.zeros_like(sent.own)) - sent.own)
        new[name] = flow + gains.neighbours[name] * (sent.estimate - estimate)
    return sum(new.values(), own), new


def step(
    state: ConsensusState,
    X: FloatArray,
    received: Mapping[str, Message],
    gains: Gains,
    *,
    bounds: Bounds = _BOUNDS,
    min_count: float = 0.0,
    step_size: float = 1.0,
) -> ConsensusState:
    """One round of a node: filter, M step, E step.

    Parameters
    ----------
    state : ConsensusState
    X : array of shape (n, d)
    received : mapping of site name to Message
        Of neighbours; the last one of those that were silent. A neighbour that is left out has gone: what
        its edge brought is given back, and the average is that of the others.
    gains : Gains
    bounds, min_count
        As in `init`.
    step_size : float in (0, 1]
        Part of the way that the own statistics go to those of the E step. Estimates follow at the graph's
        pace: where nodes move before these agree, the covariances of an estimate may be none at all, and on
        thin graphs full steps then lead to ever larger ones. The end is the same.

    Returns
    -------
    ConsensusState

    Raises
    ------
    ConfigError
        If a neighbour has another number of components or features.

    Notes
    -----
    Tracking: x <- M x + (u' - u), for estimates x, own statistics u and Metropolis weights M. It is computed
    as x = u + sum of flows, where an edge adds M_ij (x_j - x_i) to the flow at i and the negative of it at j:
    the sum of x over the network is that of u. After a silent round, or a lost answer, the two flows of an
    edge may disagree; each end then takes half of their difference, so the sum is off by what the edge moved
    meanwhile and exact again after the first round in which both ends have each other's last message.

    Leaky: x <- x + g [sum_j (x_j - x) + sum_j (u_j - x) + (u - x)], sums over the neighbours. Its rest is a
    weighted average of near nodes' statistics, never that of all; silence makes it older, no more.

    Cost O(n k d² + deg k d²). **Source**: Gu, Distributed EM algorithm for Gaussian mixtures in sensor
    networks, IEEE Trans. Neural Networks 19 (2008) (leaky); Zhu and Martínez, Discrete-time dynamic average
    consensus, Automatica 46 (2010) (tracking); Jesus, Baquero and Almeida, Fault-tolerant aggregation by flow
    updating (2009) (the idea of flows). Deviations: squares are taken about a common origin, not 0, a
    component without mass in the estimate keeps mean and covariance, and steps may be shorter (as in
    stochastic approximation EM: Delyon, Lavielle and Moulines, 1999).
    """
    _check_shapes(state, received)
    estimate, flows = follow(state.estimate, state.own, state.flows, received, gains)
    last = blocks(state.mixture)
    theta = project(parameters_from(estimate, state.origin, last), bounds)
    mixture = mixture_of(theta)
    found, log_likelihood = _expectation(X, mixture, state.origin, min_count)
    own = state.own + step_size * (found - state.own)
    return ConsensusState(
        mixture=mixture,
        origin=state.origin,
        own=own,
        estimate=estimate if gains.leaky else sum(flows.values(), own),
        flows=flows,
        round=state.round + 1,
        movement=float(np.sqrt(squared_distance(theta, last))),
        log_likelihood=log_likelihood,
    )


def _check_shapes(state: ConsensusState, mail: Mapping[str, Message]) -> None:
    for name, sent in mail.items():
        if sent.estimate.shape != state.own.shape or sent.own.shape != state.own.shape:
            raise ConfigError(
                f"neighbour {name}: expected statistics of shape {state.own.shape}, got "
                f"{sent.estimate.shape}; give every site the same number of components"
            )


def _expectation(
    X: FloatArray, mixture: Mixture, origin: FloatArray, min_count: float
) -> tuple[FloatArray, float]:
    """Own statistics about the origin (k, p), and the mean log-likelihood."""
    R, log_likelihood = responsibilities(X, mixture)
    moments = moments_about(origin, collect(X, released(R, min_count), "full"))
    return moments, float(log_likelihood.mean()) if len(X) else float("nan")
