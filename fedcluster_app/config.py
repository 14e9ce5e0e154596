"""Every setting of a run and of a site: its key, type, bounds, default and meaning, in one place.

Flower refuses unknown run-config keys but lets values of the wrong type through, and it carries scalars
only. So the values are checked here, once, and the rest of the house sees frozen dataclasses.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedcluster_app.errors import ConfigError
from fedcluster_app.keys import build, key, keys_of, refuse_unknown

Scalar = bool | int | float | str


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
        "refined-votes", "auto", "votes after rounds of federated EM; auto: where cells say 1 or 2 clusters"
    )
    refine_rounds: int = key(
        "refine-rounds", 5, "rounds of federated EM on rows, after the assembly", low=0, high=1000
    )
    summaries: str = key(
        "summaries", "", "absolute path of an earlier run's summaries.npz to start from", absolute=True
    )
    assembly: Literal["redo", "keep"] = key(
        "assembly", "redo", "what becomes of the clusters in summaries when sites are added"
    )


@dataclass(frozen=True)
class RunConfig:
    """The settings of one run, the same at the coordinator and at every site."""

    method: str = key("method", "microcluster", "how the sites' clusters are found and reconciled")
    estimator: Literal["asm", "xmeans", "gmeans", "dirichlet", "kmeans-silhouette", "consensus", "oracle"] = (
        key("estimator", "consensus", "how a site counts its clusters; oracle needs labels")
    )
    init: Literal["kmeans", "kmeans++", "asm-means", "asm-count"] = key(
        "init",
        "kmeans",
        "where a site's component means start",
    )
    scaling: Literal["standard", "none"] = key("scaling", "standard", "agreed scaling of the columns")
    pca: int = key("pca", 10, "at most this many principal axes, for wider tables; 0 keeps all", low=0)
    min_count: int = key("min-count", 5, "least rows behind anything a site releases", low=1)
    min_sites: int = key("min-sites", 0, "sites to wait for; 0: all virtual ones, or 2 real ones", low=0)
    join_timeout: float = key("join-timeout", 120.0, "seconds to wait for sites to join", low=0.0)
    round_timeout: float = key("round-timeout", 600.0, "seconds to wait for answers in an exchange", low=0.1)
    quorum: int = key("quorum", 1, "least number of sites that must answer in every exchange", low=1)
    output_dir: str = key("output-dir", "", "absolute folder of the results", absolute=True)
    data: DataSpec = field(default_factory=DataSpec)
    asm: AsmConfig = field(default_factory=AsmConfig)
    fedgem: FedGEMConfig = field(default_factory=FedGEMConfig)
    micro: MicroConfig = field(default_factory=MicroConfig)

    @property
    def axes_share(self) -> float:
        """Share of the variance for which principal axes are taken where ``pca`` takes none; 1: no axes."""
        return self.micro.axes if self.method == "microcluster" else 1.0

    @property
    def seed(self) -> int:
        """Seed of every random stream of the run."""
        return self.data.seed


@dataclass(frozen=True)
class NodeConfig:
    """The settings of one site, given by its owner (``--node-config``) or by the simulation."""

    site_name: str = key("site-name", "", "stable name of this site")
    data_path: str = key("data-path", "", "absolute path of the site's .csv or .npz table", absolute=True)
    label_column: str = key("label-column", "", "column with true classes; held apart, never clustered")
    labels_path: str = key(
        "labels-path", "", "absolute .csv that gets the cluster of every row", absolute=True
    )
    ledger_path: str = key("ledger-path", "", "absolute .jsonl that logs what left the site", absolute=True)
    min_count: int = key(
        "min-count",
        0,
        "the site's own floor under the run's; 0: 5 at a real site, none at a virtual one",
        low=0,
    )
    partition_id: int = key("partition-id", -1, "number of this virtual site (set by Flower)", low=-1)
    num_partitions: int = key("num-partitions", 0, "number of virtual sites (set by Flower)", low=0)


def home() -> Path:
    """Return where runs, ledgers and labels go by default: ``$FEDCLUSTER_HOME``, else ``~/.fedcluster``."""
    return Path(os.environ.get("FEDCLUSTER_HOME") or Path.home() / ".fedcluster")


def parse_run_config(values: Mapping[str, Any]) -> RunConfig:
    """Check a Flower run config and fill in every default.

    Raises
    ------
    ConfigError
        With the key, what was expected, what came, and what to do.
    """
    refuse_unknown(values, keys_of(RunConfig), "run config")
    config = build(RunConfig, values, "run config")
    if config.data.data != "digits" and not os.path.isabs(config.data.data):
        raise ConfigError(
            f"run config: data expected 'digits' or the absolute path of a .csv or .npz file, "
            f"got {config.data.data!r}"
        )
    if config.data.k_min > config.data.k_max:
        raise ConfigError(
            f"run config: expected partition-k-min <= partition-k-max, got {config.data.k_min} > "
            f"{config.data.k_max}; swap them"
        )
    if config.fedgem.order == "released" and config.fedgem.final_radius is None:
        raise ConfigError(
            "run config: fedgem-order='released' has no nested path to choose from; "
            "give fedgem-final-radius a number, or use fedgem-order='nearest'"
        )
    if config.micro.site_gains == "auto" and config.micro.site_offsets == "off":
        raise ConfigError(
            "run config: site-gains='auto' goes with the offsets of sites; add site-offsets='auto'"
        )
    if config.micro.assembly == "keep" and not config.micro.summaries:
        raise ConfigError(
            "run config: assembly='keep' expected clusters to keep; give summaries the path of an earlier "
            "run's summaries.npz"
        )
    return config


def parse_node_config(values: Mapping[str, Any]) -> NodeConfig:
    """Check a site's node config; keys of other tools are left alone, near misses are refused."""
    known = keys_of(NodeConfig)
    for name in values:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        if name not in known and close:
            raise ConfigError(f"node config: unknown key {name!r}; did you mean {close[0]!r}?")
    config = build(NodeConfig, values, "node config")
    if config.data_path and not config.site_name:
        raise ConfigError(
            "node config: a site with data-path needs a stable name; add site-name='...' to --node-config"
        )
    if not config.data_path and (config.partition_id < 0 or config.num_partitions < 1):
        raise ConfigError(
            "node config: expected data-path and site-name (a real site) or partition-id and num-partitions "
            f"(a virtual one), got {', '.join(sorted(values)) or 'nothing'}"
        )
    return config


def as_run_config(config: RunConfig) -> dict[str, Scalar]:
    """Return the settings as Flower's flat run config, every default filled in."""
    flat: dict[str, Scalar] = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            flat |= as_run_config(value)  # type: ignore[arg-type]  # a group of keys
            continue
        setting = item.metadata["key"]
        if value is None:
            value = setting.word
        elif isinstance(value, tuple):
            value = ",".join(str(number) for number in value)
        elif value == math.inf:
            value = str(value)  # as JSON can hold it too
        flat[setting.name] = value
    return flat
