"""Where a run of GTVMin stands: the rounds at hand, the path of alpha, and the unit of the features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedcluster_app.gtvmin import node
from fedcluster_app.gtvmin.alpha_path import Point
from fedcluster_app.gtvmin.graph import Edge, Graph
from fedcluster_app.gtvmin.identity import Identity
from fedcluster_app.gtvmin.node import Report
from fedcluster_app.gtvmin.progress import Progress
from fedcluster_app.gtvmin.projection import Bounds
from fedcluster_app.gtvmin.starts import within_variance
from fedcluster_app.messages import GTVModels, Labelled
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.mixtures.mixture import Mixture
from strategies.base import Agreement
from strategies.graphs import Laid, part_of
from strategies.mailbox import Mailbox, Post


@dataclass(frozen=True, eq=False)
class Stage:
    """Rounds at one alpha.

    Attributes
    ----------
    alpha : float
    progress : Progress
        Of the mixtures of all rows.
    mailbox : Mailbox of GTVModels
    """

    alpha: float
    progress: Progress
    mailbox: Mailbox[GTVModels]

    def later(self, number: int) -> Stage:
        """Return the same rounds with posts that are as old as ever, after those of other alphas."""
        gone = number - self.mailbox.round
        posts = {name: Post(post.content, post.round + gone) for name, post in self.mailbox.posts.items()}
        return replace(self, mailbox=Mailbox(posts, number))

    @property
    def held_out(self) -> Point:
        """How well rows are told that were left out, at the sites that leave some out."""
        posts = {name: post.content for name, post in self.mailbox.posts.items()}
        rows = {name: int(models.held_out_rows.sum()) for name, models in posts.items()}
        rows = {name: number for name, number in rows.items() if number}
        return Point(self.alpha, {name: float(posts[name].held_out.sum()) for name in rows}, rows)


@dataclass(frozen=True, eq=False)
class GTVRun:
    """Where a run stands.

    Attributes
    ----------
    agreement : Agreement
    laid : Laid, optional
        The graph, once it can be laid.
    graph : Graph, optional
        The same with the edges as they weigh now.
    stage : Stage
        The rounds at hand.
    last : Stage, optional
        As the last round left it, before the next alpha was taken.
    chosen : bool
        Whether alpha stands.
    best : Stage, optional
        The round in which rows held out were told best so far.
    seen : tuple of Point
        How well they were told in every round.
    off : tuple of Edge
        Edges that have faded away.
    starts : mapping of site name to GTVModels
        What every site started with.
    k_counted : mapping of site name to int
    identity : Identity, optional
        Numbers of the components over all sites, once the rounds are over.
    labelled : mapping of site name to Labelled, optional
    """

    agreement: Agreement
    stage: Stage
    laid: Laid | None = None
    graph: Graph | None = None
    last: Stage | None = None
    chosen: bool = False
    best: Stage | None = None
    seen: tuple[Point, ...] = ()
    off: tuple[Edge, ...] = ()
    starts: Mapping[str, GTVModels] = field(default_factory=dict)
    k_counted: Mapping[str, int] = field(default_factory=dict)
    identity: Identity | None = None
    labelled: Mapping[str, Labelled] | None = None

    @property
    def mixtures(self) -> dict[str, Mixture]:
        """The last mixture of all rows of every site that ever sent one."""
        return {name: post.content.mixtures[0] for name, post in self.stage.mailbox.posts.items()}

    def anew(self, alpha: float) -> Stage:
        """Return the first round at another alpha: every site as it started, and as old as its last post."""
        posts = {name: Post(self.starts[name], post.round) for name, post in self.stage.mailbox.posts.items()}
        return Stage(alpha, Progress(), Mailbox(posts, self.stage.mailbox.round))

    def with_scores(self) -> GTVRun:
        """Return the run with what held-out rows say of the round at hand."""
        point = self.stage.held_out
        better = self.best is None or point.mean > self.best.held_out.mean
        return replace(self, seen=(*self.seen, point), best=self.stage if better else self.best)

    @property
    def live_graph(self) -> Graph:
        """The graph over the sites that have mixtures, with the edges as they weigh now."""
        assert self.graph is not None
        return part_of(self.graph, self.mixtures)


def unit_of(state: GTVRun, values: Mapping[str, GTVModels]) -> float:
    """Return the spread of rows about their components, which becomes the unit of the features.

    Steps, bandwidths and bounds are numbers in that unit: so they are in the paper's experiments, whose
    components have variance 1.
    """
    rows = {name: state.agreement.roster.members[name].hello.rows for name in values}
    within = sum(rows[name] * within_variance(values[name].mixtures[0]) for name in values)
    return math.sqrt(within / sum(rows.values())) if rows else 1.0


def rescaled(models: GTVModels, unit: float, bounds: Bounds) -> GTVModels:
    """Return what a site starts with in another unit, and inside the bounds in that unit."""
    scaled = [
        node.init(Mixture(m.weights, m.means / unit, m.covariances / unit**2), bounds).mixture
        for m in models.mixtures
    ]
    shift = models.means.shape[1] * math.log(unit)  # what a row's log-density gains
    held_out = models.held_out + shift * models.held_out_rows
    return replace(models, **stacked(scaled), loss=models.loss - shift, held_out=held_out)


def report_of(models: GTVModels) -> Report:
    """Return what a site reports of its mixture of all rows."""
    return Report(
        loss=float(models.loss[0]),
        coupling=float(models.coupling[0]),
        mapping=float(models.mapping[0]),
        halvings=int(models.halvings[0]),
    )
