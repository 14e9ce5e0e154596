"""Whether summaries of a site can be of the rows whose moments it sent when it greeted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.data.scaling import Scaling
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import Statistics
from fedcluster_app.mixtures.types import BoolArray, FloatArray

# Relative to the scale of the numbers: what rounding may do, and far less than a row does.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Totals:
    """Number, mean (q,) and variance (q,) of rows."""

    rows: float
    mean: FloatArray
    variance: FloatArray

    def of(self, features: BoolArray) -> Totals:
        """Return the totals of some features."""
        return Totals(self.rows, self.mean[features], self.variance[features])

    def problem(self, told: Totals) -> str | None:
        """Say where totals of summaries depart from these, or None."""
        if abs(told.rows - self.rows) > TOLERANCE * self.rows:
            return f"they hold {told.rows:g} rows, the site said {self.rows:g}"
        spread = np.sqrt(self.variance) + np.abs(self.mean) + TOLERANCE
        if (np.abs(told.mean - self.mean) > TOLERANCE * spread).any():
            return "their mean is not that of the site's rows"
        if (np.abs(told.variance - self.variance) > TOLERANCE * spread**2).any():
            return "their variance is not that of the site's rows"
        return None

    def problem_of_part(
        self, masses: FloatArray, means: FloatArray, variances: FloatArray | float = 0.0
    ) -> str | None:
        """Say why groups cannot be of some of these rows, or None: masses (k,), means and variances (k, q).

        A row's weights in all groups sum to at most 1, so groups may be fuzzy, and masses may be too small.
        Then the groups and what they leave out scatter less about the mean than the rows do.
        """
        left = self.rows - float(masses.sum())
        if left < -TOLERANCE * self.rows:
            return f"they hold {masses.sum():g} rows, the site has {self.rows:g}"
        shift = means - self.mean
        rest = np.square(masses @ shift) / max(left, TOLERANCE * self.rows)
        spread = np.sqrt(self.variance) + TOLERANCE * (np.abs(self.mean) + 1)
        if (
            masses @ (np.square(shift) + variances) + rest > self.rows * (spread * (1 + TOLERANCE)) ** 2
        ).any():
            return "they lie where the site's rows cannot"
        return None

    def problem_of_places(self, means: FloatArray, others: FloatArray | None = None) -> str | None:
        """Say if a mean (k, q) lies where neither these rows can nor other points (m, q) do, or None."""
        reach = np.sqrt(self.rows * self.variance)  # no row is farther from the mean of all
        own = np.stack([self.mean - reach, self.mean + reach])
        points = own if others is None else np.concatenate([own, others])
        low, high = points.min(axis=0), points.max(axis=0)
        slack = TOLERANCE * (1.0 + high - low)
        if ((means < low - slack) | (means > high + slack)).any():
            return "a component lies where neither its rows can be nor those of what it was sent"
        return None

    def problem_of_mixture(self, mixture: Mixture, floor: float) -> str | None:
        """Say why a mixture of EM on these rows cannot be that, or None.

        It has the variance of the rows; its floors, a share of that, add to it, and so does what clusters of
        one row borrow.
        """
        spread = _traces(mixture.covariances) + np.square(mixture.means - self.mean).sum(axis=1)
        # No row is farther from the mean of all than if it made all the variance: nor is a component wider.
        most = max(mixture.weights @ spread, spread.max() / self.rows)
        if most > (2 + floor) * self.variance.sum() + TOLERANCE * len(self.mean):
            return "it is wider than the site's rows"
        return self.problem_of_places(mixture.means)

    def problem_of_step(
        self, covariances: FloatArray, sent: Mixture, least: float, floor: float
    ) -> str | None:
        """Say if a covariance (k, q, q) is beyond both what was sent and what `least` or more rows have.

        These are taken about the mean that was sent; `floor` is the least variance along any axis.
        """
        own = self.rows * (self.variance + np.square(self.mean - sent.means)).sum(axis=1) / least
        most = np.maximum(_traces(sent.covariances), own) + floor * len(self.mean)
        if (_traces(covariances) > most * (1 + TOLERANCE)).any():
            return "a component is wider than what it was sent and than any of the site's rows"
        return None

    def problem_of_components(
        self, masses: FloatArray, means: FloatArray, covariances: FloatArray
    ) -> str | None:
        """Say why components (k, q, q) cannot be of some of these rows, or None; mass 0 is none at all."""
        # Of rows that are all alike rounding leaves a little on either side of 0.
        if np.linalg.eigvalsh(covariances).min() < -TOLERANCE * (1.0 + self.variance.sum()):
            return "a variance is negative"
        return self.problem_of_part(masses, means, np.diagonal(covariances, axis1=1, axis2=2))


def problem_of_extremes(moments: Statistics, low: FloatArray, high: FloatArray) -> str | None:
    """Say why rows with these moments cannot lie between low and high (d,) and reach both, or None.

    Notes
    -----
    **Source**: a row's squared deviation is no more than that of all rows together; and the variance of what
    lies between two values is at most (high - mean) (mean - low), Bhatia and Davis, A better bound on the
    variance, American Mathematical Monthly 107 (2000).
    """
    rows, mean, scatter = float(moments.mass[0]), moments.means[0], moments.scatters[0]
    scatter = np.diagonal(scatter) if scatter.ndim == 2 else scatter
    below, above = mean - low, high - mean
    # Rounding of the mean, and of squares.
    slack = TOLERANCE * (np.sqrt(scatter) + np.abs(mean) + TOLERANCE)
    reach = np.sqrt(scatter) + slack
    if (np.minimum(below, above) < -slack).any():
        return "its extremes were not used: its mean does not lie between them"
    if (np.maximum(below, above) > reach).any():
        return "its extremes were not used: they lie where its rows cannot"
    if (rows * (below + slack) * (above + slack) < scatter * (1.0 - TOLERANCE)).any():
        return "its extremes were not used: its rows scatter more than they allow"
    return None


def _traces(covariances: FloatArray) -> FloatArray:
    traces: FloatArray = np.trace(covariances, axis1=1, axis2=2)
    return traces


def greeted(moments: Statistics, scaling: Scaling) -> Totals:
    """Return the totals that follow from a site's moments, in the agreed scaling."""
    rows, scatter = float(moments.mass[0]), moments.scatters[0]
    covariance = (scatter if scatter.ndim == 2 else np.diag(scatter)) / rows
    return Totals(rows, scaling.apply(moments.means)[0], np.diagonal(scaling.covariance(covariance)))


def pooled(masses: FloatArray, means: FloatArray, variances: FloatArray) -> Totals:
    """Return the totals of groups of rows: masses (k,), means and variances (k, q)."""
    rows = float(masses.sum())
    mean = masses @ means / rows
    return Totals(rows, mean, masses @ (variances + np.square(means - mean)) / rows)
