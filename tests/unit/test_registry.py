from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

import numpy as np

from fedcluster_app.cardinality.count import Count
from fedcluster_app.cardinality.registry import ESTIMATORS
from fedcluster_app.config import RunConfig


def test_the_setting_offers_what_the_registry_has() -> None:
    assert get_args(get_type_hints(RunConfig)["estimator"]) == tuple(ESTIMATORS)
    assert RunConfig().estimator in ESTIMATORS


def test_every_estimator_counts_in_the_same_way() -> None:
    X, labels = np.random.default_rng(0).normal(size=(60, 3)), np.repeat([0, 1], 30)
    for name, estimator in ESTIMATORS.items():
        assert estimator.name == name
        assert estimator.source
        function = estimator.load()
        parameters = list(inspect.signature(function).parameters.values())
        given = labels if estimator.needs_labels else np.random.default_rng(1)
        assert [item.name for item in parameters[:2]] == ["X", "labels" if estimator.needs_labels else "rng"]
        assert all(item.kind is item.KEYWORD_ONLY for item in parameters[2:])
        found = function(X, given)
        assert isinstance(found, Count)
        assert (len(found.weights), found.means.shape, len(found.variances)) == (
            found.k,
            (found.k, 3),
            found.k,
        )
        assert all(isinstance(value, int | float) for value in found.chosen.values())
