"""SPAHM: gains against Gaussian marginals and all assignments, learned prior, separated balls, guards."""

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score

from fedcluster_app.aggregation import spahm
from fedcluster_app.aggregation.spahm import Prior, client_step, done, finish, gain_matrix, init, status, step
from fedcluster_app.errors import ConfigError, DataError

GLOBALS = [[0, 1], [2], [3, 4, 5]]  # rows of `case` in each global cluster


def case(seed, k=3, d=2):
    """Other sites' centres, one site's centres, a prior."""
    rng = np.random.default_rng(seed)
    prior = Prior(rng.normal(size=d), rng.uniform(0.5, 3, d), rng.uniform(0.2, 1, d), rng.uniform(0.5, 2))
    return rng.normal(size=(6, d)) * 1.5, rng.normal(size=(k, d)) * 1.5, prior


def log_marginal(members, prior):
    """Log density of the members of one cluster with the global centre integrated out."""
    members, total = np.asarray(members), 0.0
    for j, column in enumerate(members.T):
        covariance = prior.noise[j] * np.eye(len(column)) + prior.spread[j]
        total += multivariate_normal.logpdf(column, np.full(len(column), prior.mean[j]), covariance)
    return total


def log_posterior(others, atoms, places, prior, sites):
    """Of one placement (None: a new cluster), up to a constant: marginals, popularity, new clusters."""
    total, opened = 0.0, 0
    for i, rows in enumerate(GLOBALS):
        joined = [atoms[row] for row, place in enumerate(places) if place == i]
        total += log_marginal([*others[rows], *joined], prior)
        total += len(joined) * np.log(len(rows) / (sites - len(rows)))
    for row, place in enumerate(places):
        if place is None:
            opened += 1
            total += log_marginal([atoms[row]], prior)
            total += np.log(prior.concentration / sites) - np.log(opened)
    return total


@pytest.mark.parametrize("seed", range(6))
def test_gains_are_those_of_the_posterior_and_the_best_assignment_is_found_by_brute_force(seed):
    others, atoms, prior = case(seed)
    sums = np.stack([others[rows].sum(axis=0) for rows in GLOBALS])
    gains = gain_matrix(atoms, sums, np.array([len(rows) for rows in GLOBALS]), prior, sites=7)
    assert gains.shape == (3, 6)
    found, wanted = [], []
    for columns in permutations(range(6), 3):
        if sorted(c for c in columns if c >= 3) != list(range(3, 3 + sum(c >= 3 for c in columns))):
            continue  # the second new column only after the first
        places = [c if c < 3 else None for c in columns]
        found.append((gains[np.arange(3), list(columns)].sum() / 2, columns))
        wanted.append(log_posterior(others, atoms, places, prior, 7))
    difference = np.array([value for value, _ in found]) - wanted
    np.testing.assert_allclose(difference, difference[0], atol=1e-9)
    best = found[int(np.argmax(wanted))][1]
    chosen = linear_sum_assignment(gains, maximize=True)[1]
    assert [min(c, 3) for c in chosen] == [min(c, 3) for c in best]


def test_gains_are_the_published_ones_up_to_a_constant_of_each_row():
    others, atoms, prior = case(11)
    T = np.stack([others[rows].sum(axis=0) for rows in GLOBALS])
    m = np.array([len(rows) for rows in GLOBALS])
    s, s0, m0, J = prior.noise, prior.spread, prior.mean, 5
    wanted = np.empty((3, 6))
    for row, v in enumerate(atoms):
        for i in range(3):
            after = ((s0 / s) * (v + T[i]) ** 2 + 2 * m0 * (v + T[i]) - (m[i] + 1) * m0**2) / (
                (m[i] + 1) * s0 + s
            )
            before = ((s0 / s) * T[i] ** 2 + 2 * m0 * T[i] - m[i] * m0**2) / (m[i] * s0 + s)
            logs = np.log(m[i] * s0 + s) - np.log((m[i] + 1) * s0 + s)
            wanted[row, i] = (after - before + logs).sum() + 2 * np.log(m[i] / (J - m[i]))
        for q in range(3):
            fresh = ((s0 / s) * v**2 + 2 * m0 * v - m0**2) / (s0 + s) + np.log(s) - np.log(s0 + s)
            wanted[row, 3 + q] = fresh.sum() - 2 * np.log(q + 1) + 2 * np.log(prior.concentration / J)
    difference = gain_matrix(atoms, T, m, prior, J) - wanted
    np.testing.assert_allclose(difference, np.repeat(difference[:, :1], 6, axis=1), atol=1e-9)


def test_popularity_is_capped_and_finite_for_any_number_of_sites():
    atoms, prior = np.zeros((1, 2)), Prior(np.zeros(2), np.full(2, 4.0), np.ones(2))

    def popularity(count, sites):
        sums, counts = np.zeros((1, 2)), np.array([count])
        s0, s = prior.spread, prior.noise
        logs = (np.log(count * s0 + s) - np.log((count + 1) * s0 + s)).sum()
        return gain_matrix(atoms, sums, counts, prior, sites)[0, 0] - logs

    assert popularity(9, 40) == pytest.approx(2 * np.log(9 / 31))
    assert popularity(25, 40) == pytest.approx(2 * np.log(10 / 30))
    assert popularity(10, 11) == pytest.approx(2 * np.log(10))
    for sites in range(1, 11):  # c = J, the division by zero of the original
        assert np.isfinite(popularity(10, sites))
    assert popularity(10, 10) == pytest.approx(2 * np.log(9))


def balls(seed, clusters=7, sites=6, d=3):
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(clusters, d)) * 12
    held = {f"s{g}": rng.choice(clusters, rng.integers(2, 5), replace=False) for g in range(sites)}
    return {s: middles[c] + 0.2 * rng.normal(size=(len(c), d)) for s, c in held.items()}, held, middles


def run(centers, seed=0, max_sweeps=10, **options):
    rng, state = np.random.default_rng(seed), init(centers, **options)
    while not done(state, max_sweeps=max_sweeps):
        state = step(state, rng)
    return state


@pytest.mark.parametrize("seed", range(6))
def test_number_and_centres_of_separated_balls_are_found_without_being_given(seed):
    centers, held, middles = balls(seed)
    state = run(centers, spread=100.0)
    result = finish(state)
    truth = np.concatenate([held[s] for s in sorted(held)])
    assert adjusted_rand_score(truth, np.concatenate(list(result.labels.values()))) == 1.0
    assert len(result.centers) == len(np.unique(truth))
    gap = np.linalg.norm(result.centers[:, None] - middles[np.unique(truth)], axis=2)
    assert gap.min(axis=1).max() < 1.0
    assert status(state) == "converged"
    for labels in result.labels.values():
        assert len(np.unique(labels)) == len(labels)


def test_from_rows_with_unequal_local_k_and_a_site_of_few_rows():
    rng = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [15.0, 0.0], [0.0, 15.0]])
    held = {"a": [0, 1], "b": [0, 1, 2], "c": [2]}
    y = {s: np.repeat(c, 30) for s, c in held.items()}
    X = {s: middles[part] + 0.4 * rng.normal(size=(len(part), 2)) for s, part in y.items()}
    X["few"], y["few"], held["few"] = middles[[1]] + 0.1, np.array([1]), [1, 2]
    sent = {s: client_step(part, len(held[s]), rng) for s, part in X.items()}
    assert len(sent["few"].centers) == 1
    result = finish(run({s: part.centers for s, part in sent.items()}))
    found = [result.labels[s][sent[s].labels] for s in X]
    assert adjusted_rand_score(np.concatenate(list(y.values())), np.concatenate(found)) == 1.0
    assert client_step(np.empty((0, 2)), 3, rng).centers.shape == (0, 2)


def test_learned_prior_and_posterior_mean_by_hand():
    centers = {"a": np.array([[0.0], [10.0]]), "b": np.array([[1.0], [12.0]]), "c": np.array([[2.0]])}
    state = run(centers)
    labels = state.labels.tolist()
    assert labels == [0, 1, 0, 1, 0]
    noise = (1 + 0 + 1 + 1 + 1) / (5 - 2)
    spread = 5.0**2 - noise * (1 / 3 + 1 / 2) / 2
    assert state.prior.mean == pytest.approx([6.0])
    assert state.prior.noise == pytest.approx([noise])
    assert state.prior.spread == pytest.approx([spread])
    result = finish(state)
    wanted = [(6 * noise + T * spread) / (m * spread + noise) for T, m in ((3, 3), (22, 2))]
    np.testing.assert_allclose(result.centers[:, 0], wanted)
    assert result.counts.tolist() == [3, 2]


def test_a_sweep_never_lowers_the_gain_of_the_site_it_places(monkeypatch):
    centers, _, _ = balls(3)
    noisy = {s: part + np.random.default_rng(1).normal(size=part.shape) * 4 for s, part in centers.items()}
    state = init(noisy, learn=False, noise=9.0, spread=100.0)
    gains = []

    def watched(cost, maximize):
        rows, columns = linear_sum_assignment(cost, maximize=maximize)
        gains.append((cost, columns))
        return rows, columns

    monkeypatch.setattr("scipy.optimize.linear_sum_assignment", watched)
    after = step(state, np.random.default_rng(0))
    assert len(gains) == len(centers)
    assert after.prior is state.prior
    for cost, columns in gains:
        k = len(cost)
        best = max(cost[np.arange(k), list(c)].sum() for c in permutations(range(cost.shape[1]), k))
        assert cost[np.arange(k), columns].sum() == pytest.approx(best)


def test_the_first_matching_takes_the_sites_with_most_centres_first(monkeypatch):
    sizes = []

    def watched(cost, maximize):
        sizes.append(len(cost))
        return linear_sum_assignment(cost, maximize=maximize)

    monkeypatch.setattr("scipy.optimize.linear_sum_assignment", watched)
    rng = np.random.default_rng(0)
    init({s: rng.normal(size=(k, 2)) for s, k in zip("abcd", (2, 5, 1, 3), strict=True)})
    assert sizes == [5, 3, 2, 1]


def test_order_of_the_sites_changes_nothing():
    centers, _, _ = balls(4)
    one, other = run(centers, seed=5), run(dict(reversed(centers.items())), seed=5)
    assert finish(one).centers.tobytes() == finish(other).centers.tobytes()
    assert list(finish(one).labels) == list(finish(other).labels) == sorted(centers)


def test_a_common_offset_changes_no_label():
    centers, _, _ = balls(5)
    moved = {s: part + 1e6 for s, part in centers.items()}
    np.testing.assert_array_equal(run(centers).labels, run(moved).labels)


def test_guards_against_one_site_coinciding_centres_and_constant_features():
    alone = finish(run({"a": np.array([[0.0, 1.0], [5.0, 1.0]])}))
    assert len(alone.centers) == 2
    np.testing.assert_allclose(alone.centers[:, 1], 1.0)
    same = np.array([[0.0, 1.0], [5.0, 1.0]])
    state = run(dict.fromkeys("abcdefghij", same))  # ten sites: J <= 10, all counts nine
    result = finish(state)
    assert result.counts.tolist() == [10, 10]
    assert (state.prior.noise > 0).all()
    assert (state.prior.spread > 0).all()
    np.testing.assert_allclose(result.centers, same, atol=1e-4)
    none = finish(run({"a": same, "none": np.empty((0, 2))}))
    assert none.labels["none"].shape == (0,)
    assert len(none.centers) == 2
    twins = finish(run({"a": np.zeros((2, 1)), "b": np.zeros((1, 1))}))
    assert np.isfinite(twins.centers).all()
    assert twins.labels["a"][0] != twins.labels["a"][1]


def test_beyond_the_cap_a_site_may_open_one_cluster_at_a_time(monkeypatch):
    monkeypatch.setattr(spahm, "_MOST_CLUSTERS", 4)
    others, atoms, prior = case(0)
    counts = np.ones(6, dtype=np.int64)
    assert gain_matrix(atoms, others, counts, prior, 3).shape == (3, 7)
    assert gain_matrix(atoms, others[:2], counts[:2], prior, 3).shape == (3, 4)


def test_refusals_and_stopping():
    with pytest.raises(DataError, match="expected at least one"):
        init({"a": np.empty((0, 2))})
    with pytest.raises(ConfigError, match="noise"):
        init({"a": np.ones((1, 2))}, noise=0.0)
    with pytest.raises(ConfigError, match="k: expected"):
        client_step(np.ones((1, 2)), 0, np.random.default_rng(0))
    state = init(balls(0)[0])
    assert status(state) == "running"
    assert status(state, max_sweeps=0) == "max_sweeps"
