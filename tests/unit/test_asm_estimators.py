from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.base import clone, is_clusterer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedcluster_app.cardinality as room
from fedcluster_app.cardinality import AdaptiveSplitMerge, AdaptiveSplitMergeCV, count_asm

ESTIMATORS = [AdaptiveSplitMerge(), AdaptiveSplitMergeCV(random_state=0)]
BOTH = pytest.mark.parametrize("estimator", ESTIMATORS, ids=["fixed", "selected"])


def blobs(seed=0, centers=((0, 0, 0), (30, 0, 0), (0, 30, 0)), n=60):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(center, 1.0, size=(n, len(center))) for center in centers])


@BOTH
def test_blobs_are_found_and_new_rows_labelled(estimator):
    X = blobs()
    model = clone(estimator)
    assert model.fit(X) is model
    assert model.n_components_ == 3
    assert model.n_features_in_ == 3
    assert [len(np.unique(part)) for part in np.split(model.labels_, 3)] == [1, 1, 1]
    assert len(np.unique(model.labels_)) == 3
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    np.testing.assert_array_equal(model.labels_, clone(estimator).fit_predict(X))
    nearest = ((blobs(1)[:, None] - model.means_) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(model.predict(blobs(1)), nearest)


@BOTH
def test_probabilities_are_those_of_the_labels(estimator):
    X = blobs(centers=((0, 0, 0), (4, 0, 0)))
    model = clone(estimator).fit(X)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (120, model.n_components_)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), model.predict(X))


def test_score_is_a_density_in_the_units_of_the_table():
    X = 1e3 * np.random.default_rng(0).normal(size=(80, 1)) + 1e5
    model = AdaptiveSplitMerge(alpha=0.5, min_mass=20).fit(X)
    assert model.n_components_ > 1
    total, _ = quad(
        lambda x: np.exp(model.score_samples([[x]])[0]), 9e4, 1.1e5, points=model.means_.ravel(), limit=200
    )
    assert total == pytest.approx(1, abs=1e-6)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())


def test_selected_model_is_the_scored_fit_of_the_function():
    X = np.random.default_rng(0).normal(size=(200, 4))
    model = AdaptiveSplitMergeCV(random_state=3).fit(X)
    count = count_asm(X, np.random.default_rng(3))
    assert (model.n_components_, model.best_alpha_, model.best_min_mass_) == (
        count.k,
        count.chosen["alpha"],
        count.chosen["min_mass"],
    )
    assert model.best_score_ == count.silhouette == model.grid_scores_.max()
    assert model.grid_scores_.shape == model.grid_n_components_.shape == (4, 9)
    np.testing.assert_array_equal(model.means_, count.means)
    # The kept weights count the 160 train rows.
    np.testing.assert_allclose(model.weights_ * 160, np.round(model.weights_ * 160), atol=1e-9)


def test_without_held_out_rows_there_is_no_score():
    few = AdaptiveSplitMergeCV(random_state=0).fit(blobs(n=4))
    assert (few.best_alpha_, few.best_min_mass_) == (3.0, 5)
    single = AdaptiveSplitMergeCV([2.0], [10], random_state=0).fit(blobs())
    for model in (few, single):
        assert np.isnan(model.best_score_)
        assert model.grid_scores_ is None
    np.testing.assert_array_equal(single.means_, AdaptiveSplitMerge(2.0, 10).fit(blobs()).means_)


@BOTH
def test_manners(estimator):
    X = blobs()
    assert is_clusterer(estimator)
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    model = clone(estimator).fit(X.astype(np.float32))
    assert model.means_.dtype == np.float64
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :2])
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    X = blobs(centers=((0, 0, 0), (30, 0, 30), (0, 30, 30)))
    assert len(np.unique(make_pipeline(StandardScaler(), clone(estimator)).fit_predict(X))) == 3


@BOTH
def test_predicting_far_rows_stays_finite(estimator):
    model = clone(estimator).fit(blobs())
    far = np.full((1, 3), 1e300)
    assert model.predict(far).shape == (1,)
    assert np.isfinite(model.score_samples(far)).all()


@pytest.mark.parametrize("bad", [{"alpha": -1.0}, {"min_mass": 0}, {"em_steps": 0}, {"order": "first"}])
def test_parameters_are_checked_in_fit(bad):
    model = AdaptiveSplitMerge(**bad)
    with pytest.raises(ValueError, match=next(iter(bad))):
        model.fit(blobs())


def test_the_room_lists_its_names_and_refuses_others():
    assert dir(room) == sorted(room.__all__)
    for name in room.__all__:
        assert getattr(room, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        room.nothing  # noqa: B018  # the look-up is the test


def test_counting_imports_neither_scikit_learn_nor_scipy():
    code = (
        "import sys, numpy as np; from fedcluster_app.cardinality import count_asm; "
        "count_asm(np.random.default_rng(0).normal(size=(60, 2)), np.random.default_rng(0)); "
        "sys.exit(any(name in sys.modules for name in ('sklearn', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
