"""The method table: what every method is, needs and sends. Plain data, so that anybody may read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """One way to reconcile the sites.

    Attributes
    ----------
    name : str
        The word after ``method=``.
    family : str
        "global" (one model for all sites) or "personal" (one for each).
    needs, sends, rounds : str
        What it needs to know, what a site sends in a round, how many rounds it takes.
    source : str
        Where it comes from.
    strategy : str
        Dotted name of its strategy class.
    inits : tuple of str
        The values of ``init`` that it takes.
    settings : tuple of str
        The groups of settings that it reads, besides those that all do.
    """

    name: str
    family: str
    needs: str
    sends: str
    rounds: str
    source: str
    strategy: str
    inits: tuple[str, ...]
    settings: tuple[str, ...]


METHODS = {
    method.name: method
    for method in (
        Method(
            name="fedgem",
            family="global",
            needs="no count",
            sends="a mean and a radius for every component",
            rounds="until no mean moves, at most fedgem-max-rounds",
            source="Ibrahim, Gebraeel and Xie, arXiv:2601.21160; estimated counts as in arXiv:2609.36762",
            strategy="strategies.fedgem.FedGEM",
            inits=("kmeans", "kmeans++", "asm-means"),
            settings=("fedgem",),
        ),
        Method(
            name="microcluster",
            family="global",
            needs="no count",
            sends="count, mean and variances of micro-clusters; sums in rounds of federated EM",
            rounds="one, and refine-rounds",
            source="ours; micro-clusters as in BIRCH (Zhang, Ramakrishnan and Livny, 1996) and CluStream",
            strategy="strategies.microcluster.MicroCluster",
            inits=("kmeans",),
            settings=("micro",),
        ),
        Method(
            name="gtvmin",
            family="personal",
            needs="a graph (drawn if none is given); no count",
            sends="weight, mean and covariance of every component",
            rounds="until no mixture moves, at most gtv-rounds for every alpha tried",
            source="arXiv:2609.19202, Algorithm 1",
            strategy="strategies.gtvmin.GTVMin",
            inits=("kmeans", "asm"),
            settings=("graph", "mixture", "gtv"),
        ),
        Method(
            name="gtvpool",
            family="personal",
            needs="a graph (drawn if none is given); no count",
            sends="count, mean and covariance of every component in the site's own rows",
            rounds="until no mixture moves, at most pool-rounds",
            source="ours; evidence as in Murphy, Machine Learning (2012), 4.6.3",
            strategy="strategies.gtvpool.GTVPool",
            inits=("kmeans",),
            settings=("graph", "mixture", "pool"),
        ),
    )
}
