from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.cardinality import count_asm, count_oracle, selection
from fedcluster_app.cardinality.asm import ALPHAS, MIN_MASSES, asm_cells, fit_cells
from fedcluster_app.cardinality.count import Candidate, Rows
from fedcluster_app.cardinality.selection import floor_of, hold_out
from fedcluster_app.cardinality.tree import Moments
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.mixtures.densities import log_joint


def blobs(seed, centers, n=60):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(center, 1.0, size=(n, len(center))) for center in centers])


def select(train, held_out, alphas=ALPHAS, min_masses=MIN_MASSES):
    """The selection of ASM, with the cell that won."""
    cells = asm_cells(alphas, min_masses)
    best = selection.select(Rows(train), Rows(held_out), cells, lambda rows, cells: fit_cells(rows.X, cells))
    return best, best.candidate.chosen


def test_a_fifth_is_held_out_and_every_row_used_once():
    train, held_out = hold_out(103, np.random.default_rng(0))
    assert (len(train), len(held_out)) == (82, 21)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, held_out])), np.arange(103))


def test_a_large_table_is_represented_by_30000_rows():
    train, held_out = hold_out(100_000, np.random.default_rng(0))
    assert (len(train), len(held_out)) == (24_000, 6_000)
    assert len(np.unique(np.concatenate([train, held_out]))) == 30_000
    assert max(train.max(), held_out.max()) > 90_000


def test_selection_finds_separated_blobs():
    rng = np.random.default_rng(0)
    X = rng.permutation(blobs(0, [(0, 0, 0), (9, 0, 0), (0, 9, 0)]))
    best, _ = select(X[30:], X[:30])
    assert len(best.candidate.components.counts) == 3
    assert best.scores.shape == best.counts.shape == (36,)
    assert best.score == best.scores.max() > 0.5


def test_equal_scores_prefer_fewer_components_then_larger_alpha_then_larger_mass():
    rng = np.random.default_rng(0)
    X = rng.permutation(blobs(0, [(0, 0, 0), (30, 0, 0)]))
    # Both alphas and both masses give the two blobs.
    best, chosen = select(X[30:], X[:30], alphas=[2.0, 2.5], min_masses=[20, 25])
    np.testing.assert_array_equal(best.scores, best.scores[0])
    assert chosen == {"alpha": 2.5, "min_mass": 25}


def test_fewest_components_win_when_nothing_is_scored():
    # The held-out rows are all in one of the blobs.
    X = blobs(0, [(0, 0, 0), (30, 0, 0)])
    best, chosen = select(X[10:], X[:10], alphas=[2.0], min_masses=[30, 70])
    np.testing.assert_array_equal(best.counts, [1, 2])
    np.testing.assert_array_equal(best.scores, -1)
    assert (len(best.candidate.components.counts), chosen["min_mass"]) == (1, 70)


def test_cells_finer_than_half_of_the_held_out_rows_are_not_scored():
    X = np.random.default_rng(0).permutation(blobs(0, [(0, 0), (30, 0), (0, 30), (30, 30)]))
    (seven, _), (eight, _) = (select(X[8:], X[:held], alphas=[2.0], min_masses=[40]) for held in (7, 8))
    assert seven.counts == eight.counts == [4]
    assert seven.score == -1
    assert eight.score > 0.3
    # Two components are always worth a score.
    pair = np.random.default_rng(0).permutation(blobs(0, [(0, 0), (30, 0)]))
    best, _ = select(pair[3:], pair[:3], alphas=[2.0], min_masses=[40])
    assert best.counts == [2]
    assert best.score > 0


def test_only_the_first_2000_held_out_rows_are_scored(monkeypatch):
    monkeypatch.setattr(selection, "MOST_SCORED", 20)
    X = np.random.default_rng(0).permutation(blobs(0, [(0, 0, 0), (9, 0, 0)], n=100))
    assert select(X[60:], X[:60])[0].score == select(X[60:], X[:20])[0].score


def test_labels_take_weights_and_variances_into_account():
    wide = Moments(np.array([90.0, 10.0]), np.array([[0.0], [4.0]]), np.array([4.0, 0.01]))
    rows = np.array([[0.0], [3.0], [4.0]])
    labels = log_joint(rows, Candidate({}, wide).mixture(1e-12)).argmax(axis=1)
    np.testing.assert_array_equal(labels, [0, 0, 1])
    nearest = log_joint(rows, Candidate({}, wide, nearest=True).mixture(1e-12)).argmax(axis=1)
    np.testing.assert_array_equal(nearest, [0, 1, 1])


def test_components_without_spread_get_the_floor():
    atoms = Moments(np.array([1.0, 3.0]), np.array([[0.0], [4.0]]), np.zeros(2))
    for nearest in (False, True):
        np.testing.assert_array_equal(Candidate({}, atoms, nearest).mixture(3e-12).covariances, 3e-12)
    np.testing.assert_allclose(floor_of(np.array([[0.0, 3.0], [2.0, 3.0]])), 0.5e-12)
    assert floor_of(np.full((7, 2), 0.1)) == 1e-12


@pytest.mark.parametrize(
    ("n", "status"), [(1, "few rows"), (2, "few rows"), (12, "few rows"), (13, "unscored"), (200, "unscored")]
)
def test_constant_tables_have_one_component(n, status):
    count = count_asm(np.full((n, 2), 0.1), np.random.default_rng(0))
    assert (count.k, count.status) == (1, status)
    np.testing.assert_array_equal(count.means, [[0.1, 0.1]])
    np.testing.assert_array_equal(count.variances, [0.0])


def test_few_rows_take_largest_alpha_and_smallest_mass():
    count = count_asm(
        blobs(0, [(0, 0), (30, 0)], n=6), np.random.default_rng(0), alphas=[3, 1], min_masses=[9, 5]
    )
    assert (count.k, count.chosen, count.status) == (2, {"alpha": 3, "min_mass": 5}, "few rows")
    assert np.isnan(count.silhouette)


def test_two_rows_have_one_component_with_their_variance():
    count = count_asm(np.array([[0.0, 1.0], [2.0, 1.0]]), np.random.default_rng(0))
    assert (count.k, count.weights.tolist(), count.means.tolist()) == (1, [1.0], [[1.0, 1.0]])
    assert count.variances.tolist() == [0.5]


def test_grid_of_one_cell_is_fitted_to_all_rows_and_draws_nothing():
    X = blobs(0, [(0, 0, 0), (30, 0, 0)], n=50)
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    count = count_asm(X, rng, alphas=[2.0], min_masses=[20])
    assert rng.bit_generator.state == before
    assert (count.k, count.status) == (2, "fixed")
    means = count.means[np.argsort(count.means[:, 0])]
    np.testing.assert_allclose(means, [X[:50].mean(axis=0), X[50:].mean(axis=0)], atol=1e-12)
    np.testing.assert_array_equal(count.weights, 0.5)


def test_moments_are_in_the_units_of_the_table():
    X = 1000 * blobs(0, [(0, 0, 0), (30, 0, 0)], n=100) + 5e5
    count = count_asm(X, np.random.default_rng(0))
    assert count.k == 2
    np.testing.assert_allclose(count.variances, 1e6, rtol=0.2)
    np.testing.assert_allclose(np.sort(count.means[:, 0]), [5e5, 5.3e5], atol=500)
    assert count.weights.sum() == pytest.approx(1)


def test_same_seed_same_bytes_and_other_seed_other_split():
    X = np.random.default_rng(0).normal(size=(300, 4))
    first, again, other = (count_asm(X, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.means.tobytes() == again.means.tobytes()
    assert first.silhouette == again.silhouette != other.silhouette


@pytest.mark.parametrize(
    "bad",
    [
        {"alphas": [0.0]},
        {"alphas": [np.inf]},
        {"alphas": [1.0, np.nan]},
        {"alphas": []},
        {"alphas": ["2"]},
        {"min_masses": [0.5]},
        {"min_masses": [np.inf]},
        {"min_masses": []},
        {"delta": -1.0},
        {"delta": np.inf},
        {"em_steps": 0},
        {"em_steps": 1.5},
        {"order": "first"},
    ],
)
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError, match="expected"):
        count_asm(np.zeros((20, 2)), np.random.default_rng(0), **bad)


def test_empty_table_is_refused():
    with pytest.raises(DataError, match="at least one row"):
        count_asm(np.empty((0, 4)), np.random.default_rng(0))


@pytest.mark.parametrize("labels", [[3, 1, 3, 3], ["b", "a", "b", "b"]])
def test_oracle_has_one_component_per_label(labels):
    X = np.array([[0.0, 0.0], [5.0, 5.0], [2.0, 0.0], [4.0, 3.0]])
    count = count_oracle(X, np.array(labels))
    assert (count.k, count.chosen, count.status) == (2, {}, "oracle")
    np.testing.assert_array_equal(count.weights, [0.25, 0.75])
    np.testing.assert_allclose(count.means, [[5, 5], [2, 1]])
    np.testing.assert_allclose(count.variances, [0, (4 + 0 + 4 + 1 + 1 + 4) / 6])


def test_oracle_variance_of_equal_rows_is_zero():
    assert count_oracle(np.full((3, 2), 0.1), np.zeros(3, dtype=int)).variances == [0.0]


@pytest.mark.parametrize(("X", "labels"), [(np.empty((0, 2)), np.empty(0)), (np.ones((3, 2)), np.ones(2))])
def test_oracle_needs_one_label_per_row(X, labels):
    with pytest.raises(DataError, match="one label for each row"):
        count_oracle(X, labels)
