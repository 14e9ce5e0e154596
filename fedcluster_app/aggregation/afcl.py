"""AFCL: asynchronous federated competitive learning; finds the number of clusters among given seeds.

**What a site sends.** For *every row* its difference to the winning seed times attribute weights that the
server chose, so the server rebuilds each row exactly (row = seed + update / weights); at the start also up to
k bare rows as seeds. Nothing is hidden, and secure aggregation cannot help: run it only where every site has
agreed to give its rows away. Features are meant to lie in [0, 1].

A round is one `client_step` at the sites that take part and one `step` at the server::

    state = init({"a": client_start(X_a, k, rng_a), ...}, k, rng)
    while not done(state):
        state = step(state, {"a": client_step(X_a, state.seeds, state.weights), ...})
    result = finish(state)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.kmeans import kmeans_plus_plus
from fedcluster_app.mixtures.types import FloatArray, IntArray

Rebuild = Literal["released", "exact"]
Status = Literal["running", "converged", "max_rounds"]

_SHARPNESS = 7  # features weigh with the inverse of this root of their moves
_TOGETHER = 1e-4  # squared distance below which seeds always move together
_SAME = 1e-3  # seeds closer than this in every feature are one cluster


@dataclass(frozen=True, eq=False)
class Records:
    """One site's upload: its rows in disguise, and sums over the rows of each seed.

    Parameters
    ----------
    updates, winners : attribute weights times (row - winning seed), (n, d), and that seed, (n,)
    sums, counts, deviations : of each seed's rows, sum (k, d), number and sum of distances to their mean
    """

    updates: FloatArray
    winners: IntArray
    sums: FloatArray
    counts: IntArray
    deviations: FloatArray


@dataclass(frozen=True, eq=False)
class Answer:
    """Records together with the seeds (k, d) and weights (d,) that they refer to, for a replay."""

    records: Records
    seeds: FloatArray
    weights: FloatArray


@dataclass(frozen=True, eq=False)
class AFCLState:
    """The server's memory between rounds; mappings are in order of site name.

    Parameters
    ----------
    seeds, weights : what the sites get, (k, d) seeds and (d,) attribute weights
    takes, answers : for each site, the rounds in which it took part (or was replayed), and its last answer
    round, learn, rate : server steps taken, whether the weights are learned, and their mean
    index, change, movement : Davies-Bouldin index, its last change, the largest one of a seed's coordinate
    """

    seeds: FloatArray
    weights: FloatArray
    learn: bool = True
    rate: float = 1e-3
    takes: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    round: int = 0
    index: float = float("inf")
    change: float = float("inf")
    movement: float = float("inf")


@dataclass(frozen=True, eq=False)
class AFCLResult:
    """Global centres (K, d), whose number is found, and the cluster (k,) of each seed."""

    centers: FloatArray
    labels: IntArray


def client_start(X: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """Draw min(k, n) of the site's rows by k-means++ as candidates for seeds. Rows leave the site here."""
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    return X.copy() if len(X) <= k else kmeans_plus_plus(X, k, rng)


def client_step(X: FloatArray, seeds: FloatArray, weights: FloatArray) -> Records:
    """One round at a site: let the nearest seed win each row.

    `X` (n, d) are the site's rows, n >= 0; `seeds` (k, d) and attribute `weights` (d,) come from the server.
    Cost O(n k d). **Source**: Zhang et al., Asynchronous federated clustering with unknown number of
    clusters, AAAI 2025, arXiv:2412.20341, and the authors' code, where also the plain distance decides.
    Deviation: without the row of zeros that the code puts before the records of each seed.
    """
    winners: IntArray = squared_distances(X, seeds).argmin(axis=1)
    members = np.eye(len(seeds))[winners]
    sums, counts = members.T @ X, members.sum(axis=0)
    own_means = (sums / np.maximum(counts, 1.0)[:, None])[winners]
    deviations = members.T @ np.linalg.norm(X - own_means, axis=1)
    return Records(weights * (X - seeds[winners]), winners, sums, counts.astype(np.int64), deviations)


def init(
    starts: Mapping[str, FloatArray],
    k: int,
    rng: np.random.Generator,
    *,
    learn: bool = True,
    rate: float = 1e-3,
) -> AFCLState:
    """State before the first round: up to k seeds drawn by k-means++ from the sites' candidates.

    Parameters
    ----------
    starts : answers of `client_start` by site name, (c_g, d) each; some may be empty
    k : number of seeds, at least that of the clusters: K* to 2 K* in the paper
    rng : source of the seeds and of the first attribute weights
    learn : whether the attribute weights are learned; else they are equal (FedGEM's comparison)
    rate : their mean, the step of a seed towards a row; 0.001 as released, slow for a few hundred rows

    Raises ConfigError if `k` is below 1, and DataError if there is no candidate.
    """
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    if not any(map(len, starts.values())):
        raise DataError("candidates of all sites: expected at least one row, got none")
    stacked = np.concatenate([starts[name] for name in sorted(starts)])
    seeds = kmeans_plus_plus(stacked, min(k, len(stacked)), rng)
    odds = rng.random(seeds.shape[1:]) if learn else np.ones(seeds.shape[1:])
    return AFCLState(seeds, rate * odds / odds.mean(), learn, rate, dict.fromkeys(sorted(starts), 0))


def step(state: AFCLState, records: Mapping[str, Records], *, rebuild: Rebuild = "released") -> AFCLState:
    """One server round: every row of the sites that take part pulls its winning seed and that one's company.

    A silent site that has taken part before, but less than the average, is replayed from its last answer. The
    order of the mapping has no effect. Without any row, only the round is counted.

    Parameters
    ----------
    records : answers of this round by site name
    rebuild : {"released", "exact"}
        As in the code, which divides updates by weights and balance though only weights are in them, and so
        places a row up to twice as far from its seed as it is; or the row itself.

    Cost O(n k d) for n rows of all sites, one by one. Raises ConfigError if `rebuild` is unknown. **Source**:
    Zhang et al., AAAI 2025, and the authors' code (FedGEM's comparison never calls it). Deviations: a replay
    goes with its own seeds and weights, where the code takes the latest and so shifts the rows; the index is
    Davies and Bouldin's on merged seeds, where the code adds cells twice and weighs them with the balance.
    """
    if rebuild not in ("released", "exact"):
        raise ConfigError(f"rebuild: expected released or exact, got {rebuild!r}")
    fresh = {name: Answer(part, state.seeds, state.weights) for name, part in records.items()}
    known = dict(sorted({**state.answers, **fresh}.items()))
    takes = {name: state.takes.get(name, 0) + (name in fresh) for name in sorted({*state.takes, *fresh})}
    balance = _balance(takes)
    fair = sum(balance.values()) / max(len(balance), 1) * (1.0 + 1e-12)  # equal sites are not above it
    replayed = [name for name in takes if name not in fresh and name in known and balance[name] > fair]
    takes = {name: count + (name in replayed) for name, count in takes.items()}
    balance |= {name: value for name, value in _balance(takes).items() if name in replayed}
    heard = {name: answer for name, answer in known.items() if name in fresh or name in replayed}
    if not any(len(answer.records.winners) for answer in heard.values()):
        return replace(state, takes=takes, answers=known, round=state.round + 1)
    seeds = _compete(state, heard, balance, rebuild)
    index = _davies_bouldin([answer.records for answer in heard.values()], _groups(state.seeds))
    change, movement = abs(index - state.index), float(np.abs(seeds - state.seeds).max())
    return replace(
        state,
        seeds=seeds,
        weights=_learned(heard, state) if state.learn else state.weights,
        takes=takes,
        answers=known,
        round=state.round + 1,
        index=index,
        change=change,
        movement=movement,
    )


def status(state: AFCLState, *, tolerance: float = 1e-4, rest: float = 1e-5, max_rounds: int = 100) -> Status:
    """Tell which rule has stopped the rounds: index (`tolerance`) and seeds (`rest`) stand still, or number.

    Deviation: the code watches the index alone, which stands still too early if all sites always take part.
    """
    if state.change <= tolerance and state.movement <= rest:
        return "converged"
    return "max_rounds" if state.round >= max_rounds else "running"


def done(state: AFCLState, *, tolerance: float = 1e-4, rest: float = 1e-5, max_rounds: int = 100) -> bool:
    """Whether the rounds are over; see `status`."""
    return status(state, tolerance=tolerance, rest=rest, max_rounds=max_rounds) != "running"


def finish(state: AFCLState) -> AFCLResult:
    """Merge seeds that differ by less than 0.001 in every feature, also in chains; the first one stays."""
    labels = _groups(state.seeds)
    return AFCLResult(state.seeds[np.unique(labels, return_index=True)[1]], labels)


def _balance(takes: Mapping[str, int]) -> dict[str, float]:
    """Weigh a site the more, from 1/2 to 1, the less it has taken part."""
    return {name: 1.0 / (1.0 + count / max(sum(takes.values()), 1)) for name, count in takes.items()}


def _compete(
    state: AFCLState, heard: Mapping[str, Answer], balance: Mapping[str, float], rebuild: Rebuild
) -> FloatArray:
    """Seeds after all rows, by site, winner and row, have pulled them."""
    seeds, wins = state.seeds.copy(), np.ones(len(state.seeds))
    for name, answer in heard.items():
        order = np.argsort(answer.records.winners, kind="stable")
        scale = answer.weights * (balance[name] if rebuild == "released" else 1.0)
        # A feature of weight 0 carries no update, and the seed's value is all there is.
        offsets = answer.records.updates[order] / np.where(scale > 0, scale, 1.0)
        pull = state.weights * balance[name]
        for row in answer.seeds[answer.records.winners[order]] + offsets:
            squared = np.square(row - seeds).sum(axis=1)
            winner = int((wins * squared).argmin())
            wins[winner] += 1.0
            apart = np.square(seeds - seeds[winner]).sum(axis=1)
            company = apart <= max(squared[winner], _TOGETHER)
            seeds[company] += pull * (row - seeds[company])
    return seeds


def _learned(heard: Mapping[str, Answer], state: AFCLState) -> FloatArray:
    """Attribute weights in inverse proportion to a root of the updates' total size; 0 where nothing moves."""
    moves = np.sum([np.abs(answer.records.updates).sum(axis=0) for answer in heard.values()], axis=0)
    shares = np.where(moves > 0, np.where(moves > 0, moves, 1.0) ** (-1.0 / _SHARPNESS), 0.0)
    return np.asarray(state.rate * shares / shares.mean() if moves.any() else state.weights, dtype=np.float64)


def _groups(seeds: FloatArray) -> IntArray:
    from scipy.sparse.csgraph import connected_components

    near = (np.abs(seeds[:, None] - seeds) < _SAME).all(axis=2)
    return np.asarray(connected_components(near, directed=False)[1], dtype=np.int64)


def _davies_bouldin(records: list[Records], groups: IntArray) -> float:
    """Mean over the clusters of the worst ratio of spreads to distance; 0 if there is only one."""
    members = np.eye(int(groups.max()) + 1)[groups].T
    counts = members @ np.sum([part.counts for part in records], axis=0)
    sums = members @ np.sum([np.column_stack([part.sums, part.deviations]) for part in records], axis=0)
    means, spreads = np.split(sums[counts > 0] / counts[counts > 0, None], [-1], axis=1)
    apart = np.sqrt(squared_distances(means, means))
    ratios = np.divide(spreads + spreads.T, apart, out=np.zeros_like(apart), where=apart > 0)
    return float(ratios.max(axis=1).mean())
