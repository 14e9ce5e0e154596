"""Counting by consensus: the median of votes that err in different directions.

ASM fragments data that are not round, the silhouette of k-means is fond of few clusters or of very many, and
a few principal scores do not show everything. The median is nearer to the truth than any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fedcluster_app.cardinality import outliers
from fedcluster_app.cardinality.asm import MIN_MASSES, asm_cells, fit_asm, fit_cells
from fedcluster_app.cardinality.batch import batched_split_tree
from fedcluster_app.cardinality.count import Candidate, Cell, Count, Fit, Rows, moments_of
from fedcluster_app.cardinality.dendrogram import cuts
from fedcluster_app.cardinality.frame import frame_of
from fedcluster_app.cardinality.guard import MIN_MASS, is_one_cluster, principal_scores, score_tree
from fedcluster_app.cardinality.outliers import FARTHEST
from fedcluster_app.cardinality.selection import (
    FEWEST_HELD_OUT,
    MOST_SCORED,
    Judge,
    floor_of,
    hold_out,
    select,
)
from fedcluster_app.cardinality.variant import Variant
from fedcluster_app.errors import ConfigError
from fedcluster_app.metrics.silhouette import silhouette_from_distances
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.kmeans import kmeans
from fedcluster_app.mixtures.types import FloatArray

#: Merge ratios of the ASM votes.
COARSE_ALPHAS = (0.5, 1.0, 1.5, 2.0, 2.5)
#: Minimum mass of the tree whose dendrogram is cut, and the most components of a cut.
CUT_MASS, MOST_CUT = 20, 30
#: The k-means vote: most clusters, and runs for each number.
MOST_MEANS, RUNS = 20, 3
#: Principal scores of the votes that see no more than these.
SCORES = 5


class Ballot(NamedTuple):
    """What voters see: all rows Y (n, d) in their frame, a train and a held-out part, a generator."""

    Y: FloatArray
    train: Rows
    held_out: Rows
    rng: np.random.Generator

    def on_scores(self, scores: int) -> Ballot:
        """Return the same rows by their first principal scores."""
        projected = principal_scores(self.Y, scores)
        train, held_out = np.split(projected, [len(self.train.X)])
        return Ballot(projected, Rows(train), Rows(held_out), self.rng)


def vote_asm(ballot: Ballot, variant: Variant) -> int:
    """Count with ASM on the coarse grid."""

    def fit(rows: Rows, cells: Sequence[Cell]) -> list[Candidate]:
        return fit_cells(rows.X, cells, variant=variant)

    best = select(ballot.train, ballot.held_out, asm_cells(COARSE_ALPHAS), fit)
    return len(best.candidate.components.counts)


def vote_scores(ballot: Ballot) -> int:
    """Count with ASM with score "mixture" and full covariances, on five principal scores."""
    return vote_asm(ballot.on_scores(SCORES), Variant(score="mixture", covariance="full"))


def vote_dendrogram(ballot: Ballot) -> int:
    """Cut the whole dendrogram of the ASM tree where the held-out rows have the best silhouette."""
    tree = batched_split_tree(ballot.train.X, CUT_MASS)
    found = cuts(tree.leaf_moments(CUT_MASS), MOST_CUT)[::-1]
    cells = [{"k": float(len(components.counts))} for components in found]

    def fit(rows: Rows, cells: Sequence[Cell]) -> list[Candidate]:
        return [Candidate(cell, components) for cell, components in zip(cells, found, strict=True)]

    return len(select(ballot.train, ballot.held_out, cells, fit).candidate.components.counts)


def vote_kmeans(ballot: Ballot, errors: float) -> int:
    """Count with k-means and the silhouette of the same rows, 2 to 20 clusters.

    The fewest clusters win whose silhouette is within so many standard errors of the best: the curve is often
    flat, and its largest value then says little.
    """
    rows = ballot.Y[ballot.rng.permutation(len(ballot.Y))[:MOST_SCORED]]
    distances = np.sqrt(squared_distances(rows, rows))
    widths = {}
    for k in range(2, min(MOST_MEANS, len(rows) - 1) + 1):
        labels = kmeans(rows, k, ballot.rng, n_init=RUNS).labels
        if labels.any():
            widths[k] = silhouette_from_distances(distances, labels)
    if not widths:
        return 1
    best = max(widths, key=lambda k: (widths[k].mean(), -k))
    enough = widths[best].mean() - errors * widths[best].std() / np.sqrt(len(rows))
    return min(k for k, each in widths.items() if each.mean() >= enough)


def vote_leaves(ballot: Ballot) -> int:
    """Count the leaves of the full-covariance mixture tree on three principal scores."""
    return len(score_tree(ballot.Y).leaves(MIN_MASS))


VOTERS: Mapping[str, Callable[[Ballot], int]] = {
    "asm": partial(vote_asm, variant=Variant()),
    "mixture": partial(vote_asm, variant=Variant(score="mixture", covariance="diagonal")),
    "scores": vote_scores,
    "dendrogram": vote_dendrogram,
    "kmeans": partial(vote_kmeans, errors=0.0),
    "kmeans-scores": lambda ballot: vote_kmeans(ballot.on_scores(SCORES), errors=1.0),
    "leaves": vote_leaves,
}
#: The votes that are counted by default. Five others, "asm", "mixture", "scores", "dendrogram" and
#: "kmeans-scores", were better on the families that they were chosen on, and no better on others.
VOTES = ("asm", "dendrogram", "kmeans", "leaves")


def count_consensus(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    votes: Sequence[str] = VOTES,
    set_aside: float = FARTHEST,
) -> Count:
    """Count the clusters of a table as the median of several estimators' counts.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite, float64.
    rng : numpy.random.Generator
        Draws the held-out rows and the seeds of k-means.
    votes : sequence of str
        "asm", ASM on a coarse grid; "dendrogram", the merges of ASM cut where the silhouette is
        best, into 30 at most;
        "kmeans" with the best silhouette of 2 to 20 clusters; "leaves" of a full-covariance mixture tree on
        three principal scores. Also "mixture", ASM with score "mixture" and diagonal covariances; "scores",
        with full ones on five principal scores; "kmeans-scores", on five principal scores the fewest clusters
        within a standard error of the best silhouette. Of an even number the median is the mean of the middle
        two, halves rounded up.
    set_aside : float, 0 or above 1
        Rows that are alone and farther than this many median distances do not vote; 0 keeps all. See
        :func:`~fedcluster_app.cardinality.outliers.within_reach`.

    Returns
    -------
    Count
        The components are those of k-means with the count on all rows that were not set aside, as no single
        vote need have that count; `chosen` holds the votes by name, `silhouette` is that of the components on
        the rows that the votes held out. Status "consensus", or "one cluster" when
        :func:`~fedcluster_app.cardinality.guard.is_one_cluster` says so, and no vote is asked: those that
        choose by silhouette hardly ever count one. With fewer than 13 rows, ASM's count.

    Raises
    ------
    ConfigError
        If there is no such vote.
    DataError
        As :func:`~fedcluster_app.cardinality.asm.count_asm`.

    Notes
    -----
    Costs some twelve times as much as ASM alone, most of it for mixture trees and k-means. At most 30000
    rows vote.

    **Source**: ours; ASM is that of Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762.
    """
    return fit_consensus(X, rng, votes=votes, set_aside=set_aside).count()


def fit_consensus(X: FloatArray, rng: np.random.Generator, *, votes: Sequence[str], set_aside: float) -> Fit:
    """:func:`count_consensus`, which describes the parameters, before it is mapped back from its frame."""
    if not votes or any(name not in VOTERS for name in votes):
        raise ConfigError(f"votes: expected some of {', '.join(VOTERS)}, got {', '.join(votes) or 'none'}")
    kept = outliers.set_aside(X, set_aside) if set_aside else None
    X = X if kept is None else X[kept]
    frame = frame_of(X)
    rows = Rows(frame.apply(X))
    train, held_out = hold_out(len(X), rng)
    if len(held_out) < FEWEST_HELD_OUT:
        fit = fit_asm(
            X, rng, alphas=COARSE_ALPHAS, min_masses=MIN_MASSES, delta=1.0, em_steps=15, order="ratio"
        )
        return replace(fit, kept=kept)
    ballot = Ballot(rows.X[np.r_[train, held_out]], rows.take(train), rows.take(held_out), rng)
    one = is_one_cluster(ballot.Y)
    counted = {} if one else {name: VOTERS[name](ballot) for name in votes}
    labels = kmeans(rows.X, 1 if one else median(list(counted.values())), rng).labels
    candidate, floor = Candidate(counted, moments_of(rows, labels), nearest=True), floor_of(rows.X)
    if one:
        return Fit(frame, candidate, floor, "one cluster", kept=kept)
    held = held_out[:MOST_SCORED]
    silhouette = Judge(rows.take(held)).score_of(candidate, floor)
    return Fit(frame, candidate, floor, "consensus", silhouette, kept=kept)


def median(votes: Sequence[int]) -> int:
    """Middle vote; of an even number the mean of the middle two, halves rounded up."""
    ordered = sorted(votes)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2] + 1) // 2
