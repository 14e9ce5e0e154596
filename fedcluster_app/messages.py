"""Every message that crosses a site's border, one class each, one line a field.

``leaves_site=True`` marks what a site sends: these lines are the README's table of what leaves a site, and a
test keeps the two equal. Letters in shapes: d columns, q scaled features, k components of the site, m global
clusters, f their features, s sets of clusters, c classes, t entries of a triangle.
"""

from __future__ import annotations

import math

from fedcluster_app.data.scaling import Scaling
from fedcluster_app.errors import WireError
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import array, message, scalar


@message("ask.hello")
class AskHello:
    """Say who you are, and your table's moments."""

    run_folder: str = scalar(str, "the run folder, used by virtual sites only")


@message("hello", leaves_site=True)
class Hello:
    """A site's first answer; a site with fewer rows than ``min-count`` withholds its moments."""

    site: str = scalar(str, "site name")
    version: str = scalar(str, "fedcluster version")
    rows: int = scalar(int, "number of rows", low=0)
    columns: tuple[str, ...] = scalar(tuple, "names of the columns that are clustered")
    partitions: int = scalar(int, "number of virtual sites; 0 at a real site", low=0)
    mean: FloatArray | None = array("d", "mean of every column", optional=True)
    scatter: FloatArray | None = array(
        "d", "sum of squared deviations of every column", low=0.0, optional=True
    )
    scatter_triangle: FloatArray | None = array(
        "t",
        "sums of products of deviations, lower triangle; in place of `scatter` when principal axes are taken",
        optional=True,
    )


@message("scaling")
class AgreedScaling:
    """The scaling that all sites use."""

    center: FloatArray = array("d", "pooled mean of every column")
    scale: FloatArray = array("d", "divisor of every column")
    components: FloatArray | None = array("d q", "principal axes", optional=True)
    score_scale: FloatArray | None = array("q", "divisor of every principal score", optional=True)

    @property
    def scaling(self) -> Scaling:
        """The scaling as what it does to rows."""
        return Scaling(self.center, self.scale, self.components, self.score_scale)


@message("ask.fedgem.start")
class AskFedGEMStart(AgreedScaling):
    """The scaling is agreed: count your clusters and make the first FedGEM step."""


@message("fedgem.start", leaves_site=True)
class FedGEMStart:
    """A site's count and its first balls."""

    k_counted: int = scalar(int, "clusters counted at the site, before small ones were dissolved", low=1)
    chosen: tuple[str, ...] = scalar(tuple, "hyper-parameters or votes of the count, as `name=value`")
    silhouette: float = scalar(float, "silhouette of the count on rows held out for its choice", missing=True)
    spread: float = scalar(float, "standard deviation per scaled feature", low=0.0)
    collapse_ratio: float = scalar(float, "largest eigenvalue of the site's scaled covariance", low=0.0)
    means: FloatArray = array("k q", "mean of every component after an EM step")
    radii: FloatArray = array("k", "radius of every component's uncertainty ball", low=0.0)

    def __post_init__(self) -> None:
        """Refuse what is not ``name=value`` with a finite number."""
        try:
            finite = all(math.isfinite(value) for value in self.choices().values())
        except ValueError:
            finite = False
        if not finite:
            raise WireError(f"fedgem.start.chosen: expected name=number, got {self.chosen!r}")

    def choices(self) -> dict[str, float]:
        """Return the chosen hyper-parameters by name."""
        pairs = (text.rpartition("=") for text in self.chosen)
        return {name: float(value) for name, _, value in pairs}


@message("ask.fedgem.round")
class AskFedGEMRound:
    """Your own means after the coordinator's update: make another step."""

    round: int = scalar(int, "round number", low=1)
    means: FloatArray = array("k q", "the site's own means, updated")


@message("fedgem.balls", leaves_site=True)
class FedGEMBalls:
    """A site's answer in a round."""

    means: FloatArray = array("k q", "mean of every component after an EM step")
    radii: FloatArray = array("k", "radius of every component's uncertainty ball", low=0.0)


@message("ask.fedgem.end")
class AskFedGEMEnd:
    """Your own means, converged: make the last step and summarise your components."""

    means: FloatArray = array("k q", "the site's own means, converged")


@message("fedgem.end", leaves_site=True)
class FedGEMEnd:
    """A site's last upload of components."""

    means: FloatArray = array("k q", "mean of every component after an EM step")
    counts: IntArray = array(
        "k",
        "rows nearest to every component; a component under `min-count` has 0, its rows go to the others",
        whole=True,
        low=0,
    )
    centers: FloatArray = array("k q", "mean of these rows")
    scatters: FloatArray = array("k", "mean squared distance of these rows to their mean", low=0.0)


@message("ask.micro.clusters")
class AskMicroClusters(AgreedScaling):
    """The scaling is agreed: summarise your rows."""


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

    A cluster with a total responsibility under ``min-count`` has given its rows to the others of its set. The
    site's mixing weights stay there.
    """

    mass: FloatArray = array("m", "total responsibility of every cluster; 0 or at least `min-count`", low=0.0)
    first: FloatArray = array("m q", "sum of responsibility times deviation from the cluster's mean")
    second: FloatArray = array(
        "m t", "lower triangle of the sum of responsibility times products of these deviations"
    )
    log_likelihood: FloatArray = array("s", "log-likelihood of the rows that a set is fitted to")
    held_out: FloatArray = array("s", "log-likelihood of the other half's rows; 0 where there are none")


@message("ask.labels")
class AskLabels(AgreedScaling):
    """The global clusters, and what they weigh at your site: label your rows and sum your scores."""

    weights: FloatArray = array("m", "weight of every global cluster", low=0.0)
    means: FloatArray = array("m f", "centre of every global cluster")
    covariances: FloatArray = array(
        "m t", "covariance of every global cluster: one variance, or a lower triangle"
    )
    offset: FloatArray | None = array("f", "the site's offset, taken from its scaled rows", optional=True)
    gain: FloatArray | None = array("f", "the site's gain, by which they are then divided", optional=True)
    fit_weights: bool = scalar(bool, "whether the site first fits the weights to its own rows")
    own_labels: IntArray | None = array(
        "k", "global cluster of every component of the site", whole=True, low=0, optional=True
    )


@message("labelled", leaves_site=True)
class Labelled:
    """Sums of label-free scores over a site's rows, and counts of classes where the site has labels."""

    counts: IntArray | None = array(
        "m", "rows of every global cluster; 0 if under `min-count`", whole=True, low=0, optional=True
    )
    within: FloatArray | None = array(
        "m", "sum of squared distances to the cluster's centre; 0 if withheld", low=0.0, optional=True
    )
    distances: FloatArray | None = array(
        "m", "sum of distances to the cluster's centre; 0 if withheld", low=0.0, optional=True
    )
    silhouettes: FloatArray | None = array("m", "sum of simplified silhouettes; 0 if withheld", optional=True)
    class_names: tuple[str, ...] = scalar(tuple, "names of the true classes, if the site has a label column")
    contingency: IntArray | None = array(
        "c m",
        "rows of every class in every cluster, if the site has a label column",
        whole=True,
        low=0,
        optional=True,
    )
    own_contingency: IntArray | None = array(
        "c m",
        "the same with every row in the nearest cluster that holds a component of the site",
        whole=True,
        low=0,
        optional=True,
    )

    def __post_init__(self) -> None:
        sums = (self.counts, self.within, self.distances, self.silhouettes)
        if len({part is None for part in sums}) > 1:
            raise WireError("labelled: expected counts and all sums, or none of them")
        for table in (self.contingency, self.own_contingency):
            if table is not None and len(table) != len(self.class_names):
                raise WireError(
                    f"labelled: {len(self.class_names)} class names for {len(table)} rows of counts"
                )


@message("refusal", leaves_site=True)
class Refusal:
    """A site's plain word that it cannot answer."""

    site: str = scalar(str, "site name")
    reason: str = scalar(
        str, "why: names of settings, files and columns, counts and shares; no value of a row"
    )


@message("site.folder")
class SiteFolder:
    """Kept by a virtual site: where the run's files go."""

    path: str = scalar(str, "the run folder")


@message("site.fedgem")
class FedGEMMemory(AgreedScaling):
    """Kept by a site between two FedGEM rounds."""

    released: FloatArray = array("k q", "means last released")
    variance: float = scalar(float, "variance of the site's components", low=0.0)


@message("site.micro")
class MicroMemory:
    """Kept by a site between two rounds of federated EM."""

    weights: FloatArray = array("m", "the site's weight of every cluster", low=0.0)
