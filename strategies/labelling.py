"""The last exchange of every method: sites label their rows, sums of scores come back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from fedcluster_app.data.scaling import Scaling, lower_triangle
from fedcluster_app.messages import AskLabels, Labelled
from fedcluster_app.metrics.additive import ScoreSums, merge, scores
from fedcluster_app.metrics.agreement import adjusted_rand_index, normalized_mutual_info
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from strategies.exchange import Exchange


@dataclass(frozen=True, eq=False)
class SiteModel:
    """What a site labels its rows by.

    Attributes
    ----------
    clusters : Mixture
        The K global clusters, spherical or with full covariances, by their weights at the site.
    own : (k,) int array or None
        Global cluster of every component of the site.
    offset, gain : (q,) arrays or None
        What sets the site's scaled rows apart from the others': they are (row - offset) / gain of those.
    fit_weights : bool
        Whether the site fits the weights to its rows, starting from those of ``clusters``.
    names : (K,) int array or None
        What the site calls the clusters: their numbers over all sites, where it has clusters of its own.
    """

    clusters: Mixture
    own: IntArray | None = None
    offset: FloatArray | None = None
    gain: FloatArray | None = None
    fit_weights: bool = False
    names: IntArray | None = None

    @property
    def numbers(self) -> IntArray:
        """Number of every cluster over all sites."""
        return np.arange(self.clusters.n_components) if self.names is None else self.names


def by_nearest(centers: FloatArray) -> Mixture:
    """Return clusters that give every row to the nearest of the centres (K, q): equal weights, variance 1."""
    k = len(centers)
    return Mixture(np.full(k, 1 / k), centers, np.ones(k))


def ask_labels(scaling: Scaling, models: Mapping[str, SiteModel]) -> Exchange:
    """Ask sites, also those that could not contribute, to label their rows.

    Parameters
    ----------
    scaling
        The agreed one.
    models : mapping of site name to SiteModel
    """
    asks = {name: _question(scaling, model) for name, model in models.items()}
    sizes = {name: {"m": model.clusters.n_components} for name, model in models.items()}
    return Exchange("labels", asks, {AskLabels: Labelled}, "evaluate", sizes, must_answer=False)


def _question(scaling: Scaling, model: SiteModel) -> AskLabels:
    clusters = model.clusters
    full = clusters.kind == "full"
    return AskLabels(
        center=scaling.center,
        scale=scaling.scale,
        components=scaling.components,
        score_scale=scaling.score_scale,
        weights=clusters.weights,
        means=clusters.means,
        covariances=lower_triangle(clusters.covariances) if full else clusters.covariances[:, None],
        offset=model.offset,
        gain=model.gain,
        fit_weights=model.fit_weights,
        own_labels=model.own,
        names=model.names,
    )


def global_scores(labelled: Mapping[str, Labelled], clusters: Mixture) -> dict[str, float]:
    """Return the scores over all sites: label-free ones, and agreement with true classes where there are any.

    ``ari`` and ``nmi`` are of the model's labels over the pooled rows of the labelled sites, ``own_ari`` and
    ``own_nmi`` the same with every row given to its own site's components, ``personal_ari`` and
    ``personal_nmi`` means over sites of each site's own agreement.
    """
    sums = [_sums(answer) for answer in labelled.values() if answer.counts is not None]
    if not sums:
        return {}
    found = scores(reduce(merge, sums), clusters.means)
    found["rows_scored"] = float(sum(int(part.rows.sum()) for part in sums))
    tables = {name: answer for name, answer in labelled.items() if answer.contingency is not None}
    if tables:
        found |= _agreement("", _pooled(tables, "contingency"))
    own = {name: answer for name, answer in tables.items() if answer.own_contingency is not None}
    if own:
        found |= _agreement("own_", _pooled(own, "own_contingency"))
        each = [_agreement("personal_", answer.own_contingency) for answer in own.values()]
        found |= {name: float(np.mean([one[name] for one in each])) for name in each[0]}
    return found


def site_scores(answer: Labelled, clusters: Mixture) -> dict[str, float]:
    """Return the scores of one site."""
    if answer.counts is None:
        return {}
    found = {
        "k_g": int(np.count_nonzero(answer.counts)),
        "simplified_silhouette": scores(_sums(answer), clusters.means)["simplified_silhouette"],
    }
    if answer.own_contingency is not None:
        found |= _agreement("personal_", answer.own_contingency)
    if math.isfinite(answer.center_error):
        found["center_error"] = answer.center_error
    return found


def personal_scores(labelled: Mapping[str, Labelled], models: Mapping[str, SiteModel]) -> dict[str, float]:
    """Return the scores of mixtures of the sites' own.

    ``ari`` and ``nmi`` are of all labelled rows, by the numbers of their clusters over all sites; the others
    are means over sites.
    """
    each = [personal_site_scores(answer, models[name].clusters) for name, answer in labelled.items()]
    keys = sorted({key for scores in each for key in scores} - {"k_g"})
    found = {key: float(np.mean([scores[key] for scores in each if key in scores])) for key in keys}
    tables = {name: answer for name, answer in labelled.items() if answer.contingency is not None}
    if not tables:
        return found
    width = 1 + max(int(models[name].numbers.max()) for name in tables)
    spread = {name: _by_name(answer, models[name].numbers, width) for name, answer in tables.items()}
    return found | _agreement("", _pooled(spread, "contingency"))


def personal_site_scores(answer: Labelled, clusters: Mixture) -> dict[str, float]:
    """Return the scores of one site by a mixture of its own."""
    table = answer.contingency
    return site_scores(answer, clusters) | ({} if table is None else _agreement("personal_", table))


def _by_name(answer: Labelled, names: IntArray, width: int) -> Labelled:
    """Return an answer whose counts of classes stand in the columns of the clusters' numbers."""
    assert answer.contingency is not None
    table = np.zeros((len(answer.contingency), width), dtype=np.int64)
    np.add.at(table.T, names, answer.contingency.T)
    return replace(answer, contingency=table)


def _sums(answer: Labelled) -> ScoreSums:
    parts: Any = (answer.counts, answer.within, answer.distances, answer.silhouettes)
    return ScoreSums(*parts)


def _agreement(prefix: str, table: Any) -> dict[str, float]:
    return {
        f"{prefix}ari": adjusted_rand_index(table),
        f"{prefix}nmi": normalized_mutual_info(table),
    }


def _pooled(answers: Mapping[str, Labelled], name: str) -> IntArray:
    """Add the sites' counts of (class, cluster), classes matched by name."""
    classes = sorted({label for answer in answers.values() for label in answer.class_names})
    width = max(getattr(answer, name).shape[1] for answer in answers.values())
    total = np.zeros((len(classes), width), dtype=np.int64)
    for answer in answers.values():
        total[[classes.index(label) for label in answer.class_names]] += getattr(answer, name)
    return total
