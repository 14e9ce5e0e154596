"""A site as its steps see it: who it is, its rows, its memory, its random streams."""

from __future__ import annotations

import hashlib
import os
import re
from collections import OrderedDict
from collections.abc import Hashable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context

from fedcluster_app.config import home, parse_node_config, parse_run_config
from fedcluster_app.data.readers import read_table
from fedcluster_app.data.scaling import Scaling
from fedcluster_app.data.table import Table
from fedcluster_app.data.virtual import virtual_name, virtual_table
from fedcluster_app.errors import DataError
from fedcluster_app.messages import SiteFolder
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.streams import stream
from fedcluster_app.transport import Memory

# What the coordinator cannot go under at a real site, unless its owner says so.
OWN_FLOOR = 5
CACHE_BYTES = 512 * 2**20


def file_stem(site: str) -> str:
    """Return a file name for a site: its name, made safe, with a digest where that changed it."""
    safe = re.sub(r"[^\w.-]", "_", site).lstrip(".")
    return safe if safe == site else f"{safe}-{hashlib.sha256(site.encode()).hexdigest()[:8]}"


class _Cache:
    """Values by key, the least recently used dropped once they hold too many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable) -> Any:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: Hashable, value: object, nbytes: int) -> None:
        self._kept[key] = value, nbytes
        while len(self._kept) > 1 and sum(size for _, size in self._kept.values()) > self._max_bytes:
            self._kept.popitem(last=False)


_CACHE = _Cache(CACHE_BYTES)


class Site:
    """One site during one message.

    Flower rebuilds client objects for every message, so whatever must last is in ``memory`` (kept by Flower
    for the run) or in a cache of the process (only to save time).

    Parameters
    ----------
    context
        Flower's context of this node.

    Raises
    ------
    ConfigError
        If the run or node config is wrong.
    """

    def __init__(self, context: Context) -> None:
        self.config = parse_run_config(context.run_config)
        self.node = parse_node_config(context.node_config)
        self.run_id = context.run_id
        self.memory = Memory(context)
        self._n_rows: int | None = None

    @property
    def virtual(self) -> bool:
        """Whether this is a site of a simulation; a data path always means a real one."""
        return not self.node.data_path

    @property
    def min_count(self) -> int:
        """Least rows behind anything released: the run's, or the site's own floor if that is higher."""
        return max(self.config.min_count, self.node.min_count or (1 if self.virtual else OWN_FLOOR))

    @property
    def allows_rows(self) -> bool:
        """Whether single rows may leave: at a real site its owner says so, at a virtual one the run."""
        return self.config.allow_unsafe if self.virtual else self.node.allow_unsafe

    @cached_property
    def _source(self) -> Hashable:
        """What the site's rows come from; a file that has changed is another source."""
        try:
            status = os.stat(self.node.data_path or self.config.data.data)
        except OSError:  # a data set by name, or a file that is not there, which its reader will say
            return self.node, self.config.data
        return self.node, self.config.data, status.st_mtime_ns, status.st_size

    @property
    def name(self) -> str:
        """Stable name of the site."""
        if self.node.site_name:
            return self.node.site_name
        try:
            return virtual_name(self.config.data, self.node.partition_id, self.node.num_partitions)
        except DataError:
            # Where the data cannot be dealt, the site still has to say who it is.
            return f"site-{self.node.partition_id:02d}"

    @cached_property
    def table(self) -> Table:
        """The site's rows as read, raising DataError if they cannot be used."""
        kept: Table | None = _CACHE.get(self._source)
        if kept is None:
            kept = self._read()
            _CACHE.put(self._source, kept, kept.X.nbytes)
        return kept

    def _read(self) -> Table:
        if self.virtual:
            return virtual_table(self.config.data, self.node.partition_id, self.node.num_partitions)[1]
        return read_table(self.node.data_path, label_column=self.node.label_column, site=self.node.site_name)

    def rows(self, scaling: Scaling) -> FloatArray:
        """Return the scaled rows, of shape (n, q), from the cache of the process if they are there."""
        key = (self._source, _digest(scaling))
        rows: FloatArray | None = _CACHE.get(key)
        if rows is None:
            rows = scaling.apply(self.table.X)
            rows.flags.writeable = False
            _CACHE.put(key, rows, rows.nbytes)
        self._n_rows = len(rows)
        return rows

    @property
    def n_rows(self) -> int:
        """Number of rows; the table is not read for it if scaled rows were used."""
        return self.table.n_rows if self._n_rows is None else self._n_rows

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the site's random stream for a purpose."""
        return stream(self.config.seed, self.name, *names)

    def _folder(self) -> Path:
        kept = self.memory.load(SiteFolder) if self.virtual else None
        return Path(kept.path) if kept and kept.path else home() / "sites"

    @property
    def ledger_path(self) -> Path:
        """Where this site logs what left it."""
        return Path(self.node.ledger_path or self._folder() / "ledger" / f"{file_stem(self.name)}.jsonl")

    @property
    def labels_path(self) -> Path:
        """Where this site writes the cluster of every row."""
        return Path(self.node.labels_path or self._folder() / "labels" / f"{file_stem(self.name)}.csv")


def _digest(scaling: Scaling) -> str:
    parts = (scaling.center, scaling.scale, scaling.components, scaling.score_scale)
    text = hashlib.sha256()
    for part in parts:
        text.update(b"-" if part is None else part.tobytes())
    return text.hexdigest()
