"""The settings of FedGEM's rivals in groups, one for each; see :mod:`fedcluster_app.options`.

The defaults are what the authors published; what a later comparison changed is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcluster_app.keys import key


@dataclass(frozen=True)
class KFedConfig:
    """k-FED, one upload of local centres."""

    start: Literal["projected", "kmeans++"] = key(
        "kfed-start",
        "projected",
        "start of k-means at a site: published, or seeds alone (FedGEM's comparison)",
    )
    farthest: Literal["nearest", "mean"] = key(
        "kfed-farthest",
        "nearest",
        "centres start farthest from their nearest one, or by mean distance (FedGEM's comparison)",
    )
    steps: int = key(
        "kfed-steps",
        300,
        "k-means steps over all centres (the paper: 1)",
        low=1,
        high=10_000,
    )


@dataclass(frozen=True)
class FedKMeansConfig:
    """Federated k-means of Garst and Reinders."""

    start: Literal["kmeans", "kmeans++"] = key(
        "fedkmeans-start",
        "kmeans",
        "first means of a site: k-means, or seeds, which are rows (FedGEM's comparison); needs allow-unsafe",
    )
    rounds: int = key("fedkmeans-rounds", 100, "most rounds of fedkmeans", low=1, high=10_000)
    local_steps: int = key(
        "fedkmeans-local-steps", 1, "steps of a site's k-means in a round", low=1, high=1000
    )
    least_rows: int = key(
        "fedkmeans-least-rows",
        2,
        "p: rows of the smallest cluster sent; min-count binds too",
        low=1,
    )
    tolerance: float = key(
        "fedkmeans-tolerance", 1e-4, "stop when no centre moved further (scaled units)", low=0.0
    )


@dataclass(frozen=True)
class AlignedConfig:
    """Federated k-means by averages of matched centres."""

    weighting: Literal["sites", "clusters"] = key(
        "aligned-weighting",
        "sites",
        "what a centre counts with in the average: all rows of its site (published), or its own",
    )
    rounds: int = key("aligned-rounds", 40, "most rounds of fedkmeans-aligned", low=1, high=10_000)
    tolerance: float = key(
        "aligned-tolerance", 1e-4, "stop when no centre moved further (scaled units)", low=0.0
    )


@dataclass(frozen=True)
class GrEMConfig:
    """FedGrEM, gradient EM at sites whose mixtures the server draws together."""

    preset: Literal["tuned", "published"] = key(
        "fedgrem-preset",
        "tuned",
        "settings for a dozen sites with covariances, or the authors' (unit covariances; give 1000 rounds)",
    )
    step_size: float | None = key(
        "fedgrem-step",
        None,
        "part of the way to the EM update in a round, up to 1: auto (the preset's) or a number",
        low=1e-9,
        high=1.0,
        word="auto",
    )
    penalty: float | None = key(
        "fedgrem-penalty",
        None,
        "the larger, the more unlike sites are drawn together; 0: none is. auto (the preset's) or a number",
        low=0.0,
        word="auto",
    )
    decay: float | None = key(
        "fedgrem-decay",
        None,
        "share of its penalty that a round leaves to the next, below 1: auto (the preset's) or a number",
        low=0.0,
        high=0.999999,
        word="auto",
    )
    passes: int | None = key(
        "fedgrem-passes",
        None,
        "turns between what sites have in common and of their own: auto (the preset's) or a number",
        low=1,
        high=10_000,
        word="auto",
    )
    rounds: int = key("fedgrem-rounds", 40, "most rounds of fedgrem", low=1, high=10_000)
    tolerance: float = key(
        "fedgrem-tolerance", 1e-3, "stop when no mixture moved further (spreads of components)", low=0.0
    )


@dataclass(frozen=True)
class ConsensusConfig:
    """Consensus EM, one mixture for all by averages between neighbours."""

    mode: Literal["tracking", "leaky"] = key(
        "consensus-mode",
        "tracking",
        "how averages come about: tracked (as of all rows), or leaky (published)",
    )
    gain: float | None = key(
        "consensus-gain",
        None,
        "leaky: strength of a round, at most 1 / (2 × most neighbours + 2): auto (that) or a number",
        low=1e-9,
        high=0.5,
        word="auto",
    )
    step_size: float | None = key(
        "consensus-step",
        None,
        "part of the way to a site's new sums in a round (1: plain EM); thin graphs need less: "
        "auto (0.5 by tracking, 1 leaky) or a number",
        low=1e-3,
        high=1.0,
        word="auto",
    )
    rounds: int = key("consensus-rounds", 40, "most rounds of consensus-em", low=1, high=10_000)
    tolerance: float = key(
        "consensus-tolerance", 1e-3, "stop when no mixture moved further (spreads of components)", low=0.0
    )

    @property
    def step(self) -> float:
        """The part of the way: the published filter has no shorter steps than EM."""
        auto = 1.0 if self.mode == "leaky" else 0.5
        return auto if self.step_size is None else self.step_size


@dataclass(frozen=True)
class SpahmConfig:
    """SPAHM, local centres matched by a Beta-Bernoulli process."""

    sweeps: int = key("spahm-sweeps", 10, "most sweeps of the matching over all sites", low=1, high=10_000)
    spread: float = key(
        "spahm-spread", 1.0, "first variance of global centres; learned after the first matching", low=1e-9
    )
    noise: float = key("spahm-noise", 1.0, "first variance of local centres about global ones", low=1e-9)
    concentration: float = key(
        "spahm-concentration", 1.0, "the larger, the more global clusters are expected", low=1e-9
    )


@dataclass(frozen=True)
class FFCMConfig:
    """Federated fuzzy c-means of Stallmann and Wilbik."""

    fuzzifier: float = key(
        "ffcm-fuzzifier", 2.0, "m of fuzzy c-means; the nearer to 1, the more like k-means", low=1.1
    )
    update: Literal["u", "u^m"] = key(
        "ffcm-update",
        "u",
        "weights of rows in a centre: memberships, as released, or the textbook's",
    )
    membership: Literal["published", "squared"] = key(
        "ffcm-membership", "published", "distances, or squared ones (FedGEM's comparison), in memberships"
    )
    rounds: int = key("ffcm-rounds", 1000, "most rounds of fuzzy c-means", low=1, high=10_000)
    local_steps: int = key(
        "ffcm-local-steps",
        1000,
        "most steps of a site in a round (FedGEM's comparison: 1)",
        low=1,
        high=10_000,
    )
    tolerance: float = key(
        "ffcm-tolerance", 1e-4, "stop when all centres together moved less (scaled units)", low=0.0
    )


@dataclass(frozen=True)
class AFCLConfig:
    """AFCL, federated competitive learning."""

    rounds: int = key("afcl-rounds", 100, "most rounds of competitive learning", low=1, high=10_000)
    rate: float = key(
        "afcl-rate", 1e-3, "mean step of a seed towards a row; few rows need longer ones", low=1e-9, high=1.0
    )
    rebuild: Literal["released", "exact"] = key(
        "afcl-rebuild", "released", "rows as the released code rebuilds them (too far out), or where they are"
    )
    weights: Literal["learned", "equal"] = key(
        "afcl-weights", "learned", "weights of the features: learned, or equal (FedGEM's comparison)"
    )
    participation: Literal["all", "random"] = key(
        "afcl-participation",
        "all",
        "who is asked in a round: all sites, or each with a chance of its own (the paper's experiments)",
    )


@dataclass(frozen=True)
class FedEMConfig:
    """FedEM, shared components with weights of every site's own."""

    starts: int = key("fedem-starts", 10, "starts of the k-means that a site begins with", low=1)
    rounds: int = key("fedem-rounds", 100, "most rounds of fedem", low=1, high=10_000)
    tolerance: float = key(
        "fedem-tolerance", 1e-4, "stop when the mean log-likelihood of a row changed by less", low=0.0
    )


@dataclass(frozen=True)
class FedGenGMMConfig:
    """FedGenGMM, a mixture of rows drawn from the sites' mixtures."""

    starts: int = key("fedgengmm-starts", 5, "runs of EM, at a site and over the rows that are drawn", low=1)
    draws: int | None = key(
        "fedgengmm-draws",
        None,
        "rows to draw: auto (as many as the sites hold, and 100 k times the columns at least) or a number",
        low=1,
        high=10_000_000,
        word="auto",
    )


@dataclass(frozen=True)
class IFCAConfig:
    """IFCA, several models of which every site takes one."""

    models: int | None = key(
        "models",
        None,
        "number of models (ifca): auto (not given) or a number, which it needs",
        low=1,
        high=1000,
        word="auto",
    )
    restarts: int = key("ifca-restarts", 5, "runs from other models, side by side in the same rounds", low=1)
    starts: int = key("ifca-starts", 10, "starts of the k-means that a site begins with", low=1)
    rounds: int = key("ifca-rounds", 100, "most rounds of ifca", low=1, high=10_000)
    tolerance: float = key(
        "ifca-tolerance", 1e-4, "stop when the mean log-likelihood of a row changed by less", low=0.0
    )


@dataclass(frozen=True)
class LonelyConfig:
    """Sites by themselves."""

    starts: int = key("local-starts", 5, "local: runs of EM, the best of which counts", low=1)
    variance_floor: float = key(
        "local-variance-floor",
        0.05,
        "local: least variance along any axis, as a share of that within the site's clusters",
        low=1e-9,
    )
