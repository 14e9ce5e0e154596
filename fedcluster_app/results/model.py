"""The model file: the agreed scaling and the global clusters, enough to label new rows with NumPy alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedcluster_app.data.scaling import Scaling
from fedcluster_app.data.schema import first_mismatch
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.densities import log_densities, log_joint
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.mixtures.weights import site_weights

FORMAT = 1
_OPTIONAL = ("components", "score_scale")


@dataclass(frozen=True, eq=False)
class Model:
    """Global clusters of scaled rows.

    Attributes
    ----------
    columns : tuple of d str
        The columns, in the order of the rows.
    scaling : Scaling
        From d columns to q features.
    clusters : Mixture
        K clusters of q features.

    Raises
    ------
    ValueError
        If their sizes do not fit together.
    """

    columns: tuple[str, ...]
    scaling: Scaling
    clusters: Mixture

    def __post_init__(self) -> None:
        d, q = len(self.columns), self.clusters.n_features
        shapes = {"center": (d,), "scale": (d,), "components": (d, q), "score_scale": (q,)}
        for name, expected in shapes.items():
            part = getattr(self.scaling, name)
            if part is not None and part.shape != expected:
                raise ValueError(f"Model.scaling.{name}: expected shape {expected}, got {part.shape}")
        if self.scaling.components is None and q != d:
            raise ValueError(f"Model.clusters: expected {d} features, one per column, got {q}")

    def predict(
        self, X: FloatArray, columns: tuple[str, ...] | None = None, *, own_weights: bool = False
    ) -> IntArray:
        """Return the cluster of every row.

        Parameters
        ----------
        X : array of shape (n, d)
            Unscaled rows.
        columns : tuple of d str, optional
            Their columns, to be checked against the model's.
        own_weights
            Whether the rows, all of one site, first say how much each cluster weighs there.

        Returns
        -------
        int array of shape (n,)

        Raises
        ------
        DataError
            If the columns are not the model's.
        """
        mismatch = None if columns is None else first_mismatch(self.columns, columns)
        if mismatch:
            raise DataError(f"new rows: {mismatch}; the model was made with the columns {list(self.columns)}")
        if X.ndim != 2 or X.shape[1] != len(self.columns):
            raise DataError(f"new rows: expected shape (rows, {len(self.columns)}), got {X.shape}")
        rows, clusters = self.scaling.apply(X), self.clusters
        if own_weights:
            weights = site_weights(log_densities(rows, clusters), clusters.weights)
            clusters = replace(clusters, weights=weights)
        return cluster_labels(rows, clusters)

    def save(self, path: Path) -> None:
        """Write the model as a ``.npz`` file; the same model gives the same bytes."""
        arrays = {
            "format": np.array(FORMAT),
            "columns": np.array(self.columns, dtype=np.str_),
            "center": self.scaling.center,
            "scale": self.scaling.scale,
            "weights": self.clusters.weights,
            "means": self.clusters.means,
            "covariances": self.clusters.covariances,
        }
        for name in _OPTIONAL:
            value = getattr(self.scaling, name)
            if value is not None:
                arrays[name] = value
        np.savez(path, **arrays)  # type: ignore[arg-type]  # the stubs take `allow_pickle` for one of them


def load_model(path: Path) -> Model:
    """Read a model file.

    Raises
    ------
    DataError
        If the file is not there or is not a model of this format.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if int(arrays["format"]) != FORMAT:
            raise DataError(
                f"model {path}: format {arrays['format']}, expected {FORMAT}; use a newer fedcluster"
            )
        return Model(
            tuple(arrays["columns"].tolist()),
            Scaling(arrays["center"], arrays["scale"], *(arrays.get(name) for name in _OPTIONAL)),
            Mixture(arrays["weights"], arrays["means"], arrays["covariances"]),
        )
    except FileNotFoundError:
        raise DataError(f"model {path}: no such file; a run leaves model.npz in its folder") from None
    except DataError:
        raise
    except Exception as error:  # NumPy and zipfile have many words for a file that is something else
        raise DataError(f"model {path}: not a fedcluster model ({error})") from error


def cluster_labels(X: FloatArray, clusters: Mixture) -> IntArray:
    """Return the most probable cluster of every scaled row; of equals the first. X is (n, q)."""
    labels: IntArray = log_joint(X, clusters).argmax(axis=1)
    return labels


def labels_text(labels: IntArray) -> str:
    """Return csv with columns ``row`` and ``cluster``, a line for every row, in the order of the rows."""
    return "row,cluster\n" + "".join(f"{row},{label}\n" for row, label in enumerate(labels.tolist()))


def write_labels(path: Path, labels: IntArray) -> None:
    """Write :func:`labels_text` to a file, whole or not at all; DataError if that cannot be done."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(labels_text(labels), encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise DataError(f"labels: cannot write {path} ({error.strerror}); choose another file") from error
