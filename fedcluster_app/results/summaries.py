"""The summaries file: what sites sent and what became of it, so that a site can be added to the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster_app.aggregation.micro.cells import MicroClusters
from fedcluster_app.aggregation.micro.drift import Drift
from fedcluster_app.aggregation.micro.em import Clusters
from fedcluster_app.data.scaling import Scaling
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.mixture import Mixture

FORMAT = 1
_AXES = ("components", "score_scale")
_DRIFT = ("offsets", "gains", "widths")
_CELLS = tuple(item.name for item in fields(MicroClusters))


@dataclass(frozen=True, eq=False)
class Summaries:
    """Micro-clusters of sites, and the global clusters that were made of them.

    Attributes
    ----------
    columns : tuple of d str
    scaling : Scaling
        From d columns to the q features that everything below is in.
    uploads : mapping of site name to MicroClusters
    counts : mapping of site name to int
        Clusters that sites counted themselves; those that did not are not in it.
    clusters : Clusters
        The K global clusters, with a row of weights for every name below.
    names : tuple of G str
        Sites that the clusters were made of, in order.
    drift : Drift or None
        Offsets and gains of these sites, where such were found.

    Raises
    ------
    ValueError
        If their sizes do not fit together, or a number cannot be.
    """

    columns: tuple[str, ...]
    scaling: Scaling
    uploads: Mapping[str, MicroClusters]
    clusters: Clusters
    names: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    drift: Drift | None = None

    def __post_init__(self) -> None:
        found, G = self.clusters, len(self.names)
        d, q, K = len(self.columns), self.scaling.n_features_out, len(found.masses)
        _check("scaling", self.scaling, {"center": (d,), "scale": (d,)})
        _check("scaling", self.scaling, {"components": (d, q), "score_scale": (q,)})
        _check("clusters", found, {"weights": (G, K), "means": (K, q), "covariances": (K, q, q)})
        if self.drift is not None:
            _check("drift", self.drift, {"offsets": (G, q), "gains": (G, q), "widths": (G,)})
        if (self.scaling.scale <= 0).any() or (self.drift is not None and (self.drift.gains <= 0).any()):
            raise ValueError("expected positive scales and gains")
        for site, cells in self.uploads.items():
            k = len(cells.counts)
            _check(f"site {site!r}", cells, {"halves": (k,), "counts": (k,)})
            _check(f"site {site!r}", cells, {"means": (k, q), "variances": (k, q)})
            if k < 1 or cells.counts.min() <= 0 or cells.variances.min() < 0:
                raise ValueError(f"site {site!r}: expected positive counts and no negative variance")
            if not np.isin(cells.halves, (0, 1)).all():
                raise ValueError(f"site {site!r}: expected halves 0 and 1")
        # It says itself what is wrong with it.
        Mixture(found.global_weights, found.means, found.covariances)
        if (found.weights < 0).any() or (np.abs(found.weights.sum(axis=1) - 1.0) > 1e-6).any():
            raise ValueError("clusters.weights: expected a sum of 1 at every site")
        strange = (set(self.names) | set(self.counts)) - set(self.uploads)
        if strange:
            raise ValueError(f"sites {', '.join(sorted(strange))} have no micro-clusters")

    def save(self, path: Path) -> None:
        """Write a ``.npz`` file; the same content gives the same bytes."""
        sites = sorted(self.uploads)
        cells = [self.uploads[name] for name in sites]
        arrays: dict[str, NDArray[Any]] = {
            "format": np.array(FORMAT),
            "columns": np.array(self.columns, dtype=np.str_),
            "sites": np.array(sites, dtype=np.str_),
            "cells": np.array([len(part.counts) for part in cells], dtype=np.int64),
            "counted": np.array([self.counts.get(name, 0) for name in sites], dtype=np.int64),
            "names": np.array(self.names, dtype=np.str_),
        }
        arrays |= {f"cell_{name}": np.concatenate([getattr(part, name) for part in cells]) for name in _CELLS}
        arrays |= {f"cluster_{item.name}": getattr(self.clusters, item.name) for item in fields(Clusters)}
        arrays |= {"center": self.scaling.center, "scale": self.scaling.scale}
        optional = {name: getattr(self.scaling, name) for name in _AXES}
        optional |= {name: getattr(self.drift, name) for name in _DRIFT if self.drift is not None}
        arrays |= {name: part for name, part in optional.items() if part is not None}
        np.savez(path, **arrays)  # type: ignore[arg-type]  # the stubs take `allow_pickle` for one of them


def load_summaries(path: Path) -> Summaries:
    """Read a summaries file.

    Raises
    ------
    DataError
        If the file is not there or is not of this format.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
        if int(arrays["format"]) != FORMAT:
            raise DataError(
                f"summaries {path}: format {arrays['format']}, expected {FORMAT}; use a newer fedcluster"
            )
        return _summaries(arrays)
    except FileNotFoundError:
        raise DataError(
            f"summaries {path}: no such file; method='microcluster' leaves summaries.npz in its run folder"
        ) from None
    except DataError:
        raise
    except Exception as error:  # NumPy and zipfile have many words for a file that is something else
        raise DataError(f"summaries {path}: not the summaries of a fedcluster run ({error})") from error


def _summaries(arrays: Mapping[str, Any]) -> Summaries:
    sites, sizes = arrays["sites"].tolist(), arrays["cells"]
    ends = np.cumsum(sizes)
    if len(set(sites)) < len(sites):
        raise ValueError("expected every site once")
    if sizes.min() < 1 or any(len(arrays[f"cell_{name}"]) != ends[-1] for name in _CELLS):
        raise ValueError(f"expected {ends[-1]} micro-clusters in all, at least one at every site")
    parts = {name: np.split(arrays[f"cell_{name}"], ends[:-1]) for name in _CELLS}
    uploads = {
        site: MicroClusters(**{name: parts[name][number] for name in _CELLS})
        for number, site in enumerate(sites)
    }
    counted = zip(sites, arrays["counted"].tolist(), strict=True)
    return Summaries(
        columns=tuple(arrays["columns"].tolist()),
        scaling=Scaling(arrays["center"], arrays["scale"], *(arrays.get(name) for name in _AXES)),
        uploads=uploads,
        counts={site: count for site, count in counted if count},
        clusters=Clusters(**{item.name: arrays[f"cluster_{item.name}"] for item in fields(Clusters)}),
        names=tuple(arrays["names"].tolist()),
        drift=Drift(True, *(arrays[name] for name in _DRIFT)) if _DRIFT[0] in arrays else None,
    )


def _check(what: str, value: object, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError if an array that is there has another shape, or numbers that are none."""
    for name, shape in shapes.items():
        part = getattr(value, name)
        if part is not None and part.shape != shape:
            raise ValueError(f"{what}.{name}: expected shape {shape}, got {part.shape}")
        if part is not None and not np.isfinite(part).all():
            raise ValueError(f"{what}.{name}: expected finite numbers")
