"""The last exchange of every method with a global model: sites label their rows, sums of scores come back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from fedcluster_app.messages import AskLabels, Labelled
from fedcluster_app.metrics.additive import ScoreSums, merge, scores
from fedcluster_app.metrics.agreement import adjusted_rand_index, normalized_mutual_info
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import IntArray
from strategies.base import Agreement
from strategies.exchange import Exchange


def ask_labels(agreement: Agreement, clusters: Mixture, own: Mapping[str, IntArray]) -> Exchange:
    """Ask every site, also those that could not contribute, to label its rows.

    Parameters
    ----------
    agreement
        Roster and scaling.
    clusters
        The K global clusters, spherical.
    own : mapping of site name to int array of shape (k,)
        Global cluster of every component of a site.
    """
    scaling = agreement.scaling
    asks = {
        name: AskLabels(
            center=scaling.center,
            scale=scaling.scale,
            components=scaling.components,
            score_scale=scaling.score_scale,
            weights=clusters.weights,
            means=clusters.means,
            variances=clusters.covariances,
            own_labels=own.get(name),
        )
        for name in agreement.roster.members
    }
    sizes = {name: {"m": clusters.n_components} for name in asks}
    return Exchange("labels", asks, {AskLabels: Labelled}, "evaluate", sizes, must_answer=False)


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
    found = {"simplified_silhouette": scores(_sums(answer), clusters.means)["simplified_silhouette"]}
    if answer.own_contingency is not None:
        found |= _agreement("personal_", answer.own_contingency)
    return found


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
