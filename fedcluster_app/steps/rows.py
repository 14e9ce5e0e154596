"""The rows of a site as a step takes them."""

from __future__ import annotations

from fedcluster_app.errors import DataError
from fedcluster_app.messages import AgreedScaling
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.site import Site


def contributed(site: Site, ask: AgreedScaling) -> FloatArray:
    """Return the rows (n, q) behind what the site will send.

    Raises
    ------
    DataError
        If there are fewer than ``min-count``.
    """
    X = site.rows(ask.scaling)
    if len(X) < site.min_count:
        raise DataError(
            f"site {site.name!r}: has {len(X)} rows, fewer than min-count={site.min_count}; it only receives"
        )
    return X


def aligned(X: FloatArray, offset: FloatArray | None, gain: FloatArray | None) -> FloatArray:
    """Return scaled rows (n, q) without the site's offset and gain, as the global clusters have them."""
    if offset is not None:
        X = X - offset
    return X if gain is None else X / gain
