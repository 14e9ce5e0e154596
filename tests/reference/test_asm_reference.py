"""ASM-S against a naive version: SciPy densities, a fresh fit per cell, all pairs searched at every merge."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.metrics import silhouette_score
from sklearn.mixture import GaussianMixture

from fedcluster_app.cardinality.asm import asm_cells, fit_cells
from fedcluster_app.cardinality.count import Rows
from fedcluster_app.cardinality.merge import merge_path
from fedcluster_app.cardinality.selection import select
from fedcluster_app.cardinality.split import split_component
from fedcluster_app.cardinality.tree import Moments, split_tree


def log_density(X, mean, variance):
    return norm.logpdf(X, mean, np.sqrt(variance)).sum(axis=1)


def naive_split(X, delta, steps):
    """Rows of child 1 (either child may come first), soft mass of the lighter child; None if final."""
    n, d = X.shape
    mean = X.mean(axis=0)
    variance = ((X - mean) ** 2).sum() / (n * d)
    eigenvalues, vectors = np.linalg.eigh((X - mean).T @ (X - mean) / n)
    start = delta * np.sqrt(eigenvalues[-1]) * vectors[:, -1]
    means, variances, weights = [mean + start, mean - start], [variance] * 2, [0.5, 0.5]

    def joint():
        parts = zip(weights, means, variances, strict=True)
        return np.stack([np.log(w) + log_density(X, m, v) for w, m, v in parts], axis=1)

    for _ in range(steps):
        log_joint = joint()
        R = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
        masses = R.sum(axis=0)
        if masses.min() < 1e-9 * n:
            return None
        means = [R[:, j] @ X / masses[j] for j in range(2)]
        variances = [
            max((R[:, j] @ ((X - means[j]) ** 2).sum(axis=1)) / masses[j] / d, 1e-12 * variance)
            for j in range(2)
        ]
        weights = masses / n
    gain = sum((R[:, j] * log_density(X, means[j], variances[j])).sum() for j in range(2))
    gain -= log_density(X, mean, variance).sum()
    final = joint()
    first = final[:, 0] > final[:, 1]
    if gain <= (d + 2) / 2 * np.log(n) or first.all() or not first.any():
        return None
    return first, masses.min()


def naive_leaves(X, rows, min_mass, delta=1.0, steps=15):
    """Row sets of the leaves."""
    if len(rows) < 2 * min_mass or (X[rows] == X[rows[0]]).all():
        return [frozenset(rows.tolist())]
    split = naive_split(X[rows], delta, steps)
    if split is None or split[1] < min_mass:
        return [frozenset(rows.tolist())]
    first, _ = split
    return naive_leaves(X, rows[first], min_mass, delta, steps) + naive_leaves(
        X, rows[~first], min_mass, delta, steps
    )


def naive_merge(leaves, alpha, order):
    """Survivors as (count, mean, variance), searching all pairs at every step."""
    parts = list(zip(leaves.counts, leaves.means, leaves.variances, strict=True))
    while True:
        best = None
        for i, (_, mi, vi) in enumerate(parts):
            for j in range(i + 1, len(parts)):
                _, mj, vj = parts[j]
                distance = np.linalg.norm(mi - mj)
                ratio = distance / (np.sqrt(vi) + np.sqrt(vj))
                key = ratio if order == "ratio" else distance
                if ratio < alpha and (best is None or key < best[0]):
                    best = key, i, j
        if best is None:
            return parts
        _, i, j = best
        (ni, mi, vi), (nj, mj, vj) = parts[i], parts.pop(j)
        a, b = ni / (ni + nj), nj / (ni + nj)
        parts[i] = (ni + nj, a * mi + b * mj, a * vi + b * vj + a * b * ((mi - mj) ** 2).sum() / len(mi))


def random_table(seed):
    """Tables of many shapes: round, elongated, several clusters, heavy tails."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 320)), int(rng.integers(1, 9))
    X = rng.standard_t(4, size=(n, d)) if seed % 4 == 0 else rng.normal(size=(n, d))
    X *= rng.uniform(0.3, 3, size=d)
    return X + rng.normal(size=(1 + seed % 5, d))[rng.integers(1 + seed % 5, size=n)] * 4


def as_parts(moments):
    return list(zip(moments.counts, moments.means, moments.variances, strict=True))


def assert_same_components(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a[0] == b[0]
        np.testing.assert_allclose(a[1], b[1], rtol=1e-8, atol=1e-10)
        assert a[2] == pytest.approx(b[2], rel=1e-8)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("delta", "steps"), [(1.0, 15), (0.5, 1), (2.0, 4)])
def test_split_equals_em_with_scipy_densities(seed, delta, steps):
    X = random_table(seed)
    Y = X - X.mean(axis=0)
    ours = split_component(Y, (Y * Y).sum(axis=1), delta=delta, em_steps=steps)
    theirs = naive_split(X, delta, steps)
    if theirs is None:
        assert ours is None
        return
    first, mass = theirs
    assert ours.mass == pytest.approx(mass, rel=1e-7)
    # The naive axis has the sign that LAPACK gives it.
    assert (ours.first == first).all() or (ours.first == ~first).all()


def test_split_equals_the_em_of_scikit_learn():
    X = np.random.default_rng(0).normal(size=(200, 3)) * [3, 1, 1]
    X -= X.mean(axis=0)
    n = len(X)
    split = split_component(X, (X * X).sum(axis=1))
    eigenvalues, vectors = np.linalg.eigh(X.T @ X / n)
    start = np.sqrt(eigenvalues[-1]) * vectors[:, -1]
    model = GaussianMixture(
        2,
        covariance_type="spherical",
        weights_init=[0.5, 0.5],
        means_init=[start, -start],
        precisions_init=[1 / X.var(axis=0).mean()] * 2,
        reg_covar=0,
        max_iter=15,
        tol=0,
    )
    with pytest.warns(match="converge"):
        labels = model.fit_predict(X)
    assert split.mass == pytest.approx(n * model.weights_.min(), rel=1e-8)
    assert (split.first == labels).all() or (split.first != labels).all()


@pytest.mark.parametrize("seed", range(12))
def test_one_tree_holds_the_leaves_of_a_fresh_fit_for_every_minimum_mass(seed):
    X = random_table(seed)
    tree = split_tree(X, 5)
    for min_mass in (5, 12, 40):
        cached = {frozenset(tree.rows[leaf].tolist()) for leaf in tree.leaves(min_mass)}
        assert cached == set(naive_leaves(X, np.arange(len(X)), min_mass))
        fresh = split_tree(X, min_mass)
        assert [fresh.rows[leaf].tolist() for leaf in fresh.leaves(min_mass)] == [
            tree.rows[leaf].tolist() for leaf in tree.leaves(min_mass)
        ]


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("order", ["ratio", "distance"])
def test_merge_path_equals_searching_all_pairs(seed, order):
    leaves = split_tree(random_table(seed), 5).leaf_moments(5)
    alphas = [0.5, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0]
    for alpha, ours in zip(alphas, merge_path(leaves, alphas, order), strict=True):
        assert_same_components(as_parts(ours), naive_merge(leaves, alpha, order))


def test_merge_path_equals_searching_all_pairs_with_ties():
    # A square grid of equal components: nearly every merge is a tie.
    means = np.array([[i, j] for i in range(4) for j in range(4)], dtype=float)
    leaves = Moments(np.full(16, 8.0), means, np.full(16, 0.25))
    for order in ("ratio", "distance"):
        for alpha in (1.05, 1.2, 1.5, 2.5):
            (ours,) = merge_path(leaves, [alpha], order)
            assert_same_components(as_parts(ours), naive_merge(leaves, alpha, order))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("order", ["ratio", "distance"])
def test_selection_equals_a_fresh_fit_and_score_per_cell(seed, order):
    rng = np.random.default_rng(seed)
    X = rng.permutation(random_table(seed))
    held_out, train = np.split(X, [len(X) // 5])
    cells = asm_cells([0.5, 1.0, 1.25, 1.5, 2.0, 3.0], [5, 10, 20])
    chosen = select(
        Rows(train), Rows(held_out), cells, lambda rows, cells: fit_cells(rows.X, cells, order=order)
    )
    best = None
    for cell, count, ours in zip(cells, chosen.counts, chosen.scores, strict=True):
        leaves = split_tree(train, cell["min_mass"]).leaf_moments(cell["min_mass"])
        parts = naive_merge(leaves, cell["alpha"], order)
        joint = np.stack([np.log(n / len(train)) + log_density(held_out, m, v) for n, m, v in parts], axis=1)
        labels = joint.argmax(axis=1)
        scored = len(parts) <= max(2, len(held_out) / 2) and len(np.unique(labels)) > 1
        score = silhouette_score(held_out, labels) if scored else -1.0
        assert count == len(parts)
        assert ours == pytest.approx(score, abs=1e-9)
        # Equal partitions have scores that differ by rounding only.
        key = (round(score, 9), -len(parts), cell["alpha"], cell["min_mass"])
        if best is None or key > best[0]:
            best = key, cell, parts
    assert chosen.candidate.chosen == best[1]
    assert chosen.score == pytest.approx(best[0][0], abs=1e-9)
    assert_same_components(as_parts(chosen.candidate.components), best[2])
