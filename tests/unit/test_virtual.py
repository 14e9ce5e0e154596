from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcluster_app.data.virtual import virtual_table
from fedcluster_app.errors import DataError
from fedcluster_app.options import DataSpec
from simulations.partitions import regime_a
from simulations.sources import load_source

DIGITS = DataSpec()


def tables(spec: DataSpec, count: int) -> dict[str, np.ndarray]:
    return {name: table.X for name, table in (virtual_table(spec, i, count) for i in range(count))}


def sorted_rows(X: np.ndarray) -> np.ndarray:
    return X[np.lexsort(X.T)]


@pytest.fixture
def islands(tmp_path: Path) -> str:
    path = tmp_path / "islands.npz"
    np.savez(
        path, X=np.arange(10.0)[:, None], site=[2, 0, 1, 0, 2, 2, 1, 0, 0, 0], site_names=["c", "b", "a"]
    )
    return str(path)


@pytest.mark.parametrize("partition", ["auto", "iid", "dirichlet"])
def test_the_sites_together_hold_the_whole_set_once(partition: str) -> None:
    parts = tables(dataclasses.replace(DIGITS, partition=partition), 10)
    assert list(parts) == [f"site-{i:02d}" for i in range(10)]
    np.testing.assert_array_equal(
        sorted_rows(np.vstack(list(parts.values()))), sorted_rows(load_source("digits").X)
    )


def test_auto_deals_labelled_data_by_dirichlet() -> None:
    dealt = tables(dataclasses.replace(DIGITS, partition="dirichlet"), 4)
    for name, X in tables(DIGITS, 4).items():
        np.testing.assert_array_equal(X, dealt[name])


def test_a_small_concentration_is_more_skewed_than_a_large_one() -> None:
    def largest_share(concentration: float) -> float:
        spec = dataclasses.replace(DIGITS, partition="dirichlet", concentration=concentration)
        labels = [virtual_table(spec, i, 5)[1].labels for i in range(5)]
        return float(np.mean([np.bincount(y).max() / len(y) for y in labels if y is not None and len(y)]))

    assert largest_share(0.05) > 2 * largest_share(100.0)


def test_the_seed_and_nothing_else_decides() -> None:
    first = virtual_table(DIGITS, 3, 10)[1].X
    for i in range(9, -1, -1):  # another order, with other partitions between
        virtual_table(dataclasses.replace(DIGITS, seed=i), 0, 10)
    np.testing.assert_array_equal(virtual_table(DIGITS, 3, 10)[1].X, first)
    assert virtual_table(dataclasses.replace(DIGITS, seed=1), 3, 10)[1].X.shape != first.shape


def test_a_regime_site_holds_its_train_rows() -> None:
    spec = dataclasses.replace(DIGITS, partition="regime-a", k_min=2, k_max=4, seed=5)
    source = load_source("digits")
    assert source.labels is not None
    regime = regime_a(source.labels, 6, np.random.default_rng(5), k_min=2, k_max=4)
    for i, rows in enumerate(regime.train):
        _, table = virtual_table(spec, i, 6)
        np.testing.assert_array_equal(table.X, source.X[rows])
        assert table.labels is not None
        assert tuple(np.unique(table.labels)) == regime.classes[i]


def test_regime_b_sites_may_share_rows_but_not_hold_one_twice() -> None:
    spec = dataclasses.replace(DIGITS, partition="regime-b")
    parts = tables(spec, 30)
    assert sum(map(len, parts.values())) > len(np.unique(np.vstack(list(parts.values())), axis=0))
    for X in parts.values():
        assert len(np.unique(X, axis=0)) == len(X)


def test_natural_sites_come_in_the_order_of_their_names(islands: str) -> None:
    parts = tables(DataSpec(data=islands), 3)
    assert list(parts) == ["a", "b", "c"]
    assert parts["a"].ravel().tolist() == [0, 4, 5]
    assert parts["b"].ravel().tolist() == [2, 6]


def test_natural_sites_must_be_as_many_as_nodes(islands: str) -> None:
    with pytest.raises(DataError, match="has 3 sites; expected num-supernodes=3, got 10"):
        virtual_table(DataSpec(data=islands), 0, 10)


def test_a_file_that_changes_is_read_again(islands: str) -> None:
    spec = DataSpec(data=islands, partition="iid")
    assert virtual_table(spec, 0, 1)[1].n_rows == 10
    np.savez(islands, X=np.zeros((4, 1)))
    os.utime(islands, ns=(1, 1))
    assert virtual_table(spec, 0, 1)[1].n_rows == 4


def test_more_sites_than_rows_leaves_some_empty(islands: str) -> None:
    sizes = [len(X) for X in tables(DataSpec(data=islands, partition="iid"), 12).values()]
    assert sorted(sizes) == [0, 0] + [1] * 10


def test_only_the_site_with_missing_values_complains(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("site,temp\nwest,1\neast,\nwest,2\neast,3\n")
    spec = DataSpec(data=str(path))
    assert virtual_table(spec, 1, 2)[1].X.ravel().tolist() == [1, 2]
    with pytest.raises(DataError, match="site 'east': column 'temp' has 1 of 2 values missing"):
        virtual_table(spec, 0, 2)


def test_what_cannot_be_dealt(islands: str) -> None:
    with pytest.raises(DataError, match="partition 'dirichlet' needs labels"):
        virtual_table(DataSpec(data=islands, partition="dirichlet"), 0, 3)
    with pytest.raises(DataError, match="does not say which site"):
        virtual_table(DataSpec(partition="site"), 0, 3)
    with pytest.raises(DataError, match="partition-id is 3, expected 0 to 2"):
        virtual_table(DIGITS, 3, 3)
    with pytest.raises(DataError, match="partition 'stripes' is unknown"):
        virtual_table(DataSpec(partition="stripes"), 0, 3)
    with pytest.raises(DataError, match="absolute path"):
        virtual_table(DataSpec(data="set.npz"), 0, 3)


def test_penguins_by_island(shared_data: Callable[[str], str]) -> None:
    spec = DataSpec(data=shared_data("penguins_3islands.npz"))
    assert {name: len(X) for name, X in tables(spec, 3).items()} == {
        "Biscoe": 167,
        "Dream": 124,
        "Torgersen": 51,
    }
