"""The model file: the agreed scaling and the global clusters, enough to label new rows with NumPy alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster_app.data.scaling import Scaling
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.densities import log_densities, log_joint
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.mixtures.weights import site_weights
from fedcluster_app.results import archive
from fedcluster_app.results.archive import check_rows, check_scaling


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
        check_scaling(self.scaling, len(self.columns), self.clusters.n_features, "Model")
        if self.sensors is not None:
            expected = (len(self.sensors.sites), self.clusters.n_features)
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
            Whose rows these are; needed where the model has ``sensors``, and refused where it has none.

        Returns
        -------
        int array of shape (n,)

        Raises
        ------
        DataError
            If the columns are not the model's, or it does not know the site.
        """
        check_rows(X, columns, self.columns)
        rows, clusters = self.scaling.apply(X), self.clusters
        if self.sensors is None and site is not None:
            raise DataError(
                f"new rows: this model is the same for all sites, got site {site!r}; leave it out (own "
                "weights are fitted to the rows themselves)"
            )
        if self.sensors is not None:
            rows = self.sensors.remove(rows, site)
        if own_weights:
            weights = site_weights(log_densities(rows, clusters), clusters.weights)
            clusters = replace(clusters, weights=weights)
        return cluster_labels(rows, clusters)

    def save(self, path: Path) -> None:
        """Write the model as a ``.npz`` file; the same model gives the same bytes."""
        arrays: dict[str, Any] = {item.name: getattr(self.clusters, item.name) for item in fields(Mixture)}
        if self.sensors is not None:
            arrays["sites"] = np.array(self.sensors.sites, dtype=np.str_)
            arrays |= {"offsets": self.sensors.offsets, "gains": self.sensors.gains}
        archive.save(path, self.columns, self.scaling, arrays)


def model_of(columns: tuple[str, ...], scaling: Scaling, arrays: Mapping[str, Any]) -> Model:
    """Return the model that :meth:`Model.save` wrote."""
    clusters = Mixture(arrays["weights"], arrays["means"], arrays["covariances"])
    if "sites" not in arrays:
        return Model(columns, scaling, clusters)
    sensors = Sensors(tuple(arrays["sites"].tolist()), arrays["offsets"], arrays["gains"])
    return Model(columns, scaling, clusters, sensors)


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
