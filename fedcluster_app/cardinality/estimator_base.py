"""What the scikit-learn estimators of the room share: keeping a fit, labelling and scoring new rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedcluster_app.cardinality.count import Fit
from fedcluster_app.mixtures.densities import log_joint, responsibilities
from fedcluster_app.mixtures.types import FloatArray, IntArray

AnyArray = NDArray[Any]


class CountEstimator(ClusterMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """Keeps a fit in the table's units, and labels new rows."""

    _fit: Fit

    def predict(self, X: ArrayLike) -> IntArray:
        """Component (n,) that each row belongs to."""
        return self._labels(self._framed(X))

    def _table(self, X: ArrayLike) -> FloatArray:
        """Table (n, d) to fit to, checked."""
        table: FloatArray = validate_data(self, X, dtype=np.float64)
        return table

    def _weights(self, sample_weight: ArrayLike | None, X: FloatArray) -> FloatArray | None:
        """Weights (n,) of the rows, checked; None for ones."""
        if sample_weight is None:
            return None
        weights: FloatArray = _check_sample_weight(sample_weight, X, dtype=np.float64)
        return weights

    def _keep(self, X: FloatArray, fit: Fit) -> None:
        count = fit.count()
        self._fit = fit
        self.n_components_ = count.k
        self.weights_, self.means_, self.variances_ = count.weights, count.means, count.variances
        self.labels_ = self._labels(fit.frame.apply(X))

    def _keep_selected(self, X: FloatArray, fit: Fit) -> None:
        self._keep(X, fit)
        self.best_params_ = dict(fit.candidate.chosen)
        self.best_score_ = fit.silhouette

    def _framed(self, X: ArrayLike) -> FloatArray:
        """Check new rows (n, d), and return them as rows of the frame."""
        check_is_fitted(self)
        return self._fit.frame.apply(validate_data(self, X, dtype=np.float64, reset=False))

    def _labels(self, rows: FloatArray) -> IntArray:
        """Component (n,) of rows of the frame."""
        labels: IntArray = log_joint(rows, self._fit.mixture()).argmax(axis=1)
        return labels


class DensityEstimator(CountEstimator):
    """Components that are a mixture: rows have probabilities and a density."""

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Posterior probabilities (n, k) of the components for each row."""
        rows = self._framed(X)
        R, _ = responsibilities(rows, self._fit.mixture())
        return R

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Log-density (n,) of each row under the mixture, in the table's units.

        Components without spread enter with a variance of 1e-12 of the whole table's.
        """
        rows = self._framed(X)
        _, log_likelihood = responsibilities(rows, self._fit.mixture())
        # The frame measures in units of 2**exponent, in each of the d directions.
        units = self.n_features_in_ * self._fit.frame.exponent * math.log(2)
        density: FloatArray = log_likelihood - units
        return density

    def score(self, X: ArrayLike, y: None = None) -> float:
        """Mean log-density of the rows."""
        return float(self.score_samples(X).mean())
