"""Sites that come when the clusters stand: their weights, and their offset where sites have such."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import Clusters, responsibilities, weights_by_site
from fedcluster_app.aggregation.micro.offsets import Alignment, expected_precisions, offset_step, remove
from fedcluster_app.aggregation.micro.path import whitening
from fedcluster_app.aggregation.micro.register import kernel_width, lay_over
from fedcluster_app.mixtures.types import BoolArray, FloatArray

STEPS = 30


def join(
    cells: Cells, clusters: Clusters, new: BoolArray, alignment: Alignment | None, rng: np.random.Generator
) -> tuple[FloatArray, Alignment | None]:
    """Fit weights, and offsets, of new sites while the clusters stay.

    Parameters
    ----------
    cells
        Of all sites, as they were sent.
    clusters
        With a row of weights for every site; those of the new ones are where their weights start.
    new : (G,) bool array
        Which sites are new.
    alignment
        Of all sites, where offsets were found: 0 and 1 at the new ones. A new site's gain stays 1.
    rng

    Returns
    -------
    weights : (G, K) array
    alignment : Alignment or None

    Notes
    -----
    **Source**: ours: EM on weights alone, with the offset step of :mod:`~.offsets`; the prior of an offset is
    as wide as those of the other sites.
    """
    if alignment is not None:
        alignment = _laid(cells, new, alignment, rng)
        prior = np.square(alignment.offsets[~new]).mean(axis=0) + 1e-8
    for _ in range(STEPS):
        aligned = cells if alignment is None else remove(cells, alignment)
        R = responsibilities(aligned, clusters)
        weights = np.where(new[:, None], weights_by_site(aligned, R), clusters.weights)
        clusters = replace(clusters, weights=weights)
        if alignment is not None:
            offsets = offset_step(cells, alignment.gains, prior, *expected_precisions(R, clusters))[0]
            alignment = replace(alignment, offsets=np.where(new[:, None], offsets, alignment.offsets))
    return clusters.weights, alignment


def _laid(cells: Cells, new: BoolArray, alignment: Alignment, rng: np.random.Generator) -> Alignment:
    """Lay each new site over the micro-clusters of the old ones."""
    aligned = remove(cells, alignment)
    scale = whitening(aligned)
    white = replace(aligned, means=aligned.means * scale)
    width, none = kernel_width(white), np.zeros_like(alignment.offsets)
    offsets = alignment.offsets.copy()
    for g in np.flatnonzero(new):
        offsets[g] = lay_over(white, int(g), ~new[cells.sites], none, width, rng)[1] / scale
    return replace(alignment, offsets=offsets)
