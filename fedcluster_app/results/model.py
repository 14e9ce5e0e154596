"""The model file: the agreed scaling and the global clusters, enough to label new rows with NumPy alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
class Sensors:
    """What sets the sites' rows apart: a scaled row of a site is offset + gain * (the row as clustered).

    Attributes
    ----------
    sites : tuple of G str
    offsets, gains : (G, q) arrays
    """

    sites: tuple[str, ...]
    offsets: FloatArray
    gains: FloatArray

    def remove(self, X: FloatArray, site: str | None) -> FloatArray:
        """Return scaled rows (n, q) of a site without its offset and gain.

        Raises
        ------
        DataError
            If the site is not one of these.
        """
        if site not in self.sites:
            raise DataError(
                f"new rows: the sites' sensors differ, so this model must know the site; expected one of "
                f"{', '.join(self.sites)}, got {site or 'none'}; a new site takes part in a run first"
            )
        row = self.sites.index(site)
        cleaned: FloatArray = (X - self.offsets[row]) / self.gains[row]
        return cleaned


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
    sensors : Sensors or None
        Offsets and gains of sites, where such were found.

    Raises
    ------
    ValueError
        If their sizes do not fit together.
    """

    columns: tuple[str, ...]
    scaling: Scaling
    clusters: Mixture
    sensors: Sensors | None = None

    def __post_init__(self) -> None:
        d, q = len(self.columns), self.clusters.n_features
        shapes = {"center": (d,), "scale": (d,), "components": (d, q), "score_scale": (q,)}
        for name, expected in shapes.items():
            part = getattr(self.scaling, name)
            if part is not None and part.shape != expected:
                raise ValueError(f"Model.scaling.{name}: expected shape {expected}, got {part.shape}")
        if self.scaling.components is None and q != d:
            raise ValueError(f"Model.clusters: expected {d} features, one per column, got {q}")
        if self.sensors is not None:
            expected = (len(self.sensors.sites), q)
            if not self.sensors.offsets.shape == self.sensors.gains.shape == expected:
                raise ValueError(f"Model.sensors: expected offsets and gains of shape {expected}")

    def predict(
        self,
        X: FloatArray,
        columns: tuple[str, ...] | None = None,
        *,
        own_weights: bool = False,
        site: str | None = None,
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
        site
            Whose rows these are; needed, and used, only where the model has ``sensors``.

        Returns
        -------
        int array of shape (n,)

        Raises
        ------
        DataError
            If the columns are not the model's, or it does not know the site.
        """
        mismatch = None if columns is None else first_mismatch(self.columns, columns)
        if mismatch:
            raise DataError(f"new rows: {mismatch}; the model was made with the columns {list(self.columns)}")
        if X.ndim != 2 or X.shape[1] != len(self.columns):
            raise DataError(f"new rows: expected shape (rows, {len(self.columns)}), got {X.shape}")
        rows, clusters = self.scaling.apply(X), self.clusters
        if self.sensors is not None:
            rows = self.sensors.remove(rows, site)
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
        if self.sensors is not None:
            arrays["sites"] = np.array(self.sensors.sites, dtype=np.str_)
            arrays |= {"offsets": self.sensors.offsets, "gains": self.sensors.gains}
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
            _sensors(arrays),
        )
    except FileNotFoundError:
        raise DataError(f"model {path}: no such file; a run leaves model.npz in its folder") from None
    except DataError:
        raise
    except Exception as error:  # NumPy and zipfile have many words for a file that is something else
        raise DataError(f"model {path}: not a fedcluster model ({error})") from error


def _sensors(arrays: Mapping[str, Any]) -> Sensors | None:
    if "sites" not in arrays:
        return None
    return Sensors(tuple(arrays["sites"].tolist()), arrays["offsets"], arrays["gains"])


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
