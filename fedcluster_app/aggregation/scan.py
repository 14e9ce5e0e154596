"""Which balls of different sites touch, and the point they agree on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.mixtures.types import FloatArray, IntArray

_BLOCK = 1 << 22  # floats held at once, 32 MB


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of components of different sites, ordered by (first, second), with first < second.

    Parameters
    ----------
    first, second : (p,) int arrays
        Positions in the stacked components.
    distance : (p,) array
        Distance of their centres.
    """

    first: IntArray
    second: IntArray
    distance: FloatArray


def cross_site_pairs(centers: FloatArray, site: IntArray, radii: FloatArray | None = None) -> Pairs:
    """Pairs of components of different sites whose balls touch, w <= r_i + r_j; all of them without `radii`.

    Parameters
    ----------
    centers : (m, d) array
        Centres of all components, site after site.
    site : (m,) int array
        Site of each component.
    radii : (m,) array, optional
        Radii of the balls.

    Returns
    -------
    Pairs

    Notes
    -----
    Cost O(m^2 d) time; memory is one block of differences plus the pairs that are kept. Distances are taken
    from differences, not from an expanded square, so that they are exact near contact and the same for any
    block size.
    """
    m, d = centers.shape
    height = max(1, _BLOCK // max(1, m * d))
    kept: list[tuple[IntArray, IntArray, FloatArray]] = []
    for start in range(0, max(1, m), height):
        rows = slice(start, min(start + height, m))
        gaps = centers[rows, None, :] - centers[None, start:, :]
        distance = np.sqrt(np.einsum("ijk,ijk->ij", gaps, gaps))
        wanted = np.triu(site[rows, None] != site[None, start:])
        if radii is not None:
            wanted &= distance <= radii[rows, None] + radii[None, start:]
        i, j = np.nonzero(wanted)
        kept.append((i + start, j + start, distance[i, j]))
    first, second, distances = (np.concatenate(part) for part in zip(*kept, strict=True))
    return Pairs(first, second, distances)


def intersection_points(
    first: FloatArray, second: FloatArray, r_first: FloatArray, r_second: FloatArray, distance: FloatArray
) -> FloatArray:
    """Project the midpoint of two touching balls on their lens: its point nearest to both centres.

    nu = c_1 + lambda (c_2 - c_1) with lambda = min(max(1/2, 1 - r_2 / w), r_1 / w); it does not depend on
    which ball comes first.

    Parameters
    ----------
    first, second : (p, d) arrays
        Centres.
    r_first, r_second : (p,) arrays
        Radii.
    distance : (p,) array
        w, the distance of the centres, at most the sum of the radii.

    Returns
    -------
    points : (p, d) array

    Notes
    -----
    **Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160, server update. Deviation: the authors' code
    moves along c_1 - c_2, away from the partner, and so leaves the second ball in most cases.
    """
    apart = distance > 0
    w = np.where(apart, distance, 1.0)
    along = np.minimum(np.maximum(w / 2, w - r_second), r_first) / w  # in lengths: r / w could overflow
    return first + np.where(apart, along, 0.0)[:, None] * (second - first)


def agreed_means(centers: FloatArray, radii: FloatArray, pairs: Pairs) -> FloatArray:
    """Move every component to the plain average of its centre and its intersection points.

    All of these lie in the component's ball, hence so does their average, and no site's expected
    log-likelihood falls.

    Parameters
    ----------
    centers : (m, d) array
        Centres of all components.
    radii : (m,) array
        Their radii.
    pairs : Pairs
        The touching pairs.

    Returns
    -------
    means : (m, d) array

    Notes
    -----
    Cost O(p d). **Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160, server update. Deviation from the
    authors' code: every partner counts once (there the first pair of a cluster counts twice).
    """
    totals = centers.copy()
    members = np.ones(len(centers))
    height = max(1, _BLOCK // max(1, centers.shape[1]))
    for start in range(0, len(pairs.first), height):
        chunk = slice(start, start + height)
        i, j = pairs.first[chunk], pairs.second[chunk]
        points = intersection_points(centers[i], centers[j], radii[i], radii[j], pairs.distance[chunk])
        for side in (i, j):
            np.add.at(totals, side, points)
            members += np.bincount(side, minlength=len(centers))
    return totals / members[:, None]
