"""The Gaussian mixture as a value: validated once, never changed afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedcluster_app.mixtures.types import FloatArray

Kind: TypeAlias = Literal["spherical", "diagonal", "full"]

_KIND_OF_NDIM: dict[int, Kind] = {1: "spherical", 2: "diagonal", 3: "full"}
_WEIGHT_TOLERANCE = 1e-6
_SYMMETRY_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class Mixture:
    """A Gaussian mixture with k components in d dimensions.

    Parameters
    ----------
    weights : array of shape (k,)
        Non-negative, summing to 1 (to 1e-6).
    means : array of shape (k, d)
    covariances : array of shape (k,), (k, d) or (k, d, d)
        One variance per component (spherical), one per feature (diagonal), or full matrices. The
        number of dimensions says which. Positive; full matrices symmetric positive definite.

    Raises
    ------
    ValueError
        If a field has a wrong shape or an impossible value; the text names field, expectation and
        finding.

    Notes
    -----
    The arrays are float64 copies and read-only, so a mixture can be shared between states.
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray

    def __post_init__(self) -> None:
        for name in ("weights", "means", "covariances"):
            array = np.array(getattr(self, name), dtype=np.float64)
            if not np.isfinite(array).all():
                raise _wrong(name, "finite values", f"{int((~np.isfinite(array)).sum())} NaN or infinite")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        _check_shapes(self.weights, self.means, self.covariances)
        _check_weights(self.weights)
        _check_covariances(self.covariances)

    @property
    def kind(self) -> Kind:
        """Covariance structure: "spherical", "diagonal" or "full"."""
        return _KIND_OF_NDIM[self.covariances.ndim]

    @property
    def n_components(self) -> int:
        """Number of components k."""
        return int(self.means.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.means.shape[1])


def _wrong(field: str, expected: str, got: str) -> ValueError:
    return ValueError(f"Mixture.{field}: expected {expected}, got {got}")


def _check_shapes(weights: FloatArray, means: FloatArray, covariances: FloatArray) -> None:
    if means.ndim != 2 or 0 in means.shape:
        raise _wrong("means", "shape (k, d) with k, d >= 1", f"shape {means.shape}")
    k, d = means.shape
    if weights.shape != (k,):
        raise _wrong("weights", f"shape ({k},) to match the means", f"shape {weights.shape}")
    if covariances.shape not in ((k,), (k, d), (k, d, d)):
        expected = f"shape ({k},), ({k}, {d}) or ({k}, {d}, {d}) to match the means"
        raise _wrong("covariances", expected, f"shape {covariances.shape}")


def _check_weights(weights: FloatArray) -> None:
    if (weights < 0).any():
        raise _wrong("weights", "no negative value", f"minimum {weights.min():.3g}")
    if abs(weights.sum() - 1.0) > _WEIGHT_TOLERANCE:
        raise _wrong("weights", "a sum of 1", f"{weights.sum():.9g}")


def _check_covariances(covariances: FloatArray) -> None:
    if covariances.ndim < 3:
        if (covariances <= 0).any():
            raise _wrong("covariances", "positive variances", f"minimum {covariances.min():.3g}")
        return
    asymmetry = np.abs(covariances - covariances.transpose(0, 2, 1)).max(axis=(1, 2))
    if (asymmetry > _SYMMETRY_TOLERANCE * np.abs(covariances).max(axis=(1, 2))).any():
        raise _wrong("covariances", "symmetric matrices", f"a difference of {asymmetry.max():.3g}")
    try:
        np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError as error:
        least = np.linalg.eigvalsh(covariances).min()
        found = f"a matrix with least eigenvalue {least:.3g}"
        raise _wrong("covariances", "positive definite matrices", found) from error
