"""The messages of FedGEM's rivals."""

from __future__ import annotations

from fedcluster_app.messages.common import AgreedScaling
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import array, message, scalar


@message("ask.kfed")
class AskKFed(AgreedScaling):
    """The scaling is agreed: cluster your rows as k-FED does."""


@message("local.centers", leaves_site=True)
class LocalCentersSent:
    """A site's centres of k-FED and SPAHM; clusters under ``min-count`` were dissolved into the others."""

    k_counted: int = scalar(int, "clusters sought at the site, before small ones were dissolved", low=1)
    centers: FloatArray = array("k q", "mean of the rows of every cluster, `min-count` or more")


@message("ask.fedkmeans")
class AskFedKMeans(AgreedScaling):
    """Sum up the rows nearest to every global centre; without centres, those of clusters of your own."""

    centers: FloatArray | None = array("m q", "global centres", optional=True)


@message("fedkmeans.sums", leaves_site=True)
class FedKMeansSums:
    """Sums over a site's rows. What they leave out is nothing, or ``min-count`` rows or more."""

    counts: IntArray = array(
        "k", "rows of every cluster that has `min-count` or more; one 0 if none has", whole=True, low=0
    )
    sums: FloatArray = array("k q", "sum of these rows")
