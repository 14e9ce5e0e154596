"""The messages of micro-clusters and their rounds of federated EM."""

from __future__ import annotations

from fedcluster_app.messages.common import AgreedScaling
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import array, message, scalar


@message("ask.micro.clusters")
class AskMicroClusters(AgreedScaling):
    """The scaling is agreed: summarise your rows."""

    seed: int = scalar(int, "seed of the halves of the rows", low=0)


@message("micro.clusters", leaves_site=True)
class MicroClustersSent:
    """A site's rows in small groups, made apart in two random halves of them.

    Groups with fewer rows than ``min-count`` were dissolved into their neighbours; where there are too few
    rows for two halves, there is one.
    """

    halves: IntArray = array(
        "k", "half of the site's rows (0 or 1) that every micro-cluster is made of", whole=True, low=0, high=1
    )
    counts: IntArray = array("k", "rows of every micro-cluster, `min-count` or more", whole=True, low=1)
    means: FloatArray = array("k q", "mean of these rows")
    variances: FloatArray = array("k q", "variance of these rows along every scaled feature", low=0.0)
    k_counted: int = scalar(int, "clusters counted at the site for `count-vote`; 0 if none", low=0)


@message("ask.micro.round")
class AskMicroRound(AgreedScaling):
    """Global clusters, in one set or in several: make the E step of federated EM on your rows."""

    seed: int = scalar(int, "seed of the halves of the rows, as the micro-clusters had it", low=0)
    means: FloatArray = array("m f", "mean of every cluster")
    covariances: FloatArray = array("m t", "lower triangle of its covariance")
    members: IntArray = array("m", "set that it is of", whole=True, low=0)
    rows: IntArray = array(
        "s", "what every set is fitted to: half 0 or 1 of the rows, or -1 for all", whole=True, low=-1, high=1
    )
    weights: FloatArray = array("m", "the site's weights to start with, unless it has its own", low=0.0)
    offset: FloatArray | None = array("f", "the site's offset, taken from its scaled rows", optional=True)
    gain: FloatArray | None = array("f", "the site's gain, by which they are then divided", optional=True)


@message("micro.sums", leaves_site=True)
class MicroSums:
    """Sums over a site's rows, which add over sites: fit for secure aggregation, but for `held_out`.

    Clusters with a total responsibility under ``min-count`` are left out, if together they have that much;
    else their rows go to the others of their set. The site's mixing weights stay there, but shares of
    ``mass`` tell them to whoever sees one site's sums.
    """

    mass: FloatArray = array(
        "m",
        "total responsibility of every cluster; 0 or at least `min-count`, as is what is left out",
        low=0.0,
    )
    first: FloatArray = array("m q", "sum of responsibility times deviation from the cluster's mean")
    second: FloatArray = array(
        "m t", "lower triangle of the sum of responsibility times products of these deviations"
    )
    log_likelihood: FloatArray = array("s", "log-likelihood of the rows that a set is fitted to")
    held_out: FloatArray = array("s", "log-likelihood of the other half's rows; 0 where there are none")


@message("site.micro")
class MicroMemory:
    """Kept by a site between two rounds of federated EM."""

    weights: FloatArray = array("m", "the site's weight of every cluster", low=0.0)
