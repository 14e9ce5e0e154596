"""One split of ASM-S: a component in two spherical halves by some EM steps, if the likelihood pays."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedcluster_app.mixtures.types import BoolArray, FloatArray

#: EM gives up when a half holds a smaller share of the rows than this.
SMALLEST_SHARE = 1e-9
#: A half's variance is at least this share of the variance before the split.
VARIANCE_FLOOR = 1e-12
#: A variance below this, in the frame, is none: its floor would leave the range of float64.
NO_VARIANCE = 1e-200


class Split(NamedTuple):
    """A way to split a component: which rows go to child 1 (n,), and what there is to decide by.

    `mass` is the soft mass of the lighter child, `gain` and `penalty` are on the scale of the log-likelihood.
    """

    first: BoolArray
    mass: float
    gain: float
    penalty: float

    @property
    def pays(self) -> bool:
        """Is the gain above the penalty, with rows for both children? The minimum mass is judged apart."""
        return self.gain > self.penalty and not self.first.all() and bool(self.first.any())


def centred(rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean (d,) of a component's rows (n, d), the rows about it (n, d), and their squared norms (n,)."""
    # Subtracting a row first makes the variance of equal rows exactly zero.
    Y = rows - rows[0]
    offset = Y.mean(axis=0)
    Y -= offset
    return rows[0] + offset, Y, np.einsum("ij,ij->i", Y, Y)


def leading_axis(Y: FloatArray) -> tuple[float, FloatArray]:
    """Leading eigenvalue and unit eigenvector (d,) of the covariance of centred rows Y (n, d), not all zero.

    Solved in the smaller of the two spaces: d x d, or the n x n Gram matrix. The sign is fixed by the entry
    of largest magnitude, so that the order of the two children does not hang on the LAPACK at hand.
    """
    n, d = Y.shape
    small = Y.T @ Y if d <= n else Y @ Y.T
    eigenvalues, vectors = np.linalg.eigh(small / n)
    axis = vectors[:, -1] if d <= n else vectors[:, -1] @ Y
    axis = axis / math.sqrt(axis @ axis)
    return max(float(eigenvalues[-1]), 0.0), axis if axis[np.abs(axis).argmax()] > 0 else -axis


class _Halves(NamedTuple):
    """Two spherical components on a line through the origin: means ``reach[0] axis``, ``-reach[1] axis``."""

    axis: FloatArray
    reach: tuple[float, float]
    variances: tuple[float, float]
    masses: tuple[float, float]


def split_component(
    Y: FloatArray, squares: FloatArray, *, delta: float = 1.0, em_steps: int = 15
) -> Split | None:
    """:func:`propose_split`, or None unless it pays."""
    split = propose_split(Y, squares, delta=delta, em_steps=em_steps)
    return split if split and split.pays else None


def propose_split(
    Y: FloatArray, squares: FloatArray, *, delta: float = 1.0, em_steps: int = 15
) -> Split | None:
    """Split one component by EM with two spherical halves, and value the split.

    The gain is the expected log-density of the rows under their half, less that under the one component;
    neither the mixing weights nor the entropy of the assignment enter it. With maximum likelihood variances
    its constants cancel, which leaves ``-(d/2) sum_j N_j log(s_j^2 / s_0^2)``. The penalty for the d + 2
    further parameters is ``(d + 2)/2 log n``.

    Parameters
    ----------
    Y : (n, d)
        The component's rows, centred on their mean, not all zero.
    squares : (n,)
        Squared norms of the rows.
    delta, em_steps
        As in :func:`split_tree`.

    Returns
    -------
    Split or None
        None when a half dies out.

    Notes
    -----
    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, split criterion without weight and
    entropy terms. Reconstructed: the weights in the E step, the 15 iterations without a stop.
    """
    n, d = Y.shape
    variance = float(squares.sum()) / (n * d)
    eigenvalue, axis = leading_axis(Y)
    start = delta * math.sqrt(eigenvalue)
    halves = _Halves(axis, (start, start), (variance, variance), (n / 2, n / 2))
    for _ in range(em_steps):
        step = _em_step(Y, squares, halves, VARIANCE_FLOOR * variance)
        if step is None:
            return None
        halves = step
    (n1, n2), (v1, v2) = halves.masses, halves.variances
    gain = -d / 2 * (n1 * math.log(v1 / variance) + n2 * math.log(v2 / variance))
    first = _log_odds(Y, squares, halves) > 0
    return Split(first, min(n1, n2), gain, (d + 2) / 2 * math.log(n))


def _log_odds(Y: FloatArray, squares: FloatArray, halves: _Halves) -> FloatArray:
    """Log-odds (n,) of half 1 against half 2: linear in the squared norms and the projections on the axis."""
    (c1, c2), (v1, v2), (n1, n2) = halves.reach, halves.variances, halves.masses
    length = float(halves.axis @ halves.axis)
    constant = math.log(n1 / n2) - Y.shape[1] / 2 * math.log(v1 / v2)
    constant += (c2 * c2 / v2 - c1 * c1 / v1) * length / 2
    odds: FloatArray = constant + (0.5 / v2 - 0.5 / v1) * squares + (c1 / v1 + c2 / v2) * (Y @ halves.axis)
    return odds


def _em_step(Y: FloatArray, squares: FloatArray, halves: _Halves, floor: float) -> _Halves | None:
    """One E and one M step, or None when a half dies out.

    As the rows are centred, the responsibilities g give both means at once: with ``a = sum_i g_i y_i`` they
    are ``a / N_1`` and ``-a / N_2``.
    """
    n, d = Y.shape
    with np.errstate(over="ignore"):
        g = 1 / (1 + np.exp(-_log_odds(Y, squares, halves)))
    n1 = float(g.sum())
    n2 = n - n1
    if min(n1, n2) < SMALLEST_SHARE * n:
        return None
    axis = g @ Y
    length = float(axis @ axis)
    within = float(g @ squares)
    rest = float(squares.sum()) - within
    v1 = max((within / n1 - length / (n1 * n1)) / d, floor)
    v2 = max((rest / n2 - length / (n2 * n2)) / d, floor)
    return _Halves(axis, (1 / n1, 1 / n2), (v1, v2), (n1, n2))
