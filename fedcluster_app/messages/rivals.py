"""The messages of FedGEM's rivals."""

from __future__ import annotations

from fedcluster_app.messages.common import AgreedScaling
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import array, message, scalar


@message("ask.kfed")
class AskKFed(AgreedScaling):
    """The scaling is agreed: cluster your rows as k-FED does."""


@message("ask.spahm")
class AskSpahm(AgreedScaling):
    """The scaling is agreed: cluster your rows as SPAHM does."""


@message("local.centers", leaves_site=True)
class LocalCentersSent:
    """A site's centres of k-FED and SPAHM; clusters under ``min-count`` were dissolved into the others."""

    k_counted: int = scalar(int, "clusters sought at the site, before small ones were dissolved", low=1)
    centers: FloatArray = array("k q", "mean of the rows of every cluster, `min-count` or more")


@message("ask.fedkmeans")
class AskFedKMeans(AgreedScaling):
    """Sum up the rows nearest to every global centre; without centres, those of clusters of your own."""

    centers: FloatArray | None = array("m q", "global centres", optional=True)


@message("ask.fedkmeans.aligned")
class AskFedKMeansAligned(AskFedKMeans):
    """The same, with clusters of the best of several k-means if there are no centres."""


@message("fedkmeans.sums", leaves_site=True)
class FedKMeansSums:
    """Sums over a site's rows. What they leave out is nothing, or ``min-count`` rows or more.

    Nor is the difference to the sums of another round of fewer rows: those that would part from others in
    smaller numbers stay with them.
    """

    counts: IntArray = array(
        "k", "rows of every cluster that has `min-count` or more; one 0 if none has", whole=True, low=0
    )
    sums: FloatArray = array("k q", "sum of these rows")


@message("site.fedkmeans")
class FedKMeansMemory:
    """Kept by a site: which of its rows were in one cluster in every round."""

    groups: IntArray = array("n", "group of every row", whole=True, low=0)


@message("ask.ffcm")
class AskFFCM(AgreedScaling):
    """Make fuzzy c-means on your rows from the global centres, and sum up."""

    centers: FloatArray = array("m q", "global centres")


@message("ffcm.sums", leaves_site=True)
class FFCMSums:
    """Sums over a site's rows, which add over sites. Clusters under ``min-count`` are left out as zeros."""

    supports: FloatArray = array("m", "sum of the rows' weights in every cluster; 0 or `min-count`", low=0.0)
    sums: FloatArray = array("m q", "sum of weight times row")


@message("ask.afcl.seeds")
class AskAFCLSeeds(AgreedScaling):
    """Send some of your rows as seeds."""


@message("afcl.seeds", leaves_site=True)
class AFCLSeeds:
    """Single rows of a site, with `method="afcl"` and `allow-unsafe=true` only."""

    seeds: FloatArray = array("k q", "rows, as they are, drawn by k-means++")


@message("ask.afcl.round")
class AskAFCLRound(AgreedScaling):
    """Let the nearest seed win each of your rows."""

    seeds: FloatArray = array("m q", "seeds of all sites")
    weights: FloatArray = array("q", "weight of every feature", low=0.0)


@message("afcl.records", leaves_site=True)
class AFCLRecords:
    """All rows of a site in thin disguise, with `method="afcl"` and `allow-unsafe=true` only."""

    updates: FloatArray = array(
        "n q", "weights times (row less the seed that won it): the coordinator can rebuild every row"
    )
    winners: IntArray = array("n", "seed that won the row", whole=True, low=0)
    sums: FloatArray = array("m q", "sum of the rows of every seed")
    counts: IntArray = array("m", "number of these rows", whole=True, low=0)
    deviations: FloatArray = array("m", "sum of their distances to their mean", low=0.0)
