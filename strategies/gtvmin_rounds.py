"""Where a run of GTVMin stands: the rounds at hand, the path of alpha, and the unit of the features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedcluster_app.data.scaling import Scaling, lower_triangle
from fedcluster_app.gtvmin import node
from fedcluster_app.gtvmin.alpha_path import Point, gain
from fedcluster_app.gtvmin.graph import Edge, Graph
from fedcluster_app.gtvmin.identity import Identity
from fedcluster_app.gtvmin.node import Report
from fedcluster_app.gtvmin.progress import Progress
from fedcluster_app.gtvmin.projection import Bounds
from fedcluster_app.gtvmin.starts import component_variances
from fedcluster_app.messages import GTVMixture, Labelled
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import merge_all
from strategies.base import Agreement
from strategies.graphs import Laid, part_of
from strategies.mailbox import Mailbox, Post
from strategies.plausible import greeted

# Least unit, as a share of the spread of all rows.
SMALLEST_UNIT = 0.1


@dataclass(frozen=True, eq=False)
class Stage:
    """Rounds at one alpha.

    Attributes
    ----------
    alpha : float
    progress : Progress
        Of the mixtures of all rows.
    mailbox : Mailbox of GTVMixture
    """

    alpha: float
    progress: Progress
    mailbox: Mailbox[GTVMixture]

    @property
    def held_out(self) -> Point:
        """How well rows are told that were held out, at the sites that have just said so."""
        posts = {
            name: post.content
            for name, post in self.mailbox.posts.items()
            if not self.mailbox.age(name) and not post.content.k_counted
        }
        rows = {name: post.held_out_rows for name, post in posts.items() if post.held_out_rows}
        return Point(self.alpha, {name: posts[name].held_out for name in rows}, rows)


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
    alphas : tuple of float
        Strengths to try, the weakest first.
    unit : float
        Of the features in which the rounds take place, in those of the agreed scaling.
    turn : int
        How often all sites have begun anew.
    chosen : bool
        Whether alpha stands, after a path of several.
    best : Stage, optional
        The round at the alpha at hand in which rows held out were told best so far.
    seen : tuple of Point
        How well they were told in every round of the path.
    off : tuple of Edge
        Edges that have faded away.
    starts : mapping of site name to GTVMixture
        What every site started with.
    stopped_by : str
        Why the rounds ended.
    identity : Identity, optional
        Numbers of the components over all sites, once the rounds are over.
    labelled : mapping of site name to Labelled, optional
    """

    agreement: Agreement
    stage: Stage
    laid: Laid | None = None
    graph: Graph | None = None
    last: Stage | None = None
    alphas: tuple[float, ...] = ()
    unit: float = 1.0
    turn: int = 0
    chosen: bool = False
    best: Stage | None = None
    seen: tuple[Point, ...] = ()
    off: tuple[Edge, ...] = ()
    starts: Mapping[str, GTVMixture] = field(default_factory=dict)
    stopped_by: str = "running"
    identity: Identity | None = None
    labelled: Mapping[str, Labelled] | None = None

    @property
    def rows(self) -> dict[str, int]:
        """Rows of every site that has a mixture."""
        return {name: self.agreement.roster.members[name].hello.rows for name in self.stage.mailbox.posts}

    @property
    def scaling(self) -> Scaling:
        """From columns to the features of the rounds."""
        return self.agreement.scaling.in_units(self.unit)

    @property
    def mixtures(self) -> dict[str, Mixture]:
        """The last mixture of every site that ever sent one, in the features of the rounds."""
        return {name: post.content.mixture for name, post in self.stage.mailbox.posts.items()}

    @property
    def agreed_mixtures(self) -> dict[str, Mixture]:
        """The same in the features of the agreed scaling."""
        return {name: in_units(mixture, 1 / self.unit) for name, mixture in self.mixtures.items()}

    def log_density(self, point: Point) -> float:
        """Return the mean log-density of a row held out, in the features of the agreed scaling."""
        return point.mean - self.agreement.scaling.n_features_out * math.log(self.unit)

    def anew(self, alpha: float) -> GTVRun:
        """Return the run before the first round at an alpha: every site as it started, and silent as long."""
        mailbox = self.stage.mailbox
        posts = {name: Post(self.starts[name], post.round) for name, post in mailbox.posts.items()}
        stage = Stage(alpha, Progress(), Mailbox(posts, mailbox.round))
        return replace(self, stage=stage, turn=self.turn + 1, best=None)

    def at_best(self) -> GTVRun:
        """Return the run with the mixtures of its best round, and those of sites that came later."""
        if self.best is None:
            return self
        now, then = self.stage.mailbox, self.best.mailbox
        posts = dict(sorted({**now.posts, **then.posts}.items()))
        return replace(self, stage=replace(self.best, mailbox=Mailbox(posts, then.round)))

    def with_scores(self) -> GTVRun:
        """Return the run with what held-out rows say of the round at hand."""
        point = self.stage.held_out
        best = None if self.best is None else self.best.held_out
        better = best is None or (bool(point.rows) and (not best.rows or gain(point, best) > 0))
        seen = self.seen if self.chosen else (*self.seen, point)
        return replace(self, seen=seen, best=self.stage if better else self.best)

    @property
    def live_graph(self) -> Graph:
        """The graph over the sites that have mixtures, with the edges as they weigh now."""
        assert self.graph is not None
        return part_of(self.graph, self.mixtures)


def in_units(mixture: Mixture, unit: float) -> Mixture:
    """Return a mixture of the features divided by ``unit``."""
    return Mixture(mixture.weights, mixture.means / unit, mixture.covariances / unit**2)


def unit_of(agreement: Agreement, mixtures: Mapping[str, Mixture]) -> float:
    """Return the usual spread of rows about their component, which becomes the unit of the features.

    Steps, bandwidths and bounds are numbers in that unit: so they are in the paper's experiments, whose
    components have variance 1. It is a median over all rows of all sites: wide components of a few outliers,
    or of one site, do not move it. Where most rows equal others it is a share of the spread of all.
    """
    roster, scaling = agreement.roster, agreement.scaling
    variances = np.concatenate([component_variances(mixture) for mixture in mixtures.values()])
    masses = np.concatenate(
        [roster.members[name].hello.rows * mixture.weights for name, mixture in mixtures.items()]
    )
    order = np.argsort(variances, kind="stable")
    share = np.cumsum(masses[order]) / masses.sum()
    usual = math.sqrt(variances[order][np.searchsorted(share, 0.5)])
    whole = greeted(merge_all(list(roster.moments.values())), scaling)
    return max(usual, SMALLEST_UNIT * math.sqrt(whole.variance.mean())) or 1.0


def rescaled(start: GTVMixture, unit: float, bounds: Bounds) -> GTVMixture:
    """Return what a site starts with in another unit, and inside the bounds in that unit."""
    made = node.init(in_units(start.mixture, unit), bounds).mixture
    shift = made.n_features * math.log(unit)  # what a row's log-density gains
    triangles = lower_triangle(made.covariances)
    return replace(
        start, weights=made.weights, means=made.means, covariances=triangles, loss=start.loss - shift
    )


def report_of(answer: GTVMixture) -> Report:
    """Return what a site reports of a round."""
    return Report(answer.loss, answer.coupling, answer.mapping, answer.halvings)
