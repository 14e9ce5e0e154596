"""The settings of a run in groups, which :mod:`fedcluster_app.config` puts together.

Every field has its key, type, bounds, default and meaning on one line or few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedcluster_app.keys import key


@dataclass(frozen=True)
class DataSpec:
    """Which rows the virtual sites of a simulation hold; real sites have their own ``data-path``."""

    data: str = key("data", "digits", "digits, or the absolute path of a .csv or .npz file")
    label_column: str = key(
        "label-column", "", "column (csv) or array (npz) with the true classes; for scores only"
    )
    partition: Literal["auto", "iid", "dirichlet", "regime-a", "regime-b", "site"] = key(
        "partition",
        "auto",
        "how a simulation deals rows to sites",
    )
    concentration: float = key(
        "partition-concentration", 0.5, "Dirichlet concentration; small is skewed", low=1e-3, high=1e6
    )
    k_min: int = key("partition-k-min", 2, "least number of classes at a site (regimes a and b)", low=1)
    k_max: int = key("partition-k-max", 8, "largest number of classes at a site (regimes a and b)", low=1)
    seed: int = key("seed", 42, "seed of every random stream of the run", low=0, high=2**32 - 1)


@dataclass(frozen=True)
class AsmConfig:
    """Adaptive Split-Merge, the local count."""

    merge_ratios: tuple[float, ...] | None = key(
        "asm-merge-ratio",
        None,
        "alpha: auto (the grid), a number, or numbers with commas",
        low=1e-9,
        word="auto",
    )
    min_masses: tuple[int, ...] | None = key(
        "asm-min-mass",
        None,
        "tau, in rows: auto (the grid), a number, or numbers with commas",
        low=1,
        word="auto",
    )
    order: Literal["ratio", "distance"] = key("asm-order", "ratio", "which pair merges first")


@dataclass(frozen=True)
class FedGEMConfig:
    """FedGEM, the reconciliation."""

    max_rounds: int = key("fedgem-max-rounds", 10, "T: rounds after the first one", low=0, high=10_000)
    tolerance: float = key(
        "fedgem-tolerance", 1e-3, "stop when no component moved further (scaled units)", low=0.0
    )
    radius_rule: Literal["published", "gem", "released"] = key(
        "fedgem-radius", "published", "radius of the training balls"
    )
    variance: Literal["unit", "local"] = key(
        "fedgem-variance",
        "local",
        "variance of a site's components: 1 (published), or the site's own if smaller",
    )
    local_steps: int = key("fedgem-local-steps", 1, "EM steps at a site in one round", low=1, high=1000)
    order: Literal["nearest", "released"] = key("fedgem-order", "nearest", "pair order of the final grouping")
    final_radius: float | None = key(
        "fedgem-final-radius",
        None,
        "v: bic (chosen without labels) or a number",
        low=0.0,
        high=math.inf,
        word="bic",
    )
    radius_is: Literal["squared", "length"] = key(
        "fedgem-final-radius-is", "squared", "reading of the final radius"
    )


@dataclass(frozen=True)
class MicroConfig:
    """Micro-clusters, one upload."""

    cell_rows: int = key("micro-cell-rows", 10, "rows in a micro-cluster, about", low=1, high=10**9)
    max_cells: int = key("micro-max-cells", 20, "most micro-clusters in each half of a site's rows", low=1)
    axes: float = key(
        "micro-axes",
        0.95,
        "microcluster: share of the variance that the principal axes of the scaled columns hold, where pca "
        "takes none; 1 keeps the columns",
        low=1e-6,
        high=1.0,
    )
    k_rule: Literal["geometric", "median", "bic", "hold"] = key(
        "k-rule", "median", "how the votes make the count of global clusters"
    )
    count_vote: Literal["none", "asm", "consensus", "oracle"] = key(
        "count-vote", "none", "how sites count their clusters for a vote in place of bic"
    )
    site_offsets: Literal["off", "auto"] = key(
        "site-offsets", "off", "whether a shift of a whole site is sought, and taken out where it is found"
    )
    site_gains: Literal["off", "auto"] = key(
        "site-gains", "off", "the same for a scale of a site's own; needs site-offsets"
    )
    refined_votes: Literal["off", "auto", "on"] = key(
        "refined-votes",
        "auto",
        "votes of rows after 10 rounds of federated EM or more; auto: where cells say 1 or 2 clusters",
    )
    refine_rounds: int = key(
        "refine-rounds",
        5,
        "rounds of federated EM on rows, after the assembly; 0: none, also for votes unless these are on",
        low=0,
        high=1000,
    )
    summaries: str = key(
        "summaries", "", "absolute path of an earlier run's summaries.npz to start from", absolute=True
    )
    assembly: Literal["redo", "keep"] = key(
        "assembly", "redo", "what becomes of the clusters in summaries when sites are added"
    )


@dataclass(frozen=True)
class GraphConfig:
    """Who hears whom, in methods whose sites hear only their neighbours."""

    graph: str = key(
        "graph",
        "erdos-renyi",
        "erdos-renyi (with a ring), ring, complete, sbm (blocks with chains), nearest (by MMD), or the "
        "absolute path of a .toml, .json or .csv file that names sites",
    )
    p: float = key("graph-p", 0.6, "erdos-renyi: probability of an edge", low=0.0, high=1.0)
    blocks: int = key("graph-blocks", 3, "sbm: blocks of sites, in order of name", low=1)
    p_in: float = key("graph-p-in", 0.8, "sbm: probability of an edge inside a block", low=0.0, high=1.0)
    p_out: float = key("graph-p-out", 0.2, "sbm: probability of an edge between blocks", low=0.0, high=1.0)
    nearest: int = key("graph-nearest", 3, "nearest: neighbours that every site chooses", low=1)
    max_age: int = key("max-age", 5, "rounds for which the last mixture of a silent site is used", low=0)


@dataclass(frozen=True)
class MixtureConfig:
    """The mixtures that sites keep, in methods that leave every site one of its own."""

    components: int | None = key(
        "components",
        None,
        "components of a site's mixture: auto (counted by `estimator`; gtvpool: by evidence, with what "
        "neighbours sent) or a number",
        low=1,
        high=1000,
        word="auto",
    )


@dataclass(frozen=True)
class GTVConfig:
    """GTVMin, personal mixtures coupled over a graph."""

    discrepancy: Literal["mmd", "kl", "euclidean"] = key(
        "discrepancy", "kl", "what couples the mixtures of neighbours"
    )
    alphas: tuple[float, ...] | None = key(
        "alpha",
        None,
        "strength of the coupling: auto (a grid), a number, or numbers with commas; of several, rows held "
        "out choose",
        low=0.0,
        word="auto",
    )
    update: Literal["gradient", "em"] = key(
        "update", "gradient", "steps of a site: projected gradient (published), or scaled as in EM"
    )
    edge_weights: Literal["graph", "mmd"] = key(
        "edge-weights", "mmd", "fading between sites with unlike mixtures (by MMD), or as the graph has them"
    )
    rounds: int = key("gtv-rounds", 40, "most rounds, if alpha is given", low=1, high=10_000)
    path_rounds: int = key(
        "gtv-path-rounds", 5, "rounds at each of several alphas; the best goes on while it gets better", low=1
    )
    local_steps: int = key("gtv-local-steps", 5, "steps of a site in one round", low=1, high=1000)
    step_size: float = key("gtv-step-size", 0.02, "size of the gradient steps", low=1e-9)
    guard: Literal["on", "off"] = key(
        "gtv-guard",
        "on",
        "halve steps until no site's objective rises, nor (but for kl) that of all sites; off: published",
    )
    tolerance: float = key(
        "gtv-tolerance", 1e-2, "stop when no site's gradient mapping is larger, three rounds long", low=0.0
    )
    settled: float = key(
        "gtv-settled",
        1e-4,
        "stop when loss and disagreement moved by no larger share, three rounds long; 0: never",
        low=0.0,
    )
    samples: int = key("gtv-samples", 50, "kl: rows drawn from every neighbour in a round", low=1)
    starts: int = key("gtv-starts", 10, "starts of the k-means that a site begins with", low=1)
    folds: int = key(
        "gtv-folds", 5, "parts of a site's rows, each held out once; 0: no held-out scores", low=0, high=20
    )
    weight_floor: float = key("gtv-weight-floor", 0.02, "least weight of a component", low=1e-9, high=0.5)
    variance_floor: float = key(
        "gtv-variance-floor", 0.05, "least variance along any axis (scaled units)", low=1e-9
    )


@dataclass(frozen=True)
class PoolConfig:
    """GTV-Pool, personal mixtures that take in what neighbours have alike."""

    mode: Literal["lean", "fast", "full"] = key(
        "pool-mode", "lean", "how many rounds, and other starts in the first of them: 8, 4 or up to 20 rounds"
    )
    rounds: int | None = key(
        "pool-rounds",
        None,
        "most rounds: auto (as the mode has it) or a number",
        low=1,
        high=10_000,
        word="auto",
    )
    tolerance: float = key(
        "pool-tolerance",
        0.01,
        "stop when no mixture moved further, two rounds long (in its own spreads)",
        low=0.0,
    )
    guard: Literal["on", "off"] = key(
        "pool-guard",
        "on",
        "tell a component anew only if it differs by min-count rows from what was told; costs some accuracy",
    )
    uniform: Literal["off", "on"] = key(
        "pool-uniform", "off", "whether some rows of a site may be junk, which belongs to no component"
    )


@dataclass(frozen=True)
class ClustersConfig:
    """How many global clusters, in methods that must be told."""

    k: int | None = key(
        "k",
        None,
        "number of global clusters: auto (not given) or a number, which some methods need",
        low=1,
        high=10_000,
        word="auto",
    )


@dataclass(frozen=True)
class LocalConfig:
    """How many clusters at a site, in methods whose sites cluster their rows first."""

    k: int | None = key(
        "local-k",
        None,
        "clusters of every site (afcl: seeds): auto (each site counts its own) or a number",
        low=1,
        high=10_000,
        word="auto",
    )
