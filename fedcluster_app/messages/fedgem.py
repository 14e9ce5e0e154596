"""The messages of FedGEM."""

from __future__ import annotations

import math

from fedcluster_app.errors import WireError
from fedcluster_app.messages.common import AgreedScaling
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import array, message, scalar


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


@message("site.fedgem")
class FedGEMMemory(AgreedScaling):
    """Kept by a site between two FedGEM rounds."""

    released: FloatArray = array("k q", "means last released")
    variance: float = scalar(float, "variance of the site's components", low=0.0)
