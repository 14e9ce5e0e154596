from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedcluster_app.config import (
    AsmConfig,
    DataSpec,
    FedGEMConfig,
    NodeConfig,
    RunConfig,
    as_run_config,
    home,
    parse_node_config,
    parse_run_config,
)
from fedcluster_app.coupling import pooling_of
from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.pool_settings import FAST, FULL, PoolSettings
from fedcluster_app.keys import Key, keys_of
from fedcluster_app.options import PoolConfig
from fedcluster_app.server_app import strategy_of

REPOSITORY = Path(__file__).parents[2]
REAL = {"site-name": "a", "data-path": "/srv/a.csv"}
VIRTUAL = {"partition-id": 0, "num-partitions": 2}
EVERY_KEY = {**keys_of(RunConfig), **keys_of(NodeConfig)}


def key_of(field: dataclasses.Field[Any]) -> Key:
    key: Key = field.metadata["key"]
    return key


def run_error(**values: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_run_config({name.replace("_", "-"): value for name, value in values.items()})
    return str(caught.value)


def node_error(values: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_node_config(values)
    return str(caught.value)


def test_no_values_give_the_defaults() -> None:
    config = parse_run_config({})
    assert config == RunConfig()
    assert (config.method, config.estimator, config.pca, config.min_count) == (
        "microcluster",
        "consensus",
        10,
        5,
    )
    assert config.seed == config.data.seed == 42
    assert config.asm.merge_ratios is None
    assert config.fedgem.final_radius is None


def test_the_project_file_has_every_default() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    given, expected = project["tool"]["flwr"]["app"]["config"], as_run_config(RunConfig())
    assert given == expected
    assert {name: type(value) for name, value in given.items()} == {
        name: type(value) for name, value in expected.items()
    }


@pytest.mark.parametrize("field", EVERY_KEY.values(), ids=EVERY_KEY)
def test_every_key_has_a_meaning_and_a_default_that_it_accepts(field: dataclasses.Field[Any]) -> None:
    key = key_of(field)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", key.name)
    assert len(key.meaning.split()) > 2
    assert field.default is not dataclasses.MISSING
    assert (field.default is None) == bool(key.word)


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(),
        RunConfig(
            estimator="oracle",
            init="kmeans++",
            scaling="none",
            pca=0,
            min_count=1,
            join_timeout=0.5,
            output_dir="/srv/runs",
            data=DataSpec("/srv/all.npz", label_column="y", partition="regime-b", k_max=3, seed=2**32 - 1),
            asm=AsmConfig(merge_ratios=(0.75, 1.5), min_masses=(5, 10), order="distance"),
            fedgem=FedGEMConfig(max_rounds=0, order="released", final_radius=0.1, radius_is="length"),
        ),
        RunConfig(asm=AsmConfig(merge_ratios=(1 / 3,), min_masses=(7,))),
        RunConfig(fedgem=FedGEMConfig(final_radius=float("inf"))),
    ],
)
def test_what_is_told_to_flower_comes_back(config: RunConfig) -> None:
    flat = as_run_config(config)
    assert set(flat) == set(keys_of(RunConfig))
    assert all(type(value) in (bool, int, float, str) for value in flat.values())
    assert parse_run_config(flat) == config


def test_numbers_come_as_flower_may_send_them() -> None:
    assert parse_run_config({"asm-merge-ratio": 1.5}).asm.merge_ratios == (1.5,)
    assert parse_run_config({"asm-merge-ratio": 2}).asm.merge_ratios == (2.0,)
    assert parse_run_config({"asm-merge-ratio": "2, 1.5,2"}).asm.merge_ratios == (1.5, 2.0)
    assert parse_run_config({"asm-min-mass": "20,5"}).asm.min_masses == (5, 20)
    assert parse_run_config({"asm-min-mass": "auto"}).asm.min_masses is None
    assert parse_run_config({"fedgem-final-radius": 0}).fedgem.final_radius == 0.0
    assert parse_run_config({"fedgem-final-radius": "0.25"}).fedgem.final_radius == 0.25
    timeout = parse_run_config({"join-timeout": 3}).join_timeout
    assert (timeout, type(timeout)) == (3.0, float)


NUMBERS = {
    name: field
    for name, field in EVERY_KEY.items()
    if (isinstance(field.default, int | float) and field.default is not False) or key_of(field).word
}
SWITCHES = {name: field for name, field in EVERY_KEY.items() if field.default is False}
TEXTS = {name: field for name, field in EVERY_KEY.items() if name not in {**NUMBERS, **SWITCHES}}


def refused(name: str, value: Any) -> str:
    return run_error(**{name: value}) if name in keys_of(RunConfig) else node_error({name: value})


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", [3, 0.5, True])
def test_text_must_be_text(name: str, value: object) -> None:
    text = refused(name, value)
    assert re.search(rf": {name} expected (text|one of .*), got {value!r}", text)


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", ["true", "yes", 1, 0.0])
def test_a_switch_is_on_or_off(name: str, value: object) -> None:
    assert refused(name, value).endswith(f": {name} expected true or false, got {value!r}")
    assert parse_run_config({"allow-unsafe": True}).allow_unsafe
    assert parse_node_config({**REAL, "allow-unsafe": True}).allow_unsafe


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["many", True, float("nan"), float("-inf"), -2])
def test_a_number_must_be_a_number_in_its_range(name: str, value: object) -> None:
    text = refused(name, value)
    assert re.search(rf": {name} expected .*number.*, got {value!r}$", text)


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "fedgem-final-radius"])
@pytest.mark.parametrize("value", [float("inf"), 10**400])
def test_a_number_must_be_finite(name: str, value: object) -> None:
    assert re.search(rf": {name} expected (a|at most|'auto' or a) .*, got {value!r}$", refused(name, value))


WHOLE = [name for name, field in NUMBERS.items() if "int" in str(field.type)]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [2.0, 2.5])
def test_a_whole_number_is_not_a_fraction(name: str, value: float) -> None:
    assert f"{name} expected " in refused(name, value)
    assert f"a whole number, got {value}" in refused(name, value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("min-count", 0, "a whole number of at least 1, got 0"),
        ("quorum", 0, "a whole number of at least 1, got 0"),
        ("pca", -1, "a whole number of at least 0, got -1"),
        ("pca", "10", "a whole number, got '10'"),
        ("seed", 2**32, "at most 4294967295, got 4294967296"),
        ("round-timeout", 0.0, "a number of at least 0.1, got 0.0"),
        ("partition-concentration", 0.0, "a number of at least 0.001, got 0.0"),
        ("partition-concentration", 1e7, "at most 1000000, got 10000000.0"),
        ("fedgem-max-rounds", 10_001, "at most 10000, got 10001"),
        ("fedgem-local-steps", 0, "a whole number of at least 1, got 0"),
        ("fedgem-local-steps", 1001, "at most 1000, got 1001"),
        ("asm-merge-ratio", "1.5,wide", "'auto' or a number, got 'wide'"),
        ("asm-merge-ratio", "1.5,", "'auto' or a number, got ''"),
        ("asm-merge-ratio", "0", "'auto' or a number of at least 1e-09, got 0.0"),
        ("asm-merge-ratio", "1,inf", "a finite number, got inf"),
        ("asm-min-mass", "5,5.5", "'auto' or a whole number, got '5.5'"),
        ("asm-min-mass", 0, "'auto' or a whole number of at least 1, got 0"),
        ("fedgem-final-radius", "wide", "'bic' or a number, got 'wide'"),
        ("fedgem-final-radius", -0.5, "'bic' or a number of at least 0, got -0.5"),
        (
            "estimator",
            "ymeans",
            "one of asm, xmeans, gmeans, dirichlet, kmeans-silhouette, consensus, oracle, got 'ymeans'",
        ),
        ("scaling", "robust", "one of standard, none, minmax, got 'robust'"),
        ("init", "random", "one of kmeans, kmeans++, asm-means, asm, got 'random'"),
        ("partition", "", "one of auto, iid, dirichlet, regime-a, regime-b, site, got ''"),
        ("asm-order", "random", "one of ratio, distance, got 'random'"),
        ("pool-mode", "quick", "one of lean, fast, full, got 'quick'"),
        ("pool-rounds", 0, "'auto' or a whole number of at least 1, got 0"),
        ("pool-tolerance", -0.1, "a number of at least 0, got -0.1"),
        ("pool-uniform", "auto", "one of off, on, got 'auto'"),
        ("fedgem-order", "farthest", "one of nearest, released, got 'farthest'"),
        ("fedgem-radius", "free", "one of published, gem, released, got 'free'"),
        ("fedgem-final-radius-is", "cubed", "one of squared, length, got 'cubed'"),
        ("micro-axes", 0.0, "a number of at least 1e-06, got 0.0"),
        ("micro-axes", 1.5, "at most 1, got 1.5"),
        ("micro-cell-rows", 0, "a whole number of at least 1, got 0"),
        ("k-rule", "mean", "one of geometric, median, bic, hold, got 'mean'"),
        ("count-vote", "xmeans", "one of none, asm, consensus, oracle, got 'xmeans'"),
        ("site-offsets", "on", "one of off, auto, got 'on'"),
        ("refined-votes", "yes", "one of off, auto, on, got 'yes'"),
        ("refine-rounds", 1001, "at most 1000, got 1001"),
        ("assembly", "add", "one of redo, keep, got 'add'"),
    ],
)
def test_what_was_expected_and_what_came(name: str, value: object, expected: str) -> None:
    assert run_error(**{name: value}) == f"run config: {name} expected {expected}"


@pytest.mark.parametrize("name", [name for name, field in EVERY_KEY.items() if key_of(field).absolute])
def test_a_path_must_be_absolute(name: str) -> None:
    text = refused(name, "here/there")
    assert f"{name} expected an absolute path, got 'here/there'" in text
    assert "do not run in the folder you typed the command in" in text


def test_a_path_may_begin_with_the_users_home() -> None:
    assert parse_run_config({"output-dir": "~/runs"}).output_dir == str(Path.home() / "runs")
    assert parse_node_config({**REAL, "data-path": "~/a.csv"}).data_path == str(Path.home() / "a.csv")


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    assert run_error(asm_merge_ration=1.5) == (
        "run config: unknown key 'asm-merge-ration'; did you mean 'asm-merge-ratio'?"
    )
    text = run_error(xyzzy=1)
    assert text.startswith("run config: unknown key 'xyzzy'; known keys: afcl-participation, afcl-rate, ")
    assert all(name in text for name in keys_of(RunConfig))


def test_keys_that_contradict_each_other() -> None:
    assert "expected partition-k-min <= partition-k-max, got 9 > 8" in run_error(partition_k_min=9)
    assert "give fedgem-final-radius a number" in run_error(fedgem_order="released")
    assert "add site-offsets='auto'" in run_error(site_gains="auto")
    assert parse_run_config({"site-gains": "auto", "site-offsets": "auto"}).micro.site_gains == "auto"
    assert "give summaries the path" in run_error(assembly="keep")
    assert parse_run_config({"assembly": "keep", "summaries": "/srv/s.npz"}).micro.assembly == "keep"


@pytest.mark.parametrize(
    ("method", "values", "named"),
    [
        ("gtvmin", {"pool-mode": "fast"}, "pool-mode"),
        ("gtvmin", {"pool-rounds": 3}, "pool-rounds"),
        ("fedgem", {"pool-uniform": "on", "graph": "ring"}, "graph, pool-uniform"),
        ("microcluster", {"pool-tolerance": 0.5}, "pool-tolerance"),
        ("gtvpool", {"alpha": 1.0}, "alpha"),
        ("gtvpool", {"discrepancy": "mmd", "gtv-rounds": 9}, "discrepancy, gtv-rounds"),
        ("gtvpool", {"edge-weights": "graph"}, "edge-weights"),
        ("gtvpool", {"micro-cell-rows": 9}, "micro-cell-rows"),
    ],
)
def test_a_key_of_another_method_is_refused(method: str, values: dict[str, Any], named: str) -> None:
    config = parse_run_config({"method": method, **values})
    with pytest.raises(ConfigError, match=f"{named} would do nothing with method '{method}'"):
        strategy_of(config)


def test_keys_of_pooling_are_read_by_it() -> None:
    own = {"pool-mode": "full", "pool-rounds": 3, "pool-tolerance": 0.5, "pool-uniform": "on"}
    own |= {"pool-guard": "off"}
    shared = {"components": 4, "graph": "ring", "max-age": 1}
    config = parse_run_config({"method": "gtvpool", **own, **shared})
    assert strategy_of(config).__name__ == "GTVPool"
    found = pooling_of(config.pool, 7)
    assert found == dataclasses.replace(FULL, min_count=7.0, max_rounds=3, tolerance=0.5, uniform=True)
    assert pooling_of(PoolConfig(), 5) == PoolSettings(guard=True)
    assert pooling_of(PoolConfig(guard="off"), 5) == PoolSettings()
    assert pooling_of(PoolConfig(mode="fast", guard="off"), 5) == FAST
    assert pooling_of(PoolConfig(mode="full", guard="off"), 5) == FULL


def test_only_micro_clusters_take_axes_by_their_share() -> None:
    assert parse_run_config({"method": "fedgem"}).axes_share == 1.0
    assert parse_run_config({"method": "microcluster", "micro-axes": 0.5}).axes_share == 0.5


def test_a_real_site_and_a_virtual_one() -> None:
    real = parse_node_config({**REAL, "label-column": "y", "min-count": 9, "labels-path": "/srv/l.csv"})
    assert real == NodeConfig("a", "/srv/a.csv", "y", "/srv/l.csv", min_count=9)
    virtual = parse_node_config(VIRTUAL)
    assert (virtual.partition_id, virtual.num_partitions, virtual.site_name) == (0, 2, "")


def test_a_site_with_data_needs_a_name() -> None:
    assert node_error({"data-path": "/srv/a.csv"}) == (
        "node config: a site with data-path needs a stable name; add site-name='...' to --node-config"
    )


@pytest.mark.parametrize("values", [{}, {"site-name": "a"}, {"partition-id": 1}, {"num-partitions": 3}])
def test_a_site_needs_rows_from_somewhere(values: dict[str, Any]) -> None:
    text = node_error(values)
    assert "expected data-path and site-name (a real site) or partition-id and num-partitions" in text
    assert text.endswith(f"got {', '.join(values) or 'nothing'}")


def test_a_near_miss_is_refused_and_another_tools_key_is_not() -> None:
    assert node_error({**REAL, "label-columns": "y"}) == (
        "node config: unknown key 'label-columns'; did you mean 'label-column'?"
    )
    assert parse_node_config({**REAL, "gpu": "none", "rack": 4}) == parse_node_config(REAL)


def test_own_data_win_over_a_partition() -> None:
    both = parse_node_config({**REAL, **VIRTUAL})
    assert (both.data_path, both.site_name) == ("/srv/a.csv", "a")


def test_where_things_go(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home() == own_home
    monkeypatch.setenv("FEDCLUSTER_HOME", "")
    assert home() == Path.home() / ".fedcluster"


@pytest.mark.parametrize(
    "values",
    [
        {"method": "gtvpool"},
        {"method": "fedkmeans", "k": 3},
        {"method": "kfed", "k": 3, "local-k": 3},
        {"method": "gtvmin", "components": 3},
        {"method": "microcluster"},
    ],
)
def test_an_estimator_that_nobody_asks_is_refused(values: dict[str, Any]) -> None:
    assert strategy_of(parse_run_config(values))
    with pytest.raises(ConfigError, match="estimator would do nothing"):
        strategy_of(parse_run_config(values | {"estimator": "asm"}))


@pytest.mark.parametrize("values", [{"method": "fedgem"}, {"method": "kfed", "k": 3}, {"method": "gtvmin"}])
def test_an_estimator_that_sites_count_by_is_taken(values: dict[str, Any]) -> None:
    assert strategy_of(parse_run_config(values | {"estimator": "asm"}))
