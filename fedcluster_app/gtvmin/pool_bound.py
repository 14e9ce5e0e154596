"""The bound on the evidence of own rows and received summaries that pooling raises."""

from __future__ import annotations

import numpy as np

from fedcluster_app.gtvmin.niw import log_evidence
from fedcluster_app.gtvmin.pool_message import Inbox
from fedcluster_app.gtvmin.pool_model import Models, Rows, prior
from fedcluster_app.mixtures.types import FloatArray


def bound(models: Models, rows: Rows, inbox: Inbox) -> FloatArray:
    """Lower bound on the log evidence of everything a node knows, (b,).

    Parameters
    ----------
    models : Models
        As they come from an iteration.
    rows : Rows
    inbox : Inbox

    Notes
    -----
    **Source**: this project's pooling, the row objective J. Models of different size, strength or common
    covariance may be compared by it, as these are chosen by evidence that is part of it; models of another
    discount may not. What is borrowed counts at the discount, so what is not attached does too: else a model
    would gain by attaching anything.
    """
    law = prior(models, rows)
    J: FloatArray = log_evidence(models.totals, law).sum(axis=1) + models.row_evidence
    if not len(inbox.moments):
        return J
    attached = models.attached.sum(axis=2)
    none = np.clip(1.0 - attached, 0.0, 1.0)
    rates, sizes = models.rates[:, inbox.edges], models.active.sum(axis=1)[:, None]
    separate = log_evidence(models.discount[:, None, None, None] * inbox.moments, law)
    terms = none * (separate + np.log1p(-rates)) + attached * np.log(rates / sizes)
    J += (terms + _entropy(none) + _entropy(models.attached).sum(axis=2)).sum(axis=1)
    return J


def _entropy(shares: FloatArray) -> FloatArray:
    from scipy.special import entr

    entropy: FloatArray = entr(shares)
    return entropy
