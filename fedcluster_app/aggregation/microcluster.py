"""One-shot reconciliation by micro-clusters: the door.

Every site sends its micro-clusters once; they are assembled into global clusters of full covariance, with
mixing weights of every site's own, and into their number::

    state = step(init(), {"a": micro_clusters(...), "b": ...})
    assembly = finish(state, Settings(), rng)

Rounds of federated EM on the rows may follow: ``sets_for_rounds``, or ``sets_for_votes`` where the rows shall
vote on the number too; ``site_sums`` at every site, ``advance`` at the coordinator; then ``after_rounds``.
"""

from fedcluster_app.aggregation.micro.assembly import Assembly, MicroState, Settings, finish, init, keep, step
from fedcluster_app.aggregation.micro.cells import MicroClusters, halve, micro_clusters
from fedcluster_app.aggregation.micro.drift import Drift
from fedcluster_app.aggregation.micro.em import Clusters
from fedcluster_app.aggregation.micro.refine import (
    ALL,
    ClusterSets,
    Sums,
    add_up,
    advance,
    is_possible,
    site_sums,
)
from fedcluster_app.aggregation.micro.rounds import (
    after_rounds,
    classes_are_small,
    likelihood_bounds,
    sets_for_rounds,
    sets_for_votes,
    stand_in,
)
from fedcluster_app.aggregation.micro.votes import Votes
from fedcluster_app.mixtures.weights import site_weights

__all__ = [
    "ALL",
    "Assembly",
    "ClusterSets",
    "Clusters",
    "Drift",
    "MicroClusters",
    "MicroState",
    "Settings",
    "Sums",
    "Votes",
    "add_up",
    "advance",
    "after_rounds",
    "classes_are_small",
    "finish",
    "halve",
    "init",
    "is_possible",
    "keep",
    "likelihood_bounds",
    "micro_clusters",
    "sets_for_rounds",
    "sets_for_votes",
    "site_sums",
    "site_weights",
    "stand_in",
    "step",
]
