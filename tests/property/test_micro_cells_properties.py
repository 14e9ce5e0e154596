"""Micro-clusters keep the sums of the rows, whatever the rows are, and the order of sites plays no part."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.aggregation.micro.cells import MicroClusters, halve, micro_clusters, stack
from fedcluster_app.aggregation.micro.ward import supercells

SEEDS = st.integers(0, 10**6)
examples = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def tables(draw, least=1):
    """Rows (n, q): spread out, in a few places only, or with some rows far off."""
    rng = np.random.default_rng(draw(SEEDS))
    n, q = draw(st.integers(least, 120)), draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["spread", "places", "far"]))
    if kind == "places":
        return rng.integers(0, 3, (n, q)).astype(float)
    X = rng.normal(size=(n, q))
    if kind == "far":
        X[: n // 8] *= 1000.0
    return X + draw(st.sampled_from([0.0, 1e4]))


def _made(X, seed, min_rows, rows_per_cell=8, most=6):
    rng = np.random.default_rng(seed)
    halves = halve(len(X), rng, min_rows=min_rows)
    cells = micro_clusters(X, halves, rng, min_rows=min_rows, rows_per_cell=rows_per_cell, most=most)
    return halves, cells


def _uploads(seed, n_sites, q=2):
    """Micro-clusters by site name; a site may have none."""
    rng = np.random.default_rng(seed)
    found = {}
    for site in range(n_sites):
        k = rng.integers(1 if site == 0 else 0, 6)
        found[f"s{site}"] = MicroClusters(
            rng.integers(0, 2, k), rng.integers(5, 20, k) * 1.0, rng.normal(size=(k, q)), rng.random((k, q))
        )
    return found


@examples
@given(n=st.integers(0, 60), min_rows=st.integers(1, 12), seed=SEEDS)
def test_both_halves_have_enough_rows_or_one_has_them_all(n, min_rows, seed):
    sizes = np.bincount(halve(n, np.random.default_rng(seed), min_rows=min_rows), minlength=2)
    assert sizes.sum() == n
    if sizes[1]:
        assert sizes.min() >= min_rows
        assert sizes[0] - sizes[1] in (0, 1)
    else:
        assert n // 2 < min_rows


@examples
@given(X=tables(least=7), seed=SEEDS, min_rows=st.integers(1, 7), rows_per_cell=st.integers(1, 20))
def test_cells_keep_the_moments_of_the_rows_of_their_half(X, seed, min_rows, rows_per_cell):
    halves, made = _made(X, seed, min_rows, rows_per_cell)
    assert set(made.halves) == set(halves)
    assert made.counts.min() >= min_rows
    for half in np.unique(halves):
        mine, rows = made.halves == half, X[halves == half]
        counts, means = made.counts[mine], made.means[mine]
        assert len(counts) <= min(6, max(1, len(rows) // rows_per_cell))
        assert counts.sum() == len(rows)
        centre = counts @ means / len(rows)
        np.testing.assert_allclose(centre, rows.mean(axis=0), rtol=1e-10, atol=1e-10)
        spread = counts @ (made.variances[mine] + np.square(means - centre)) / len(rows)
        np.testing.assert_allclose(spread, rows.var(axis=0), rtol=1e-8, atol=1e-12)
        assert (means >= rows.min(axis=0) - 1e-9).all()
        assert (means <= rows.max(axis=0) + 1e-9).all()
    assert (made.variances >= 0).all()


@examples
@given(X=tables(least=14), seed=SEEDS, other=SEEDS)
def test_cells_of_one_half_know_nothing_of_the_rows_of_the_other(X, seed, other):
    halves, made = _made(X, seed, min_rows=5)
    for half in (0, 1):
        changed = X.copy()
        changed[halves != half] = np.random.default_rng(other).normal(size=(int((halves != half).sum()), 1))
        again = _made(changed, seed, min_rows=5)[1]
        np.testing.assert_array_equal(made.counts[made.halves == half], again.counts[again.halves == half])
        np.testing.assert_array_equal(made.means[made.halves == half], again.means[again.halves == half])


@examples
@given(X=tables(least=10), seed=SEEDS, power=st.integers(-8, 8))
def test_another_unit_gives_the_same_cells_in_that_unit(X, seed, power):
    # By powers of two there is no rounding.
    unit = 2.0**power
    a, b = _made(X, seed, min_rows=3)[1], _made(unit * X, seed, min_rows=3)[1]
    np.testing.assert_array_equal(a.counts, b.counts)
    np.testing.assert_array_equal(unit * a.means, b.means)
    np.testing.assert_array_equal(unit**2 * a.variances, b.variances)


@examples
@given(seed=SEEDS)
def test_rows_of_the_smallest_cell_go_to_the_nearest_one_first(seed):
    # 3 rows join the 4 next to them; were the 4 moved first, they would be with the 20, and the 3 after them.
    rng = np.random.default_rng(seed)
    places = np.repeat([0.0, 2000.0, 2100.0, 2205.0], [20, 20, 4, 3])
    X = (places + 1e-3 * rng.normal(size=47))[rng.permutation(47), None]
    made = micro_clusters(X, np.zeros(47, dtype=int), rng, min_rows=5, rows_per_cell=11, most=20)
    order = np.argsort(made.means[:, 0])
    np.testing.assert_array_equal(made.counts[order], [20, 20, 7])
    np.testing.assert_allclose(made.means[order, 0], [0, 2000, (4 * 2100 + 3 * 2205) / 7], atol=0.01)


@examples
@given(seed=SEEDS)
def test_a_cell_of_many_rows_holds_its_supercell_in_place(seed):
    # With equal masses the cell at 0.9 would stay with the one at 0, where one centre starts at 2.
    means, counts = np.array([[0.0], [0.9], [1.05], [2.0]]), np.array([1e6, 1, 1, 1])
    cells = stack({"a": MicroClusters(np.zeros(4, dtype=int), counts, means, np.ones((4, 1)))})
    groups = supercells(cells, 2, np.random.default_rng(seed))
    np.testing.assert_array_equal(groups[1:], 1 - groups[0])


@examples
@given(seed=SEEDS, n_sites=st.integers(1, 6))
def test_the_order_in_which_sites_arrive_changes_no_byte(seed, n_sites):
    uploads = _uploads(seed, n_sites)
    shuffled = [list(uploads)[i] for i in np.random.default_rng(seed).permutation(n_sites)]
    a, b = stack(uploads), stack({name: uploads[name] for name in shuffled})
    assert a.n_sites == b.n_sites == n_sites
    for name in ("sites", "halves", "counts", "means", "variances"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes()
    for number, name in enumerate(sorted(uploads)):
        np.testing.assert_array_equal(a.take(a.sites == number).means, uploads[name].means)


@examples
@given(seed=SEEDS, n_sites=st.integers(1, 6))
def test_the_covariance_of_all_rows_is_that_of_the_cells_in_any_order_and_place(seed, n_sites):
    cells = stack(_uploads(seed, n_sites))
    rng = np.random.default_rng(seed)
    total = cells.total_covariance()
    np.testing.assert_array_equal(total, total.T)
    assert np.linalg.eigvalsh(total).min() >= -1e-12
    np.testing.assert_allclose(
        cells.take(rng.permutation(cells.n_cells)).total_covariance(), total, atol=1e-12
    )
    both = [cells.take(cells.halves == half) for half in (0, 1)]
    assert sum(part.n_rows for part in both) == cells.n_rows
    within = sum(part.n_rows * part.within_variance() for part in both if part.n_cells)
    np.testing.assert_allclose(within / cells.n_rows, cells.within_variance(), rtol=1e-12)
    # Rows in plain sight: two for every row, one width above and one below along the first axis.
    width = np.sqrt(cells.variances[:, :1]) * [1.0, 0.0]
    rows = np.concatenate([cells.means + width, cells.means - width])
    seen = np.cov(rows.T, aweights=np.tile(cells.counts, 2), bias=True)
    seen[1, 1] += cells.within_variance()[1]
    np.testing.assert_allclose(total, seen, atol=1e-12)
