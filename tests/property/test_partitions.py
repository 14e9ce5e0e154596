from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.errors import DataError
from simulations.partitions import Regime, by_site, dirichlet, iid, regime_a, regime_b, stratified_split

Deal = Callable[[np.ndarray, int, np.random.Generator], list[np.ndarray]]

DEALS: dict[str, Deal] = {
    "iid": lambda labels, sites, rng: iid(len(labels), sites, rng),
    "dirichlet-0.001": lambda labels, sites, rng: dirichlet(labels, sites, 1e-3, rng),
    "dirichlet-0.5": lambda labels, sites, rng: dirichlet(labels, sites, 0.5, rng),
    "dirichlet-1e6": lambda labels, sites, rng: dirichlet(labels, sites, 1e6, rng),
}
labelled = st.lists(st.integers(-2, 4), max_size=80).map(lambda values: np.array(values, dtype=np.int64))
seeds = st.integers(0, 2**32 - 1)
steady = settings(deadline=None, derandomize=True, max_examples=60)


def blocks(seed: int) -> tuple[np.ndarray, int, int, int]:
    """Labels of unequal classes in random order, and settings that can cover them."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 7))
    labels = rng.permutation(np.repeat(np.arange(classes) * 3, rng.integers(5, 60, size=classes)))
    k_min = int(rng.integers(1, classes + 1))
    return labels, int(rng.integers(4, 12)), k_min, classes


@pytest.mark.parametrize("name", DEALS)
@given(labels=labelled, sites=st.integers(1, 9), seed=seeds)
@steady
def test_every_row_is_dealt_exactly_once(name: str, labels: np.ndarray, sites: int, seed: int) -> None:
    parts = DEALS[name](labels, sites, np.random.default_rng(seed))
    assert len(parts) == sites
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert all((np.diff(part) > 0).all() and part.dtype == np.int64 for part in parts)
    again = DEALS[name](labels, sites, np.random.default_rng(seed))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@given(n=st.integers(0, 60), sites=st.integers(1, 9), seed=seeds)
@steady
def test_iid_sizes_differ_by_one_at_most(n: int, sites: int, seed: int) -> None:
    sizes = [len(part) for part in iid(n, sites, np.random.default_rng(seed))]
    assert max(sizes) - min(sizes) <= 1


def test_dirichlet_shares_have_the_mean_and_variance_of_the_law() -> None:
    labels, rng = np.repeat(np.arange(400), 200), np.random.default_rng(0)
    parts = dirichlet(labels, 4, 0.5, rng)
    shares = np.array([np.bincount(labels[part], minlength=400) for part in parts]) / 200
    np.testing.assert_allclose(shares.mean(axis=1), 0.25, atol=0.06)  # standard error 0.0125
    # Variance m (1 - m) / (1 + sum of concentrations), with mean m = 1/4.
    assert shares.var() == pytest.approx(0.25 * 0.75 / 3.0, rel=0.15)


def test_by_site_orders_parts_by_number() -> None:
    parts = by_site(np.array([5, 1, 5, 3]))
    assert [part.tolist() for part in parts] == [[1], [3], [0, 2]]


@given(labels=labelled, seed=seeds)
@steady
def test_stratified_split_takes_a_fifth_of_each_class(labels: np.ndarray, seed: int) -> None:
    train, test = stratified_split(labels, np.random.default_rng(seed))
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(labels)))
    for label in np.unique(labels):
        share = np.count_nonzero(labels[test] == label) - np.count_nonzero(labels == label) / 5
        assert abs(share) <= 0.5


def covered(regime: Regime, labels: np.ndarray, k_min: int, k_max: int) -> None:
    assert {label for held in regime.classes for label in held} == set(labels.tolist())
    for held, train, test in zip(regime.classes, regime.train, regime.test, strict=True):
        assert k_min <= len(held) <= k_max
        assert len(set(held)) == len(held)
        assert set(labels[train]) <= set(held)
        assert set(labels[test]) <= set(held)
        assert (np.diff(train) > 0).all()
        assert (np.diff(test) > 0).all()


@given(seed=seeds)
@steady
def test_regime_a_deals_every_class_evenly_to_its_holders(seed: int) -> None:
    labels, sites, k_min, k_max = blocks(seed)
    regime = regime_a(labels, sites, np.random.default_rng(seed), k_min=k_min, k_max=k_max)
    covered(regime, labels, k_min, k_max)
    everything = np.sort(np.concatenate(regime.train + regime.test))
    np.testing.assert_array_equal(everything, np.arange(len(labels)))
    for parts in (regime.train, regime.test):
        for label in np.unique(labels):
            counts = [
                np.count_nonzero(labels[part] == label)
                for part, held in zip(parts, regime.classes, strict=True)
                if label in held
            ]
            assert max(counts) - min(counts) <= 1


@given(seed=seeds)
@steady
def test_regime_b_has_the_classes_of_regime_a_and_free_sizes(seed: int) -> None:
    labels, sites, k_min, k_max = blocks(seed)
    a = regime_a(labels, sites, np.random.default_rng(seed), k_min=k_min, k_max=k_max)
    b = regime_b(labels, sites, np.random.default_rng(seed), k_min=k_min, k_max=k_max)
    covered(b, labels, k_min, k_max)
    assert b.classes == a.classes
    assert not set(np.concatenate(b.train)) & set(np.concatenate(b.test))
    for parts, like in ((b.train, a.train), (b.test, a.test)):
        median = np.median([len(part) for part in like])
        for part, held in zip(parts, b.classes, strict=True):
            counts = np.array([np.count_nonzero(labels[part] == label) for label in held])
            pools = np.array([np.count_nonzero(labels[np.concatenate(like)] == label) for label in held])
            assert len(part) <= 2.0 * median + 0.5
            free = counts < pools  # classes that were not drawn to the last row
            if free.any():
                assert np.ptp(counts[free]) <= 1
            if free.all():
                assert len(part) >= 0.5 * median - 0.5


def test_regime_b_sizes_spread_over_half_to_twice_the_median() -> None:
    labels = np.repeat(np.arange(5), 2000)
    a = regime_a(labels, 60, np.random.default_rng(3), k_min=2, k_max=4)
    b = regime_b(labels, 60, np.random.default_rng(3), k_min=2, k_max=4)
    ratios = np.array([len(part) for part in b.train]) / np.median([len(part) for part in a.train])
    assert 0.49 < ratios.min() < 0.7
    assert 1.8 < ratios.max() < 2.01
    assert np.mean(ratios) == pytest.approx(1.25, abs=0.2)
    in_test = np.array([len(part) for part in b.test]) / np.median([len(part) for part in a.test])
    np.testing.assert_allclose(in_test, ratios, atol=0.02)  # one factor for both parts


@pytest.mark.parametrize(("k_min", "k_max"), [(0, 2), (3, 2), (2, 5)])
def test_a_range_that_does_not_fit_the_classes(k_min: int, k_max: int) -> None:
    labels = np.repeat(np.arange(4), 5)
    with pytest.raises(DataError, match="expected 1 <= k-min <= k-max <= 4"):
        regime_a(labels, 3, np.random.default_rng(0), k_min=k_min, k_max=k_max)


def test_sites_that_could_hardly_cover_the_classes() -> None:
    with pytest.raises(DataError, match="6 sites with 1 to 2 classes each do not cover 12 classes"):
        regime_a(np.arange(12), 6, np.random.default_rng(0), k_min=1, k_max=2)


def test_too_few_sites_for_the_classes() -> None:
    with pytest.raises(DataError, match="2 sites with 1 to 2 classes each do not cover 6 classes"):
        regime_a(np.arange(6), 2, np.random.default_rng(0), k_min=1, k_max=2)
