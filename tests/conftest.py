"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest


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
