"""Sums on the wire and what is believed of them: true ones always, impossible ones never."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from fedcluster_app.errors import WireError
from fedcluster_app.messages import AskIFCARound, GaussianSums, SiteGaussians
from fedcluster_app.messages.gaussians import summed
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.mixtures import Mixture, collect, responsibilities
from fedcluster_app.mixtures.release import released
from strategies.gaussians import in_use, problem_of_likelihoods
from strategies.plausible import Totals

FAST = settings(deadline=None, derandomize=True, max_examples=60)
SCALING = {"center": np.zeros(2), "scale": np.ones(2), "components": None, "score_scale": None}


def mixture(rng: np.random.Generator, k: int, scale: float = 1.0) -> Mixture:
    roots = scale * rng.normal(size=(k, 2, 2))
    covariances = roots @ roots.transpose(0, 2, 1) + 1e-4 * scale**2 * np.eye(2)
    return Mixture(rng.dirichlet(np.ones(k)), scale * rng.normal(size=(k, 2)), covariances)


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-4, 1.0, 1e4]), least=st.integers(1, 6))
@FAST
def test_true_sums_and_likelihoods_are_believed_and_come_back(seed, scale, least):
    rng = np.random.default_rng(seed)
    X = scale * (rng.normal() * 30 + rng.standard_t(3, size=(20, 2)))
    whole = Totals(20.0, X.mean(axis=0), X.var(axis=0))
    mixtures = [mixture(rng, 3, scale), mixture(rng, 1, scale)]
    judged = [responsibilities(X, one) for one in mixtures]
    stats = [collect(X, released(R, least), "full") for R, _ in judged]
    told = np.array([log_density.sum() for _, log_density in judged])
    sums = GaussianSums(np.zeros(2, dtype=np.int64), told, **summed(stats, mixtures))
    for back, sent in zip(sums.statistics(mixtures), stats, strict=True):
        held = sent.mass > 0
        np.testing.assert_allclose(back.mass, sent.mass)
        np.testing.assert_allclose(back.means[held], sent.means[held], rtol=1e-8, atol=1e-8 * scale)
        rows = np.where(held, back.mass, 1.0)[:, None, None]
        assert whole.problem_of_components(back.mass, back.means, back.scatters / rows) is None
    assert problem_of_likelihoods(whole, told, mixtures) is None


def test_no_rows_are_likelier_than_all_at_the_narrowest_mean():
    rng = np.random.default_rng(0)
    one = mixture(rng, 3)
    peaks = [
        multivariate_normal(mean, covariance).logpdf(mean)
        for mean, covariance in zip(one.means, one.covariances, strict=True)
    ]
    whole = Totals(10.0, np.zeros(2), np.ones(2))
    highest = 10 * max(peaks)
    assert problem_of_likelihoods(whole, np.array([highest - 1e-3]), [one]) is None
    assert problem_of_likelihoods(whole, np.array([highest + 1e-2]), [one]) == "its rows cannot be so likely"


def test_sums_for_other_mixtures_are_refused():
    rng = np.random.default_rng(0)
    X, one = rng.normal(size=(9, 2)), mixture(rng, 3)
    stats = collect(X, responsibilities(X, one)[0], "full")
    sums = GaussianSums(np.zeros(1, dtype=np.int64), np.zeros(1), **summed([stats], [one]))
    with pytest.raises(WireError, match="3 components, expected 2"):
        sums.statistics([mixture(rng, 2)])
    with pytest.raises(WireError, match="3 components, expected 6"):
        sums.statistics([one, one])


def test_groups_come_back_and_a_group_without_rows_is_zero():
    X = np.random.default_rng(0).normal(size=(12, 2))
    R = np.eye(3)[np.repeat([0, 1], 6)]
    stats = collect(X, R, "full")
    back = SiteGaussians.of(stats, 4).statistics
    for field in ("mass", "means", "scatters"):
        np.testing.assert_allclose(getattr(back, field)[:2], getattr(stats, field)[:2], atol=1e-12)
    np.testing.assert_allclose(SiteGaussians.of(stats).covariances[0, [0, 2]], X[:6].var(axis=0))
    assert not SiteGaussians.of(stats).covariances[2].any()
    with pytest.raises(WireError, match="gaussians: "):
        SiteGaussians(0, stats.mass, stats.means, np.zeros((3, 6)))


@pytest.mark.parametrize("runs", [[0], [0, 0, 1], [1, 1], [0, 2], [1, 0]])
def test_models_are_some_of_every_restart(runs):
    two = stacked([mixture(np.random.default_rng(seed), 2) for seed in range(2)])
    with pytest.raises(WireError, match=r"ask\.ifca\.round: 2 models, of restarts"):
        AskIFCARound(**SCALING, **two, runs=np.array(runs))
    assert [len(part) for part in AskIFCARound(**SCALING, **two, runs=np.array([0, 1])).restarts] == [1, 1]
    assert [len(part) for part in AskIFCARound(**SCALING, **two, runs=np.array([0, 0])).restarts] == [2]


def test_numbers_are_without_gaps_and_only_of_components_that_weigh_something():
    rng = np.random.default_rng(0)
    one, two = mixture(rng, 3), mixture(rng, 2)
    idle = Mixture(np.array([0.4, 0.0, 0.6]), one.means, one.covariances)
    found = in_use({"a": (idle, np.array([4, 5, 6])), "b": (two, np.array([2, 4]))})
    assert found["a"].numbers.tolist() == [1, 2]
    assert found["b"].numbers.tolist() == [0, 1]
    np.testing.assert_array_equal(found["a"].clusters.means, one.means[[0, 2]])
