"""What every method has: greeting, scaling, labels, refusal."""

from __future__ import annotations

from fedcluster_app.data.scaling import Scaling, symmetric_matrix
from fedcluster_app.errors import WireError
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import array, message, scalar


def matrices(triangles: FloatArray, means: FloatArray, where: str) -> FloatArray:
    """Undo the lower triangles of covariances, raising WireError if they are of other features."""
    try:
        return symmetric_matrix(triangles, means.shape[1])
    except ValueError as error:
        raise WireError(f"{where}: {error}") from None


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
    allow_unsafe: bool = scalar(bool, "whether single rows may leave the site, as a few methods need")
    mean: FloatArray | None = array("d", "mean of every column", optional=True)
    scatter: FloatArray | None = array(
        "d", "sum of squared deviations of every column", low=0.0, optional=True
    )
    scatter_triangle: FloatArray | None = array(
        "t",
        "sums of products of deviations, lower triangle; in place of `scatter` when principal axes are taken",
        optional=True,
    )


@message("ask.bounds")
class AskBounds:
    """Say between which values your columns lie; only asked where single rows may leave every site."""

    columns: int = scalar(int, "number of columns", low=1)


@message("bounds", leaves_site=True)
class Bounds:
    """A site's extremes, with `bounds="data"` and `allow-unsafe=true` only: they are values of rows."""

    low: FloatArray = array("d", "least value of every column")
    high: FloatArray = array("d", "largest value of every column")


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
    names: IntArray | None = array(
        "m",
        "number of every cluster over all sites, where this site has its own",
        whole=True,
        low=0,
        optional=True,
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
    center_error: float = scalar(
        float,
        "mean distance of matched centres of clusters and classes, if the site has a label column",
        low=0.0,
        missing=True,
    )
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
