"""The FedGEM loop at the server: init / step / done over an explicit state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedcluster_app.aggregation.balls import Balls, site_of_component, split_by_site
from fedcluster_app.aggregation.grouping import PairOrder, merging_pairs, pair_order
from fedcluster_app.aggregation.scan import Pairs, agreed_means, cross_site_pairs
from fedcluster_app.mixtures.types import FloatArray

Status = Literal["running", "converged", "max_rounds"]


@dataclass(frozen=True, eq=False)
class FedGEMState:
    """The server's memory between rounds. Both mappings are in order of site name.

    Parameters
    ----------
    balls : mapping of site name to Balls
        The last ball every site has sent.
    means : mapping of site name to (k, d) array
        What each site gets back.
    round : int
        Server steps taken.
    movement : float
        Largest displacement of a mean between the last two server results; infinite while a site is new.
    k_hat : int
        Super-clusters at the radii of the last round: a diagnostic, nothing is decided on it.
    """

    balls: Mapping[str, Balls] = field(default_factory=dict)
    means: Mapping[str, FloatArray] = field(default_factory=dict)
    round: int = 0
    movement: float = float("inf")
    k_hat: int = 0


def init() -> FedGEMState:
    """State before the first round."""
    return FedGEMState()


def step(state: FedGEMState, balls: Mapping[str, Balls], *, order: PairOrder = "nearest") -> FedGEMState:
    """One server round: overlaps between sites, new means, super-clusters as they stand.

    A site that did not answer keeps its last ball; one that answers for the first time joins; the order of
    the mapping has no effect. A round in which nobody answered only counts as one.

    Parameters
    ----------
    state : FedGEMState
        State after the last round.
    balls : mapping of site name to Balls
        Answers of this round.
    order : {"nearest", "released"}
        Order of the pairs for `k_hat`. ``nearest`` offers touching pairs by w / (r_i + r_j), the factor by
        which all balls could shrink with this pair still touching, so the groups at larger balls are unions
        of those at smaller.

    Returns
    -------
    FedGEMState

    Notes
    -----
    Cost O(m^2 d) for m components in all. **Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160, server
    update.
    """
    if not balls:
        return replace(state, round=state.round + 1)
    known = {**state.balls, **balls}
    known = {name: known[name] for name in sorted(known)}
    parts = {name: ball.means for name, ball in known.items()}
    site = site_of_component(parts)
    centers = np.concatenate(list(parts.values()))
    radii = np.concatenate([ball.radii for ball in known.values()])
    pairs = cross_site_pairs(centers, site, radii)
    means = split_by_site(agreed_means(centers, radii, pairs), parts)
    merges = merging_pairs(pairs, pair_order(_shrink_factors(pairs, radii), order), site)
    return FedGEMState(
        balls=known,
        means=means,
        round=state.round + 1,
        movement=_movement(state.means, means),
        k_hat=len(site) - len(merges),
    )


def status(state: FedGEMState, *, tolerance: float = 1e-3, max_rounds: int = 10) -> Status:
    """Tell which stopping rule has fired: ``converged``, ``max_rounds``, or none yet (``running``).

    Parameters
    ----------
    state : FedGEMState
        State after a round.
    tolerance : float
        Converged when no mean moved by more than this (in the unit of the features).
    max_rounds : int
        T, the number of server steps; the authors' code takes one more for the same T.

    Returns
    -------
    {"running", "converged", "max_rounds"}

    Notes
    -----
    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762 (T = 10); the tolerance is that of the
    code of Ibrahim, Gebraeel and Xie, arXiv:2601.21160, where only some experiments use it.
    """
    if state.movement <= tolerance:
        return "converged"
    return "max_rounds" if state.round >= max_rounds else "running"


def done(state: FedGEMState, *, tolerance: float = 1e-3, max_rounds: int = 10) -> bool:
    """Whether the rounds are over; see `status`."""
    return status(state, tolerance=tolerance, max_rounds=max_rounds) != "running"


def _shrink_factors(pairs: Pairs, radii: FloatArray) -> FloatArray:
    reach = radii[pairs.first] + radii[pairs.second]
    return np.divide(pairs.distance, reach, out=np.zeros_like(reach), where=reach > 0)


def _movement(before: Mapping[str, FloatArray], after: Mapping[str, FloatArray]) -> float:
    if any(name not in before or before[name].shape != means.shape for name, means in after.items()):
        return float("inf")
    moved = np.concatenate([means - before[name] for name, means in after.items()])
    return float(np.sqrt(np.square(moved).sum(axis=1)).max(initial=0.0))
