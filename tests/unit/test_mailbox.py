from __future__ import annotations

import pytest

from fedcluster_app.gtvmin.graph import from_edges
from strategies.mailbox import Mailbox

GRAPH = from_edges([("a", "b", 2.0), ("b", "c", 1.0)])


def test_a_site_gets_the_last_posts_of_its_neighbours_alone() -> None:
    box = Mailbox[str]().after({"c": "c0", "a": "a0", "b": "b0"}, 0)
    assert list(box.posts) == ["a", "b", "c"]
    assert box.for_site("a", GRAPH, 5) == {"b": ("b0", 2.0)}
    assert box.for_site("b", GRAPH, 5) == {"a": ("a0", 2.0), "c": ("c0", 1.0)}
    assert box.for_site("stranger", GRAPH, 5) == {}


def test_posts_grow_old_weigh_less_and_are_dropped() -> None:
    box = Mailbox[str]().after({"a": "a0", "b": "b0"}, 0)
    ages = []
    for number in range(1, 5):
        box = box.after({"a": f"a{number}"}, number)
        ages.append(box.age("b"))
    assert ages == [1, 2, 3, 4]
    assert box.for_site("a", GRAPH, 4) == {"b": ("b0", pytest.approx(2.0 / 5))}
    assert box.for_site("a", GRAPH, 3) == {}
    assert box.for_site("b", GRAPH, 0) == {"a": ("a4", 2.0)}
    assert box.after({"b": "b9"}, 9).age("b") == 0
