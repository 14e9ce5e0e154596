"""The count that a label column gives: for comparisons in simulation, where labels exist."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster_app.cardinality.asm import Count
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import FloatArray


def count_oracle(X: FloatArray, labels: NDArray[Any]) -> Count:
    """Count the distinct labels; one component per label, in sorted order.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows.
    labels : (n,)
        Integers or strings.

    Returns
    -------
    Count
        Weights, means and per-dimension maximum likelihood variances of the labelled rows.

    Raises
    ------
    DataError
        If there are no rows, or not one label per row.
    """
    if X.ndim != 2 or 0 in X.shape or labels.shape != X.shape[:1]:
        raise DataError(
            f"labels: expected one label for each row of a table, got shape {labels.shape} "
            f"for a table of shape {X.shape}"
        )
    groups = [X[labels == label] for label in np.unique(labels)]
    means = np.array([_mean(group) for group in groups])
    return Count(
        k=len(groups),
        alpha=math.nan,
        min_mass=0,
        silhouette=math.nan,
        weights=np.array([len(group) / len(X) for group in groups]),
        means=means,
        variances=np.array(
            [float(((group - mean) ** 2).mean()) for group, mean in zip(groups, means, strict=True)]
        ),
        status="oracle",
    )


def _mean(rows: FloatArray) -> FloatArray:
    """Mean (d,), exact when all rows are equal."""
    return np.asarray(rows[0] + (rows - rows[0]).mean(axis=0))
