"""A virtual site's rows, in simulation: the one door from the house to `simulations`."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedcluster_app.data.table import Table, validated_table
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import IntArray

if TYPE_CHECKING:
    from fedcluster_app.options import DataSpec
    from simulations.sources import Source


def virtual_table(spec: DataSpec, partition_id: int, num_partitions: int) -> tuple[str, Table]:
    """Return the name and the table of one virtual site.

    The partition is a pure function of (spec, num_partitions): every virtual site computes the same one
    and takes its own part. The loaded data and the partition are kept for the process, two of each at
    most.

    Parameters
    ----------
    spec : DataSpec
        What to load and how to deal it. Partition "auto" is "site" if the data say where their rows come
        from, else "dirichlet" if they have labels, else "iid". Under "regime-a" and "regime-b" a site
        holds its train rows only; experiments that score held-out rows call `simulations.partitions`
        themselves.
    partition_id, num_partitions : int
        Place of the site among the virtual sites, and their number.

    Returns
    -------
    name : str
        The site's own name under "site" (names sorted), else 'site-00', 'site-01', ...
    table : Table
        Its rows, checked.

    Raises
    ------
    DataError
        The data cannot be loaded or dealt in this way, or this site's rows are not usable.
    """
    name = virtual_name(spec, partition_id, num_partitions)
    source, _, parts = _dealt(spec, num_partitions, _stamp(spec.data))
    rows = parts[partition_id]
    labels = None if source.labels is None else source.labels[rows]
    return name, validated_table(
        source.X[rows], source.columns, labels, where=f"site {name!r}", label_names=source.label_names
    )


def virtual_name(spec: DataSpec, partition_id: int, num_partitions: int) -> str:
    """Return the name of one virtual site, also if its rows are not usable; see :func:`virtual_table`."""
    if not 0 <= partition_id < num_partitions:
        raise DataError(f"partition-id is {partition_id}, expected 0 to {num_partitions - 1}")
    return _dealt(spec, num_partitions, _stamp(spec.data))[1][partition_id]


def _stamp(data: str) -> tuple[int, int]:
    """Return (time, size) of a file, so that one that changed is read again; zeros if there is none."""
    try:
        status = os.stat(data)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=2)
def _source(data: str, label_column: str, stamp: tuple[int, int]) -> Source:
    from simulations.sources import load_source

    return load_source(data, label_column)


@lru_cache(maxsize=2)
def _dealt(
    spec: DataSpec, num_partitions: int, stamp: tuple[int, int]
) -> tuple[Source, tuple[str, ...], list[IntArray]]:
    """Return the source, the site names and each site's rows."""
    from simulations.partitions import by_site
    from simulations.sources import numbered_names

    source = _source(spec.data, spec.label_column, stamp)
    partition = spec.partition
    if partition == "auto":
        partition = (
            "site" if source.sites is not None else "dirichlet" if source.labels is not None else "iid"
        )
    if partition != "site":
        return source, tuple(numbered_names(num_partitions)), _parts(spec, partition, source, num_partitions)
    if source.sites is None:
        raise DataError(
            f"data {source.name!r} does not say which site a row comes from; use another partition"
        )
    if len(source.site_names) != num_partitions:
        raise DataError(
            f"data {source.name!r} has {len(source.site_names)} sites; "
            f"expected num-supernodes={len(source.site_names)}, got {num_partitions} "
            "(or use another partition than 'site')"
        )
    return source, source.site_names, by_site(source.sites)


def _parts(spec: DataSpec, partition: str, source: Source, sites: int) -> list[IntArray]:
    from simulations.partitions import dirichlet, iid, regime_a, regime_b

    rng = np.random.default_rng(spec.seed)
    if partition == "iid":
        return iid(len(source.X), sites, rng)
    if source.labels is None:
        raise DataError(
            f"data {source.name!r}: partition {partition!r} needs labels; name a label-column, or use 'iid'"
        )
    if partition == "dirichlet":
        return dirichlet(source.labels, sites, spec.concentration, rng)
    if partition in ("regime-a", "regime-b"):
        regime = regime_a if partition == "regime-a" else regime_b
        return regime(source.labels, sites, rng, k_min=spec.k_min, k_max=spec.k_max).train
    raise DataError(
        f"partition {partition!r} is unknown; expected auto, iid, dirichlet, regime-a, regime-b or site"
    )
