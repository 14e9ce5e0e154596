"""Helpers of the tests that run a federation, in this process or under Flower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

SiteTables = Mapping[str, ArrayLike]


@pytest.fixture(autouse=True)
def fedcluster_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep what sites write by default away from the real home."""
    home = tmp_path / "home"
    monkeypatch.setenv("FEDCLUSTER_HOME", str(home))
    return home


@pytest.fixture
def csv_sites(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Make real sites, each with a csv of its own, and return their node configs in the order given.

    A table is (n, d); the columns are c0, c1, ... unless ``columns`` says otherwise for a site. A site in
    ``labels`` has a column ``class`` besides, and knows that it is one.
    """

    def make(
        tables: SiteTables,
        *,
        columns: Mapping[str, list[str]] | None = None,
        labels: Mapping[str, ArrayLike] | None = None,
    ) -> list[dict[str, Any]]:
        nodes = []
        for name, table in tables.items():
            rows = np.asarray(table, dtype=object)
            head = (columns or {}).get(name, [f"c{j}" for j in range(rows.shape[1])])
            node: dict[str, Any] = {"site-name": name, "data-path": str(tmp_path / f"{name}.csv")}
            if name in (labels or {}):
                rows = np.column_stack([rows, np.asarray(labels[name], dtype=object)])
                head, node["label-column"] = [*head, "class"], "class"
            lines = [",".join(head), *(",".join(map(str, row)) for row in rows)]
            Path(node["data-path"]).write_text("\n".join(lines) + "\n", encoding="utf-8")
            node["labels-path"] = str(tmp_path / f"{name}-labels.csv")
            node["ledger-path"] = str(tmp_path / f"{name}-ledger.jsonl")
            nodes.append(node)
        return nodes

    return make


@pytest.fixture(scope="session")
def blobs() -> Callable[..., NDArray[np.float64]]:
    """Rows around the centres 0, 8, 16, ... of both columns, unit variance: ``blobs(seed, n, n, ...)``."""

    def make(seed: int, *sizes: int) -> NDArray[np.float64]:
        rng = np.random.default_rng(seed)
        return np.concatenate([rng.normal(8.0 * j, 1.0, (n, 2)) for j, n in enumerate(sizes)])

    return make


@pytest.fixture(scope="session")
def clusters_in() -> Callable[[Path], NDArray[np.int64]]:
    """Read the clusters that a site wrote for its rows, checking that they stand in the order of the rows."""

    def read(path: Path | str) -> NDArray[np.int64]:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        assert lines[0] == "row,cluster"
        pairs = np.array([line.split(",") for line in lines[1:]], dtype=np.int64).reshape(-1, 2)
        assert pairs[:, 0].tolist() == list(range(len(pairs)))
        return pairs[:, 1]

    return read


@pytest.fixture
def three_sites(
    csv_sites: Callable[..., list[dict[str, Any]]], blobs: Callable[..., NDArray[np.float64]]
) -> list[dict[str, Any]]:
    """Make sites a, b, c with three clusters each, far apart, of 40, 50 and 60 rows."""
    return csv_sites({name: blobs(seed, 40, 50, 60) for seed, name in enumerate("abc")})
