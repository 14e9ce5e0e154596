"""The consensus count as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcluster_app.cardinality.consensus import VOTES, fit_consensus
from fedcluster_app.cardinality.estimator_base import CountEstimator
from fedcluster_app.cardinality.outliers import FARTHEST


class ConsensusCount(CountEstimator):
    """k-means with as many clusters as the median of several estimators' counts.

    Parameters
    ----------
    votes : sequence of str
        Estimators that vote, see :func:`~fedcluster_app.cardinality.consensus.count_consensus`.
    set_aside : float, 0 or above 1
        Rows that are alone and farther than this many median distances do not count; they are labelled all
        the same. 0 keeps all.
    random_state : None, int or numpy.random.Generator
        Draws the held-out rows and the seeds of k-means.

    Attributes
    ----------
    n_components_ : int
    weights_ (k,), means_ (k, d), variances_ (k,)
        Of the clusters of k-means.
    labels_ : (n,) int
        Nearest mean of each training row.
    votes_ : dict
        The counts by name; empty when a guard found one cluster and none was asked. With fewer than 13 rows
        the merge ratio and minimum mass of ASM, which then counts alone.
    n_features_in_ : int

    References
    ----------
    Ours; ASM is that of Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (100, 4)), rng.normal(9, 1, (100, 4))])
    >>> ConsensusCount(random_state=0).fit(X).n_components_
    2
    """

    def __init__(
        self,
        votes: Sequence[str] = VOTES,
        set_aside: float = FARTHEST,
        random_state: Any = None,
    ) -> None:
        self.votes = votes
        self.set_aside = set_aside
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None) -> ConsensusCount:
        """Fit to the rows of X (n, d), n >= 1; y is not used."""
        table = self._table(X)
        rng = np.random.default_rng(self.random_state)
        fit = fit_consensus(table, rng, votes=self.votes, set_aside=self.set_aside)
        self._keep(table, fit)
        self.votes_ = dict(fit.candidate.chosen)
        return self
