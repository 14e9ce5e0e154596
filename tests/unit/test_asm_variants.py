from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from fedcluster_app.cardinality import AdaptiveSplitMerge, AdaptiveSplitMergeCV, anisotropy, count_asm
from fedcluster_app.cardinality.report import FragmentationWarning
from fedcluster_app.cardinality.tree import split_tree
from fedcluster_app.cardinality.variant import PUBLISHED, Variant, leaf_unit


def two_blobs(d=4, n=100):
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(0, 1, (n, d)), rng.normal(6, 1, (n, d))])


def generator():
    return np.random.default_rng(1)


def test_all_departures_are_off_by_default():
    assert Variant() == PUBLISHED
    assert PUBLISHED.criterion is None
    X = two_blobs()
    counts = [count_asm(X, generator(), **options) for options in ({}, {"variant": PUBLISHED})]
    assert counts[0].chosen == counts[1].chosen
    np.testing.assert_array_equal(counts[0].means, counts[1].means)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"score": "Q"}, "score"),
        ({"covariance": "tied"}, "covariance"),
        ({"alpha_unit": "mile"}, "alpha_unit"),
        ({"set_aside": 0.5}, "set_aside"),
        ({"set_aside": -1}, "set_aside"),
        ({"set_aside": math.inf}, "set_aside"),
    ],
)
def test_impossible_variants(options, word):
    with pytest.raises(ValueError, match=word):
        Variant(**options)


@pytest.mark.parametrize("outliers", [1, 3, 8])
def test_outliers_hide_two_groups_until_they_are_set_aside(outliers):
    X = two_blobs()
    rng = np.random.default_rng(0)
    X = np.concatenate([X, rng.normal(size=(outliers, 4)) * 1e6])
    assert AdaptiveSplitMergeCV(random_state=1).fit(X).n_components_ != 2
    model = AdaptiveSplitMergeCV(random_state=1, set_aside=10).fit(X)
    assert model.n_components_ == 2
    # The outliers are labelled all the same.
    assert len(model.labels_) == len(X)
    assert np.abs(model.means_).max() < 10


def test_guard_counts_one_where_the_silhouette_cannot():
    X = np.random.default_rng(0).normal(size=(300, 8))
    assert AdaptiveSplitMergeCV(random_state=0).fit(X).n_components_ > 1
    model = AdaptiveSplitMergeCV(random_state=0, guard=True).fit(X)
    assert model.n_components_ == 1
    np.testing.assert_allclose(model.means_[0], X.mean(axis=0), atol=1e-12)
    assert model.variances_[0] == pytest.approx(X.var(axis=0).mean())
    assert np.isnan(model.best_alpha_)
    assert count_asm(X, generator(), variant=Variant(guard=True)).status == "one cluster"
    assert AdaptiveSplitMergeCV(random_state=0, guard=True).fit(two_blobs()).n_components_ == 2


def test_leaf_unit_is_the_join_bound_of_a_typical_leaf():
    X = two_blobs()
    tree = split_tree(X, 10)
    median = np.median([anisotropy(X[tree.rows[leaf]]) for leaf in tree.leaves(10)])
    assert leaf_unit(X, tree, 10) == pytest.approx(0.8 * math.sqrt(median))


def test_alphas_in_leaf_units_follow_the_data():
    """One long cluster: its fragments join beyond a fixed grid, but not beyond its own units."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 30)) * np.r_[np.full(2, 12.0), np.ones(28)]
    fixed = AdaptiveSplitMerge(alpha=2.5, min_mass=20).fit(X)
    scaled = AdaptiveSplitMerge(alpha=2.5, min_mass=20, alpha_unit="leaves").fit(X)
    assert fixed.n_components_ > 5
    assert scaled.n_components_ == 1
    chosen = count_asm(X, generator(), variant=Variant(alpha_unit="leaves")).chosen
    assert chosen["alpha_unit"] > 1.6


def test_mixture_score_does_not_fragment():
    X = np.random.default_rng(0).normal(size=(500, 8))
    assert AdaptiveSplitMerge(alpha=0.1).fit(X).n_components_ > 20
    assert AdaptiveSplitMerge(alpha=0.1, split_score="mixture").fit(X).n_components_ == 1


@pytest.mark.parametrize(
    "options", [{}, {"set_aside": 10}, {"alpha_unit": "leaves"}, {"split_score": "mixture"}]
)
def test_report_is_of_the_fit_that_was_kept(options):
    rng = np.random.default_rng(0)
    X = two_blobs() if "set_aside" not in options else np.r_[two_blobs(), rng.normal(size=(2, 4)) * 1e6]
    model = AdaptiveSplitMergeCV(random_state=5, report=True, **options).fit(X)
    report = model.split_report_
    rows = np.array([part.rows for part in report.components])
    np.testing.assert_allclose(np.sort(rows / rows.sum()), np.sort(model.weights_))
    spreads = [part.spread for part in report.components]
    np.testing.assert_allclose(np.sort(spreads), np.sort(np.sqrt(model.variances_)))
    assert not hasattr(AdaptiveSplitMergeCV(random_state=5).fit(X), "split_report_")


def test_fragments_are_warned_of():
    X = np.random.default_rng(0).normal(size=(800, 4))
    with pytest.warns(FragmentationWarning, match="may be one of fragments"):
        AdaptiveSplitMerge(alpha=0.5, report=True).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AdaptiveSplitMerge(alpha=0.5).fit(X)
        AdaptiveSplitMerge(alpha=2.0, report=True).fit(X)


def test_no_report_when_the_guard_decided():
    X = np.random.default_rng(0).normal(size=(300, 4))
    assert AdaptiveSplitMergeCV(random_state=0, guard=True, report=True).fit(X).split_report_ is None


def test_the_guard_looks_at_the_rows_that_were_kept_in_their_own_frame():
    X = np.vstack([two_blobs(), np.full((1, two_blobs().shape[1]), 1e140)])
    assert count_asm(X, generator(), variant=Variant(set_aside=10, guard=True)).k == 2


@pytest.mark.parametrize("options", [{"split_score": "mixture"}, {"covariance": "full"}])
def test_only_the_published_split_warns_of_fragments(options):
    X = generator().normal(size=(500, 8))
    model = AdaptiveSplitMerge(alpha=0.5, min_mass=5, report=True, **options).fit(X)
    assert model.split_report_.warning == ""
