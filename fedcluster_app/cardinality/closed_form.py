"""When does a single Gaussian cluster split, and do its halves join again? The closed form of the split test.

With r the anisotropy (leading eigenvalue over mean eigenvalue) of a cluster in d dimensions, a cut at the
median along the leading axis lowers the variance along it by the share 2/pi. Gain and penalty of the split
test are then functions of n, d and r alone.
"""

from __future__ import annotations

import math

from fedcluster_app.cardinality.frame import frame_of
from fedcluster_app.cardinality.split import leading_axis
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.types import FloatArray


def split_gain_rate(r: float, d: int) -> float:
    """Twice the expected log-likelihood gain per row of a median cut: ``g = -d log(1 - 2 r / (pi d))``.

    Parameters
    ----------
    r : float, >= 1
        Anisotropy, see :func:`anisotropy`. Of a population r <= d; larger values are taken as they are.
    d : int, >= 1
        Number of features.

    Returns
    -------
    float
        g > 0; infinite when 2 r >= pi d.

    Raises
    ------
    ConfigError
        If r < 1 or d < 1.

    Notes
    -----
    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, critical cluster size (reconstructed).
    """
    remaining = _remaining_variance(r, d)
    return -d * math.log(remaining) if remaining > 0 else math.inf


def critical_size(r: float, d: int) -> float:
    """Rows from which a single Gaussian cluster is predicted to split: n / log n > (d + 2) / g(r, d).

    Parameters
    ----------
    r : float, >= 1
        Anisotropy.
    d : int, >= 1
        Number of features.

    Returns
    -------
    float
        The root n >= e of ``n / log n = (d + 2) / g``; 1 when every n splits and only the minimum mass
        protects.

    Raises
    ------
    ConfigError
        If r < 1 or d < 1.

    Notes
    -----
    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, critical cluster size (reconstructed).
    """
    return largest_root((d + 2) / split_gain_rate(r, d))


def largest_root(c: float) -> float:
    """Largest n with ``n / log n = c``, or 1 when every n > 1 has a larger ratio: c <= e."""
    if c <= math.e:
        return 1.0
    # n - c log n is convex and not negative at 2 c log c: from there Newton falls to the larger root.
    n = 2 * c * math.log(c)
    for _ in range(100):
        lower = n - (n - c * math.log(n)) / (1 - c / n)
        if not lower < n:
            break
        n = lower
    return n


def join_bound(r: float, d: int) -> float:
    """Separation ratio of the halves of a median cut, about ``0.8 sqrt(r)``: a larger alpha re-joins them.

    Parameters
    ----------
    r : float, >= 1
        Anisotropy.
    d : int, >= 1
        Number of features.

    Returns
    -------
    float
        ``sqrt(2 r / pi) / sqrt(1 - 2 r / (pi d))``; infinite when 2 r >= pi d.

    Raises
    ------
    ConfigError
        If r < 1 or d < 1.

    Notes
    -----
    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, anisotropy bound 0.8 sqrt(r); the exact
    form is reconstructed.
    """
    remaining = _remaining_variance(r, d)
    return math.sqrt(2 * r / math.pi / remaining) if remaining > 0 else math.inf


def anisotropy(X: FloatArray) -> float:
    """Leading over mean eigenvalue of the covariance of X (n, d): 1 for a round cluster, d for a line.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows of one cluster, finite.

    Returns
    -------
    float
        r in [1, d]. A cluster without spread counts as round: 1.

    Raises
    ------
    DataError
        If X is not a table of finite numbers.

    Notes
    -----
    Cost n d min(n, d).

    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762 (r, the anisotropy of a cluster).
    """
    n, d = X.shape if X.ndim == 2 else (0, 0)
    Y = frame_of(X).apply(X)
    trace = float((Y * Y).sum()) / n
    if trace == 0:
        return 1.0
    eigenvalue, _ = leading_axis(Y)
    return float(min(max(eigenvalue * d / trace, 1.0), d))


def _remaining_variance(r: float, d: int) -> float:
    """Share of the variance that a median cut leaves: 1 - 2 r / (pi d)."""
    if not r >= 1:
        raise ConfigError(f"r: expected an anisotropy of at least 1, got {r}")
    if not d >= 1:
        raise ConfigError(f"d: expected at least one feature, got {d}")
    return 1 - 2 * r / (math.pi * d)
