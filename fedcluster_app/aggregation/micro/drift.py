"""Sensors that differ between sites: whether they do, by how much, and the micro-clusters without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import Clusters
from fedcluster_app.aggregation.micro.offsets import Alignment, OffsetState, remove
from fedcluster_app.aggregation.micro.register import centre, register
from fedcluster_app.aggregation.micro.sensors import (
    GAINS,
    OFFSETS,
    PLAIN,
    Found,
    Model,
    Search,
    best_fit,
    held_out,
    settle,
)
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.types import FloatArray, IntArray

GRID = (1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 30)
# By how much the criterion must fall before the rows held out are asked.
CLEARLY = 10.0
# A site holds a cluster of which it has this share of its rows.
HELD = 0.05
# Two clusters fix where a site lies; so many of the sites must be joined by such pairs.
PAIR, MOST_SITES = 2, 0.75
NOT_TOLD = (
    "offsets cannot be told from different classes: at least two shared clusters per pair of neighbouring "
    "sites are needed"
)


@dataclass(frozen=True, eq=False)
class Drift:
    """What was found about the sites' sensors.

    Attributes
    ----------
    on : bool
        Whether it is to be taken out.
    offsets, gains : (G, q) arrays
        A row of a site is offset + gain * (the row as the global clusters have it).
    widths : (G,) array
        Size of every site's offset in units of the width of clusters, root mean square over the axes.
    bic_gain, held_out_gain, standard_error : float
        By how much the model that was taken beats the one before it, or if none was taken the last that was
        tried: in BIC, in log-likelihood of rows held out, and the standard error of that over the sites. NaN
        where it was not looked at.
    start : str
        Which start the offsets come from.
    words : tuple of str
        What to tell people.
    """

    on: bool
    offsets: FloatArray
    gains: FloatArray
    widths: FloatArray
    bic_gain: float = np.nan
    held_out_gain: float = np.nan
    standard_error: float = np.nan
    start: str = "stored"
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Verdict:
    """Whether the richer of two models is to be believed, and what speaks for it."""

    on: bool
    bic_gain: float
    held_out_gain: float = np.nan
    standard_error: float = np.nan
    joined: float = 1.0


def align(cells: Cells, drift: Drift) -> Cells:
    """Return the micro-clusters of all sites without their sites' offsets and gains."""
    return remove(cells, Alignment(drift.offsets, drift.gains))


def find_drift(
    cells: Cells, rng: np.random.Generator, *, gains: bool = False, ks: Sequence[int] = GRID
) -> Drift:
    """Look for offsets of sites, and then for gains, and say whether they are there.

    Parameters
    ----------
    cells
        As they were sent.
    rng
        For starts that are drawn.
    gains
        Whether gains are looked for too, once there are offsets.
    ks
        Numbers of clusters that are tried.

    Notes
    -----
    **Source**: ours. A model is believed only if its BIC, with offsets integrated out, is clearly lower *and*
    rows held out are likelier by more than one standard error over sites: with few clusters in the model,
    offsets also pay for what is only another mix of classes. What nobody can tell is an offset from another
    class where sites share hardly any: there, offsets are believed only if they are small against the
    distances of clusters, so that no site is laid over another class.
    """
    smaller_half = min(int((cells.halves == half).sum()) for half in (0, 1))
    search = Search([k for k in ks if k < 0.6 * smaller_half], rng)
    none = Alignment(np.zeros((cells.n_sites, cells.n_features)), np.ones((cells.n_sites, cells.n_features)))
    if len(np.unique(cells.sites)) < 2 or not search.ks:
        words = "too few sites or micro-clusters to look for offsets of sites"
        return Drift(False, none.offsets, none.gains, none.offsets[:, 0], start="none", words=(words,))
    starts_of_offsets = {
        "zero": none,
        "centre": Alignment(centre(cells), none.gains),
        "register": Alignment(register(cells, rng), none.gains),
    }
    plain = best_fit(cells, starts_of_offsets, search, PLAIN)
    offsets = best_fit(cells, starts_of_offsets, search, OFFSETS)
    verdict, found = _judge(cells, (PLAIN, plain), (OFFSETS, offsets), starts_of_offsets, search)
    model = OFFSETS
    if gains:
        starts_of_gains = _starts_of_gains(cells, found.state, rng)
        scaled = best_fit(cells, starts_of_gains, search, GAINS)
        before = (OFFSETS, offsets) if verdict.on else (PLAIN, plain)
        better, refound = _judge(cells, before, (GAINS, scaled), starts_of_gains, search)
        if better.on or not verdict.on:
            model, verdict, found = GAINS, better, refound
    return _result(verdict, found.state if verdict.on else none, f"{model} from {found.start}")


def _starts_of_gains(cells: Cells, state: OffsetState, rng: np.random.Generator) -> dict[str, Alignment]:
    """Return alignments to start gains from: none, and gains that give all sites the same spread.

    With gains taken out, sites can be laid over each other anew.
    """
    ones = np.ones_like(state.alignment.gains)
    aligned, within, total = remove(cells, state.alignment), ones.copy(), ones.copy()
    for g in np.unique(cells.sites):
        own = aligned.take(cells.sites == g)
        within[g], total[g] = own.within_variance(), np.diagonal(own.total_covariance())
    found = {"no gains": state.alignment}
    for name, variances in (("spread of cells", within), ("spread of sites", total)):
        logs = np.log(np.maximum(variances, 1e-12)) / 2
        gains = np.exp(logs - logs.mean(axis=0))
        found[name] = Alignment(state.alignment.offsets, gains)
        anew = register(remove(cells, Alignment(0 * gains, gains)), rng)
        found[f"{name}, laid anew"] = Alignment(gains * anew, gains)
    return found


def _judge(
    cells: Cells,
    simple: tuple[Model, Found],
    rich: tuple[Model, Found],
    tried: Mapping[str, Alignment],
    search: Search,
) -> tuple[_Verdict, Found]:
    """Say whether the richer of two models is to be believed: by BIC, by rows held out, by what sites share.

    Also returned is its fit, where it was likelier at the number of clusters that rows held out favour.
    """
    bic_gain = simple[1].bic - rich[1].bic
    if not bic_gain > CLEARLY:
        return _Verdict(False, bic_gain), rich[1]
    there = np.unique(cells.sites)
    before, after = held_out(cells, *simple, search), held_out(cells, *rich, search)
    likelier = (after.log_likelihood - before.log_likelihood)[there]
    gain, error = float(likelier.sum()), float(np.sqrt(len(there)) * likelier.std(ddof=1))
    if not gain > error:
        return _Verdict(False, bic_gain, gain, error), rich[1]
    found = settle(cells, tried, replace(search, ks=[after.k]), *rich)
    joined = _joined(found.state.clusters.weights[there])
    told = joined >= MOST_SITES or _are_small(found.state, there)
    return _Verdict(told, bic_gain, gain, error, joined), found


def _joined(weights: FloatArray) -> float:
    """Return the largest share of sites, of weights (G, K), joined by pairs of clusters that both hold."""
    held = (weights > HELD).astype(np.int64)
    reached = (held @ held.T >= PAIR) | np.eye(len(held), dtype=bool)
    for _ in range(len(held).bit_length()):
        reached = reached @ reached
    return float(reached.mean(axis=1).max())


def _are_small(state: OffsetState, there: IntArray) -> bool:
    """Whether offsets of sites usually are under half the distance of a cluster to the next."""
    if state.clusters.k == 1:
        return False
    width = np.sqrt(_variances(state.clusters))
    means = state.clusters.means / width
    between = squared_distances(means, means)
    np.fill_diagonal(between, np.inf)
    sizes = np.square(state.alignment.offsets[there] / width).sum(axis=1)
    return bool(sizes.mean() < np.median(between.min(axis=1)) / 4)


def _result(verdict: _Verdict, found: OffsetState | Alignment, start: str) -> Drift:
    gains = isinstance(found, OffsetState) and (found.alignment.gains != 1).any()
    said = f"{'offsets and gains' if gains else 'offsets'} of sites: {'on' if verdict.on else 'off'} "
    said += f"(BIC {'better' if verdict.bic_gain > 0 else 'worse'} by {abs(verdict.bic_gain):.0f}"
    if not np.isnan(verdict.held_out_gain):
        said += f", rows held out by {verdict.held_out_gain:.0f} ± {verdict.standard_error:.0f}"
    words = [f"{said})"]
    if isinstance(found, Alignment):
        alignment, widths = found, np.zeros(len(found.offsets))
    else:
        alignment = found.alignment
        widths = offset_widths(alignment.offsets, found.clusters)
        words.append(f"offsets of {widths.min():.1f} to {widths.max():.1f} widths of a cluster are taken out")
        if gains:
            words[-1] += f", and gains of {alignment.gains.min():.2f} to {alignment.gains.max():.2f}"
    if verdict.joined < 1:
        words += [
            f"only {verdict.joined:.0%} of the sites are joined by clusters that they share in pairs",
            NOT_TOLD,
        ]
    evidence = (verdict.bic_gain, verdict.held_out_gain, verdict.standard_error)
    return Drift(verdict.on, alignment.offsets, alignment.gains, widths, *evidence, start, tuple(words))


def offset_widths(offsets: FloatArray, clusters: Clusters) -> FloatArray:
    """Return the size of every site's offset, (G, q), in widths of a cluster: shape (G,)."""
    widths: FloatArray = np.sqrt((np.square(offsets) / _variances(clusters)).mean(axis=1))
    return widths


def _variances(clusters: Clusters) -> FloatArray:
    """Return the mean variance within clusters along every axis, shape (q,)."""
    variances: FloatArray = clusters.global_weights @ np.diagonal(clusters.covariances, axis1=1, axis2=2)
    return variances
