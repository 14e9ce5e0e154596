"""Pooling with unknown k: the gain of a merge against the bound itself, empty places, small sites."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import entr, gammaln, multigammaln

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import complete, pool, pool_network, pool_start
from fedcluster_app.gtvmin.niw import Prior, moments_of
from fedcluster_app.gtvmin.pool_bound import bound
from fedcluster_app.gtvmin.pool_flat import joined_pieces, merged_on_path
from fedcluster_app.gtvmin.pool_local import (
    iterate,
    judged,
    own_evidence,
    quadratic_forms,
    run_pass,
    update_prior,
)
from fedcluster_app.gtvmin.pool_merge import merge_gains, merge_groups, pruned, summed
from fedcluster_app.gtvmin.pool_message import Inbox, Summary, receive
from fedcluster_app.gtvmin.pool_model import Models, Rows, joined, narrowed, padded, prior, rows_of
from fedcluster_app.gtvmin.pool_rows import responsibilities
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_start import local_fit, most_components
from fedcluster_app.gtvmin.pool_together import alone as carried_out

ALL = PoolSettings(min_count=0.0)
CENTERS = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 7.0]])


def generator(*numbers: int) -> np.random.Generator:
    return np.random.default_rng([8, *numbers])


def draws(number: int, name: str) -> np.random.Generator:
    return np.random.default_rng([number, *name.encode()])


def table(seed: int, n: int = 60, shift: float = 0.0) -> np.ndarray:
    return CENTERS[np.arange(n) % 3] + generator(seed).normal(size=(n, 2)) + shift


def in_halves(X: np.ndarray) -> np.ndarray:
    """Clusters of a table, the third in a left and a right half."""
    labels = np.arange(len(X)) % 3
    labels[(labels == 2) & (X[:, 0] > np.median(X[labels == 2, 0]))] = 3
    return labels


def summary(seed: int, pieces: int = 3, n: int = 60) -> Summary:
    return summary_of(table(seed, n), np.arange(n) % pieces)


def summary_of(X: np.ndarray, labels: np.ndarray) -> Summary:
    parts = [X[labels == c] for c in range(labels.max() + 1)]
    return Summary(
        np.array([float(len(part)) for part in parts]),
        np.array([part.mean(axis=0) for part in parts]),
        np.array([np.cov(part.T, bias=True) for part in parts]),
    )


def fitted(k: int, *, uniform: bool = False) -> tuple[Models, Rows, Inbox]:
    """Models of k components with two neighbours, one of them in pieces, of which half is counted."""
    rows = rows_of(table(0), uniform=uniform)
    inbox = receive({"a": summary(1), "b": summary(2, pieces=6)}, rows, 20.0)
    alone = carried_out(local_fit(rows, k, ALL, generator(1)))
    start = replace(alone, rates=np.full((1, 2), 0.5), attached=np.zeros((1, 9, k)), discount=np.array([0.5]))
    return run_pass(judged(start, rows, inbox), rows, inbox, ALL, 3), rows, inbox


def shares_of(models: Models, rows: Rows) -> np.ndarray:
    forms = quadratic_forms(models.means, models.covariances)
    R, _ = responsibilities(models.weights, forms, models.junk, rows)
    return R[0, : models.weights.shape[1]].T


def log_marginal(moments: np.ndarray, law: Prior) -> float:
    """Murphy's equation 4.214 as it is printed."""
    n, d = moments[0, 0], len(moments) - 1
    kappa0, nu0, psi0 = float(law.kappa[0]), float(law.nu[0]), law.psi[0]
    kappa, nu = kappa0 + n, nu0 + n
    psi = psi0 + moments[1:, 1:] - np.outer(moments[0, 1:], moments[0, 1:]) / kappa
    gammas = multigammaln(nu / 2, d) - multigammaln(nu0 / 2, d)
    dets = nu0 / 2 * np.linalg.slogdet(psi0)[1] - nu / 2 * np.linalg.slogdet(psi)[1]
    return float(-n * d / 2 * np.log(np.pi) + gammas + dets + d / 2 * np.log(kappa0 / kappa))


def bound_of(R: np.ndarray, P: np.ndarray, models: Models, rows: Rows, inbox: Inbox) -> float:
    """Bound on the evidence of own rows and received summaries, term by term.

    R (n, k) are responsibilities, P (J, k) attachments; what is not attached is by itself.
    """
    k, law, weight = R.shape[1], prior(models, rows), float(models.discount[0])
    counts, base, total = np.zeros(k), np.zeros(k), 0.0
    for c in range(k):
        own = sum(r * m.reshape(3, 3) for r, m in zip(R[:, c], rows.moments, strict=True))
        lent = sum(weight * p * m for p, m in zip(P[:, c], inbox.moments, strict=True))
        counts[c], base[c] = own[0, 0], lent[0, 0]
        total += log_marginal(own + lent, law)
    total += entr(R).sum()
    share = (base + ALL.concentration) / (base + ALL.concentration).sum()
    labels = []
    for strength in (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0):
        a = min(strength, (base + ALL.concentration).sum()) * share
        terms = gammaln(counts + a) - gammaln(a)
        labels.append(terms.sum() + gammaln(a.sum()) - gammaln(a.sum() + counts.sum()))
    total += max(labels)
    for j, edge in enumerate(inbox.edges):
        rate, none = models.rates[0, edge], 1.0 - P[j].sum()
        apart = log_marginal(weight * inbox.moments[j], law)
        total += none * (apart + np.log(1 - rate)) + (1 - none) * np.log(rate / k)
        total += entr(P[j]).sum() + entr(max(none, 0.0))
    return float(total)


@pytest.mark.parametrize("uniform", [False, True])
def test_the_gain_of_a_merge_is_the_difference_of_the_bound(uniform: bool) -> None:
    models, rows, inbox = fitted(5, uniform=uniform)
    R, P = shares_of(models, rows), models.attached[0]
    own = (R.T @ rows.moments).reshape(5, 3, 3)
    lent = 0.5 * np.einsum("jk,jpq->kpq", P, inbox.moments)
    gains = merge_gains(R, P, own, lent, prior(models, rows), ALL.concentration)
    before = bound_of(R, P, models, rows, inbox)
    signs = set()
    for gain, a, b in zip(gains, *np.triu_indices(5, 1), strict=True):
        merged = [np.delete(part, b, axis=1) for part in (R, P)]
        for part, whole in zip(merged, (R, P), strict=True):
            part[:, a] += whole[:, b]
        assert gain == pytest.approx(bound_of(*merged, models, rows, inbox) - before, abs=1e-8)
        signs.add(gain > 0)
    assert signs == {True, False}


def test_the_bound_of_an_iteration_is_the_sum_of_its_terms() -> None:
    start, rows, inbox = fitted(4)
    after = iterate(start, rows, inbox, ALL, plug_in=False)
    expected = bound_of(shares_of(start, rows), after.attached[0], after, rows, inbox)
    assert bound(after, rows, inbox)[0] == pytest.approx(expected, abs=1e-8)
    wide = iterate(padded(start, 6), rows, inbox, ALL, plug_in=False)
    assert bound(wide, rows, inbox)[0] == pytest.approx(expected, abs=1e-8)
    alone = narrowed(carried_out(local_fit(rows, 3, ALL, generator(1))), np.ones(3, dtype=np.bool_))
    nobody = receive({}, rows, 20.0)
    assert bound(alone, rows, nobody)[0] == pytest.approx(own_evidence(alone, rows)[0], abs=1e-9)


def test_pieces_of_one_cluster_that_seem_right_are_merged_on_trial() -> None:
    X, other = table(57), table(2)
    rows = rows_of(X)
    inbox = receive({"a": summary(1), "b": summary_of(other, in_halves(other))}, rows, 20.0)
    labels = in_halves(X)
    own = np.stack([rows.moments[labels == c].sum(axis=0).reshape(3, 3) for c in range(4)])[None]
    start = summed(replace(carried_out(local_fit(rows, 4, ALL, generator(1))), own=own), np.eye(4), ALL)
    start = replace(start, rates=np.full((1, 2), 0.5), attached=np.zeros((1, 7, 4)))
    split = run_pass(judged(start, rows, inbox), rows, inbox, ALL, 3)
    split = run_pass(update_prior(split, rows, inbox, ALL), rows, inbox, ALL, 3)
    assert pruned(split, rows, inbox, ALL).weights.shape == (1, 4)
    after = pruned(split, rows, inbox, ALL, on_trial=True)
    assert after.weights.shape == (1, 3)
    settled = run_pass(update_prior(split, rows, inbox, ALL), rows, inbox, ALL, 3)
    assert bound(after, rows, inbox)[0] > bound(settled, rows, inbox)[0]


def test_clusters_that_are_apart_stay_so_on_trial() -> None:
    models, rows, inbox = fitted(3)
    after = pruned(models, rows, inbox, ALL, on_trial=True)
    np.testing.assert_array_equal(after.means, models.means)


def test_merging_goes_to_the_true_number_and_not_on() -> None:
    models, rows, inbox = fitted(6)
    groups = merge_groups(models, rows, ALL, alone=False)
    nearest = np.linalg.norm(models.means[0][:, None] + rows.origin - CENTERS, axis=2).argmin(axis=1)
    assert groups.shape == (6, 3)
    for c in range(3):
        assert len(set(nearest[groups[:, c] > 0])) == 1
    after = pruned(models, rows, inbox, ALL)
    assert after.weights.shape == (1, 3)
    np.testing.assert_array_equal(merge_groups(after, rows, ALL, alone=False), np.eye(3))
    again = pruned(after, rows, inbox, ALL)
    assert again is after


def test_merging_keeps_all_moments_and_attachments() -> None:
    models, _, inbox = fitted(5)
    groups = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]])
    after = summed(models, groups, ALL)
    np.testing.assert_allclose(after.own.sum(axis=1), models.own.sum(axis=1), atol=1e-10)
    np.testing.assert_allclose(after.borrowed.sum(axis=1), models.borrowed.sum(axis=1), atol=1e-10)
    np.testing.assert_allclose(after.attached.sum(axis=2), models.attached.sum(axis=2), rtol=1e-12)
    lent = np.einsum("jk,jpq->kpq", after.attached[0], inbox.moments)
    np.testing.assert_allclose(after.borrowed[0], lent, rtol=1e-9, atol=1e-9)
    total = models.totals[0, [0, 2, 4]].sum(axis=0)
    np.testing.assert_allclose(after.means[0, 0], total[0, 1:] / total[0, 0])
    assert after.weights.sum() == pytest.approx(1.0)


def test_the_order_of_components_does_not_matter_to_merging() -> None:
    models, rows, inbox = fitted(6)
    order = np.array([4, 0, 5, 2, 1, 3])
    turned = replace(
        models,
        weights=models.weights[:, order],
        means=models.means[:, order],
        covariances=models.covariances[:, order],
        own=models.own[:, order],
        borrowed=models.borrowed[:, order],
        attached=models.attached[:, :, order],
    )
    one, other = (pruned(start, rows, inbox, ALL) for start in (models, turned))
    places = [np.lexsort(model.means[0].T) for model in (one, other)]
    for name in ("weights", "means", "covariances"):
        values = (getattr(m, name)[0, at] for m, at in zip((one, other), places, strict=True))
        np.testing.assert_allclose(*values, atol=1e-9)


def test_a_site_by_itself_needs_more_evidence_to_merge() -> None:
    models, rows, _ = fitted(5)
    nothing = replace(models, attached=models.attached[:, :0], borrowed=np.zeros_like(models.own))
    R = shares_of(models, rows)
    own = (R.T @ rows.moments).reshape(5, 3, 3)
    law = prior(models, rows)
    gains = merge_gains(R, np.zeros((0, 5)), own, np.zeros_like(own), law, ALL.concentration)
    best = np.argsort(gains)[-1]
    for alone, least in ((False, 0.0), (True, np.log(5))):
        groups = merge_groups(nothing, rows, ALL, alone=alone)
        assert (groups.shape[1] < 5) == (gains[best] > least)
    # Two pieces whose gain lies between nothing and ln 2 stay apart only by themselves.
    halves = replace(narrowed(nothing, np.array([True, True, False, False, False])))
    for shift in np.linspace(0.0, 4.0, 81):
        X = np.concatenate([generator(3).normal(size=(12, 2)), generator(4).normal(size=(12, 2)) + shift])
        small = rows_of(X)
        hot = np.repeat(np.eye(2), 12, axis=0)
        own = (hot.T @ small.moments).reshape(1, 2, 3, 3)
        start = summed(replace(halves, own=own, borrowed=0 * own), np.eye(2), ALL)
        sizes = [merge_groups(start, small, ALL, alone=alone).shape[1] for alone in (False, True)]
        assert sizes[0] <= sizes[1]
        if sizes == [1, 2]:
            return
    pytest.fail("no shift at which only ln k keeps two components apart")


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("plug_in", [False, True])
def test_empty_places_change_nothing(uniform: bool, plug_in: bool) -> None:
    models, rows, inbox = fitted(3, uniform=uniform)
    expected = iterate(models, rows, inbox, ALL, plug_in=plug_in)
    wide = iterate(padded(models, 5), rows, inbox, ALL, plug_in=plug_in)
    assert not wide.weights[0, 3:].any()
    assert not wide.attached[0, :, 3:].any()
    assert not wide.totals[0, 3:].any()
    found = narrowed(wide, wide.active[0])
    for name in ("weights", "means", "covariances", "attached", "rates", "own", "row_evidence", "junk"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-10)


def test_models_of_different_size_share_a_batch() -> None:
    models, rows, inbox = fitted(4)
    few = pruned(models, rows, inbox, ALL)
    both = iterate(joined(few, models), rows, inbox, ALL, plug_in=False)
    for place, one in enumerate((few, models)):
        alone = iterate(one, rows, inbox, ALL, plug_in=False)
        part = narrowed(both.taken([place]), both.active[place])
        np.testing.assert_allclose(part.means, alone.means, atol=1e-10)
        np.testing.assert_allclose(part.rates, alone.rates, atol=1e-10)


def test_a_component_without_rows_is_removed_and_the_last_one_never() -> None:
    models, rows, inbox = fitted(3)
    empty = padded(models, 4)
    weights = np.append(0.99 * models.weights, [[0.01]], axis=1)
    means = empty.means.copy()
    means[0, 3] = 50.0
    start = iterate(replace(empty, weights=weights, means=means), rows, inbox, ALL, plug_in=True)
    assert start.totals[0, 3, 0, 0] < 0.5
    after = pruned(start, rows, inbox, ALL)
    assert after.weights.shape == (1, 3)
    assert after.weights.sum() == pytest.approx(1.0)
    lonely = rows_of(np.zeros((1, 2)))
    nobody = receive({}, lonely, 20.0)
    one = carried_out(local_fit(lonely, None, ALL, generator(1)))
    tiny = replace(one, own=0.1 * one.own)
    assert pruned(tiny, lonely, nobody, ALL, alone=True).weights.shape == (1, 1)


def test_no_more_components_than_half_of_the_rows_or_the_most() -> None:
    spread = 100.0 * np.arange(12.0)[:, None]
    assert carried_out(local_fit(rows_of(spread), None, ALL, generator(1))).weights.shape[1] <= 6
    sizes = [most_components(n, ALL) for n in (1, 2, 3, 12, 20, 50, 54, 75, 1000)]
    assert sizes == [1, 1, 1, 6, 10, 10, 10, 15, 20]
    few = replace(ALL, most_components=2)
    state = pool.init(table(0), None, few, generator(1))
    received = {"a": summary(1), "b": summary(2, pieces=6)}
    after = pool.step(state, table(0), received, few, generator(2))
    assert state.mixture.n_components == 2
    assert after.mixture.n_components <= 2


def test_the_number_is_found_and_nothing_else_leaves_a_site() -> None:
    X, received = table(0), {"a": summary(1), "b": summary(2, pieces=6)}
    state = pool.init(X, None, ALL, generator(1))
    assert state.free
    assert 3 <= state.mixture.n_components <= 10
    for number in (1, 2, 3):
        state = pool.step(state, X, received, ALL, generator(2, number))
    assert state.free
    assert state.mixture.n_components == 3
    assert len(pool.message(state).counts) == 3
    assert {name: a.shape for name, a in state.attachments.items()} == {"a": (3, 3), "b": (6, 3)}
    assert (state.mixture.weights > 0).all()
    assert np.linalg.norm(state.mixture.means[:, None] - CENTERS, axis=2).min(axis=0).max() < 0.6


def test_a_known_number_is_kept() -> None:
    X, received = table(0), {"a": summary(1), "b": summary(2, pieces=6)}
    state = pool.init(X, 5, ALL, generator(1))
    for number in (1, 2):
        state = pool.step(state, X, received, ALL, generator(2, number))
    assert not state.free
    assert state.mixture.n_components == 5


def test_a_change_of_the_number_is_no_rest() -> None:
    X = np.repeat(table(0), 2, axis=0)
    five = replace(pool.init(X, 5, ALL, generator(1)), free=True)
    after = pool.step(five, X, {"a": summary(1)}, replace(ALL, start_rounds=()), generator(2))
    assert after.mixture.n_components < 5
    assert after.changes == (2.0,)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", ["equal", "constant column", "spread"])
def test_poor_sites_find_a_number_too(n: int, kind: str) -> None:
    X = {
        "equal": np.zeros((n, 2)),
        "constant column": np.c_[np.arange(n), np.ones(n)],
        "spread": table(5, n),
    }[kind].astype(float)
    state = pool.init(X, None, ALL, generator(1))
    assert 1 <= state.mixture.n_components <= max(1, n // 2)
    for number in (1, 2):
        state = pool.step(state, X, {"a": summary(1), "b": summary(2)}, ALL, generator(number))
    assert state.mixture.n_components <= 20
    assert len(pool.message(state).counts) == state.mixture.n_components


def test_a_neighbour_of_many_components_cannot_make_a_site_large() -> None:
    X, rng = table(0), generator(6)
    many = Summary(np.full(500, 5.0), rng.normal(size=(500, 2)) * 6, np.tile(np.eye(2), (500, 1, 1)))
    state = pool.init(X, None, ALL, generator(1))
    state = pool.step(state, X, {"a": summary(1), "many": many}, ALL, generator(2))
    assert state.mixture.n_components <= 20


def test_a_network_finds_the_number_in_each_block() -> None:
    data = {f"s{i}": table(i, 60, shift=40.0 * (i % 2)) for i in range(6)}
    results = pool_network.run(data, None, complete(sorted(data)), draws, ALL)
    sizes = np.array([result.mixture.n_components for result in results.values()])
    # Two sites that cut a cluster in the same way confirm each other's pieces.
    assert np.abs(sizes - 3).mean() <= 0.5
    for name, result in results.items():
        for other, rate in result.rates.items():
            assert (rate > 0.5) == (int(name[1]) % 2 == int(other[1]) % 2)


@pytest.mark.parametrize("bad", [0, 2.5, True])
def test_the_most_components_are_checked(bad: float) -> None:
    with pytest.raises(ConfigError, match="most components"):
        PoolSettings(most_components=bad)  # type: ignore[arg-type]  # wrong on purpose


def test_a_gain_of_single_rows_is_finite() -> None:
    law = Prior(np.array([0.1]), np.array([4.0]), np.eye(2)[None])
    own = moments_of(np.array([1.0, 0.0, 1e-9]), np.zeros((3, 2)), np.zeros((3, 2, 2)))
    shares = np.array([[1.0, 0.0, 0.0]])
    gains = merge_gains(shares, np.zeros((0, 3)), own, np.zeros_like(own), law, 2.0)
    assert np.isfinite(gains).all()


def in_a_row(seed: int, k: int, n: int, gap: float) -> np.ndarray:
    """Rows (k n, 2) of k round clusters along the first axis, by cluster, scaled to unit variance."""
    X = generator(seed).normal(size=(k * n, 2))
    X[:, 0] += gap * np.repeat(np.arange(k), n)
    return (X - X.mean(axis=0)) / X.std(axis=0)


def test_pieces_of_flat_clusters_are_joined_to_whole_clusters() -> None:
    X, truth = in_a_row(1, 3, 40, 10.0), np.repeat(np.arange(3), 40)
    # Six pieces of each cluster, by the second feature, in mixed order.
    pieces = np.concatenate([np.argsort(np.argsort(X[truth == c, 1])) * 6 // 40 * 3 + c for c in range(3)])
    labels = joined_pieces(rows_of(X), pieces, 3)
    assert len(set(zip(labels, truth, strict=True))) == len(set(labels)) == 3
    np.testing.assert_array_equal(joined_pieces(rows_of(X), labels, 3), labels)


def test_pieces_are_joined_on_a_path_that_wins_much_and_close_clusters_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_start, "merged_on_path", lambda models, *_: models)
    X = in_a_row(1, 2, 40, 10.0)
    rows = rows_of(X)
    nobody = receive({}, rows, 20.0)
    many = carried_out(local_fit(rows, None, ALL, generator(1)))
    # Merged one by one, as they are, many pieces stay.
    assert many.weights.shape[1] > 4
    after = merged_on_path(many, rows, nobody, ALL)
    assert bound(after, rows, nobody)[0] > bound(many, rows, nobody)[0] + 20.0
    np.testing.assert_allclose(np.sort(after.means[0, :, 0]), X[:, 0].reshape(2, 40).mean(axis=1), atol=0.05)
    # Two clusters of ten rows at two standard deviations: what little a merge wins is left to the rounds.
    close = rows_of(in_a_row(2, 2, 10, 2.0))
    two = carried_out(local_fit(close, 2, ALL, generator(1)))
    assert merged_on_path(two, close, nobody, ALL) is two


@pytest.mark.parametrize(("k", "n"), [(2, 40), (3, 40), (3, 60)])
def test_clusters_along_one_axis_are_found_at_their_number(k: int, n: int) -> None:
    data = {name: in_a_row(10 * seed + 1, k, n, 10.0) for seed, name in enumerate("abcd")}
    results = pool_network.run(data, None, complete(sorted(data)), draws, PoolSettings())
    assert [result.mixture.n_components for result in results.values()] == [k] * 4
    for result in results.values():
        assert result.mixture.means[:, 1] == pytest.approx(np.zeros(k), abs=0.3)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_known_number_of_clusters_along_one_axis_is_found(seed: int) -> None:
    data = {name: in_a_row(10 * site + seed, 5, 40, 10.0) for site, name in enumerate("abcd")}
    centers = {name: X[:, 0].reshape(5, 40).mean(axis=1) for name, X in data.items()}
    for name, result in pool_network.run(data, 5, complete(sorted(data)), draws, PoolSettings()).items():
        np.testing.assert_allclose(np.sort(result.mixture.means[:, 0]), centers[name], atol=0.1)
