"""Offsets and gains of sites: found where they are, left alone where they are not, steps that are maxima."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.metrics import adjusted_rand_score

from fedcluster_app.aggregation import microcluster
from fedcluster_app.aggregation.micro.cells import MicroClusters, stack
from fedcluster_app.aggregation.micro.drift import (
    NOT_TOLD,
    _are_small,
    _joined,
    _result,
    _Verdict,
    align,
    find_drift,
    offset_widths,
)
from fedcluster_app.aggregation.micro.em import (
    Clusters,
    Shrinkage,
    fit,
    from_partition,
    log_joint,
    responsibilities,
)
from fedcluster_app.aggregation.micro.late import join
from fedcluster_app.aggregation.micro.offsets import (
    Alignment,
    OffsetState,
    _centred,
    _gain_step,
    expected_precisions,
    init,
    log_likelihoods,
    offset_step,
    remove,
    step,
)
from fedcluster_app.aggregation.micro.register import centre, lay_over, register
from fedcluster_app.aggregation.micro.sensors import OFFSETS, Found, Search, held_out, settle
from fedcluster_app.mixtures.densities import log_densities
from fedcluster_app.mixtures.mixture import Mixture

KS = (1, 4, 5, 6, 8)


def family(sites, clusters, held, *, shift=0.0, scale=0.0, d=5, rows=60, seed=0):
    """Sites that hold some of the clusters, each with sensors of its own: rows, classes, offsets, gains."""
    rng = np.random.default_rng([seed, sites, clusters])
    centres = rng.normal(size=(clusters, d)) * 5
    shapes = [np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(0.6, 1.4, d) for _ in range(clusters)]
    offsets = shift * rng.normal(size=(sites, d))
    offsets -= offsets.mean(axis=0)
    logs = scale * rng.normal(size=(sites, d))
    gains = np.exp(logs - logs.mean(axis=0))
    tables, classes = [], []
    for g in range(sites):
        mine = np.concatenate([[g % clusters], rng.permutation(clusters)[: rng.integers(*held)]])
        labels = np.concatenate([np.full(rows, k) for k in np.unique(mine)])
        x = np.concatenate([centres[k] + rng.normal(size=(rows, d)) @ shapes[k].T for k in np.unique(mine)])
        tables.append(offsets[g] + gains[g] * x)
        classes.append(labels)
    return tables, classes, Alignment(offsets, gains)


def cells_of(tables, seed=1):
    uploads = {}
    for g, X in enumerate(tables):
        rng = np.random.default_rng([seed, g])
        halves = microcluster.halve(len(X), rng, min_rows=5)
        uploads[f"s{g:02d}"] = microcluster.micro_clusters(
            X, halves, rng, min_rows=5, rows_per_cell=10, most=20
        )
    return uploads


def agreement(tables, classes, alignment, clusters):
    found = []
    for g, X in enumerate(tables):
        mixture = Mixture(clusters.global_weights, clusters.means, clusters.covariances)
        x = (X - alignment.offsets[g]) / alignment.gains[g]
        found.append((log_densities(x, mixture) + np.log(clusters.weights[g])).argmax(axis=1))
    return adjusted_rand_score(np.concatenate(classes), np.concatenate(found))


def ari(tables, classes, drift):
    uploads = cells_of(tables)
    on = Alignment(drift.offsets, drift.gains)
    cells = remove(stack(uploads), on)
    freed = {
        name: replace(
            upload, means=cells.means[cells.sites == g], variances=cells.variances[cells.sites == g]
        )
        for g, (name, upload) in enumerate(sorted(uploads.items()))
    }
    state = microcluster.step(microcluster.init(), freed)
    assembly = microcluster.finish(state, microcluster.Settings(k_rule="median"), np.random.default_rng(0))
    return agreement(tables, classes, on, assembly.clusters)


FAMILIES = {
    "few": {"sites": 6, "clusters": 5, "held": (2, 6), "d": 4, "rows": 50},
    "rich": {"sites": 8, "clusters": 6, "held": (3, 6), "d": 4, "rows": 40},
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_offsets_are_found_where_they_are_and_only_there(name, shift):
    tables, classes, truth = family(**FAMILIES[name], shift=shift)
    drift = find_drift(stack(cells_of(tables)), np.random.default_rng(0), ks=KS)
    assert drift.on == (shift > 0)
    assert ari(tables, classes, drift) > 0.85
    if shift:
        assert np.sqrt(np.square(drift.offsets - truth.offsets).mean()) < 0.2
        assert drift.held_out_gain > drift.standard_error > 0
        assert "offsets of sites: on (BIC better by" in drift.words[0]
        assert "widths of a cluster are taken out" in drift.words[1]
    else:
        assert not drift.offsets.any()
        assert "offsets of sites: off (BIC" in drift.words[0]
    # Sites that share clusters in pairs can be told from sites of other classes.
    assert NOT_TOLD not in drift.words


def test_where_sites_are_not_joined_people_are_told_what_nobody_can_tell():
    verdict = _Verdict(True, 90.0, 12.0, 3.0, joined=0.5)
    none = Alignment(np.zeros((2, 3)), np.ones((2, 3)))
    said = _result(verdict, none, "zero").words
    assert said[-2].startswith("only 50% of the sites are joined")
    assert said[-1] == NOT_TOLD
    assert NOT_TOLD not in _result(replace(verdict, joined=1.0), none, "zero").words


@pytest.mark.parametrize(("gain", "said"), [(90.0, "BIC better by 90"), (-90.0, "BIC worse by 90")])
def test_a_bic_that_is_worse_is_said_to_be(gain, said):
    none = Alignment(np.zeros((2, 3)), np.ones((2, 3)))
    words = _result(_Verdict(False, gain), none, "zero").words
    assert words == (f"offsets of sites: off ({said})",)


def test_widths_are_root_mean_squares_over_the_axes():
    covariances = np.array([np.diag([4.0, 1.0]), np.diag([16.0, 1.0])])
    clusters = Clusters(np.full((2, 2), 0.5), np.zeros((2, 2)), covariances, np.ones(2))
    # Variances of 10 and 1 on the average.
    found = offset_widths(np.array([[0.0, 0.0], [np.sqrt(10.0), 7.0]]), clusters)
    np.testing.assert_allclose(found, [0.0, 5.0])


@pytest.mark.parametrize("scale", [0.15, 0.3])
def test_gains_are_found_where_they_are(scale):
    tables, classes, truth = family(5, 4, (3, 5), shift=1.0, scale=scale, d=3)
    cells = stack(cells_of(tables))
    drift = find_drift(cells, np.random.default_rng(0), gains=True, ks=(3, 4, 5))
    assert drift.on
    logs = np.log(drift.gains) - np.log(truth.gains)
    assert np.sqrt(np.square(logs).mean()) < scale / 3
    assert ari(tables, classes, drift) > 0.85
    assert drift.words[0].startswith("offsets and gains of sites: on")
    assert "gains of" in drift.words[1]


def test_gains_are_left_alone_where_there_are_none():
    tables, _, _ = family(**FAMILIES["few"])
    drift = find_drift(stack(cells_of(tables)), np.random.default_rng(0), gains=True, ks=(4, 5, 6))
    assert not drift.on
    np.testing.assert_array_equal(drift.gains, 1.0)


def test_a_class_to_each_site_is_no_offset():
    rng = np.random.default_rng(0)
    tables = [10 * rng.normal(size=4) + rng.normal(size=(200, 4)) for _ in range(5)]
    assert not find_drift(stack(cells_of(tables)), rng, ks=KS).on


def test_joined_by_hand():
    pairs = [[0.5, 0.5, 0, 0], [0.3, 0.3, 0.4, 0], [0, 0.5, 0.5, 0], [0, 0.03, 0.47, 0.5]]
    # The first two share a pair, the second and third too; the last has too little of the second cluster.
    assert _joined(np.array(pairs)) == 0.75
    assert _joined(np.eye(3)) == pytest.approx(1 / 3)
    assert _joined(np.full((3, 2), 0.5)) == 1.0


def test_small_is_under_half_the_distance_of_clusters():
    cells, state, _ = _state()
    there = np.unique(cells.sites)
    clusters = replace(state.clusters, means=10 * np.eye(3), covariances=np.tile(4 * np.eye(3), (3, 1, 1)))
    half = 10 * np.sqrt(2) / 2 * np.eye(3)[[0, 1, 2, 0]]
    for factor, expected in ((0.99, True), (1.01, False)):
        alignment = Alignment(factor * half, np.ones((4, 3)))
        assert _are_small(replace(state, clusters=clusters, alignment=alignment), there) == expected


def test_a_site_of_one_half_is_not_held_out():
    cells, state, _ = _state()
    cells = cells.take((cells.sites != 2) | (cells.halves == 0))
    found = held_out(cells, OFFSETS, Found(0.0, state, "here"), Search([2, 3], np.random.default_rng(0)))
    assert found.log_likelihood[2] == 0
    assert (found.log_likelihood[[0, 1, 3]] < 0).all()


def test_settling_takes_the_number_it_is_told_and_the_better_start():
    cells, state, _ = _state()
    none = Alignment(0 * state.alignment.offsets, np.ones_like(state.alignment.gains))
    found = Found(np.inf, state, "here")
    again = settle(cells, {"zero": none}, Search([4], np.random.default_rng(0), 5), OFFSETS, found)
    assert again.state.clusters.k == 4
    assert np.isfinite(again.bic)
    worse = replace(none, offsets=none.offsets + 100 * np.arange(4)[:, None])
    assert (
        settle(cells, {"far": worse}, Search([4], np.random.default_rng(0), 5), OFFSETS, found).start
        == "here"
    )


def test_there_is_nothing_to_compare_with_one_site():
    tables, _, _ = family(1, 3, (2, 3))
    drift = find_drift(stack(cells_of(tables)), np.random.default_rng(0))
    assert not drift.on
    assert "too few sites" in drift.words[0]


# --- the steps


def _state(seed=0, gains=False):
    tables, _, _ = family(4, 3, (2, 4), shift=0.5, scale=0.2 if gains else 0.0, d=3, seed=seed)
    cells = stack(cells_of(tables))
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=cells.n_cells)
    shape = (cells.n_sites, cells.n_features)
    scale = np.exp(0.2 * rng.normal(size=shape)) if gains else np.ones(shape)
    start = Alignment(rng.normal(size=shape) * 0.2, scale)
    shrinkage = Shrinkage.of(cells)
    return cells, init(cells, from_partition(remove(cells, start), labels, shrinkage), start), shrinkage


def _expected(cells, alignment, clusters, R, prior):
    """Expected log-likelihood of every site and log-prior of its offset, up to a constant."""
    joint = log_joint(remove(cells, alignment), clusters)
    rows = cells.counts * ((R * joint).sum(axis=1) - np.log(alignment.gains).sum(axis=1)[cells.sites])
    sums = np.bincount(cells.sites, weights=rows, minlength=cells.n_sites)
    return sums - (np.square(alignment.offsets) / prior).sum(axis=1) / 2


@pytest.mark.parametrize("gains", [False, True])
def test_the_offset_step_is_the_maximum(gains):
    cells, state, _ = _state(gains=gains)
    R = responsibilities(remove(cells, state.alignment), state.clusters)
    scale = state.alignment.gains
    offsets, _, log_determinants = offset_step(
        cells, scale, state.prior, *expected_precisions(R, state.clusters)
    )

    def value(b):
        return _expected(cells, Alignment(b, scale), state.clusters, R, state.prior)

    step_size = 1e-3
    hessians = np.zeros((4, 3, 3))
    for i in range(3):
        e = step_size * np.eye(3)[i]
        np.testing.assert_allclose((value(offsets + e) - value(offsets - e)) / (2 * step_size), 0, atol=1e-4)
        for j in range(3):
            f = step_size * np.eye(3)[j]
            hessians[:, i, j] = (
                value(offsets + e + f)
                - value(offsets + e - f)
                - value(offsets - e + f)
                + value(offsets - e - f)
            ) / (4 * step_size**2)
    np.testing.assert_allclose(log_determinants, -np.linalg.slogdet(-hessians)[1], rtol=1e-4)


def test_each_axis_of_the_gain_step_is_a_maximum():
    cells, state, _ = _state(gains=True)
    R = responsibilities(remove(cells, state.alignment), state.clusters)
    offsets, before = state.alignment.offsets, state.alignment.gains
    after = _gain_step(cells, offsets, before, *expected_precisions(R, state.clusters))

    def value(gains):
        return _expected(cells, Alignment(offsets, gains), state.clusters, R, state.prior)

    # The last axis is set while all others are as they will be.
    for g in range(cells.n_sites):

        def loss(log_gain, g=g):
            gains = after.copy()
            gains[g, -1] = np.exp(log_gain)
            return -value(gains)[g]

        best = minimize_scalar(loss, bounds=(-2, 2), method="bounded", options={"xatol": 1e-9})
        assert np.log(after[g, -1]) == pytest.approx(best.x, abs=1e-5)
    assert (value(after) >= value(before)).all()


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_offsets_sum_to_nothing_and_so_do_logs_of_gains(seed):
    cells, state, shrinkage = _state(seed, gains=True)
    for _ in range(3):
        state = step(state, cells, shrinkage, with_gains=True)
    np.testing.assert_allclose(state.alignment.offsets.sum(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(np.log(state.alignment.gains).sum(axis=0), 0, atol=1e-10)


def test_what_sites_have_in_common_is_given_to_the_clusters():
    cells, state, _ = _state()
    same = Alignment(np.tile([1.0, 2.0, 3.0], (4, 1)), np.full((4, 3), 1.5))
    moved = OffsetState(state.clusters, same, state.prior, state.log_determinants)
    centred = _centred(moved)
    np.testing.assert_allclose(centred.alignment.offsets, 0, atol=1e-12)
    np.testing.assert_allclose(centred.alignment.gains, 1)
    np.testing.assert_allclose(log_likelihoods(cells, centred), log_likelihoods(cells, moved), rtol=1e-10)


def test_without_room_for_offsets_the_model_is_the_plain_one():
    cells, state, shrinkage = _state()
    labels = np.arange(cells.n_cells) % 3
    start = from_partition(cells, labels, shrinkage)
    none = Alignment(0 * state.alignment.offsets, np.ones_like(state.alignment.gains))
    plain = fit(cells, start, shrinkage, max_iter=10, tol=0.0)
    narrow = init(cells, start, none)
    for _ in range(10):
        narrow = step(replace(narrow, prior=np.full(3, 1e-16)), cells, shrinkage, with_gains=False)
    np.testing.assert_allclose(narrow.alignment.offsets, 0, atol=1e-6)
    np.testing.assert_allclose(narrow.clusters.means, plain.clusters.means, atol=1e-6)


def test_a_common_translation_changes_nothing():
    cells, state, shrinkage = _state()
    far = np.array([1.0, -2.0, 3.0])
    moved_cells = replace(cells, means=cells.means + far)
    moved = replace(state, clusters=replace(state.clusters, means=state.clusters.means + far))
    for _ in range(4):
        state = step(state, cells, shrinkage, with_gains=False)
        moved = step(moved, moved_cells, shrinkage, with_gains=False)
    np.testing.assert_allclose(moved.alignment.offsets, state.alignment.offsets, atol=1e-10)
    np.testing.assert_allclose(moved.clusters.means, state.clusters.means + far, atol=1e-10)
    np.testing.assert_allclose(log_likelihoods(moved_cells, moved), log_likelihoods(cells, state), rtol=1e-9)


# --- starts


def test_centre_by_hand():
    upload = MicroClusters(
        np.zeros(2, int), np.array([10.0, 30.0]), np.array([[0.0], [4.0]]), np.ones((2, 1))
    )
    other = replace(upload, means=upload.means + 8)
    np.testing.assert_allclose(centre(stack({"a": upload, "b": other})), [[-4.0], [4.0]])


@pytest.mark.parametrize("shift", [1.0, 4.0])
def test_sites_are_laid_over_each_other(shift):
    tables, _, truth = family(6, 5, (3, 5), shift=shift)
    found = register(stack(cells_of(tables)), np.random.default_rng(0))
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-9)
    assert np.sqrt(np.square(found - truth.offsets).mean()) < 0.5


def test_a_copy_is_laid_exactly_over_the_original():
    tables, _, _ = family(1, 4, (4, 5))
    upload = cells_of(tables)["s00"]
    far = np.array([3.0, -2.0, 0.5, 8.0, 1.0])
    cells = stack({"a": upload, "b": replace(upload, means=upload.means + far)})
    overlap, offset = lay_over(cells, 1, cells.sites == 0, np.zeros((2, 5)), 0.5, np.random.default_rng(0))
    np.testing.assert_allclose(offset, far, atol=0.01)
    assert (
        overlap
        > lay_over(cells, 1, cells.sites == 0, np.full((2, 5), 90.0), 1e-3, np.random.default_rng(0))[0]
    )


# --- sites that come later


def test_a_new_site_finds_its_offset_and_its_weights():
    tables, classes, truth = family(6, 5, (3, 5), shift=2.0, d=4, rows=50)
    uploads = cells_of(tables)
    cells = stack(uploads)
    drift = find_drift(cells, np.random.default_rng(0), ks=KS)
    aligned = align(cells, drift)
    shrinkage = Shrinkage.of(aligned)
    labels = np.square(aligned.means[:, None] - _centres(tables, classes, truth)).sum(axis=2).argmin(axis=1)
    clusters = fit(aligned, from_partition(aligned, labels, shrinkage), shrinkage).clusters
    new = np.arange(6) == 4
    blank = Alignment(np.where(new[:, None], 0.0, drift.offsets), drift.gains)
    start = replace(clusters, weights=np.where(new[:, None], clusters.global_weights, clusters.weights))
    weights, alignment = join(cells, start, new, blank, np.random.default_rng(0))
    np.testing.assert_allclose(alignment.offsets[4], drift.offsets[4], atol=0.35)
    np.testing.assert_array_equal(alignment.offsets[~new], drift.offsets[~new])
    np.testing.assert_array_equal(weights[~new], clusters.weights[~new])
    np.testing.assert_allclose(weights[4], clusters.weights[4], atol=0.05)


def _centres(tables, classes, truth):
    rows = np.concatenate([(X - b) / a for X, b, a in zip(tables, truth.offsets, truth.gains, strict=True)])
    labels = np.concatenate(classes)
    return np.array([rows[labels == k].mean(axis=0) for k in np.unique(labels)])
