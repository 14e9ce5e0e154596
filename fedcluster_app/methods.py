"""The method table: what every method is, needs and sends. Plain data, so that anybody may read it."""

from __future__ import annotations

from dataclasses import dataclass

# What the table shows of a method, in this order.
COLUMNS = ("name", "family", "needs", "sends", "rounds", "source")


@dataclass(frozen=True)
class Method:
    """One way to reconcile the sites.

    Attributes
    ----------
    name : str
        The word after ``method=``.
    family : str
        "global" (one model for all sites), "personal" (one for each), or "yardstick" (all rows in one place,
        in simulations only).
    needs, sends, rounds : str
        What it needs to know, what a site sends in a round, how many rounds it takes.
    source : str
        Where it comes from.
    strategy : str
        Dotted name of its strategy class; empty for a yardstick.
    inits : tuple of str
        The values of ``init`` that it takes.
    settings : tuple of str
        The groups of settings that it reads, besides those that all do.
    required : tuple of str
        The keys that must be given, since nothing finds their values.
    command : str
        What runs a yardstick.
    counts : str
        The key that, while it is "auto", has sites count their clusters by ``estimator``; "always" if there
        is no such key, "" if they never do.
    """

    name: str
    family: str
    needs: str
    sends: str
    rounds: str
    source: str
    strategy: str = ""
    inits: tuple[str, ...] = ("kmeans",)
    settings: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    counts: str = ""
    command: str = ""

    def shown(self) -> tuple[str, ...]:
        """Return the cells of its row of the table."""
        return tuple(getattr(self, column) for column in COLUMNS)


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
            counts="always",
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
            counts="components",
        ),
        Method(
            name="gtvpool",
            family="personal",
            needs="a graph (drawn if none is given); no count",
            sends="count, mean and covariance of every component in the site's own rows",
            rounds="until no mixture moves, at most pool-rounds",
            source="ours; evidence as in Murphy, Machine Learning (2012), 4.6.3",
            strategy="strategies.gtvpool.GTVPool",
            settings=("graph", "mixture", "pool"),
        ),
        Method(
            name="kfed",
            family="global",
            needs="k; local k is counted if not given",
            sends="local k-means centres; no sums",
            rounds="one",
            source="Dennis, Li and Smith, ICML 2021",
            strategy="strategies.kfed.KFed",
            settings=("clusters", "local", "kfed"),
            counts="local-k",
            required=("k",),
        ),
        Method(
            name="fedkmeans",
            family="global",
            needs="k",
            sends="sums and counts of the rows of clusters; the coordinator needs them site by site",
            rounds="until no centre moves, at most fedkmeans-rounds",
            source="Garst and Reinders, arXiv:2310.01195",
            strategy="strategies.fedkmeans.FedKMeans",
            settings=("clusters", "fedkmeans"),
            required=("k",),
        ),
        Method(
            name="fedkmeans-aligned",
            family="global",
            needs="k",
            sends="sums and counts of the rows of clusters; the coordinator needs them site by site",
            rounds="until no centre moves, at most aligned-rounds",
            source="the baseline FedKMeans of arXiv:2609.19202",
            strategy="strategies.fedkmeans_aligned.FedKMeansAligned",
            settings=("clusters", "aligned"),
            required=("k",),
        ),
        *(
            Method(
                name=f"ffcm-{word}",
                family="global",
                needs="k",
                sends=f"weighted sums of rows, sums of weights; {secure}",
                rounds="until no centre moves, at most ffcm-rounds",
                source="Stallmann and Wilbik, arXiv:2201.07316",
                strategy=f"strategies.ffcm.{name}",
                settings=("clusters", "ffcm"),
                required=("k",),
            )
            for word, name, secure in (
                ("avg1", "FFCM", "totals over sites would do, so they could be summed securely"),
                ("avg2", "FFCMAvg2", "the coordinator needs them site by site"),
            )
        ),
        Method(
            name="spahm",
            family="global",
            needs="no count; local k is counted if not given",
            sends="local k-means centres; no sums",
            rounds="one",
            source="Yurochkin et al., NeurIPS 2019",
            strategy="strategies.spahm.Spahm",
            settings=("local", "spahm"),
            counts="local-k",
        ),
        Method(
            name="afcl",
            family="global",
            needs="no count; seeds are counted if not given; allow-unsafe at every site",
            sends="every row, in thin disguise: the coordinator rebuilds them",
            rounds="until no seed moves, at most afcl-rounds",
            source="Zhang et al., AAAI 2025, arXiv:2412.20341",
            strategy="strategies.afcl.AFCL",
            settings=("local", "afcl"),
            counts="local-k",
        ),
        Method(
            name="fedem",
            family="personal",
            needs="k",
            sends="counts, sums and squares of the rows of shared components; totals over sites would do, so "
            "they could be summed securely (but for the sites' own weights, which follow from the counts)",
            rounds="one for the start, then until the likelihood settles, at most fedem-rounds",
            source="Marfoq et al., NeurIPS 2021, arXiv:2108.10252, with the M step in closed form",
            strategy="strategies.fedem.FedEM",
            settings=("clusters", "fedem"),
            required=("k",),
        ),
        Method(
            name="fedgengmm",
            family="global",
            needs="k; local k is counted if not given",
            sends="count, mean and covariance of every component of the site's mixture; no sums",
            rounds="one",
            source="Pettersson, Liang and Andresen, arXiv:2506.01780",
            strategy="strategies.fedgengmm.FedGenGMM",
            settings=("clusters", "local", "fedgengmm"),
            counts="local-k",
            required=("k",),
        ),
        Method(
            name="ifca",
            family="personal",
            needs="the number of models; components are counted if not given",
            sends="clusters, which all sites see as a model; likelihoods; sums as fedem of the model it chose"
            " (of the sites of a model totals would do, but the coordinator knows who these are)",
            rounds="two for the start, then until the likelihood settles, at most ifca-rounds",
            source="Ghosh et al., NeurIPS 2020, arXiv:2006.04088, with the M step in closed form",
            strategy="strategies.ifca.IFCA",
            settings=("mixture", "ifca"),
            counts="components",
            required=("models",),
        ),
        Method(
            name="local",
            family="personal",
            needs="no count",
            sends="weight, mean and covariance of every component, when all is over",
            rounds="none; one to send",
            source="the baseline Local of arXiv:2609.19202",
            strategy="strategies.local.Local",
            settings=("mixture", "lonely"),
            counts="components",
        ),
        Method(
            name="fedgrem",
            family="personal",
            needs="components, the same at all sites",
            sends="weight, mean and covariance of every component; the coordinator needs them site by site",
            rounds="one for the start, then until no mixture moves, at most fedgrem-rounds",
            source="Tian, Weng and Feng, arXiv:2310.15330; covariances as an extension",
            strategy="strategies.fedgrem.FedGrEM",
            settings=("mixture", "lonely", "fedgrem"),
            required=("components",),
        ),
        Method(
            name="consensus-em",
            family="personal",
            needs="components, the same at all sites; a graph (drawn if none is given)",
            sends="its estimate of all sites' sums, and what has flowed over each edge: the coordinator and "
            "an only neighbour can work out its own sums, of which totals would do; all neighbours see those "
            "of the start, and with consensus-mode=leaky of every round",
            rounds="two for the start, then until no mixture moves, at most consensus-rounds",
            source="Gu, IEEE Trans. Neural Netw. 19 (2008) (leaky); Zhu and Martínez, Automatica 46 (2010)",
            strategy="strategies.consensus_em.ConsensusEM",
            settings=("graph", "mixture", "lonely", "consensus"),
            required=("components",),
        ),
        *(
            Method(
                name=f"centralized-{word}",
                family="yardstick",
                needs=needs,
                sends="all rows",
                rounds="none",
                source=source,
                command=f"python -m simulations.experiments.comparison --methods {word}",
            )
            for word, needs, source in (
                ("kmeans", "k", "Lloyd, 1982; scikit-learn"),
                ("gmm", "k", "EM with full covariances; scikit-learn"),
                ("dpgmm", "the most clusters there may be", "Blei and Jordan, 2006; scikit-learn"),
            )
        ),
        Method(
            name="centralized",
            family="yardstick",
            needs="the number of components",
            sends="all rows",
            rounds="none",
            source="the baseline Centralized of arXiv:2609.19202; scikit-learn",
            command="python -m simulations.experiments.personal --methods centralized",
        ),
    )
}
