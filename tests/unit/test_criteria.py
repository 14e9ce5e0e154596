from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedcluster_app.cardinality.closed_form import critical_size, split_gain_rate
from fedcluster_app.cardinality.criteria import (
    FULL_GAIN_RATE,
    MixtureCriterion,
    criterion_of,
    critical_size_diagonal,
    critical_size_full,
    critical_size_of,
    split_parameters,
)
from fedcluster_app.cardinality.split import centred, propose_split
from fedcluster_app.cardinality.tree import split_tree

KINDS = ["spherical", "diagonal", "full"]


def two_blobs(seed=0, n=80, d=3):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(0, 1, (n, d)), rng.normal(5, 1, (n // 2, d))])


def free_parameters(k, d, covariance):
    """Of a mixture of k Gaussians."""
    per_component = {"spherical": 1, "diagonal": d, "full": d * (d + 1) // 2}[covariance]
    return k * (d + per_component) + k - 1


@pytest.mark.parametrize("covariance", KINDS)
@pytest.mark.parametrize("d", [1, 2, 7])
def test_penalty_counts_what_a_split_adds(covariance, d):
    added = free_parameters(2, d, covariance) - free_parameters(1, d, covariance)
    assert split_parameters(d, covariance) == added


@pytest.mark.parametrize(
    ("d", "round_size", "elongated_size", "diagonal", "full"),
    [(2, 14, 3, 12, 17), (8, 62, 6, 72, 244), (16, 136, 19, 167, 1052), (64, 671, 122, 861, 21098)],
)
def test_critical_sizes(d, round_size, elongated_size, diagonal, full):
    assert critical_size(1, d) == pytest.approx(round_size, abs=0.51)
    if d > 2:
        assert critical_size(4, d) == pytest.approx(elongated_size, abs=0.51)
    assert critical_size_full(d) == pytest.approx(full, abs=0.51)
    along_an_axis = np.diag(np.r_[3.0, np.ones(d - 1)])
    assert critical_size_diagonal(along_an_axis) == pytest.approx(diagonal, abs=0.51)


def test_diagonal_criterion_sees_a_diagonal_cut_as_the_spherical_one_does():
    # Equal variances, and the leading axis has equal entries: the gain rate is that of the closed form.
    d, r = 8, 3.0
    correlated = np.full((d, d), (r - 1) / (d - 1)) + np.eye(d) * (1 - (r - 1) / (d - 1))
    n = critical_size_diagonal(correlated)
    assert n / math.log(n) == pytest.approx((2 * d + 1) / split_gain_rate(r, d))


def test_median_cut_lowers_the_log_determinant_by_the_gain_rate():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(200_000, 4)) @ rng.normal(size=(4, 4))
    axis = np.linalg.eigh(np.cov(Y.T))[1][:, -1]
    right = Y @ axis > np.median(Y @ axis)
    log_dets = [np.linalg.slogdet(np.cov(part.T))[1] for part in (Y, Y[right], Y[~right])]
    assert log_dets[0] - np.mean(log_dets[1:]) == pytest.approx(FULL_GAIN_RATE, abs=0.02)


@pytest.mark.parametrize("covariance", KINDS)
def test_critical_size_of_rows(covariance):
    _, Y, _ = centred(np.random.default_rng(0).normal(size=(400, 3)) * [4, 1, 1])
    S = Y.T @ Y / 400
    expected = {
        "spherical": critical_size(np.linalg.eigvalsh(S)[-1] / np.trace(S) * 3, 3),
        "diagonal": critical_size_diagonal(S),
        "full": critical_size_full(3),
    }
    assert critical_size_of(Y, covariance) == pytest.approx(expected[covariance])


def test_published_criterion_is_one_of_the_six():
    assert criterion_of() is propose_split
    _, Y, squares = centred(two_blobs())
    fast, plain = propose_split(Y, squares), MixtureCriterion("q", "spherical")(Y, squares)
    np.testing.assert_array_equal(fast.first, plain.first)
    np.testing.assert_allclose(fast[1:], plain[1:], rtol=1e-9)


@pytest.mark.parametrize("score", ["q", "mixture"])
@pytest.mark.parametrize("covariance", KINDS)
def test_gain_is_a_difference_of_log_likelihoods(score, covariance):
    """Two far blobs: responsibilities are 0 or 1, so both scores are known from the blobs' own moments."""
    rows = np.concatenate([two_blobs(), two_blobs(1)])
    X = np.where(np.arange(len(rows))[:, None] % 2 == 0, rows, rows * [1, 2, 0.5] + 300)
    _, Y, squares = centred(X)
    split = criterion_of(score, covariance)(Y, squares, delta=1.0, em_steps=15)

    def log_likelihood(rows):
        S = np.cov(rows.T, bias=True)
        if covariance != "full":
            S = np.diag(np.diag(S)) if covariance == "diagonal" else np.eye(3) * np.trace(S) / 3
        return multivariate_normal(rows.mean(axis=0), S).logpdf(rows).sum()

    halves = [Y[split.first], Y[~split.first]]
    expected = sum(map(log_likelihood, halves)) - log_likelihood(Y)
    if score == "mixture":
        expected += sum(len(half) * math.log(len(half) / len(Y)) for half in halves)
    assert split.gain == pytest.approx(expected, rel=1e-9)
    assert split.penalty == split_parameters(3, covariance) / 2 * math.log(len(Y))
    assert split.mass == pytest.approx(min(map(len, halves)))
    assert split.pays


@pytest.mark.parametrize("covariance", KINDS)
def test_constant_features_change_no_gain(covariance):
    X = two_blobs()
    criterion = MixtureCriterion("mixture", covariance)
    _, Y, squares = centred(np.c_[X, np.full(len(X), 0.1)])
    split = criterion(Y, squares)
    if covariance == "spherical":
        assert split.pays
    else:
        assert split.gain == pytest.approx(criterion(Y[:, :3], squares).gain)


@pytest.mark.parametrize("score", ["q", "mixture"])
def test_full_criterion_does_not_look_at_an_invertible_map(score):
    X = two_blobs()
    warp = np.array([[1, 0.2, 0], [0, 30, 1], [0.5, 0, 2]])
    # The start lies on the leading axis, which a map changes: compare what EM converges to.
    splits = [MixtureCriterion(score, "full")(*centred(rows)[1:], em_steps=200) for rows in (X, X @ warp)]
    assert splits[0].gain == pytest.approx(splits[1].gain, rel=1e-6)


def test_full_criterion_proposes_no_singular_half():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (40, 8)), rng.normal(20, 1, (6, 8))])
    assert MixtureCriterion("mixture", "full")(*centred(X)[1:]) is None
    assert MixtureCriterion("mixture", "diagonal")(*centred(X)[1:]).pays
    wide = rng.normal(size=(10, 30))
    assert MixtureCriterion("q", "full")(*centred(wide)[1:]) is None


@pytest.mark.parametrize(
    ("score", "covariance", "shape", "low", "high"),
    [
        # Leaves of one elongated cluster (r = 4, rotated) of 500 rows in 8 dimensions, mean of four.
        ("q", "spherical", "one", 38, 55),
        ("mixture", "spherical", "one", 3, 5.5),
        ("q", "diagonal", "one", 17, 27),
        ("q", "full", "one", 2, 5),
        ("mixture", "full", "one", 1, 1),
        # Of five such clusters of 200 rows each.
        ("mixture", "spherical", "five", 13, 25),
        ("mixture", "diagonal", "five", 9, 18),
        ("mixture", "full", "five", 4.5, 6),
    ],
)
def test_fragments_by_criterion(score, covariance, shape, low, high):
    counts = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        centres, n = (rng.normal(size=(5, 8)) * 6, 200) if shape == "five" else (np.zeros((1, 8)), 500)
        stretch = np.sqrt(np.r_[7.0, np.ones(7)])
        parts = [
            centre + rng.normal(size=(n, 8)) * stretch @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
            for centre in centres
        ]
        tree = split_tree(np.concatenate(parts), 5, criterion=criterion_of(score, covariance))
        counts.append(len(tree.leaves(5)))
    assert low <= np.mean(counts) <= high


@pytest.mark.parametrize(("score", "covariance"), [("Q", "full"), ("q", "tied")])
def test_unknown_criterion(score, covariance):
    with pytest.raises(ValueError, match="expected one of"):
        criterion_of(score, covariance)


def test_full_critical_size_needs_a_feature():
    with pytest.raises(ValueError, match="at least one feature"):
        critical_size_full(0)
