"""Pooling: plain MAP-EM without neighbours, two equal sites, the rules, and what a bad neighbour can do."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import permutations

import numpy as np
import pytest
from scipy.special import betaln, gammaln
from scipy.stats import multivariate_normal

from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.gtvmin import complete, pool, pool_local, pool_network
from fedcluster_app.gtvmin.niw import Prior, log_evidence, moments_of, prior_of, row_moments, summaries_of
from fedcluster_app.gtvmin.pool_attach import attach, one_to_one, supported
from fedcluster_app.gtvmin.pool_local import (
    components,
    iterate,
    judged,
    own_evidence,
    quadratic_forms,
    run_pass,
    update_prior,
)
from fedcluster_app.gtvmin.pool_message import Inbox, Summary, receive, summarised
from fedcluster_app.gtvmin.pool_model import Models, Rows, lone, prior, rows_of
from fedcluster_app.gtvmin.pool_rows import assign
from fedcluster_app.gtvmin.pool_settings import FAST, PoolSettings
from fedcluster_app.gtvmin.pool_start import local_fit
from fedcluster_app.gtvmin.pool_together import alone
from fedcluster_app.gtvmin.pool_weights import draw_weights
from fedcluster_app.mixtures import Mixture, responsibilities

ALL = PoolSettings(min_count=0.0)
CENTERS = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 7.0]])


def generator(*numbers: int) -> np.random.Generator:
    return np.random.default_rng([7, *numbers])


def draws(number: int, name: str) -> np.random.Generator:
    return np.random.default_rng([number, *name.encode()])


def table(seed: int, n: int = 60, shift: float = 0.0) -> np.ndarray:
    rng = generator(seed)
    return CENTERS[np.arange(n) % 3] + rng.normal(size=(n, 2)) + shift


def summary_of(X: np.ndarray, labels: np.ndarray) -> Summary:
    groups = [X[labels == c] for c in range(labels.max() + 1)]
    return Summary(
        np.array([float(len(group)) for group in groups]),
        np.array([group.mean(axis=0) for group in groups]),
        np.array([np.cov(group.T, bias=True) for group in groups]),
    )


def by_cluster(seed: int, n: int = 60, shift: float = 0.0) -> Summary:
    return summary_of(table(seed, n, shift), np.arange(n) % 3)


def single(X: np.ndarray) -> Models:
    """One component, without a neighbour yet."""
    rows, d = rows_of(X), X.shape[1]
    own = row_moments(rows.X).sum(axis=0)[None, None]
    within = own[:, 0, 1:, 1:] / len(X)
    means, covariances = components(own, within, np.array([d + 1.0]))
    one, nothing = np.ones(1), np.zeros((1, 1, d + 1, d + 1))
    return Models(
        one[None],
        means,
        covariances,
        within,
        np.array([d + 1.0]),
        one,
        np.full((1, 1), 0.5),
        np.zeros((1, 1, 1)),
        own,
        nothing,
        np.zeros(1),
        np.zeros((1, 1)),
        np.full(1, 0.03),
    )


def an_inbox(*sizes: int) -> Inbox:
    edges = np.repeat(np.arange(len(sizes)), sizes)
    moments = moments_of(
        np.full(len(edges), 10.0), np.zeros((len(edges), 2)), np.tile(np.eye(2), (len(edges), 1, 1))
    )
    slots = np.concatenate([np.arange(size) for size in sizes])
    incidence = (np.arange(len(sizes))[:, None] == edges).astype(float)
    return Inbox(tuple(f"s{i}" for i in range(len(sizes))), moments, edges, slots, incidence, sizes)


def test_without_neighbours_an_iteration_is_map_em() -> None:
    X = table(0)
    rows = rows_of(X)
    models = alone(local_fit(rows, 3, ALL, generator(1)))
    after = iterate(models, rows, receive({}, rows, 20.0), ALL, plug_in=True)
    R, _ = responsibilities(rows.X, Mixture(models.weights[0], models.means[0], models.covariances[0]))
    s = models.strength[0]
    for c in range(3):
        n = R[:, c].sum()
        mean = R[:, c] @ rows.X / n
        scatter = (R[:, c, None] * (rows.X - mean)).T @ (rows.X - mean)
        np.testing.assert_allclose(after.means[0, c], mean, atol=1e-10)
        np.testing.assert_allclose(
            after.covariances[0, c], (s * models.within[0] + scatter) / (s + n), atol=1e-10
        )
    # Without anybody's weights the shares are equal and the Dirichlet counts at most k times 2 rows.
    counts = R.sum(axis=0)
    strengths = np.array([1.0, 4.0, 6.0])
    a = strengths[:, None] / 3
    terms = (gammaln(counts + a) - gammaln(a)).sum(axis=1) + gammaln(strengths) - gammaln(strengths + len(X))
    best = strengths[terms.argmax()]
    np.testing.assert_allclose(after.weights[0], (counts + best / 3) / (len(X) + best), atol=1e-10)


def test_the_entropy_and_own_evidence_against_direct_evaluation() -> None:
    rows = rows_of(table(0))
    models = alone(local_fit(rows, 3, ALL, generator(1)))
    nobody = receive({}, rows, 20.0)
    after = iterate(models, rows, nobody, ALL, plug_in=True)
    R, _ = responsibilities(rows.X, Mixture(models.weights[0], models.means[0], models.covariances[0]))
    entropy = -(R[R > 0] * np.log(R[R > 0])).sum()
    labels = draw_weights(after.own[..., 0, 0], np.zeros((1, 3)), 2.0)[1]
    assert after.row_evidence[0] == pytest.approx(entropy + labels[0], abs=1e-9)
    assert np.isfinite(own_evidence(after, rows)[0])


def test_an_identical_single_neighbour_is_pooled() -> None:
    X = generator(2).normal(size=(20, 2)) + 3
    rows, models = rows_of(X), single(X)
    said = summarised(models.own[0], rows.origin)
    inbox = receive({"b": said}, rows, 20.0)
    settings = replace(ALL, discounts=(1.0,))
    after = run_pass(judged(models, rows, inbox), rows, inbox, settings, 3)
    p = after.attached[0, 0, 0]
    assert 0.95 <= after.rates[0, 0] <= (1 + 0.03) / (1 + 0.06) + 1e-12
    assert p >= 0.97
    total = models.own[0, 0] + p * inbox.moments[0]
    np.testing.assert_allclose(after.totals[0, 0], total, atol=1e-9)
    mean = total[0, 1:] / total[0, 0]
    np.testing.assert_allclose(after.means[0, 0], mean, atol=1e-12)
    s, scatter = models.strength[0], total[1:, 1:] - total[0, 0] * np.outer(mean, mean)
    expected = (s * models.within[0] + scatter) / (s + total[0, 0])
    np.testing.assert_allclose(after.covariances[0, 0], expected, atol=1e-9)


@pytest.mark.parametrize("d", [2, 6])
def test_scoring_only_the_pairs_that_matter_changes_nothing(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = generator(d)
    centers, labels = 3 * rng.normal(size=(4, d)), np.arange(80) % 4
    X = centers[labels] + rng.normal(size=(80, d))
    near = {
        f"s{i}": summary_of(centers[labels] + rng.normal(size=(80, d)) + 9 * (i == 2), labels)
        for i in range(3)
    }
    state = pool.init(X, 4, ALL, generator(1))
    quick = pool.step(state, X, near, ALL, generator(2))
    monkeypatch.setattr(pool_local, "_FAR", np.inf)
    full = pool.step(state, X, near, ALL, generator(2))
    np.testing.assert_allclose(quick.mixture.means, full.mixture.means, atol=1e-5)
    np.testing.assert_allclose(quick.mixture.covariances, full.mixture.covariances, atol=1e-5)


def test_three_rows_are_weaker_evidence_than_twenty() -> None:
    rates = []
    for n in (3, 20):
        X = generator(3).normal(size=(n, 2))
        rows, models = rows_of(X), single(X)
        inbox = receive({"b": summarised(models.own[0], rows.origin)}, rows, 20.0)
        rates.append(run_pass(judged(models, rows, inbox), rows, inbox, ALL, 3).rates[0, 0])
    assert 0.5 < rates[0] < rates[1]


def test_the_first_pass_pools_the_same_and_refuses_the_foreign() -> None:
    X = table(0)
    state = pool.init(X, 3, ALL, generator(1))
    received = {"same": by_cluster(1), "foreign": by_cluster(2, shift=40.0)}
    after = pool.step(state, X, received, ALL, generator(2))
    assert after.rates["same"] > 0.95
    assert after.rates["foreign"] < 0.05
    np.testing.assert_allclose(after.attachments["same"].sum(axis=1), 1.0, atol=0.02)
    np.testing.assert_allclose(np.sort(after.attachments["same"].sum(axis=0)), 1.0, atol=0.02)
    assert after.attachments["foreign"].max() < 1e-6
    pooled = {tuple(np.round(mean)) for mean in after.mixture.means}
    assert pooled == {tuple(center) for center in CENTERS}
    both = (60 / 3) * 2
    np.testing.assert_allclose(after.models.totals[0, :, 0, 0], both, rtol=0.05)


def test_pooling_halves_the_variance_of_the_means() -> None:
    errors = []
    for seed in range(6):
        X = table(seed, 30)
        alone = pool.init(X, 3, ALL, generator(1))
        near = {f"s{i}": by_cluster(100 + 10 * seed + i, 30) for i in range(4)}
        after = pool.step(alone, X, near, ALL, generator(2))
        errors.append([_squared(alone.mixture), _squared(after.mixture)])
    alone_error, pooled_error = np.mean(errors, axis=0)
    assert pooled_error < 0.5 * alone_error


def _squared(mixture: Mixture) -> float:
    return min(
        float(np.square(mixture.means[list(order)] - CENTERS).sum()) for order in permutations(range(3))
    )


def test_neighbours_may_have_more_or_fewer_components() -> None:
    X = table(0)
    state = pool.init(X, 3, ALL, generator(1))
    pieces = summary_of(table(1), np.arange(60) % 6)
    fewer = by_cluster(2)
    two = Summary(fewer.counts[:2], fewer.means[:2], fewer.covariances[:2])
    after = pool.step(state, X, {"pieces": pieces, "two": two}, ALL, generator(2))
    np.testing.assert_allclose(after.attachments["pieces"].sum(axis=1), 1.0, atol=0.05)
    np.testing.assert_allclose(after.attachments["pieces"].sum(axis=0), 2.0, atol=0.1)
    assert after.attachments["two"].shape == (2, 3)
    assert after.rates["two"] > 0.9


HOSTILE = {
    "nan": lambda s: replace(s, means=np.full_like(s.means, np.nan)),
    "infinite counts": lambda s: replace(s, counts=np.full(3, np.inf)),
    "huge": lambda s: replace(s, means=s.means + 1e300),
    "huge covariances": lambda s: replace(s, covariances=s.covariances * 1e300),
    "negative counts": lambda s: replace(s, counts=-s.counts),
    "not definite": lambda s: replace(s, covariances=-s.covariances, counts=s.counts * 1e300),
    "shifted": lambda s: replace(s, means=s.means + 1e6, counts=s.counts * 1e9),
    "tight": lambda s: Summary(np.full(3, 2e10), 4 * generator(9).normal(size=(3, 2)), np.zeros((3, 2, 2))),
    "wide": lambda s: replace(s, covariances=np.tile(100 * np.eye(2), (3, 1, 1)), counts=s.counts * 1e9),
    "wrong features": lambda s: Summary(s.counts, np.zeros((3, 5)), np.zeros((3, 5, 5))),
    "no arrays": lambda s: Summary(np.zeros(()), np.zeros(2), np.zeros(3)),
}


@pytest.mark.parametrize("attack", sorted(HOSTILE))
def test_a_malicious_neighbour_is_harmless(attack: str) -> None:
    X = table(0)
    bad = HOSTILE[attack](by_cluster(3))
    results = []
    for extra in ({}, {"bad": bad}):
        state = pool.init(X, 3, ALL, generator(1))
        honest = {"a": by_cluster(1), "b": by_cluster(2)}
        for number in range(2):
            state = pool.step(state, X, {**honest, **extra}, replace(ALL, start_rounds=()), generator(number))
        results.append(state)
    clean, attacked = (state.mixture for state in results)
    order = np.linalg.norm(attacked.means[:, None] - clean.means, axis=2).argmin(axis=0)
    np.testing.assert_allclose(attacked.means[order], clean.means, atol=0.05)
    np.testing.assert_allclose(attacked.covariances[order], clean.covariances, atol=0.15)
    assert results[1].rates["bad"] <= 0.5
    assert results[1].rates["a"] > 0.95
    assert results[1].attachments["bad"].sum() < 0.05


def test_a_shifted_copy_with_forged_counts_moves_little() -> None:
    X = table(0)
    said = by_cluster(4)
    copy = replace(said, means=said.means + np.array([1.0, 0.0]), counts=said.counts * 1e9)
    honest = {name: by_cluster(i + 1) for i, name in enumerate("abc")}
    start = pool.init(X, 3, ALL, generator(1))
    clean = pool.step(start, X, honest, ALL, generator(2))
    after = pool.step(start, X, {**honest, "copy": copy}, ALL, generator(2))
    # Counted in full, 1200 rows a shift of 1 away would move every mean by about 0.8.
    assert _distance(clean.mixture.means, after.mixture.means) < 0.15
    assert after.rates["copy"] < 0.1


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a[:, None] - b, axis=2).min(axis=0).max())


@pytest.mark.parametrize(
    "received", [{}, {"bad": Summary(np.array([np.nan]), np.zeros((1, 2)), np.zeros((1, 2, 2)))}]
)
def test_nothing_to_hear_leaves_the_local_fit(received: dict[str, Summary]) -> None:
    X = table(0)
    state = pool.init(X, 3, ALL, generator(1))
    after = pool.step(state, X, received, ALL, generator(2))
    np.testing.assert_array_equal(after.mixture.means, state.mixture.means)
    np.testing.assert_array_equal(after.mixture.weights, state.mixture.weights)
    assert after.changes == (0.0,)


@pytest.mark.parametrize(
    ("X", "k"),
    [
        (np.zeros((1, 2)), 5),
        (np.zeros((7, 2)), 3),
        (np.c_[np.arange(6.0), np.ones(6)], 2),
        (np.arange(5.0)[:, None], 5),
    ],
)
def test_poor_tables_do_not_raise(X: np.ndarray, k: int) -> None:
    d = X.shape[1]
    state = pool.init(X, k, ALL, generator(1))
    near = Summary(np.full(2, 10.0), np.zeros((2, d)), np.tile(np.eye(d), (2, 1, 1)))
    for number in (1, 2):
        state = pool.step(state, X, {"a": near}, ALL, generator(number))
    assert state.mixture.n_components == min(k, len(X))


def test_no_rows_and_other_features_are_refused() -> None:
    with pytest.raises(DataError, match="at least one"):
        pool.init(np.zeros((0, 2)), 2, ALL, generator(1))
    state = pool.init(table(0), 3, ALL, generator(1))
    with pytest.raises(DataError, match="expected 2 features"):
        pool.step(state, np.zeros((4, 3)), {}, ALL, generator(1))


def test_what_is_withheld_is_nobodys_component() -> None:
    said = Summary(np.array([0.0, 5.0]), np.array([[0.0, 0.0], [13.0, 24.0]]), np.tile(np.eye(2), (2, 1, 1)))
    inbox = receive({"a": said}, rows_of(table(0, 10)), 20.0)
    np.testing.assert_array_equal(inbox.slots, [1])
    assert inbox.sizes == (2,)


def test_the_message_never_contains_a_neighbours_rows() -> None:
    X = table(0)
    state = pool.init(X, 3, ALL, generator(1))
    state = pool.step(state, X, {"a": by_cluster(1, 600)}, ALL, generator(2))
    said = pool.message(state)
    assert said.counts.sum() == pytest.approx(len(X))
    np.testing.assert_allclose(said.counts @ said.means / len(X), X.mean(axis=0), atol=1e-9)


def test_forged_counts_are_capped_at_twenty_medians() -> None:
    honest = {name: by_cluster(i) for i, name in enumerate("abc")}
    forged = replace(by_cluster(5), counts=np.array([1e300, 1e300, 1e300]))
    inbox = receive({**honest, "z": forged}, rows_of(table(0)), 20.0)
    totals = inbox.incidence @ inbox.counts
    np.testing.assert_allclose(totals, [60, 60, 60, 1200])


def test_one_absurd_component_of_a_trusted_neighbour_is_harmless() -> None:
    X, said = table(0), by_cluster(1)
    absurd = Summary(
        np.r_[said.counts, 1e3],
        np.r_[said.means, [[1e8, -1e8]]],
        np.concatenate([said.covariances, np.zeros((1, 2, 2))]),
    )
    state = pool.init(X, 3, ALL, generator(1))
    for number in (1, 2):
        state = pool.step(state, X, {"a": absurd, "b": by_cluster(2)}, ALL, generator(number))
    assert state.rates["a"] > 0.5
    assert state.attachments["a"][3].max() < 1e-6
    assert _squared(state.mixture) < 1.0


def test_what_outlives_a_round_is_all_a_node_needs() -> None:
    X, received = table(0), {"a": by_cluster(1), "b": by_cluster(2)}
    state = pool.step(pool.init(X, 3, ALL, generator(1)), X, received, ALL, generator(2))
    own = state.models
    kept = (
        own.weights,
        own.means,
        own.covariances,
        own.within,
        own.strength,
        own.discount,
        own.own,
        own.junk,
    )
    rebuilt = replace(state, models=lone(*kept), attachments={})
    one, other = (pool.step(s, X, received, ALL, generator(3)) for s in (state, rebuilt))
    for name in ("weights", "means", "covariances"):
        np.testing.assert_array_equal(getattr(one.mixture, name), getattr(other.mixture, name))
    assert one.rates == other.rates


def fitted(X: np.ndarray, received: dict[str, Summary]) -> tuple[Models, Rows, Inbox]:
    """Return models after a first iteration with neighbours, discounted by a half."""
    rows = rows_of(X)
    inbox = receive(received, rows, 20.0)
    e, j = len(inbox.names), len(inbox.edges)
    own_fit = alone(local_fit(rows, 3, ALL, generator(1)))
    start = replace(
        own_fit, rates=np.full((1, e), 0.5), attached=np.zeros((1, j, 3)), discount=np.array([0.5])
    )
    return iterate(judged(start, rows, inbox), rows, inbox, ALL, plug_in=True), rows, inbox


def test_a_summary_is_judged_without_itself() -> None:
    models, rows, inbox = fitted(table(0), {"a": by_cluster(1), "b": by_cluster(2)})
    densities = np.zeros(models.attached.shape)
    scores = pool_local._left_out(models, inbox, densities, prior(models, rows))
    law = Prior(
        *(part[0] for part in (prior(models, rows).kappa, prior(models, rows).nu, prior(models, rows).psi))
    )
    for j, moments in enumerate(inbox.moments):
        for c in range(3):
            rest = models.own[0, c].copy()
            for other in range(len(inbox.moments)):
                if other != j:
                    rest += 0.5 * models.attached[0, other, c] * inbox.moments[other]
            expected = log_evidence(rest + moments, law) - log_evidence(rest, law)
            assert scores[0, j, c] == pytest.approx(expected, abs=1e-8)


def test_the_prior_is_renewed_by_evidence() -> None:
    models, rows, inbox = fitted(table(0), {"a": by_cluster(1), "b": by_cluster(2)})
    after = update_prior(models, rows, inbox, ALL)
    totals = models.own[0] + 0.5 * models.borrowed[0]
    counts, _, covariances = summaries_of(totals)
    # All three clusters have more than one row, and take one degree of freedom each.
    within = np.einsum("c,cpq->pq", counts, covariances) / (counts.sum() - 3)
    within += 1e-3 * np.square(rows.X).sum() / 60 / 2 * np.eye(2)
    np.testing.assert_allclose(after.within[0], within, rtol=1e-10)
    laws = [prior_of(within, np.array(s), rows.spread) for s in ALL.strengths]
    evidence = [log_evidence(totals, law).sum() for law in laws]
    assert after.strength[0] == ALL.strengths[int(np.argmax(evidence))]
    law = laws[int(np.argmax(evidence))]
    own, lent = models.own[0], models.borrowed[0]
    gains = [(log_evidence(w * lent + own, law) - log_evidence(w * lent, law)).sum() for w in ALL.discounts]
    assert after.discount[0] == ALL.discounts[int(np.argmax(gains))]
    np.testing.assert_allclose(after.separate[0], log_evidence(inbox.moments, law), rtol=1e-10)


def test_another_start_frees_a_node_from_a_bad_one() -> None:
    X, received = table(0), {"a": by_cluster(1), "b": by_cluster(2)}
    state = pool.init(X, 3, ALL, generator(1))
    left = int(state.mixture.means[:, 0].argmin())
    others = [c for c in range(3) if c != left]
    # Two components share a cluster, one sits between the two others.
    means = state.models.means.copy()
    means[0, others[0]] = means[0, others].mean(axis=0)
    means[0, others[1]] = means[0, left] + 0.3
    covariances = state.models.covariances.copy()
    covariances[0, others[0]] = 9 * np.eye(2)
    stuck = replace(state, models=replace(state.models, means=means, covariances=covariances))
    kept = pool.step(stuck, X, received, replace(ALL, start_rounds=()), generator(2))
    freed = pool.step(stuck, X, received, ALL, generator(2))
    assert _squared(kept.mixture) > 5.0
    assert _squared(freed.mixture) < 0.6


def test_a_good_model_keeps_the_order_of_its_components() -> None:
    X, received = table(0), {"a": by_cluster(1), "b": by_cluster(2)}
    state = pool.init(X, 3, ALL, generator(1))
    after = pool.step(state, X, received, ALL, generator(2))
    assert np.linalg.norm(after.mixture.means - state.mixture.means, axis=1).max() < 1.0


def test_the_one_to_one_rule_against_all_assignments() -> None:
    rng, inbox = generator(4), an_inbox(3, 2, 4)
    for _ in range(50):
        gains = rng.normal(size=(1, 9, 4)) + 1.0
        kept = one_to_one(gains, inbox)[0]
        for edge, size in enumerate((3, 2, 4)):
            part = np.maximum(gains[0, inbox.edges == edge], 0.0)
            best = max(sum(part[i, c] for i, c in enumerate(order)) for order in permutations(range(4), size))
            pairs = kept[inbox.edges == edge]
            alone = pairs.sum(axis=1) == 1
            taken = pairs[alone].argmax(axis=1)
            assert len(set(taken)) == len(taken)
            assert part[alone].max(axis=1, initial=0.0, where=pairs[alone]).sum() == pytest.approx(best)
            for row in pairs[~alone]:
                assert not row[taken][part[alone, taken] > 0].any()


def test_more_pieces_than_components_may_share_one() -> None:
    gains = np.array([[[5.0], [4.0], [-1.0]]])
    np.testing.assert_array_equal(one_to_one(gains, an_inbox(3))[0], [[True], [True], [True]])
    np.testing.assert_array_equal(
        one_to_one(np.array([[[5.0, 2.0], [4.0, -1.0]]]), an_inbox(2))[0], [[False, True], [True, False]]
    )


def test_an_untrusted_edge_cannot_fill_a_dead_component() -> None:
    inbox = an_inbox(1, 1)
    own, rates = np.array([[0.2, 30.0]]), np.array([[0.4, 0.9]])
    allowed = supported(rates, own, None, inbox)[0]
    np.testing.assert_array_equal(allowed, [[False, True], [True, True]])
    attached = np.array([[[0.0, 0.0], [0.5, 0.0]]])
    assert supported(rates, own, attached, inbox).all()
    assert not supported(rates, own, attached[:, ::-1], inbox)[0, 0, 0]


def test_the_edge_rate_ties_the_components_of_an_edge() -> None:
    inbox = an_inbox(4)
    half = np.full((1, 1), 0.5)
    weak = np.full((1, 4, 1), np.log(3.0))
    separate = np.zeros((1, 4))
    alone, _ = attach(weak[:, :1], separate[:, :1], half, an_inbox(1), 0.03)
    company = weak.copy()
    company[0, 1:] = 20.0
    supported_by, rate = attach(company, separate, half, inbox, 0.03)
    assert supported_by[0, 0, 0] > alone[0, 0, 0]
    foreign = weak.copy()
    foreign[0, 1:] = -20.0
    against, bad = attach(foreign, separate, half, inbox, 0.03)
    assert against[0, 0, 0] < alone[0, 0, 0]
    assert rate[0, 0] > 0.9 > 0.5 > bad[0, 0]
    # A single pass from one half, by hand.
    matched = 1 / (1 + np.exp(-np.log(3.0)))
    rate_1 = (0.03 + matched) / 1.06
    for _ in range(2):
        matched = 3 * rate_1 / (3 * rate_1 + 1 - rate_1)
        rate_1 = (0.03 + matched) / 1.06
    assert alone[0, 0, 0] == pytest.approx(matched)


def test_weights_follow_the_neighbours_only_where_they_agree() -> None:
    base = np.array([[400.0, 400.0]])
    same, _ = draw_weights(np.array([[24.0, 26.0]]), base, 2.0)
    skewed, _ = draw_weights(np.array([[48.0, 2.0]]), base, 2.0)
    assert abs(same[0, 0] - 0.5) < 0.005
    uneven, _ = draw_weights(np.array([[42.0, 8.0]]), np.array([[640.0, 160.0]]), 2.0)
    assert abs(uneven[0, 0] - 642 / 804) < 0.005
    assert skewed[0, 0] > 0.9


def test_near_but_not_equal_neighbours_are_discounted() -> None:
    rng, shares = generator(6), []
    for shift in (0.0, 0.45):
        X = rng.normal(size=(200, 2))
        near = {
            f"s{i}": summary_of(rng.normal(size=(200, 2)) + shift, np.zeros(200, dtype=int)) for i in range(6)
        }
        rows, models = rows_of(X), single(X)
        inbox = receive(near, rows, 20.0)
        start = replace(models, rates=np.full((1, 6), 0.9), attached=np.ones((1, 6, 1)))
        start = replace(start, borrowed=inbox.moments.sum(axis=0)[None, None])
        shares.append(update_prior(start, rows, inbox, ALL).discount[0])
    # Own evidence knows the share of 1200 borrowed rows within a step of its grid, no better.
    assert shares[0] >= 0.3
    assert shares[1] <= 0.03


def test_the_uniform_component_takes_junk_and_is_not_released() -> None:
    clean = table(0)
    junk = generator(8).uniform(-30.0, 30.0, size=(4, 2))
    X = np.concatenate([clean, junk])
    robust = replace(ALL, uniform=True)
    plain, guarded = (pool.init(X, 3, settings, generator(1)) for settings in (ALL, robust))
    assert _squared(guarded.mixture) < 0.5 * _squared(plain.mixture)
    assert np.linalg.det(guarded.mixture.covariances).max() < 5
    assert pool.message(guarded).counts.sum() == pytest.approx(60, abs=1.0)
    assert 0.01 < guarded.models.junk[0] < 0.05
    near = {"a": by_cluster(1), "b": by_cluster(2)}
    after = pool.step(guarded, X, near, robust, generator(2))
    assert min(after.rates.values()) > 0.95
    assert after.mixture.weights.sum() == pytest.approx(1.0)


def test_the_uniform_component_by_hand() -> None:
    X = table(0)
    rows = rows_of(X, uniform=True)
    assert rows.log_uniform == pytest.approx(-np.log(1.1**2 * np.prod(X.max(axis=0) - X.min(axis=0))))
    models = alone(local_fit(rows, 3, replace(ALL, uniform=True), generator(1)))
    R, density = responsibilities(rows.X, Mixture(models.weights[0], models.means[0], models.covariances[0]))
    share = models.junk[0]
    odds = np.log(share) + rows.log_uniform - np.log1p(-share) - density
    of_junk = 1 / (1 + np.exp(-odds))
    forms = quadratic_forms(models.means, models.covariances)
    own, evidence, junk = assign(models.weights, forms, models.junk, rows)
    np.testing.assert_allclose(own[0, :, 0, 0], (1 - of_junk) @ R, atol=1e-9)
    n = of_junk.sum()
    assert junk[0] == pytest.approx((n + 1) / (60 + 100))
    full = np.c_[R * (1 - of_junk[:, None]), of_junk]
    expected = -(full * np.log(np.maximum(full, 1e-300))).sum() + n * rows.log_uniform
    expected += betaln(1 + n, 99 + 60 - n) - betaln(1, 99)
    assert evidence[0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_forms_are_log_densities(d: int) -> None:
    rng = generator(d)
    A = rng.normal(size=(2, 3, d, d))
    # From round to nearly flat.
    covariances = A @ A.swapaxes(-1, -2) + np.array([1.0, 1e-3, 1e-6])[:, None, None] * np.eye(d)
    means, X = rng.normal(size=(2, 3, d)), rng.normal(size=(7, d))
    found = -0.5 * np.einsum("bkpq,npq->bkn", quadratic_forms(means, covariances), row_moments(X))
    for place in np.ndindex(2, 3):
        expected = multivariate_normal(means[place], covariances[place]).logpdf(X)
        np.testing.assert_allclose(found[place], expected, rtol=1e-9, atol=1e-9)


def test_there_is_nothing_to_tune_the_coupling_with() -> None:
    names = {field.name for field in fields(PoolSettings)}
    assert not names & {"alpha", "step_size", "bandwidths", "samples"}


@pytest.mark.parametrize(
    "bad",
    [
        {"max_rounds": -1},
        {"max_rounds": 2.5},
        {"min_count": float("nan")},
        {"rate_prior": 0.0},
        {"strengths": ()},
        {"discounts": (1.5,)},
        {"patience": 0},
        {"start_steps": (3, 2, 1)},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        PoolSettings(**bad)  # type: ignore[arg-type]  # wrong on purpose


def tables(n_sites: int) -> dict[str, np.ndarray]:
    return {f"s{i}": table(i, 60, shift=40.0 * (i % 2)) for i in range(n_sites)}


def test_a_node_rests_after_round_four_and_two_quiet_rounds() -> None:
    state = pool.init(table(0), 3, ALL, generator(1))

    def why(*changes: float) -> str:
        return pool.status(replace(state, changes=changes), ALL)

    assert why() == why(0.0, 0.0, 0.0, 0.0) == why(0.0, 0.0, 0.0, 0.0, 0.02) == "running"
    assert why(1.0, 1.0, 1.0, 0.009, 0.009) == "settled"
    assert why(*[0.02] * 8) == "max_rounds"
    assert pool.done(replace(state, changes=(0.0,) * 5), ALL)


def test_a_node_that_hardly_moves_tries_no_other_start_in_the_second_round() -> None:
    X, received = table(0), {"a": by_cluster(1), "b": by_cluster(2)}
    state = pool.init(X, 3, ALL, generator(1))
    for number in range(2):
        state = pool.step(state, X, received, replace(ALL, start_rounds=(1, 2)), generator(number))
    settled = replace(state, changes=state.changes[:1])
    lazy, busy = generator(5), generator(5)
    pool.step(settled, X, received, ALL, lazy)
    pool.step(settled, X, received, replace(ALL, restless=0.0), busy)
    untouched = generator(5).random()
    assert lazy.random() == untouched
    assert busy.random() != untouched


def test_a_network_finds_its_blocks_and_rests() -> None:
    data = tables(6)
    results = pool_network.run(data, 3, complete(sorted(data)), draws, replace(ALL, max_rounds=12))
    for name, result in results.items():
        assert result.status == "settled"
        for other, rate in result.rates.items():
            same = int(name[1]) % 2 == int(other[1]) % 2
            assert (rate > 0.9) if same else (rate < 0.1)
        centre = CENTERS + 40.0 * (int(name[1]) % 2)
        nearest = np.linalg.norm(result.mixture.means[:, None] - centre, axis=2).min(axis=0)
        assert nearest.max() < 0.75


def test_the_fast_mode_ends_after_four_rounds() -> None:
    data = tables(3)
    results = pool_network.run(data, 3, complete(sorted(data)), draws, FAST)
    assert all(len(result.changes) <= 4 for result in results.values())


def test_the_network_is_the_nodes_passing_messages() -> None:
    data = tables(4)
    graph = complete(sorted(data))
    state = pool_network.init(data, 3, graph, draws, ALL)
    nodes = {name: pool.init(X, 3, ALL, draws(0, name)) for name, X in data.items()}
    for number in (1, 2):
        state = pool_network.step(state, data, graph, draws, ALL)
        mail = {name: pool.message(own) for name, own in nodes.items()}
        nodes = {
            name: pool.step(
                nodes[name], data[name], {o: mail[o] for o in mail if o != name}, ALL, draws(number, name)
            )
            for name in sorted(data, reverse=True)
        }
    for name, own in nodes.items():
        np.testing.assert_array_equal(own.mixture.means, state.nodes[name].mixture.means)


def test_silent_sites_keep_their_last_word() -> None:
    data = tables(4)
    graph = complete(sorted(data))
    state = pool_network.init(data, 3, graph, draws, ALL)
    after = pool_network.step(state, data, graph, draws, ALL, silent=["s0"])
    assert after.mail["s0"] is state.mail["s0"]
    assert after.nodes["s0"] is state.nodes["s0"]
    assert "s0" in after.nodes["s2"].rates


def test_a_graph_of_other_sites_is_refused() -> None:
    with pytest.raises(ConfigError, match="s3"):
        pool_network.init(tables(4), 3, complete(["s0", "s1", "s2"]), draws, ALL)
