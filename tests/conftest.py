"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder where this test's runs, ledgers and labels go, also those of processes that it starts."""
    home = tmp_path / "fedcluster-home"
    monkeypatch.setenv("FEDCLUSTER_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], str]:
    """Path of a real data set by file name; the test is skipped where the sets are not at hand."""

    def path(name: str) -> str:
        folder = os.environ.get("FEDCLUSTER_DATA")
        if not folder:
            pytest.skip("real data: set FEDCLUSTER_DATA to the folder that holds the sets")
        found = os.path.abspath(os.path.join(folder, name))
        if not os.path.isfile(found):
            pytest.skip(f"real data: {name} is not in FEDCLUSTER_DATA")
        return found

    return path
