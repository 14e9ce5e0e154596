"""Rows drawn from a mixture."""

from __future__ import annotations

import numpy as np

from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray


def sample(mixture: Mixture, n: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Draw n independent rows.

    Parameters
    ----------
    mixture : Mixture with k components in d dimensions
    n : int, >= 0
    rng : numpy.random.Generator

    Returns
    -------
    X : array of shape (n, d)
    labels : int array of shape (n,)
        The component behind each row; in random order, not sorted.
    """
    # The weights sum to 1 only up to the tolerance of Mixture; Generator.choice is stricter.
    weights = mixture.weights / mixture.weights.sum()
    labels: IntArray = rng.choice(mixture.n_components, size=n, p=weights).astype(np.int64, copy=False)
    noise = rng.standard_normal((n, mixture.n_features))
    if mixture.kind == "spherical":
        noise *= np.sqrt(mixture.covariances)[labels, None]
    elif mixture.kind == "diagonal":
        noise *= np.sqrt(mixture.covariances)[labels]
    else:
        for j, factor in enumerate(np.linalg.cholesky(mixture.covariances)):
            own = labels == j
            noise[own] = noise[own] @ factor.T
    return mixture.means[labels] + noise, labels
