"""Graphs as text: TOML, JSON or CSV. Reading and writing the file is the caller's business."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.graph import Graph, from_edges

Triple: TypeAlias = tuple[str, str, float]

_KEYS = ("source", "target", "weight")
# Of a document of ours; those of NetworkX have more.
_PARTS = ("edges", "sites", "directed")


def parse_graph(
    text: str, suffix: str, names: Collection[str] | None = None, *, connected: bool = True
) -> Graph:
    """Graph from the text of a graph file.

    Parameters
    ----------
    text : str
    suffix : ".toml", ".json" or ".csv"
        In TOML and JSON ``edges`` is a list of ``[site, site]``, ``[site, site, weight]`` or tables with
        ``source``, ``target`` and, if not 1, ``weight``; ``sites`` may list all sites. The JSON of NetworkX
        (``nodes`` with ``id``, ``edges`` or ``links``) is read too, whose further attributes are ignored.
        CSV has a header with the columns source, target and perhaps weight. ``directed`` must not be true.
    names : collection of str, optional
        Sites of the run. They replace the sites that the file lists, and an edge to any other is an error.
    connected : bool
        As in `from_edges`.

    Returns
    -------
    Graph

    Raises
    ------
    ConfigError
        If the format is unknown, the text does not follow it (with the line or edge), or the graph is not
        valid (see `Graph` and `from_edges`).
    """
    readers = {".toml": _from_toml, ".json": _from_json, ".csv": _from_csv}
    if suffix.lower() not in readers:
        raise ConfigError(f"graph file: expected a name that ends in {', '.join(readers)}, got {suffix!r}")
    listed, edges = readers[suffix.lower()](text.removeprefix("\ufeff"))
    return from_edges(edges, listed if names is None else names, connected=connected)


def _from_toml(text: str) -> tuple[list[str] | None, list[Triple]]:
    try:
        return _from_document(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"graph file: expected TOML, got an error: {error}") from error


def _from_json(text: str) -> tuple[list[str] | None, list[Triple]]:
    try:
        return _from_document(json.loads(text))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"graph file: expected JSON, got an error: {error}") from error


def _from_csv(text: str) -> tuple[None, list[Triple]]:
    # The line ends of every system, also that of old ones.
    reader = csv.reader(io.StringIO(text, newline=None), skipinitialspace=True)
    try:
        rows = [(reader.line_num, [field.strip() for field in row]) for row in reader if row]
    except csv.Error as error:
        raise ConfigError(f"graph file, line {reader.line_num}: expected CSV, got: {error}") from error
    header = [name.lower() for name in rows[0][1]] if rows else []
    if not {"source", "target"} <= set(header) <= set(_KEYS) or len(set(header)) < len(header):
        found = ",".join(rows[0][1]) if rows else "nothing"
        raise ConfigError(f"graph file: expected a header source,target[,weight], got {found}")
    edges = []
    for line, row in rows[1:]:
        where = f"line {line}"
        if len(row) > len(header):
            raise ConfigError(
                f"graph file, {where}: expected the {len(header)} fields {','.join(header)}, got {len(row)}"
            )
        entry = dict(zip(header, row, strict=False))
        edges.append(_edge({key: value for key, value in entry.items() if value}, where))
    return None, edges


def _from_document(document: Any) -> tuple[list[str] | None, list[Triple]]:
    """Sites, if listed, and edges of a TOML or JSON document."""
    if not isinstance(document, Mapping):
        document = {"edges": document}
    if document.get("directed"):
        raise ConfigError("graph file: expected a graph without direction; make it undirected first")
    foreign = "nodes" in document or "links" in document
    if not foreign and (unknown := sorted(document.keys() - set(_PARTS))):
        raise ConfigError(f"graph file: expected {', '.join(_PARTS[:2])}, got the unknown {unknown[0]!r}")
    edges = document.get("edges", document.get("links"))
    if not isinstance(edges, list):
        raise ConfigError(f"graph file: expected a list edges, got {_kind(edges)}")
    sites = document.get("sites", document.get("nodes"))
    if sites is not None:
        if not isinstance(sites, list):
            raise ConfigError(f"graph file: expected a list of sites, got {_kind(sites)}")
        sites = [_name(site.get("id") if isinstance(site, Mapping) else site, "sites") for site in sites]
    return sites, [_edge(entry, f"edge {i}", foreign) for i, entry in enumerate(edges, start=1)]


def _edge(entry: Any, where: str, foreign: bool = False) -> Triple:
    expected = f"graph file, {where}: expected source, target and perhaps weight"
    if isinstance(entry, Mapping):
        if not {"source", "target"} <= entry.keys() or not (foreign or entry.keys() <= set(_KEYS)):
            raise ConfigError(f"{expected}, got {dict(entry)!r}")
        entry = [entry[key] for key in _KEYS if key in entry]
    if not isinstance(entry, list) or not 2 <= len(entry) <= 3:
        raise ConfigError(f"{expected}, got {entry!r}")
    source, target, weight = (*entry, 1.0)[:3]
    try:
        number = float(weight)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"graph file, {where}: expected a number as weight, got {weight!r}") from error
    return _name(source, where), _name(target, where), number


def _name(value: Any, where: str) -> str:
    """Name of a site; sites may be numbered."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ConfigError(f"graph file, {where}: expected the name of a site, got {value!r}")
    return str(value)


def _kind(value: Any) -> str:
    return "none" if value is None else type(value).__name__
