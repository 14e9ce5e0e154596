"""AFCL: the server's competition against plain loops, what it learns of the rows, replays, guards."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import davies_bouldin_score

from fedcluster_app.aggregation.afcl import (
    AFCLState,
    client_start,
    client_step,
    done,
    finish,
    init,
    status,
    step,
)
from fedcluster_app.errors import ConfigError, DataError

MIDDLES = np.array([[0.15, 0.15], [0.85, 0.2], [0.5, 0.85]])


def sites(seed, per=60):
    rng = np.random.default_rng(seed)
    held = {"a": [0, 1], "b": [1, 2], "c": [2, 0]}
    return {
        s: np.concatenate([MIDDLES[j] + 0.03 * rng.normal(size=(per, 2)) for j in c]) for s, c in held.items()
    }


def start(X, k=6, seed=0, **options):
    rng = np.random.default_rng(seed)
    return init({s: client_start(part, k, rng) for s, part in X.items()}, k, rng, **options)


def answers(X, state, who=None):
    return {
        s: client_step(part, state.seeds, state.weights) for s, part in X.items() if who is None or s in who
    }


def competition(seeds, X, weights, balance, rebuild="released", had=None):
    """The published server loop, number by number; `had` are the seeds that a site had, if others."""
    now, seeds = seeds, [list(seed) for seed in seeds]
    wins = [1] * len(seeds)

    def squared(a, b):
        return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))

    for site in sorted(X):
        sent = (had or {}).get(site, now)
        won = [min(range(len(sent)), key=lambda j, x=x: squared(x, sent[j])) for x in X[site]]
        for j in range(len(sent)):
            for x in (x for x, winner in zip(X[site], won, strict=True) if winner == j):
                stretch = balance[site] if rebuild == "released" else 1.0
                point = [c + (v - c) / stretch for v, c in zip(x, sent[j], strict=True)]
                share = [w / sum(wins) * squared(point, s) for w, s in zip(wins, seeds, strict=True)]
                best = share.index(min(share))
                wins[best] += 1
                reach, middle = squared(point, seeds[best]), list(seeds[best])
                for seed in seeds:
                    if squared(seed, middle) <= reach or squared(seed, middle) <= 1e-4:
                        for f in range(len(seed)):
                            seed[f] += weights[f] * balance[site] * (point[f] - seed[f])
    return np.array(seeds)


@pytest.mark.parametrize("rebuild", ["released", "exact"])
@pytest.mark.parametrize("seed", range(3))
def test_the_server_step_runs_and_is_the_published_competition(seed, rebuild):
    X = sites(seed, per=8)
    state = start(X, seed=seed)
    after = step(state, answers(X, state), rebuild=rebuild)
    balance = dict.fromkeys(X, 1 / (1 + 1 / 3))
    wanted = competition(state.seeds, X, state.weights, balance, rebuild)
    np.testing.assert_allclose(after.seeds, wanted, rtol=1e-10)
    assert np.abs(after.seeds - state.seeds).max() > 1e-5
    assert after.movement == np.abs(after.seeds - state.seeds).max()


def test_what_is_sent_gives_every_row_away():
    X = sites(0)["a"]
    state = start({"a": X})
    sent = client_step(X, state.seeds, state.weights)
    np.testing.assert_allclose(state.seeds[sent.winners] + sent.updates / state.weights, X, rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_more_seeds_than_clusters_merge_to_the_clusters_with_sites_that_come_and_go(seed):
    X = sites(seed)
    # Steps ten times as long, so that forty rounds are more than enough.
    state = replace(start(X, seed=seed, learn=False), weights=np.full(2, 0.01))
    rng = np.random.default_rng(seed)
    assert len(finish(state).centers) == 6
    while not done(state, max_rounds=40):
        state = step(state, answers(X, state, [s for s in X if rng.random() < 0.7]))
    result = finish(state)
    assert len(result.centers) == 3
    gap = np.linalg.norm(result.centers[:, None] - MIDDLES, axis=2)
    assert gap.min(axis=0).max() < 0.02
    assert len(result.labels) == 6
    np.testing.assert_allclose(result.centers[result.labels], state.seeds, atol=0.02)


def test_attribute_weights_fall_with_the_seventh_root_of_the_moves():
    X = sites(1)
    state = start(X)
    sent = answers(X, state)
    moves = sum(np.abs(part.updates).sum(axis=0) for part in sent.values())
    weights = step(state, sent).weights
    for j in range(2):
        assert weights[j] == pytest.approx(0.002 / sum((moves[j] / moves[h]) ** (1 / 7) for h in range(2)))
    fixed = start(X, learn=False)
    np.testing.assert_allclose(fixed.weights, 0.001)
    assert step(fixed, answers(X, fixed)).weights is fixed.weights


def test_a_constant_feature_gets_no_weight_and_does_no_harm():
    X = {s: np.hstack([part, np.ones((len(part), 1))]) for s, part in sites(2, per=10).items()}
    state = start(X)
    for _ in range(3):
        state = step(state, answers(X, state))
    assert state.weights[2] == 0
    assert state.weights.sum() == pytest.approx(0.003)
    np.testing.assert_allclose(state.seeds[:, 2], 1.0)


def test_index_is_the_one_of_davies_and_bouldin_on_pooled_rows():
    X = sites(3, per=20)
    state = AFCLState(MIDDLES + 0.05, np.full(2, 1e-3))
    # Each blob is split over two sites; with one site the deviations are about the pooled means.
    pooled = np.concatenate(list(X.values()))
    labels = np.linalg.norm(pooled[:, None] - MIDDLES, axis=2).argmin(axis=1)
    after = step(state, {"all": client_step(pooled, state.seeds, state.weights)})
    assert after.index == pytest.approx(davies_bouldin_score(pooled, labels))


def test_absent_sites_that_took_part_less_than_average_are_replayed_from_their_last_answer():
    X = sites(4, per=5)
    first = start(X)
    second = step(first, answers(X, first, "ab"))
    assert dict(second.takes) == {"a": 1, "b": 1, "c": 0}
    third = step(second, answers(X, second, "b"))  # a: 1 of 3, above the average balance? c was never there
    assert dict(third.takes) == {"a": 1, "b": 2, "c": 0}
    fourth = step(third, answers(X, third, "bc"))  # a: 1 of 5, b: 3, c: 1
    assert dict(fourth.takes) == {"a": 2, "b": 3, "c": 1}
    assert fourth.answers["a"].seeds is first.seeds
    # A replayed row is still the row itself, though seeds and weights have moved on.
    kept = fourth.answers["a"]
    np.testing.assert_allclose(kept.seeds[kept.records.winners] + kept.records.updates / kept.weights, X["a"])
    # Only the balance of the replayed site counts the replay.
    balance = {"a": 1 / (1 + 2 / 6), "b": 1 / (1 + 3 / 5), "c": 1 / (1 + 1 / 5)}
    wanted = competition(third.seeds, X, third.weights, balance, had={"a": first.seeds})
    np.testing.assert_allclose(fourth.seeds, wanted, rtol=1e-10)


def test_seeds_that_almost_coincide_move_together_even_if_the_row_is_on_one_of_them():
    seeds = np.array([[0.5, 0.5], [0.503, 0.5], [0.52, 0.5]])
    state = AFCLState(seeds, np.full(2, 0.1))
    after = step(state, {"a": client_step(seeds[:1], seeds, state.weights)}, rebuild="exact")
    np.testing.assert_allclose(after.seeds, [[0.5, 0.5], [0.503 - 0.05 * 0.003, 0.5], [0.52, 0.5]])


def test_order_of_the_sites_changes_nothing():
    X = sites(5, per=10)
    one, other = start(X), start(X)
    for _ in range(3):
        one = step(one, answers(X, one))
        other = step(other, dict(reversed(answers(X, other).items())))
    assert one.seeds.tobytes() == other.seeds.tobytes()
    assert list(other.answers) == list(other.takes) == ["a", "b", "c"]


def test_guards_for_empty_sites_few_rows_silence_and_coinciding_rows():
    rng = np.random.default_rng(0)
    none = np.empty((0, 2))
    assert client_start(none, 3, rng).shape == (0, 2)
    two = np.array([[0.1, 0.1], [0.9, 0.9]])
    np.testing.assert_array_equal(client_start(two, 3, rng), two)
    state = start({"none": none, "two": two}, k=5)
    assert len(state.seeds) == 2
    silent = step(state, {})
    assert (silent.round, silent.seeds.tobytes()) == (1, state.seeds.tobytes())
    empty = step(state, {"none": client_step(none, state.seeds, state.weights)})
    assert empty.seeds.tobytes() == state.seeds.tobytes()
    both = step(state, answers({"none": none, "two": two}, state))
    assert np.isfinite(both.seeds).all()
    same = start({"same": np.full((8, 2), 0.5)}, k=3)
    after = step(same, answers({"same": np.full((8, 2), 0.5)}, same))
    assert np.isfinite(after.weights).all()
    assert after.index == 0.0
    assert len(finish(after).centers) == 1
    late = step(both, {"late": client_step(two, both.seeds, both.weights)})
    assert late.takes["late"] == 1


def test_seeds_merge_in_chains_and_only_if_near_in_every_feature():
    seeds = np.array([[0.5, 0.0], [0.1, 0.1], [0.5008, 0.0], [0.1, 0.1012], [0.5016, 0.0]])
    result = finish(AFCLState(seeds, np.ones(2)))
    assert result.labels.tolist() == [0, 1, 0, 2, 0]
    np.testing.assert_array_equal(result.centers, seeds[[0, 1, 3]])


def test_refusals_and_stopping():
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="k: expected"):
        client_start(np.ones((3, 2)), 0, rng)
    with pytest.raises(ConfigError, match="k: expected"):
        init({"a": np.ones((3, 2))}, 0, rng)
    with pytest.raises(DataError, match="at least one row"):
        init({"a": np.empty((0, 2))}, 3, rng)
    with pytest.raises(ConfigError, match="rebuild"):
        step(AFCLState(np.ones((1, 2)), np.ones(2)), {}, rebuild="never")
    moving = AFCLState(MIDDLES, np.ones(2), round=3, change=0.0, movement=1e-3)
    assert status(moving) == "running"
    assert status(moving, rest=1e-2) == "converged"
    assert status(moving, max_rounds=3) == "max_rounds"
