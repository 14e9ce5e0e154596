"""The frame a table is counted in: centred and scaled by a power of two, so that both are undone exactly.

Squares of entries near 1e150 or 1e-150 leave the range of float64 although the variances they stand for are
only just representable; in the frame every entry is in [-1, 1]. A power of two changes no digit, so the fit
of ``2**k * X`` is the fit of ``X``, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import FloatArray

_SMALLEST = float(np.finfo(np.float64).tiny)
# Of a new row farther away than this only the direction matters; its squared distances stay finite.
_FARTHEST = 1e100


@dataclass(frozen=True, eq=False)
class Frame:
    """An affine map ``y = ((x - low) - shift) * 2**-exponent``.

    Attributes
    ----------
    low, shift : (d,)
        Column minima, and the column means above them. Kept apart: their sum would round at large offsets.
    exponent : int
        One power of two for all columns.
    """

    low: FloatArray
    shift: FloatArray
    exponent: int

    def apply(self, X: FloatArray) -> FloatArray:
        """Rows (n, d) of the table, or new ones, as rows of the frame."""
        with np.errstate(over="ignore"):
            rows: FloatArray = X - self.low
            rows -= self.shift
            np.ldexp(rows, -self.exponent, out=rows)
        return np.clip(rows, -_FARTHEST, _FARTHEST, out=rows)

    def means(self, means: FloatArray) -> FloatArray:
        """Means (k, d) of the frame as means of the table."""
        return np.asarray(np.ldexp(means, self.exponent) + self.shift + self.low)

    def variances(self, variances: FloatArray) -> FloatArray:
        """Variances (k,) of the frame as variances of the table.

        Raises
        ------
        DataError
            If a variance is too large or too small for float64.
        """
        with np.errstate(over="ignore", under="ignore"):
            table = np.asarray(np.ldexp(variances, 2 * self.exponent))
        bad = ~np.isfinite(table) | ((variances > 0) & (table < _SMALLEST))
        if bad.any():
            raise DataError(
                f"X: the variance of a component is about 2**{2 * self.exponent} and float64 cannot hold it; "
                "multiply the table by a constant that brings its values nearer to 1"
            )
        return table


def frame_of(X: FloatArray) -> Frame:
    """Build the frame of a table X (n, d), n >= 1.

    Minima are subtracted before means, so that a constant column is exactly zero in the frame, whatever the
    rounding of its mean.

    Raises
    ------
    DataError
        If X is not a table of finite numbers with at least one row and one column, or its range overflows.
    """
    if X.ndim != 2 or 0 in X.shape:
        raise DataError(
            f"X: expected a table with at least one row and one column, got shape {X.shape}; "
            "a single column is X.reshape(-1, 1)"
        )
    if not np.isfinite(X).all():
        raise DataError("X: expected finite numbers, got NaN or infinity; drop or fill these entries first")
    low = X.min(axis=0)
    with np.errstate(over="ignore"):
        rows = X - low
        shift = rows.mean(axis=0)
    if not np.isfinite(shift).all():
        raise DataError("X: the sum over a column overflows float64; divide the table by a constant first")
    rows -= shift
    exponent = int(np.frexp(max(rows.max(), -rows.min()))[1])
    return Frame(low=low, shift=shift, exponent=exponent)
