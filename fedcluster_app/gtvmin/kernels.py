"""Mean Gaussian kernels between the components of two mixtures, with sums of their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin.blocks import Blocks
from fedcluster_app.mixtures.types import FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class PlaneKernels:
    """Kernel means in two dimensions, where the inverse of S = Sigma + Sigma' + s² I is written out.

    Attributes
    ----------
    values : array of shape (b, k, k')
        For b bandwidths s and all pairs of components: s^d |S|^(-1/2) exp(-½ Δᵀ S⁻¹ Δ).
    inverse : three arrays of shape (b, k, k')
        Entries 00, 01 and 11 of S⁻¹.
    solved : two arrays of shape (b, k, k')
        Entries of S⁻¹ Δ.
    """

    values: FloatArray
    inverse: tuple[FloatArray, FloatArray, FloatArray]
    solved: tuple[FloatArray, FloatArray]

    def slopes(self, factors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum up factors times derivative directions over bandwidths and second components.

        Parameters
        ----------
        factors : array of shape (b, k, k')

        Returns
        -------
        means : array of shape (k, d)
            Sums of factors times S⁻¹ Δ.
        covariances : array of shape (k, d, d)
            Sums of factors times (S⁻¹ Δ Δᵀ S⁻¹ - S⁻¹).
        """
        (p00, p01, p11), (u, v) = self.inverse, self.solved
        sums = np.stack([u, v, u * u - p00, u * v - p01, v * v - p11])
        sums *= factors
        x, y, c00, c01, c11 = sums.sum(axis=(1, 3))
        return np.stack([x, y], axis=1), np.stack([c00, c01, c01, c11], axis=1).reshape(-1, 2, 2)


@dataclass(frozen=True, eq=False, slots=True)
class SpectralKernels:
    """Kernel means in any dimension, from one eigendecomposition per pair for all bandwidths.

    Attributes
    ----------
    values : array of shape (b, k, k')
        As in `PlaneKernels`.
    vectors : array of shape (k, k', d, d)
        Basis in which S is diagonal, the same for every bandwidth.
    precisions, solved : arrays of shape (k, k', b, d)
        In that basis the diagonal of S⁻¹, and S⁻¹ Δ.
    """

    values: FloatArray
    vectors: FloatArray
    precisions: FloatArray
    solved: FloatArray

    def slopes(self, factors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum up as `PlaneKernels.slopes`, by matrix products of all pairs of one component."""
        k, _, _, d = self.solved.shape
        factors = factors.transpose(1, 2, 0)
        directions = (self.solved @ self.vectors.transpose(0, 1, 3, 2)).reshape(k, -1, d)
        weighted = (directions * factors.reshape(k, -1, 1)).transpose(0, 2, 1)
        diagonal = (factors[:, :, None, :] @ self.precisions).reshape(k, 1, -1)
        basis = self.vectors.transpose(0, 2, 1, 3).reshape(k, d, -1)
        outer = weighted @ directions - (basis * diagonal) @ basis.transpose(0, 2, 1)
        return weighted.sum(axis=2), outer


def kernel_means(p: Blocks, q: Blocks, bandwidths: Sequence[float]) -> PlaneKernels | SpectralKernels:
    """Kernel means between all components of p and q.

    Parameters
    ----------
    p, q : Blocks
        k and k' components in d dimensions; the weights are not read.
    bandwidths : sequence of b floats, > 0

    Notes
    -----
    **Source**: arXiv:2609.19202, the kernel's mean over two Gaussians. The factor of the determinant is made
    from s² / (λ + s²) <= 1 for each eigenvalue λ, since s^d and the determinant alone overflow in many
    dimensions. Cost O(k k' (d³ + b d²)); two dimensions, and one, need no LAPACK call.
    """
    squares = np.square(np.asarray(bandwidths, dtype=np.float64))
    S = p.covariances[:, None] + q.covariances
    delta = p.means[:, None] - q.means
    return _plane(S, delta, squares) if S.shape[-1] == 2 else _spectral(S, delta, squares)


def _plane(S: FloatArray, delta: FloatArray, squares: FloatArray) -> PlaneKernels:
    shift = squares[:, None, None]
    x, y = delta[:, :, 0], delta[:, :, 1]
    a, b, c = S[:, :, 0, 0] + shift, S[:, :, 0, 1], S[:, :, 1, 1] + shift
    scale = 1.0 / (a * c - b * b)
    inverse = (c * scale, -b * scale, a * scale)
    solved = (inverse[0] * x + inverse[1] * y, inverse[1] * x + inverse[2] * y)
    values = shift * np.sqrt(scale) * np.exp(-0.5 * (x * solved[0] + y * solved[1]))
    return PlaneKernels(values, inverse, solved)


def _spectral(S: FloatArray, delta: FloatArray, squares: FloatArray) -> SpectralKernels:
    spread, vectors = np.linalg.eigh(S) if S.shape[-1] > 1 else (S[..., 0], np.ones_like(S))
    rotated = delta[:, :, None, :] @ vectors
    precisions = 1.0 / (spread[:, :, None, :] + squares[:, None])
    solved = rotated * precisions
    determinants = (precisions * squares[:, None]).prod(axis=3)
    values = np.sqrt(determinants) * np.exp(-0.5 * (rotated * solved).sum(axis=3))
    return SpectralKernels(values.transpose(2, 0, 1), vectors, precisions, solved)
