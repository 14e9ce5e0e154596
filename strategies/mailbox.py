"""The coordinator as a mailbox: it keeps what every site last posted, and hands it to neighbours alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fedcluster_app.gtvmin.graph import Graph

P = TypeVar("P")


@dataclass(frozen=True, eq=False)
class Post(Generic[P]):
    """What a site posted, and in which round."""

    content: P
    round: int


@dataclass(frozen=True, eq=False)
class Mailbox(Generic[P]):
    """The last post of every site.

    Attributes
    ----------
    posts : mapping of site name to Post
        In order of name.
    round : int
        Rounds that are over; what sites start with is of round 0.
    """

    posts: Mapping[str, Post[P]] = field(default_factory=dict)
    round: int = 0

    def after(self, came: Mapping[str, P], number: int) -> Mailbox[P]:
        """Return the mailbox after a round; who sent nothing keeps its last post, which grows old."""
        posts = {**self.posts, **{name: Post(content, number) for name, content in came.items()}}
        return Mailbox(dict(sorted(posts.items())), number)

    def age(self, name: str) -> int:
        """Return for how many rounds a site has sent nothing."""
        return self.round - self.posts[name].round

    def worth_asking(self, name: str, max_age: int) -> bool:
        """Tell whether to ask a site that has posted: one that is gone only now and then.

        Every question to it costs a round's patience.
        """
        return self.age(name) <= max_age or not self.round % (max_age + 1)

    def for_site(self, name: str, graph: Graph, max_age: int) -> dict[str, tuple[P, float]]:
        """Return what a site is handed: its neighbours' last posts, with edge weight / (1 + age).

        Posts of the round that is over have age 0; one older than ``max_age`` is handed to nobody.
        """
        if name not in graph.names:
            return {}
        return {
            other: (self.posts[other].content, weight / (1 + self.age(other)))
            for other, weight in graph.neighbours(name).items()
            if other in self.posts and self.age(other) <= max_age
        }
