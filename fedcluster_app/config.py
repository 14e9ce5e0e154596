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
from fedcluster_app.options import (
    AsmConfig,
    ClustersConfig,
    DataSpec,
    FedGEMConfig,
    GraphConfig,
    GTVConfig,
    LocalConfig,
    MicroConfig,
    MixtureConfig,
    PoolConfig,
)
from fedcluster_app.rival_options import (
    AFCLConfig,
    AlignedConfig,
    ConsensusConfig,
    FedEMConfig,
    FedGenGMMConfig,
    FedKMeansConfig,
    FFCMConfig,
    GrEMConfig,
    IFCAConfig,
    KFedConfig,
    LonelyConfig,
    SpahmConfig,
)

Scalar = bool | int | float | str
GRAPH_FILES = (".toml", ".json", ".csv")


@dataclass(frozen=True)
class RunConfig:
    """The settings of one run, the same at the coordinator and at every site."""

    method: str = key("method", "microcluster", "how the sites' clusters are found and reconciled")
    estimator: Literal["asm", "xmeans", "gmeans", "dirichlet", "kmeans-silhouette", "consensus", "oracle"] = (
        key("estimator", "consensus", "how a site counts its clusters; oracle needs labels")
    )
    init: Literal["kmeans", "kmeans++", "asm-means", "asm"] = key(
        "init",
        "kmeans",
        "where a site's component means start",
    )
    scaling: Literal["standard", "none", "minmax"] = key(
        "scaling", "standard", "agreed scaling of the columns; minmax: to [0, 1], without principal axes"
    )
    bounds: str = key(
        "bounds",
        "",
        "for minmax, least and largest value of the columns: 'low,high' for all, a pair for each with "
        "semicolons between, or data: those of all rows, which are rows' own values (needs allow-unsafe)",
    )
    pca: int = key(
        "pca",
        10,
        "at most this many principal axes, for wider tables; 0: no such limit (but see micro-axes)",
        low=0,
    )
    min_count: int = key("min-count", 5, "least rows behind anything a site releases", low=1)
    allow_unsafe: bool = key(
        "allow-unsafe",
        False,
        "whether virtual sites may send single rows, which some methods need; a real site's owner decides",
    )
    min_sites: int = key("min-sites", 0, "sites to wait for; 0: all virtual ones, or 2 real ones", low=0)
    join_timeout: float = key("join-timeout", 120.0, "seconds to wait for sites to join", low=0.0)
    round_timeout: float = key("round-timeout", 600.0, "seconds to wait for answers in an exchange", low=0.1)
    quorum: int = key(
        "quorum", 1, "least number of sites that must answer in every exchange, of those asked", low=1
    )
    output_dir: str = key("output-dir", "", "absolute folder of the results", absolute=True)
    data: DataSpec = field(default_factory=DataSpec)
    asm: AsmConfig = field(default_factory=AsmConfig)
    fedgem: FedGEMConfig = field(default_factory=FedGEMConfig)
    micro: MicroConfig = field(default_factory=MicroConfig)
    graph: GraphConfig = field(default_factory=GraphConfig)
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    gtv: GTVConfig = field(default_factory=GTVConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)
    clusters: ClustersConfig = field(default_factory=ClustersConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    kfed: KFedConfig = field(default_factory=KFedConfig)
    fedkmeans: FedKMeansConfig = field(default_factory=FedKMeansConfig)
    aligned: AlignedConfig = field(default_factory=AlignedConfig)
    ffcm: FFCMConfig = field(default_factory=FFCMConfig)
    fedgrem: GrEMConfig = field(default_factory=GrEMConfig)
    consensus: ConsensusConfig = field(default_factory=ConsensusConfig)
    spahm: SpahmConfig = field(default_factory=SpahmConfig)
    afcl: AFCLConfig = field(default_factory=AFCLConfig)
    fedem: FedEMConfig = field(default_factory=FedEMConfig)
    fedgengmm: FedGenGMMConfig = field(default_factory=FedGenGMMConfig)
    ifca: IFCAConfig = field(default_factory=IFCAConfig)
    lonely: LonelyConfig = field(default_factory=LonelyConfig)

    @property
    def axes(self) -> int:
        """Most principal axes for wide tables; 0: no such limit, as where columns shall lie in [0, 1]."""
        return 0 if self.scaling == "minmax" else self.pca

    @property
    def axes_share(self) -> float:
        """Share of the variance for which principal axes are taken where ``pca`` takes none; 1: no axes."""
        return self.micro.axes if self.method == "microcluster" and self.scaling != "minmax" else 1.0

    def bounds_of(self, d: int) -> tuple[tuple[float, float], ...]:
        """Return (low, high) of each of d columns as the run declares them.

        Raises
        ------
        ConfigError
            If they are not of so many columns.
        """
        pairs = _pairs(self.bounds)
        if len(pairs) not in (1, d):
            raise ConfigError(f"run config: bounds expected 1 pair or {d}, one a column, got {len(pairs)}")
        return pairs * d if len(pairs) == 1 else pairs

    @property
    def k(self) -> int:
        """Number of global clusters, in a method that is told.

        Raises
        ------
        ConfigError
            If nobody has.
        """
        return self._told("k", self.clusters.k)

    @property
    def components(self) -> int:
        """Number of components of every site, in a method that is told; errors as of :attr:`k`."""
        return self._told("components", self.mixture.components)

    def _told(self, name: str, value: int | None) -> int:
        if value is None:
            raise ConfigError(
                f"run config: method {self.method!r} needs to be told {name}, for example {name}=10"
            )
        return value

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
    allow_unsafe: bool = key(
        "allow-unsafe", False, "whether the site may send single rows, which some methods need"
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
    if config.init == "asm" and config.mixture.components is not None:
        raise ConfigError(
            "run config: init='asm' starts from the components that a site counted; leave components='auto', "
            "or use init='kmeans'"
        )
    if (config.scaling == "minmax") != bool(config.bounds):
        raise ConfigError(
            "run config: scaling='minmax' and bounds go together; declare what the columns can hold, for "
            "example bounds='0,16', or leave both out"
        )
    if config.bounds not in ("", "data"):
        _pairs(config.bounds)
    _check_graph(config.graph)
    if config.method == "gtvmin":
        _check_gtv(config.gtv, config.mixture)
    if config.consensus.gain is not None and config.consensus.mode == "tracking":
        raise ConfigError(
            "run config: consensus-gain would do nothing with consensus-mode='tracking', whose gains follow "
            "from the graph; leave it out"
        )
    if config.micro.assembly == "keep" and not config.micro.summaries:
        raise ConfigError(
            "run config: assembly='keep' expected clusters to keep; give summaries the path of an earlier "
            "run's summaries.npz"
        )
    return config


def _pairs(bounds: str) -> tuple[tuple[float, float], ...]:
    """Read 'low,high;low,high;...', raising ConfigError for what is not that."""
    try:
        pairs = [tuple(map(float, pair.split(","))) for pair in bounds.split(";")]
        if all(len(pair) == 2 and -math.inf < pair[0] < pair[1] < math.inf for pair in pairs):
            return tuple((low, high) for low, high in pairs)
    except ValueError:
        pass
    raise ConfigError(
        f"run config: bounds expected 'low,high' (low < high), pairs with semicolons, or data, got {bounds!r}"
    )


def _check_graph(graph: GraphConfig) -> None:
    words = ("erdos-renyi", "ring", "complete", "sbm", "nearest")
    if graph.graph not in words and not (
        os.path.isabs(graph.graph) and Path(graph.graph).suffix.lower() in GRAPH_FILES
    ):
        raise ConfigError(
            f"run config: graph expected one of {', '.join(words)}, or the absolute path of a file "
            f"({', '.join(GRAPH_FILES)}), got {graph.graph!r}"
        )


def _check_gtv(gtv: GTVConfig, mixture: MixtureConfig) -> None:
    if gtv.folds == 1:
        raise ConfigError(
            "run config: gtv-folds expected 0 or at least 2, got 1: nothing would be left to fit"
        )
    if gtv.folds == 0 and (gtv.alphas is None or len(gtv.alphas) > 1):
        raise ConfigError(
            "run config: gtv-folds=0 leaves no rows to choose alpha by; give alpha one number, or take folds"
        )
    if mixture.components is not None and mixture.components * gtv.weight_floor > 1:
        raise ConfigError(
            f"run config: expected components * gtv-weight-floor <= 1, got {mixture.components} * "
            f"{gtv.weight_floor:g}; lower the floor"
        )


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


def changed(group: Any) -> list[str]:
    """Return the keys of a group of settings whose values are not the defaults."""
    return [
        item.metadata["key"].name
        for item in dataclasses.fields(group)
        if getattr(group, item.name) != item.default
    ]


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
