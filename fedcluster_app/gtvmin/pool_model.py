"""A node's rows and its models: what the iterations of pooling work on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedcluster_app.gtvmin.niw import Prior, prior_of, row_moments
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray

# Variance of a feature that is taken for the least, in squared units of the scaled features: rows that are
# all equal, or a single one, have none.
LEAST_VARIANCE = 1e-3
# Sides of the uniform component's box, in ranges of the features.
_BOX = 1.1


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """A site's rows about their mean.

    The iterations also take the rows of b sites, one for each model, with one more axis in front of every
    field. Shorter tables are then filled up with rows of moments 0, which count nothing.

    Attributes
    ----------
    X : array of shape (n, d)
        Centred.
    moments : array of shape (n, (d + 1)²)
        Of each row, flattened.
    origin : array of shape (d,)
        The mean.
    spread : float, or array of shape (b,)
        Trace of their covariance, held above that of features with a thousandth of the unit variance.
    log_uniform : float, array of shape (b,), or None
        Log density of the uniform component on the box around the rows, a tenth wider; None without one.
    """

    X: FloatArray
    moments: FloatArray
    origin: FloatArray
    spread: float | FloatArray
    log_uniform: float | FloatArray | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Models:
    """b models of up to k components at one node, each with its own view of the J received ones on E edges.

    A model of fewer components than others of its batch has empty places, of weight 0. Between rounds a model
    is alone and has none: nothing but components leaves a site or is in a result.

    Attributes
    ----------
    weights, means, covariances : arrays of shape (b, k), (b, k, d), (b, k, d, d)
        About the origin of the rows.
    within : array of shape (b, d, d)
        Common covariance W, to which those of the components are drawn.
    strength : array of shape (b,)
        Rows that W counts for.
    discount : array of shape (b,)
        Share at which everything borrowed counts.
    rates : array of shape (b, E)
        Trust in the edges.
    attached : array of shape (b, J, k)
        Probability that a received component is an own one.
    own, borrowed : arrays of shape (b, k, d + 1, d + 1)
        Moments of the own rows; of what is attached, before the discount.
    row_evidence : array of shape (b,)
        Entropy of the responsibilities plus log evidence of the own counts, and of junk.
    separate : array of shape (b, J)
        Log evidence of the received components by themselves, under the present prior.
    junk : array of shape (b,)
        Share of the uniform component, where there is one.
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    within: FloatArray
    strength: FloatArray
    discount: FloatArray
    rates: FloatArray
    attached: FloatArray
    own: FloatArray
    borrowed: FloatArray
    row_evidence: FloatArray
    separate: FloatArray
    junk: FloatArray

    @property
    def totals(self) -> FloatArray:
        """Moments of own rows and discounted attached summaries, (b, k, d + 1, d + 1)."""
        totals: FloatArray = self.own + self.discount[:, None, None, None] * self.borrowed
        return totals

    @property
    def active(self) -> BoolArray:
        """Places that hold a component, (b, k)."""
        active: BoolArray = self.weights > 0.0
        return active

    def taken(self, which: IntArray | list[int] | slice) -> Models:
        """Return some of the models, by index."""
        fields = type(self).__dataclass_fields__
        return Models(*(getattr(self, name)[which] for name in fields))


def rows_of(X: FloatArray, *, uniform: bool = False) -> Rows:
    """Rows (n, d), n >= 1, prepared for the iterations, with a uniform component or not. Memory O(n d²)."""
    origin = X.mean(axis=0)
    centred = X - origin
    spread = max(float(np.square(centred).sum()) / len(X), LEAST_VARIANCE * X.shape[1])
    sides = np.maximum(_BOX * np.ptp(X, axis=0), LEAST_VARIANCE**0.5)
    log_uniform = -float(np.log(sides).sum()) if uniform else None
    return Rows(centred, row_moments(centred).reshape(len(X), -1), origin, spread, log_uniform)


def prior(models: Models, rows: Rows) -> Prior:
    """Law of a component under each of the models."""
    return prior_of(models.within, models.strength, rows.spread)


def lone(
    weights: FloatArray,
    means: FloatArray,
    covariances: FloatArray,
    within: FloatArray,
    strength: FloatArray,
    discount: FloatArray,
    own: FloatArray,
    junk: FloatArray,
) -> Models:
    """Models before anything was received, from the fields that outlive a round; shapes as in `Models`."""
    b, k = weights.shape
    return Models(
        weights,
        means,
        covariances,
        within,
        strength,
        discount,
        rates=np.zeros((b, 0)),
        attached=np.zeros((b, 0, k)),
        own=own,
        borrowed=np.zeros_like(own),
        row_evidence=np.zeros(b),
        separate=np.zeros((b, 0)),
        junk=junk,
    )


def padded(models: Models, k: int) -> Models:
    """Models with empty places up to k."""
    b, missing = len(models.weights), k - models.weights.shape[1]
    if not missing:
        return models

    def filled(part: FloatArray, value: FloatArray | float = 0.0) -> FloatArray:
        added = np.broadcast_to(value, (b, missing, *part.shape[2:]))
        return np.concatenate([part, added], axis=1)

    return replace(
        models,
        weights=filled(models.weights),
        means=filled(models.means),
        covariances=filled(models.covariances, models.within[:, None]),
        attached=filled(models.attached.swapaxes(1, 2)).swapaxes(1, 2),
        own=filled(models.own),
        borrowed=filled(models.borrowed),
    )


def narrowed(models: Models, places: BoolArray) -> Models:
    """Keep the components in some of the places (k,) of a batch of one."""
    if places.all():
        return models
    weights = models.weights[:, places]
    return replace(
        models,
        weights=weights / weights.sum(),
        means=models.means[:, places],
        covariances=models.covariances[:, places],
        attached=models.attached[:, :, places],
        own=models.own[:, places],
        borrowed=models.borrowed[:, places],
    )


def joined(first: Models, second: Models) -> Models:
    """All models of two batches at one node."""
    k = max(first.weights.shape[1], second.weights.shape[1])
    first, second = padded(first, k), padded(second, k)
    fields = Models.__dataclass_fields__
    return Models(*(np.concatenate([getattr(first, name), getattr(second, name)]) for name in fields))
