"""Graph files: the same graph from every format, and a message that says where a text is wrong."""

from __future__ import annotations

import json

import pytest

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import Graph, parse_graph

EXPECTED = Graph(("berlin", "oslo", "rome"), (("berlin", "oslo"), ("oslo", "rome")), (1.0, 0.5))
TOML_LISTS = 'edges = [["oslo", "berlin"], ["oslo", "rome", 0.5]]'
TOML_TABLES = """
sites = ["rome", "oslo", "berlin"]
[[edges]]
source = "oslo"
target = "berlin"
[[edges]]
source = "oslo"
target = "rome"
weight = 0.5
"""
NETWORKX = {
    "directed": False,
    "nodes": [{"id": "rome"}, {"id": "oslo"}, {"id": "berlin"}],
    "links": [{"source": "oslo", "target": "berlin"}, {"source": "rome", "target": "oslo", "weight": 0.5}],
}


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        (TOML_LISTS, ".toml"),
        (TOML_TABLES, ".toml"),
        (json.dumps([["oslo", "berlin"], ["oslo", "rome", 0.5]]), ".json"),
        (json.dumps(NETWORKX), ".JSON"),
        ("source,target,weight\noslo,berlin,\nrome,oslo,0.5\n", ".csv"),
        ("\ufeff" + json.dumps(NETWORKX), ".json"),
        ("\ufeff" + TOML_LISTS, ".toml"),
        ("source,target,weight\roslo,berlin,1\rrome,oslo,0.5\r", ".csv"),
        (json.dumps({**NETWORKX, "graph": {}, "multigraph": False}), ".json"),
        ("\ufeffWeight, Source, Target\r\n1, oslo, berlin\r\n0.5, rome, oslo\r\n\r\n", ".csv"),
    ],
)
def test_every_format_gives_the_same_graph(text: str, suffix: str) -> None:
    assert parse_graph(text, suffix) == EXPECTED
    assert parse_graph(text, suffix, ["oslo", "rome", "berlin"]) == EXPECTED


@pytest.mark.parametrize(
    ("text", "suffix", "error"),
    [
        ("", ".yaml", r"\.toml, \.json, \.csv"),
        ("edges = [", ".toml", "expected TOML"),
        ("{", ".json", "expected JSON"),
        ("{}", ".json", "expected a list edges, got none"),
        ('{"edges": 3}', ".json", "expected a list edges, got int"),
        ('{"edges": [], "sites": "a"}', ".json", "list of sites, got str"),
        ('[["a", "b"], ["a"]]', ".json", "edge 2: expected source, target"),
        ('[["a", "b", 1, 2]]', ".json", "edge 1: expected source, target"),
        ('[["a", "b", "heavy"]]', ".json", "edge 1: expected a number as weight, got 'heavy'"),
        ('[["a", null]]', ".json", "edge 1: expected the name of a site, got None"),
        ('{"nodes": [{"label": "a"}], "edges": []}', ".json", "sites: expected the name of a site"),
        ("a,b\n1,2\n", ".csv", "header source,target"),
        ("", ".csv", "got nothing"),
        ("source,target\na,b\nc\n", ".csv", "line 3: expected source, target"),
        ("source,target,weight\na,b,x\n", ".csv", "line 2: expected a number"),
        ("source,target,weight\n,b,2\n", ".csv", "line 2: expected source, target"),
        ("source,target,weight\na,,2\n", ".csv", "line 2: expected source, target"),
        ('[{"target": "a", "weight": 2}]', ".json", "edge 1: expected source, target"),
        ('[{"source": "a", "weight": 2}]', ".json", "edge 1: expected source, target"),
        ("source,target\na,b\nb,c,2\n", ".csv", "line 3: expected the 2 fields source,target, got 3"),
        ("source,target,weight,Weight\na,b,1,2\n", ".csv", "got source,target,weight,Weight"),
        ("source,target,wieght\na,b,2\n", ".csv", "got source,target,wieght"),
        ('[{"source": "a", "target": "b", "wieght": 2}]', ".json", "edge 1: expected .* got .*'wieght'"),
        ('{"edges": [["a", "b"]], "site": ["a"]}', ".json", "got the unknown 'site'"),
        ('directed = true\nedges = [["a", "b"]]', ".toml", "make it undirected"),
        (json.dumps({**NETWORKX, "directed": True}), ".json", "make it undirected"),
        ("source,target\n" + "a" * 200_000 + ",b\n", ".csv", "line 2: expected CSV, got: field larger"),
        ("[" * 100_000, ".json", "expected JSON, got an error"),
        ("edges = " + "[" * 100_000, ".toml", "expected TOML, got an error"),
    ],
)
def test_a_wrong_text_says_where(text: str, suffix: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        parse_graph(text, suffix)


def test_numbered_sites_are_names() -> None:
    assert parse_graph("[[0, 1], [1, 2]]", ".json").names == ("0", "1", "2")


def test_the_sites_of_the_run_judge_the_file() -> None:
    with pytest.raises(ConfigError, match="unknown site rome"):
        parse_graph(TOML_LISTS, ".toml", ["oslo", "berlin"])
    with pytest.raises(ConfigError, match="none for paris"):
        parse_graph(TOML_LISTS, ".toml", [*EXPECTED.names, "paris"])
    assert parse_graph(TOML_LISTS, ".toml", [*EXPECTED.names, "paris"], connected=False).islands[1] == (
        "paris",
    )
