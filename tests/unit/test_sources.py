from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcluster_app.errors import DataError
from simulations.sources import load_source, numbered_names


def npz(folder: Path, **arrays: object) -> str:
    path = folder / "set.npz"
    np.savez(path, **arrays)
    return str(path)


def test_digits() -> None:
    source = load_source("digits")
    assert source.X.shape == (1797, 64)
    assert source.columns[:2] == ("pixel_0_0", "pixel_0_1")
    assert source.labels is not None
    assert np.bincount(source.labels).min() == 174
    assert source.label_names == tuple("0123456789")
    assert source.sites is None
    assert not source.X.flags.writeable
    with pytest.raises(DataError, match="no label column 'kind'"):
        load_source("digits", "kind")


def test_npz_takes_y_by_itself_or_another_array_by_name(tmp_path: Path) -> None:
    path = npz(
        tmp_path, X=np.zeros((2, 1)), pca=np.ones((2, 3)), y=[0, 1], genus=[1, 1], genus_names=["p", "q"]
    )
    plain = load_source(path)
    assert plain.name == "set.npz"
    assert plain.labels is not None
    assert plain.labels.tolist() == [0, 1]
    other = load_source(path, "genus", features="pca")
    assert other.X.shape == (2, 3)
    assert other.label_names == ("p", "q")
    assert other.labels is not None
    assert other.labels.tolist() == [1, 1]
    with pytest.raises(DataError, match="no label column 'family'"):
        load_source(path, "family")


def test_npz_sites_are_sorted_by_name_and_empty_ones_left_out(tmp_path: Path) -> None:
    path = npz(tmp_path, X=np.zeros((3, 1)), site=[2, 0, 2], site_names=["zoo", "bay", "ark"])
    source = load_source(path)
    assert source.labels is None
    assert source.site_names == ("ark", "zoo")
    assert source.sites is not None
    assert source.sites.tolist() == [0, 1, 0]


def test_npz_sites_without_names_keep_the_order_of_their_numbers(tmp_path: Path) -> None:
    source = load_source(npz(tmp_path, X=np.zeros((3, 1)), site=[10, 2, 0]))
    assert source.site_names == ("site-00", "site-02", "site-10")


@pytest.mark.parametrize(("site", "names"), [([0, 3], ["a", "b"]), ([-1, 0], ["a", "b"]), ([0], ["a"])])
def test_npz_sites_that_do_not_fit(tmp_path: Path, site: list[int], names: list[str]) -> None:
    with pytest.raises(DataError, match="'site'"):
        load_source(npz(tmp_path, X=np.zeros((2, 1)), site=site, site_names=names))


def test_csv_with_sites_and_a_feature_called_y(tmp_path: Path) -> None:
    path = tmp_path / "set.csv"
    path.write_text("y,site,kind\n1,b,u\n2,a,v\n3,b,u\n")
    source = load_source(str(path), "kind")
    assert source.columns == ("y",)
    assert source.site_names == ("a", "b")
    assert source.sites is not None
    assert source.sites.tolist() == [1, 0, 1]
    assert source.label_names == ("u", "v")
    path.write_text("y\n1\n")
    assert load_source(str(path)).labels is None


def test_missing_values_are_left_to_the_sites(tmp_path: Path) -> None:
    assert np.isnan(load_source(npz(tmp_path, X=[[np.nan]])).X).all()


def test_paths_that_cannot_be_meant() -> None:
    with pytest.raises(DataError, match="neither 'digits' nor an absolute path"):
        load_source("data/set.npz")
    with pytest.raises(DataError, match="there is no data file"):
        load_source("/no/such/set.npz")


@pytest.mark.parametrize("count", [1, 10, 100, 101])
def test_order_of_numbered_names_is_the_order_of_numbers(count: int) -> None:
    names = numbered_names(count)
    assert names == sorted(names)
    assert len(set(names)) == count
    assert len(names[0]) >= len("site-00")


def test_penguins_have_three_islands(shared_data: Callable[[str], str]) -> None:
    source = load_source(shared_data("penguins_3islands.npz"))
    assert source.site_names == ("Biscoe", "Dream", "Torgersen")
    assert source.sites is not None
    assert np.bincount(source.sites).tolist() == [167, 124, 51]
    assert len(source.label_names) == 3
