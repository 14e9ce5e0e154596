"""The count that a label column gives: for comparisons in simulation, where labels exist."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fedcluster_app.cardinality.count import Candidate, Count, Fit, Rows, moments_of
from fedcluster_app.cardinality.frame import frame_of
from fedcluster_app.cardinality.selection import floor_of
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
        If there are no rows, not one label per row, or X holds NaN or infinity.
    """
    return fit_oracle(X, labels).count()


def fit_oracle(X: FloatArray, labels: NDArray[Any]) -> Fit:
    """:func:`count_oracle`, which describes the parameters, before it is mapped back from its frame."""
    if X.ndim != 2 or 0 in X.shape or labels.shape != X.shape[:1]:
        raise DataError(
            f"labels: expected one label for each row of a table, got shape {labels.shape} "
            f"for a table of shape {X.shape}"
        )
    frame = frame_of(X)
    Y = frame.apply(X)
    return Fit(frame, Candidate({}, moments_of(Rows(Y), labels)), floor_of(Y), "oracle")
