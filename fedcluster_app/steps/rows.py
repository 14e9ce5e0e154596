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


def let_rows_go(site: Site, what: str) -> None:
    """Go on only if single rows may leave the site.

    Raises
    ------
    DataError
        If they may not; ``what`` says what would send them.
    """
    if not site.allows_rows:
        where = "the run config" if site.virtual else "its node config"
        raise DataError(f"site {site.name!r}: {what}; it takes part only with allow-unsafe=true in {where}")


def aligned(X: FloatArray, offset: FloatArray | None, gain: FloatArray | None) -> FloatArray:
    """Return scaled rows (n, q) without the site's offset and gain, as the global clusters have them."""
    if offset is not None:
        X = X - offset
    return X if gain is None else X / gain
