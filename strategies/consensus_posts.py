"""What a site of consensus EM sent, and whether it can be: the coordinator knows all but the site's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin.blocks import blocks
from fedcluster_app.gtvmin.consensus_em import Message, follow
from fedcluster_app.gtvmin.consensus_gains import Gains
from fedcluster_app.gtvmin.consensus_moments import parameters_from
from fedcluster_app.messages import ConsensusSums
from fedcluster_app.messages.networks import mean_of
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray
from strategies.plausible import TOLERANCE, Totals


@dataclass(frozen=True, eq=False)
class Sent:
    """What a site sent, with what has flowed to it by name of neighbour."""

    sums: ConsensusSums
    flows: Mapping[str, FloatArray]
    movement: float

    def to(self, receiver: str) -> Message:
        """Return what of it is for a neighbour."""
        estimate, own = self.sums.estimate, self.sums.own
        part = self.flows.get(receiver, np.zeros_like(estimate)) if own is None else own
        return Message(estimate, part)

    @property
    def own(self) -> FloatArray:
        """The site's own statistics: the coordinator can work them out, and so see whether they can be."""
        flows = 0.0 if self.sums.flows is None else self.sums.flows.sum(axis=0)
        own: FloatArray = self.sums.estimate - flows if self.sums.own is None else self.sums.own
        return own


def mean_likelihood(sent: Mapping[str, Sent], rows: Mapping[str, int]) -> float:
    """Return the mean log-likelihood of the rows of all sites that sent something."""
    told = [one.sums.log_likelihood for one in sent.values()]
    return float(np.average(told, weights=[rows[name] for name in sent]))


def problem_of_own(own: FloatArray, start: Mixture, whole: Totals) -> str | None:
    """Say why a site's own statistics (k, p) about the mean of the start cannot be of its rows, or None."""
    mass = own[:, 0]
    if mass.min() < -TOLERANCE * whole.rows:
        return f"a component has {mass.min():g} rows"
    theta = parameters_from(own, mean_of(start), blocks(start))
    return whole.problem_of_components(mass, theta.means, theta.covariances)


def problem_of_filter(sent: Sent, last: Sent | None, near: Mapping[str, Message], gains: Gains) -> str | None:
    """Say if an estimate is not what the site's last one becomes by the messages it was handed, or None.

    A site that begins has its own statistics alone.
    """
    if _alike(sent.sums.estimate, sent.own) if gains.leaky else not sent.flows:
        return None
    if last is not None:
        estimate, flows = follow(last.sums.estimate, last.own, last.flows, near, gains)
        # Tracking: the estimate is by definition the flows and what then counts as the site's own.
        pairs = [(sent.flows[name], flow) for name, flow in flows.items()]
        if gains.leaky:
            pairs = [(sent.sums.estimate, estimate)]
        if all(_alike(told, expected) for told, expected in pairs):
            return None
    return "they do not follow from what the site was handed"


def _alike(told: FloatArray, expected: FloatArray) -> bool:
    """Whether two are one but for rounding."""
    return bool(np.abs(told - expected).max() <= TOLERANCE * (1.0 + np.abs(expected).max()))
