"""scikit-learn's own checks of estimators, for every estimator of the room."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

from fedcluster_app.cardinality import (
    AdaptiveSplitMerge,
    AdaptiveSplitMergeCV,
    ConsensusCount,
    DirichletProcessCount,
    GMeans,
    KMeansSilhouette,
    OracleCount,
    XMeans,
)

WEIGHTED = (XMeans, GMeans, KMeansSilhouette)
ESTIMATORS = [
    AdaptiveSplitMerge(),
    AdaptiveSplitMergeCV(),
    AdaptiveSplitMergeCV(
        split_score="mixture",
        covariance="diagonal",
        alpha_unit="leaves",
        set_aside=10,
        guard=True,
        report=True,
    ),
    ConsensusCount(),
    XMeans(),
    XMeans(k_maxes=[20], min_sizes=[5]),
    GMeans(),
    GMeans(significances=[1e-4]),
    DirichletProcessCount(),
    KMeansSilhouette(),
    OracleCount(),
]


def exceptions(estimator):
    """Checks that cannot hold, with the reason."""
    if isinstance(estimator, OracleCount):
        return {"check_clustering": "it counts labels, and the check gives none"}
    selects = {GMeans: "significances", KMeansSilhouette: "ks"}.get(type(estimator))
    if selects and len(getattr(estimator, selects)) > 1:
        reason = "rows are held out at random, so that repeated rows are other rows than weighted ones"
        return {"check_sample_weight_equivalence_on_dense_data": reason}
    return {}


# Some checks skip themselves, for want of pandas for example, and warn that they do.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=exceptions)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)


@every_estimator
def test_weights_are_taken_where_rows_can_count_more_than_once(estimator):
    assert has_fit_parameter(estimator, "sample_weight") == isinstance(estimator, WEIGHTED)


@every_estimator
def test_parameters_are_kept_as_they_were_given(estimator):
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    X = np.random.default_rng(0).normal(size=(40, 2))
    copy.fit(X.astype(np.float32), np.repeat([0, 1], 20))
    assert copy.get_params() == estimator.get_params()
    assert copy.n_features_in_ == 2
    assert copy.means_.dtype == np.float64


@every_estimator
def test_names_of_columns_are_kept(estimator):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    model = clone(estimator).fit(X, np.repeat([0, 1], 20))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert model.predict(X).shape == (40,)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X[["b", "a"]])
