"""A site by itself: the mixture of its own rows, which is all that leaves it."""

from __future__ import annotations

from fedcluster_app.data.scaling import lower_triangle
from fedcluster_app.gtvmin import local
from fedcluster_app.gtvmin.projection import Bounds
from fedcluster_app.gtvmin.starts import kmeans_start, within_variance
from fedcluster_app.messages import AskLocal, LocalMixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.site import Site
from fedcluster_app.steps.count import told_or_counted
from fedcluster_app.steps.rows import contributed

# Bounds that bind nothing, and the least variance where all rows are equal.
WEIGHT_FLOOR, UNBOUND, SMALLEST = 1e-9, 1e150, 1e-6


def answer(site: Site, ask: AskLocal) -> LocalMixture:
    """Fit a mixture to the rows, as large as the run says or as the site counts."""
    X = contributed(site, ask)
    k, counted = told_or_counted(site, X, site.config.mixture.components)
    rng, starts = site.rng("local"), site.config.lonely.starts
    found = local.fit(X, k, rng, _bounds(site, X, k), n_init=starts, min_rows=site.min_count).mixture
    return LocalMixture(counted, found.weights, found.means, lower_triangle(found.covariances))


def _bounds(site: Site, X: FloatArray, k: int) -> Bounds:
    """Return the feasible set, in the unit of what k-means finds."""
    free = Bounds(WEIGHT_FLOOR, UNBOUND, SMALLEST, UNBOUND)
    begun = kmeans_start(X, k, site.rng("local-unit"), free, n_init=1, min_rows=site.min_count).mixture
    floor = site.config.lonely.variance_floor * within_variance(begun)
    return Bounds(WEIGHT_FLOOR, UNBOUND, max(floor, SMALLEST), UNBOUND)
