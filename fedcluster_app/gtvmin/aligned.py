"""One numbering of the components of sites that all have k, and the start that is common to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.gtvmin.starts import Start
from fedcluster_app.mixtures.alignment import matched
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import Statistics, merge_all, mixture_from


@dataclass(frozen=True, eq=False)
class Aligned:
    """Starts in which a component has the same number at every site.

    Attributes
    ----------
    mixtures : mapping of site name to Mixture
        In order of name, without the sites that have fewer than k components.
    pooled : Mixture
        What the matched components of all these sites are together.
    """

    mixtures: Mapping[str, Mixture]
    pooled: Mixture


def align(starts: Mapping[str, Start], k: int) -> Aligned:
    """Match every site's components with those of the first site, and pool the matched ones.

    Parameters
    ----------
    starts : mapping of site name to Start
        With full covariances; in any order.
    k : int
        A site with fewer components (fewer rows, or clusters too small to be shown) takes no part here: it
        begins from the pooled mixture.

    Raises
    ------
    ConfigError
        If a site has more than k components.
    DataError
        If no site has k.

    Notes
    -----
    **Source**: the common start of the baselines of arXiv:2609.19202: k-means at every site, aligned once to
    the first by squared distance of the means. The pooled covariance includes the scatter of the sites'
    means, as if their rows had been put together.
    """
    for name in sorted(starts):
        if starts[name].mixture.n_components > k:
            raise ConfigError(
                f"site {name}: expected k = {k} components as everywhere, got "
                f"{starts[name].mixture.n_components}; this method averages components, so give every site "
                "the same number"
            )
    complete = [name for name in sorted(starts) if starts[name].mixture.n_components == k]
    if not complete:
        raise DataError(f"starts: expected a site with k = {k} components, got none; lower k or min-count")
    reference = starts[complete[0]].mixture.means
    mixtures, parts = {}, []
    for name in complete:
        own = starts[name].mixture
        order = matched(reference, own.means)
        mixture = Mixture(own.weights[order], own.means[order], own.covariances[order])
        mass = mixture.weights * starts[name].counts.sum()
        mixtures[name] = mixture
        parts.append(Statistics(mass, mixture.means, mass[:, None, None] * mixture.covariances))
    return Aligned(mixtures, mixture_from(merge_all(parts)))
