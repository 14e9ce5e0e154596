from __future__ import annotations

import math

import numpy as np
import pytest

from fedcluster_app.cardinality import anisotropy, critical_size, join_bound, split_gain_rate

TABLE = [
    # d, r, gain rate, critical size, join bound
    (2, 1, 0.7664, 13.6, 0.966),
    (2, 2, 2.0246, 1, 1.872),
    (8, 1, 0.6634, 62.3, 0.832),
    (8, 2, 1.3868, 22.4, 1.231),
    (8, 4, 3.0654, 5.6, 1.933),
    (8, 8, 8.0984, 1, 3.744),
    (16, 1, 0.6496, 136.2, 0.814),
    (16, 2, 1.3268, 54.2, 1.176),
    (16, 4, 2.7736, 19.2, 1.740),
    (16, 8, 6.1309, 4.2, 2.733),
    (64, 1, 0.6398, 671.5, 0.802),
    (64, 2, 1.2861, 291.2, 1.140),
    (64, 4, 2.5985, 122.0, 1.628),
    (64, 8, 5.3070, 48.2, 2.352),
]


@pytest.mark.parametrize(("d", "r", "rate", "size", "bound"), TABLE)
def test_table_of_values(d, r, rate, size, bound):
    assert split_gain_rate(r, d) == pytest.approx(rate, abs=5.1e-5)
    assert critical_size(r, d) == pytest.approx(size, abs=0.051)
    assert join_bound(r, d) == pytest.approx(bound, abs=5.1e-4)


@pytest.mark.parametrize("r", [1.0, 1.7, 3.0, 4.0])
@pytest.mark.parametrize("d", [10, 50, 700])
def test_critical_size_is_the_larger_root(r, d):
    n = critical_size(r, d)
    assert n > math.e
    assert n / math.log(n) == pytest.approx((d + 2) / split_gain_rate(r, d), rel=1e-12)


def test_critical_size_next_to_the_double_root():
    # (d + 2)/g crosses e between these two: the root falls to e, then every size splits.
    d = 8
    r = np.pi * d / 2 * (1 - math.exp(-(d + 2) / (math.e * d)))
    assert critical_size(r * (1 - 1e-9), d) == pytest.approx(math.e, rel=1e-3)
    assert critical_size(r * (1 + 1e-9), d) == 1


def test_gain_and_bound_are_infinite_when_the_cut_leaves_no_variance():
    assert split_gain_rate(4, 2) == math.inf
    assert critical_size(4, 2) == 1
    assert join_bound(4, 2) == math.inf


def test_join_bound_is_about_0_8_root_r_in_many_dimensions():
    assert join_bound(3, 10**6) == pytest.approx(math.sqrt(2 / math.pi) * math.sqrt(3), rel=1e-5)


def test_onset_with_the_edge_of_the_sample_spectrum():
    def predicted(n, d):
        return n / math.log(n) > (d + 2) / split_gain_rate((1 + math.sqrt(d / n)) ** 2, d)

    assert next(n for n in range(100, 700) if predicted(n, 64)) == 250
    assert all(predicted(n, 8) for n in range(2, 200))
    assert [n for n in range(2, 200) if not predicted(n, 16)] == list(range(6, 31))


@pytest.mark.parametrize(("r", "d"), [(0.9, 4), (math.nan, 4), (1, 0)])
@pytest.mark.parametrize("function", [split_gain_rate, critical_size, join_bound])
def test_impossible_arguments_are_refused(function, r, d):
    with pytest.raises(ValueError, match="expected"):
        function(r, d)


@pytest.mark.parametrize("shape", [(50, 4), (6, 30), (5, 5), (40, 1)])
def test_anisotropy_is_leading_over_mean_eigenvalue(shape):
    X = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1) + 7
    eigenvalues = np.linalg.eigvalsh(np.atleast_2d(np.cov(X.T)))
    assert anisotropy(X) == pytest.approx(eigenvalues[-1] / eigenvalues.mean(), rel=1e-10)


def test_anisotropy_at_its_ends():
    assert anisotropy(np.outer(np.arange(5.0), [1.0, 2.0, 3.0])) == pytest.approx(3)
    assert anisotropy(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])) == pytest.approx(1)
    assert anisotropy(np.full((7, 3), 0.1)) == 1
    assert anisotropy(np.ones((1, 3))) == 1


def test_anisotropy_refuses_no_table():
    with pytest.raises(ValueError, match="at least one row"):
        anisotropy(np.empty((0, 3)))
    with pytest.raises(ValueError, match="got shape"):
        anisotropy(np.ones(3))
