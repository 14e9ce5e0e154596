"""What a pooling node tells its neighbours, and what it makes of what they tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin.niw import moments_of, summaries_of
from fedcluster_app.gtvmin.pool_model import Rows
from fedcluster_app.mixtures.types import FloatArray, IntArray

# Largest absolute coordinate of a mean, and eigenvalue of a covariance, that is believed.
_LARGEST = 1e8
# A received component with less than this many rows says nothing.
_LEAST_COUNT = 0.5
# Largest distance of a mean from the receiver's rows, in standard deviations of these.
_REACH = 1e3


@dataclass(frozen=True, eq=False)
class Summary:
    """Components of a node in its own rows; never a neighbour's rows, so there is no echo.

    Attributes
    ----------
    counts : array of shape (k,)
        Soft counts; 0 where the component is withheld.
    means : array of shape (k, d)
    covariances : array of shape (k, d, d)
        With the count as divisor. Means and covariances are 0 where withheld.
    """

    counts: FloatArray
    means: FloatArray
    covariances: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Inbox:
    """Everything a node received in a round, as one list of J components of E neighbours.

    Attributes
    ----------
    names : tuple of str
        Neighbours, sorted.
    moments : array of shape (J, d + 1, d + 1)
        About the receiver's own mean.
    edges : int array of shape (J,)
        Position of the sender in `names`.
    slots : int array of shape (J,)
        Position of the component at its sender.
    incidence : array of shape (E, J)
        1 where the component is the neighbour's.
    sizes : tuple of int
        Components of each neighbour, with those that are not in the list.
    """

    names: tuple[str, ...]
    moments: FloatArray
    edges: IntArray
    slots: IntArray
    incidence: FloatArray
    sizes: tuple[int, ...]

    @property
    def counts(self) -> FloatArray:
        """Rows behind each component, (J,)."""
        return self.moments[:, 0, 0]


def summarised(moments: FloatArray, origin: FloatArray) -> Summary:
    """Summary of moments (k, d + 1, d + 1) about an origin (d,); all 0 where there are no rows."""
    counts, means, covariances = summaries_of(moments)
    return Summary(counts, np.where(counts[:, None] > 0, means + origin, 0.0), covariances)


def receive(summaries: Mapping[str, Summary], rows: Rows, count_cap: float) -> Inbox:
    """Check what came and put it into one list about the receiver's origin.

    Parameters
    ----------
    summaries : mapping of site name to Summary
        Of any content: a component that is not finite, lies beyond 1e8, has fewer than half a row or another
        number of features is dropped; a covariance is made symmetric and its eigenvalues held to 0 and 1e8;
        a mean a thousand times as far as the own rows reach is held there, where it still matches nothing
        but raw moments keep their digits.
    rows : Rows
        Of the receiver.
    count_cap : float
        A neighbour's counts are scaled down to this many medians of all totals, the receiver's among them,
        so that a forged count cannot drown everybody.
    """
    d, names = len(rows.origin), tuple(sorted(summaries))
    kept = [_believed(summaries[name], d) for name in names]
    totals = [float(counts.sum()) for counts, *_ in kept]
    cap = count_cap * float(np.median([len(rows.X), *totals]))
    parts, slots = [np.zeros((0, d + 1, d + 1))], [np.zeros(0, dtype=np.int64)]
    for (counts, means, covariances, places), total in zip(kept, totals, strict=True):
        about = _held(means - rows.origin, _REACH * rows.spread**0.5)
        parts.append(moments_of(counts * min(1.0, cap / max(total, 1.0)), about, covariances))
        slots.append(places)
    edges = np.repeat(np.arange(len(names)), [len(part) for part in parts[1:]])
    incidence = (np.arange(len(names))[:, None] == edges).astype(np.float64)
    sizes = tuple(int(np.size(summaries[name].counts)) for name in names)
    return Inbox(names, np.concatenate(parts), edges, np.concatenate(slots), incidence, sizes)


def _believed(summary: Summary, d: int) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """Find the components that can be used: counts, means, covariances, places."""
    counts, means, covariances = (
        np.asarray(part, dtype=np.float64) for part in (summary.counts, summary.means, summary.covariances)
    )
    k = len(counts) if counts.ndim == 1 else 0
    if counts.shape != (k,) or means.shape != (k, d) or covariances.shape != (k, d, d):
        counts, means, covariances = np.zeros(0), np.zeros((0, d)), np.zeros((0, d, d))
    finite = np.isfinite(counts) & np.isfinite(means).all(axis=1) & np.isfinite(covariances).all(axis=(1, 2))
    near = (np.abs(np.where(np.isfinite(means), means, np.inf)) <= _LARGEST).all(axis=1)
    places = np.flatnonzero(finite & near & (np.where(finite, counts, 0.0) >= _LEAST_COUNT))
    # A count beyond 1e12 is forged; held there, no sum of them overflows before the cap is known.
    return np.minimum(counts[places], 1e12), means[places], _covariances(covariances[places]), places


def _held(vectors: FloatArray, radius: float) -> FloatArray:
    """Vectors (k, d), those that are longer shortened to the radius."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    held: FloatArray = vectors * (radius / np.maximum(lengths, radius))
    return held


def _covariances(covariances: FloatArray) -> FloatArray:
    """Nearest symmetric matrices with eigenvalues from 0 to the largest that is believed."""
    held = np.clip(covariances, -_LARGEST, _LARGEST)
    values, vectors = np.linalg.eigh(0.5 * (held + held.transpose(0, 2, 1)))
    rebuilt = (vectors * np.clip(values, 0.0, _LARGEST)[:, None, :]) @ vectors.transpose(0, 2, 1)
    symmetric: FloatArray = 0.5 * (rebuilt + rebuilt.transpose(0, 2, 1))
    return symmetric
