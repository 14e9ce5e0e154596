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
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.results import archive
from fedcluster_app.results.archive import check_scaling

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
    seed : int
        Of the halves of the sites' rows.
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
    seed: int
    counts: Mapping[str, int] = field(default_factory=dict)
    drift: Drift | None = None

    def __post_init__(self) -> None:
        found, G = self.clusters, len(self.names)
        d, q, K = len(self.columns), self.scaling.n_features_out, len(found.masses)
        check_scaling(self.scaling, d, q, "Summaries")
        if self.seed < 0:
            raise ValueError(f"expected a seed of 0 or more, got {self.seed}")
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
            "sites": np.array(sites, dtype=np.str_),
            "cells": np.array([len(part.counts) for part in cells], dtype=np.int64),
            "counted": np.array([self.counts.get(name, 0) for name in sites], dtype=np.int64),
            "names": np.array(self.names, dtype=np.str_),
            "seed": np.array(self.seed, dtype=np.int64),
        }
        arrays |= {f"cell_{name}": np.concatenate([getattr(part, name) for part in cells]) for name in _CELLS}
        arrays |= {f"cluster_{item.name}": getattr(self.clusters, item.name) for item in fields(Clusters)}
        arrays |= {name: getattr(self.drift, name) for name in _DRIFT if self.drift is not None}
        archive.save(path, self.columns, self.scaling, arrays)


def load_summaries(path: Path) -> Summaries:
    """Read a summaries file.

    Raises
    ------
    DataError
        If the file is not there or is not of this format.
    """
    missing = "method='microcluster' leaves summaries.npz in its run folder"
    return archive.load(path, "summaries", missing, _summaries)


def _summaries(columns: tuple[str, ...], scaling: Scaling, arrays: Mapping[str, Any]) -> Summaries:
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
        columns=columns,
        scaling=scaling,
        uploads=uploads,
        counts={site: count for site, count in counted if count},
        clusters=Clusters(**{item.name: arrays[f"cluster_{item.name}"] for item in fields(Clusters)}),
        names=tuple(arrays["names"].tolist()),
        seed=int(arrays["seed"]),
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
