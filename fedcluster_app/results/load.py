"""Reading a model file, whichever method made it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcluster_app.data.scaling import Scaling
from fedcluster_app.results import archive
from fedcluster_app.results.model import Model, model_of
from fedcluster_app.results.personal import PersonalModels, personal_models


def load_model(path: Path) -> Model | PersonalModels:
    """Read a model file.

    Raises
    ------
    DataError
        If the file is not there or is not a model of this format.
    """
    return archive.load(path, "model", "a run leaves model.npz in its folder", _made)


def _made(columns: tuple[str, ...], scaling: Scaling, arrays: Mapping[str, Any]) -> Model | PersonalModels:
    return (personal_models if "members" in arrays else model_of)(columns, scaling, arrays)
