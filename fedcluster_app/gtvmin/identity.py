"""One numbering of components for all sites: those that overlap enough are one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin.blocks import Blocks, blocks
from fedcluster_app.gtvmin.kernels import kernel_means
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray

#: Least normalised kernel correlation of any two components of one cluster.
OVERLAP = 0.4
#: Of the kernels, in units of a typical component's width.
BANDWIDTHS = (0.5, 1.0, 2.0)

_APART = 2.0  # a distance above any other, which complete linkage never bridges below the cut
_BLOCK = 1 << 15  # pairs of components at once


@dataclass(frozen=True, eq=False)
class Identity:
    """What every site's components are called in the whole network.

    Attributes
    ----------
    labels : mapping of site name to int array of shape (k,)
        Cluster of each component, in the site's own order; different for different components of a site.
    sizes : array of shape (n_clusters,)
        Rows in each cluster if numbers of rows were given, else sums of weights; descending.
    """

    labels: Mapping[str, IntArray]
    sizes: FloatArray

    @property
    def n_clusters(self) -> int:
        """Number of clusters in the whole network."""
        return len(self.sizes)


def identify(mixtures: Mapping[str, Mixture], rows: Mapping[str, int] | None = None) -> Identity:
    """Give components of different sites that are the same cluster the same number.

    Parameters
    ----------
    mixtures : mapping of site name to Mixture
        At least one, all of the same d; the numbers of components may differ.
    rows : mapping of site name to int, optional
        Rows behind each mixture, for the sizes by which clusters are numbered; 1 each by default.

    Returns
    -------
    Identity
        The largest cluster is 0; ties go to the first site by name. A component like no other is a cluster
        of its own. Independent of the order of sites and of components, also to the last bit.

    Raises
    ------
    DataError
        If there is no mixture, or they differ in their number of features.

    Notes
    -----
    **Source**: our own. Complete linkage on 1 - <p, q> / (|p| |q|), half the squared maximum mean discrepancy
    of single components scaled to length 1, cut at `OVERLAP`; two components of one site are never together.
    So any two members of a cluster overlap, which chains of matches along edges do not promise: these run
    over into neighbouring clusters, and miss like components of sites that no path of like ones joins. The
    bandwidths are relative to the inverse of the mean precision of all components, so the result is the same
    in any units and there is nothing to choose, and a few wide components do not blur narrow ones.
    Components of that covariance reach `OVERLAP` at a Mahalanobis distance of 2.7 (d = 1) to 3.3 (d large):
    farther than the 2 at which two make two modes, since each was estimated from a few rows of its own.
    Cost O(c² d³) for c components in all, memory O(c²).
    """
    names = sorted(mixtures)
    _check(mixtures, names)
    orders = {name: _order(blocks(mixtures[name])) for name in names}
    site = np.repeat(np.arange(len(names)), [len(orders[name]) for name in names])
    theta = _stacked([_taken(blocks(mixtures[name]), orders[name]) for name in names])
    members = _grouped(_correlations(_whitened(theta)), site)
    per_site = np.array([1.0 if rows is None else float(rows[name]) for name in names])
    numbers, sizes = numbered(members, theta.weights * per_site[site])
    ends = np.cumsum(np.bincount(site))[:-1]
    labels = {}
    for name, found in zip(names, np.split(numbers, ends), strict=True):
        labels[name] = np.empty_like(found)
        labels[name][orders[name]] = found
    return Identity(labels, sizes)


def _check(mixtures: Mapping[str, Mixture], names: list[str]) -> None:
    if not names:
        raise DataError("mixtures: expected at least one site's, got none")
    d = mixtures[names[0]].n_features
    for name in names:
        found = mixtures[name].n_features
        if found != d:
            raise DataError(f"mixtures: expected {d} features as at {names[0]}, got {found} at {name}")


def _order(theta: Blocks) -> IntArray:
    """Order of a site's components by their numbers alone, so that no result depends on the one given."""
    flat = np.column_stack([theta.means, theta.covariances.reshape(len(theta.weights), -1), theta.weights])
    return np.lexsort(flat.T[::-1]).astype(np.int64, copy=False)


def _taken(theta: Blocks, order: IntArray) -> Blocks:
    return Blocks(theta.weights[order], theta.means[order], theta.covariances[order])


def _stacked(parts: list[Blocks]) -> Blocks:
    return Blocks(
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.means for part in parts]),
        np.concatenate([part.covariances for part in parts]),
    )


def _whitened(theta: Blocks) -> Blocks:
    """Components in the units in which their mean precision is the identity."""
    precision = np.einsum("c,cij->ij", theta.weights, np.linalg.inv(theta.covariances))
    turn = np.linalg.cholesky(precision / theta.weights.sum())
    covariances = turn.T @ theta.covariances @ turn
    return Blocks(
        theta.weights,
        (theta.means - theta.means.mean(axis=0)) @ turn,
        0.5 * (covariances + covariances.transpose(0, 2, 1)),
    )


def _correlations(theta: Blocks) -> FloatArray:
    """Normalised inner products (c, c) of the components, each pair computed once."""
    c = len(theta.weights)
    products = np.zeros((c, c))
    height = max(1, _BLOCK // c)
    for start in range(0, c, height):
        part = _taken(theta, np.arange(start, min(start + height, c)))
        rest = _taken(theta, np.arange(start, c))
        products[start : start + height, start:] = kernel_means(part, rest, BANDWIDTHS).values.sum(axis=0)
    length = np.sqrt(products.diagonal())
    upper = np.triu(products, 1) / length[:, None] / length
    correlations: FloatArray = upper + upper.T
    np.fill_diagonal(correlations, 1.0)
    return correlations


def _grouped(correlations: FloatArray, site: IntArray) -> IntArray:
    """Group of every component, (c,), in any numbering."""
    from scipy.cluster.hierarchy import fcluster, linkage

    first, second = np.triu_indices(len(site), 1)
    if not len(first):
        return np.zeros(len(site), dtype=np.int64)
    distances = np.maximum(1.0 - correlations[first, second], 0.0)
    distances[site[first] == site[second]] = _APART
    tree = linkage(distances, method="complete")
    groups: IntArray = fcluster(tree, 1.0 - OVERLAP, criterion="distance").astype(np.int64)
    return groups


def numbered(groups: IntArray, masses: FloatArray) -> tuple[IntArray, FloatArray]:
    """Numbers 0, 1, ... by falling mass, ties by the first member, and the masses."""
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    sizes: FloatArray = np.bincount(group.reshape(-1), weights=masses).astype(np.float64, copy=False)
    # Sums that are equal but for rounding are ties.
    order = np.lexsort((first, -np.round(sizes / sizes.max(), 12)))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[group.reshape(-1)], sizes[order]
