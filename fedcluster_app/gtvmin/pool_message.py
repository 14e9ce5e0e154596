"""What a pooling node tells its neighbours, and what it makes of what they tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin.niw import moments_of, summaries_of
from fedcluster_app.gtvmin.pool_model import Rows
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray

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

    The iterations need moments and incidence only, and take those of b nodes, one for each model, with one
    more axis in front. Shorter lists are then filled up with components of moments 0 and of no neighbour.

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
        return self.moments[..., 0, 0]

    @property
    def flat(self) -> FloatArray:
        """Moments, (J, (d + 1)²)."""
        *free, rows, columns = self.moments.shape
        return self.moments.reshape(*free, rows * columns)


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
    parts = [_shaped(summaries[name], d) for name in names] or [_nothing(d)]
    sizes = [len(counts) for counts, *_ in parts]
    counts, means, covariances = (np.concatenate(part) for part in zip(*parts, strict=True))
    edges, slots = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(n) for n in sizes])
    usable = _usable(counts, means, covariances)
    edges, slots = edges[usable], slots[usable]
    # A count beyond 1e12 is forged; held there, no sum of them overflows before the cap is known.
    counts = np.minimum(counts[usable], 1e12)
    totals = np.bincount(edges, counts, minlength=len(names))
    # The lower median: of a site and one neighbour it is the smaller, so neither can lift the cap alone.
    known = np.sort([len(rows.X), *totals[totals > 0]])
    cap = count_cap * float(known[(len(known) - 1) // 2])
    counts = counts * np.minimum(1.0, cap / np.maximum(totals, 1.0))[edges]
    about = _held(means[usable] - rows.origin, _REACH * float(rows.spread) ** 0.5)
    moments = moments_of(counts, about, _covariances(covariances[usable]))
    incidence = (np.arange(len(names))[:, None] == edges).astype(np.float64)
    said = tuple(int(np.size(summaries[name].counts)) for name in names)
    return Inbox(names, moments, edges, slots, incidence, said)


def _nothing(d: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return counts, means and covariances of no components."""
    return np.zeros(0), np.zeros((0, d)), np.zeros((0, d, d))


def _shaped(summary: Summary, d: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return counts, means and covariances; none if their shapes do not fit."""
    counts, means, covariances = (
        np.asarray(part, dtype=np.float64) for part in (summary.counts, summary.means, summary.covariances)
    )
    k = len(counts) if counts.ndim == 1 else 0
    fits = counts.shape == (k,) and means.shape == (k, d) and covariances.shape == (k, d, d)
    return (counts, means, covariances) if fits else _nothing(d)


def _usable(counts: FloatArray, means: FloatArray, covariances: FloatArray) -> BoolArray:
    """Find the components (J,) that can be used."""
    near = (np.abs(means) <= _LARGEST).all(axis=1)
    usable: BoolArray = near & (counts >= _LEAST_COUNT) & np.isfinite(counts)
    usable &= np.isfinite(covariances).all(axis=(1, 2))
    return usable


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
