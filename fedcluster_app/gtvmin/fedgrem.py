"""FedGrEM: a gradient EM step at every site, and a server that shrinks the sites' parameters together.

The number of components is given and the same at all sites. A site keeps nothing between rounds::

    state = init({"a": local.fit(X_a, k, rng_a, bounds), ...}, k)
    while not done(state):
        state = step(state, {"a": client_step(X_a, model_for(state, "a")), ...})
    mixtures = state.models

Sites of several networks, or in blocks that are known, are separate states. What a site sends is its mixture
and its number of rows: the server compares sites with each other, so secure aggregation cannot hide them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.aligned import align
from fedcluster_app.gtvmin.blocks import blocks, squared_distance
from fedcluster_app.gtvmin.fedgrem_settings import PUBLISHED, TUNED, GrEMSettings
from fedcluster_app.gtvmin.fedgrem_site import SiteModel, client_step
from fedcluster_app.gtvmin.starts import Start
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray

__all__ = [
    "PUBLISHED",
    "TUNED",
    "GrEMSettings",
    "GrEMState",
    "SiteModel",
    "client_step",
    "done",
    "init",
    "model_for",
    "shrink",
    "status",
    "step",
]

Status: TypeAlias = Literal["running", "converged", "max_rounds"]


@dataclass(frozen=True, eq=False)
class GrEMState:
    """The server's memory between rounds. Both mappings are in order of site name.

    Attributes
    ----------
    pooled : Mixture
        Common part of all sites; what a site gets that has sent nothing yet.
    models : mapping of site name to Mixture
        What the sites get.
    uploads : mapping of site name to SiteModel
        The last upload of every site.
    strength : float
        lambda, the penalty of the last round; 1 before the first.
    round : int
        Server steps taken.
    movement : float
        Largest change of a site's parameters in the last step; infinite when a site is new.
    """

    pooled: Mixture
    models: Mapping[str, Mixture]
    uploads: Mapping[str, SiteModel] = field(default_factory=dict)
    strength: float = 1.0
    round: int = 0
    movement: float = float("inf")


def init(starts: Mapping[str, Start], k: int) -> GrEMState:
    """State before the first round: the sites' local fits, aligned once.

    Parameters
    ----------
    starts : mapping of site name to Start
        See `local.fit`. A site with fewer than k components begins from the pooled start.
    k : int

    Raises
    ------
    ConfigError
        If a site has more than k components.
    DataError
        If no site has k.

    Notes
    -----
    **Source**: arXiv:2310.15330, alignment of the initial estimates; here with the first site's, by the
    Hungarian method.
    """
    aligned = align(starts, k)
    return GrEMState(aligned.pooled, aligned.mixtures)


def model_for(state: GrEMState, site: str) -> Mixture:
    """Mixture that a site gets: its own, or the pooled one if it is new."""
    return state.models.get(site, state.pooled)


def step(state: GrEMState, uploads: Mapping[str, SiteModel], settings: GrEMSettings = TUNED) -> GrEMState:
    """One server round: shrink means and covariances of equal number towards what they have in common.

    A site that did not answer keeps its last upload; one that answers for the first time joins; the order of
    the mapping has no effect. If no site has any rows, only the round is counted.

    Parameters
    ----------
    state : GrEMState
    uploads : mapping of site name to SiteModel
        Answers of this round.
    settings : GrEMSettings

    Raises
    ------
    ConfigError
        If a site's number of components is not that of the others.

    Notes
    -----
    lambda <- kappa lambda + C sqrt(d + ln k), then `shrink` with lambda / sqrt(n_i); weights stay the sites'
    own. Cost O(passes G k d²) for G sites. **Source**: arXiv:2310.15330, algorithm 1, server. Deviation: the
    alternation really takes its passes; in the authors' code an indexing slip ends it after one.
    """
    known = {**state.uploads, **uploads}
    known = {name: known[name] for name in sorted(known)}
    _check_components(known, state.pooled)
    if not any(part.rows for part in known.values()):
        return replace(state, uploads=known, round=state.round + 1)
    k, d = state.pooled.means.shape
    strength = settings.decay * state.strength + settings.penalty * np.sqrt(d + np.log(k))
    parts = [blocks(part.mixture) for part in known.values()]
    rows = np.array([part.rows for part in known.values()], dtype=np.float64)
    limits = strength / np.sqrt(np.maximum(rows, 1.0))
    weights = np.stack([part.weights for part in parts])
    means, mean = shrink(np.stack([part.means for part in parts]), rows, limits, settings.passes)
    flat = np.stack([part.covariances.reshape(k, -1) for part in parts])
    spreads, spread = shrink(flat, rows, limits, settings.passes)
    models = {
        name: Mixture(weights[i], means[i], spreads[i].reshape(k, d, d)) for i, name in enumerate(known)
    }
    pooled = Mixture(rows @ weights / rows.sum(), mean, spread.reshape(k, d, d))
    models = {**state.models, **models}
    models = {name: models[name] for name in sorted(models)}
    moved = _movement(state.models, models)
    return GrEMState(pooled, models, known, float(strength), state.round + 1, moved)


def shrink(
    values: FloatArray, rows: FloatArray, limits: FloatArray, passes: int
) -> tuple[FloatArray, FloatArray]:
    """Split every site's vectors into a common part and an own one, and return them shrunk.

    Parameters
    ----------
    values : array of shape (G, k, p)
        k vectors of each of G sites.
    rows : array of shape (G,)
        Weights w, not all 0.
    limits : array of shape (G,)
        t >= 0: what is within this distance of the common part becomes the common part.
    passes : int, >= 1

    Returns
    -------
    shrunk : array of shape (G, k, p)
        common + own
    common : array of shape (k, p)

    Notes
    -----
    Minimises, for each of the k, sum_i w_i (|v_i - common - own_i|² / 2 + t_i |own_i|) by turns in `common`
    and `own`. The sum is convex and its kinks lie in each own_i alone, so turns lead to the minimum. All that
    comes out are averages of what came in, so covariances remain covariances.
    """
    shares = rows / rows.sum()
    own = np.zeros_like(values)
    for _ in range(passes):
        common = np.einsum("g,gkp->kp", shares, values - own)
        apart = values - common
        length = np.sqrt(np.square(apart).sum(axis=2, keepdims=True))
        beyond = np.maximum(length - limits[:, None, None], 0.0)
        own = apart * (beyond / np.where(length > 0, length, 1.0))
    return common + own, common


def status(state: GrEMState, *, tolerance: float = 1e-4, max_rounds: int = 40) -> Status:
    """Tell which rule has ended the rounds: ``converged`` if no site's parameters moved by more."""
    if state.movement <= tolerance:
        return "converged"
    return "max_rounds" if state.round >= max_rounds else "running"


def done(state: GrEMState, *, tolerance: float = 1e-4, max_rounds: int = 40) -> bool:
    """Whether the rounds are over; see `status`."""
    return status(state, tolerance=tolerance, max_rounds=max_rounds) != "running"


def _check_components(uploads: Mapping[str, SiteModel], pooled: Mixture) -> None:
    for name, part in uploads.items():
        if part.mixture.means.shape != pooled.means.shape:
            raise ConfigError(
                f"site {name}: expected components and features {pooled.means.shape} as everywhere, got "
                f"{part.mixture.means.shape}; give every site the same k"
            )


def _movement(before: Mapping[str, Mixture], after: Mapping[str, Mixture]) -> float:
    if before.keys() != after.keys():
        return float("inf")
    squares = (squared_distance(blocks(after[name]), blocks(before[name])) for name in after)
    return float(np.sqrt(max(squares)))
