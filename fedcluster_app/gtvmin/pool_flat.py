"""Round 0 of pooling where clusters are flat: k-means cuts them, so a site starts with pieces and joins them.

Features of unit variance make round clusters that are far apart along one of them thin and long. The pieces
into which k-means cuts these are round, with a common covariance so small that each seems right; neighbours
cut alike and would confirm it.
"""

from __future__ import annotations

import numpy as np

from fedcluster_app.gtvmin.niw import log_evidence, prior_of
from fedcluster_app.gtvmin.pool_bound import bound
from fedcluster_app.gtvmin.pool_local import common_covariance
from fedcluster_app.gtvmin.pool_merge import likely_merges, renewed
from fedcluster_app.gtvmin.pool_message import Inbox
from fedcluster_app.gtvmin.pool_model import Models, Rows, narrowed
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.mixtures.types import IntArray

# Nats by which a path must gain, and by which it may fall below that before it is given up.
_MARGIN, _GIVEN_UP = 20.0, 50.0


def merged_on_path(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings) -> Models:
    """Return the best model on a path of merges, or the first unless another is better by a margin.

    Parameters
    ----------
    models : Models
        A batch of one.
    rows : Rows
    inbox : Inbox
    settings : PoolSettings

    Notes
    -----
    This project's; not in its first description. The best pair is merged and the prior renewed, down to one
    component. Bounds are compared with the whole path, on which they may fall before they rise: pieces of
    flat clusters gain 20 to 80 nats in all, and close clusters of ten rows, which should wait for what the
    neighbours say, up to 18. Cost of four iterations of three models a merge.
    """
    tried = renewed(models, rows, inbox, settings)
    most = float(bound(tried, rows, inbox)[0]) + _MARGIN
    while tried.weights.shape[1] > 1:
        merged = likely_merges(tried, rows, settings, loss=np.inf)
        assert merged is not None
        merged = renewed(merged, rows, inbox, settings)
        bounds = bound(merged, rows, inbox)
        tried = merged.taken([int(bounds.argmax())])
        tried = narrowed(tried, tried.active[0])
        reached = float(bounds.max())
        if reached > most:
            models, most = tried, reached
        elif reached < most - _GIVEN_UP:
            break
    return models


def joined_pieces(rows: Rows, labels: IntArray, k: int) -> IntArray:
    """Join the clusters of a labelling (n,) until k are left, each time the pair of most evidence.

    Notes
    -----
    Agglomeration as by Fraley and Raftery, How many clusters? Which clustering method? (1998), with evidence
    for the likelihood and a covariance that all clusters are drawn to, renewed after each merge. It follows
    long clusters, where k-means with k centres cuts them. Cost O(k² d³) a merge.
    """
    d, labels = rows.X.shape[1], labels.copy()
    hot = (labels == np.arange(labels.max() + 1)[:, None]).astype(np.float64)
    own = (hot @ rows.moments).reshape(-1, d + 1, d + 1)
    while len(own) > k:
        a, b = np.triu_indices(len(own), 1)
        law = prior_of(common_covariance(own[None], rows.spread), np.array([d + 1.0]), rows.spread)
        apart = log_evidence(own[None], law)[0]
        best = int((log_evidence((own[a] + own[b])[None], law)[0] - apart[a] - apart[b]).argmax())
        kept, gone = a[best], b[best]
        own[kept] += own[gone]
        own = np.delete(own, gone, axis=0)
        labels[labels == gone] = kept
        labels[labels > gone] -= 1
    return labels
