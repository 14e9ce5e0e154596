"""A site by itself: the best of several EM fits, made feasible. Nobody else has a part in it."""

from __future__ import annotations

import numpy as np

from fedcluster_app.gtvmin.blocks import blocks, mixture_of
from fedcluster_app.gtvmin.projection import Bounds, project
from fedcluster_app.gtvmin.starts import Start, kmeans_start, start_from_mixture
from fedcluster_app.mixtures import em
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.types import FloatArray


def fit(
    X: FloatArray, k: int, rng: np.random.Generator, bounds: Bounds, *, n_init: int = 5, min_rows: int = 1
) -> Start:
    """Mixture with full covariances of a site's rows.

    Parameters
    ----------
    X : array of shape (n, d), n >= 1
    k : int, >= 1
        Components; a site with fewer rows gets one component per row.
    rng : numpy.random.Generator
    bounds : Bounds
    n_init : int, >= 1
        EM runs, each from a k-means of its own.
    min_rows : int, >= 1
        A component with less mass is dissolved, so there may be fewer than k; see `start_from_labels`.

    Returns
    -------
    Start
        The mixture, and the rows that each component takes.

    Raises
    ------
    DataError
        If there are no rows.
    ConfigError
        If the weight floor is too high for k components.

    Notes
    -----
    **Source**: the baseline "Local" of arXiv:2609.19202, scikit-learn's ``GaussianMixture(n_init=5)``.
    Deviation: every fit is projected onto the feasible set, and the best is chosen after that: on few rows
    the largest likelihood is that of a component that has shrunk onto two rows.
    """
    fits = []
    for _ in range(n_init):
        start = kmeans_start(X, k, rng, bounds, n_init=1, min_rows=min_rows).mixture
        found = em.fit(X, start).mixture
        fits.append(mixture_of(project(blocks(found), bounds)))
    judged = [responsibilities(X, mixture) for mixture in fits]
    best = int(np.argmax([log_density.mean() for _, log_density in judged]))
    R, mixture = judged[best][0], fits[best]
    if R.sum(axis=0).min() < min_rows:
        return start_from_mixture(X, mixture, bounds, min_rows=min_rows)
    return Start(mixture, np.bincount(R.argmax(axis=1), minlength=mixture.n_components))
