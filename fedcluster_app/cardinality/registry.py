"""The table of local estimators: what every one is called, needs and comes from. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from fedcluster_app.cardinality.count import Count


@dataclass(frozen=True)
class Estimator:
    """One way to count the clusters of a site.

    Attributes
    ----------
    name : str
        The word after ``estimator=``.
    function : str
        Dotted name of its function ``(X, rng, **grid) -> Count``, or ``(X, labels) -> Count``. It is imported
        when it is used, so that the table stays light.
    needs_labels : bool
        Whether it reads the true classes.
    source : str
        Where it comes from.
    """

    name: str
    function: str
    needs_labels: bool
    source: str

    def load(self) -> Callable[..., Count]:
        """Return the function."""
        module, _, name = self.function.rpartition(".")
        function: Callable[..., Count] = getattr(import_module(module), name)
        return function


def _estimator(name: str, function: str, source: str, *, needs_labels: bool = False) -> Estimator:
    return Estimator(name, f"fedcluster_app.cardinality.{function}", needs_labels, source)


ESTIMATORS = {
    estimator.name: estimator
    for estimator in (
        _estimator("asm", "asm.count_asm", "Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762"),
        _estimator("xmeans", "xmeans.count_xmeans", "Pelleg and Moore, ICML 2000"),
        _estimator("gmeans", "gmeans.count_gmeans", "Hamerly and Elkan, NIPS 2003"),
        _estimator("dirichlet", "dirichlet.count_dirichlet", "Blei and Jordan, Bayesian Analysis 1 (2006)"),
        _estimator(
            "kmeans-silhouette",
            "kmeans_count.count_kmeans",
            "Rousseeuw, J. Comput. Appl. Math. 20 (1987)",
        ),
        _estimator("consensus", "consensus.count_consensus", "ours: the median of four counts"),
        _estimator("oracle", "oracle.count_oracle", "the true classes", needs_labels=True),
    )
}
