from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from fedcluster_app.metrics.agreement import adjusted_rand_index, contingency_table
from simulations.experiments import comparison, sets
from simulations.experiments.comparison import CENTRAL, FEDERATED, main, run_trial
from simulations.experiments.scores import Score, summaries, tables
from simulations.experiments.sets import LabelledSet, deal
from simulations.experiments.trials import Trial, interval, read, run_on_train


@pytest.fixture(autouse=True)
def three_sites(monkeypatch):
    monkeypatch.setitem(sets.SETS, "digits", dataclasses.replace(sets.SETS["digits"], sites=3, k_min=4))


def score(name, method, ari, own=None, seed=0, regime="a", k_hat=4):
    return Score(name, regime, method, seed, ari, ari, own, own, k_hat, 3, 1.0, 2000.0)


def test_every_method_is_scored_on_the_same_held_out_rows():
    found = {method: run_trial(Trial("digits", "", "a", method, 1, {})) for method in (*FEDERATED, *CENTRAL)}
    # The Dirichlet process leaves most rows in one large cluster.
    assert all(one.ari > (0.1 if name == "dpgmm" else 0.3) for name, one in found.items())
    assert all(one.ari < 1 and 0.3 < one.nmi < 1 for one in found.values())
    assert {one.k_true for one in found.values()} == {10}
    assert [one.k_hat for name, one in found.items() if name in ("kmeans", "gmm")] == [10, 10]
    assert 10 < found["dpgmm"].k_hat <= 30  # it is not told the true number
    assert [one.bytes_up > 0 for one in found.values()] == [True, True, True, False, False, False]
    assert [one.own_ari is None for one in found.values()] == [False, False, True, True, True, True]


@pytest.mark.parametrize("settings", [{"refine-rounds": 0}, {"refine-rounds": 2}])
def test_micro_clusters_label_as_the_product_does(settings):
    """The product scores the rows that it learned from; with these held out, both must say the same."""
    trial = Trial("digits", "", "a", "microcluster", 0, settings)
    dealt = trial.dealt()
    run = run_on_train(trial, dealt)
    same = dataclasses.replace(dealt, test=dealt.train)
    truth = dealt.y[np.concatenate(list(dealt.train.values()))]
    table = contingency_table(truth, comparison._micro_labels(same, run))
    assert adjusted_rand_index(table) == pytest.approx(run.outcome.scores["ari"])


def test_fedgem_labels_as_the_product_does():
    trial = Trial("digits", "", "a", "fedgem+asm", 0, {})
    dealt = trial.dealt()
    run = run_on_train(trial, dealt)
    same = dataclasses.replace(dealt, test=dealt.train)
    truth = dealt.y[np.concatenate(list(dealt.train.values()))]
    for found, name in zip(comparison._fedgem_labels(same, run), ("ari", "own_ari"), strict=True):
        assert adjusted_rand_index(contingency_table(truth, found)) == pytest.approx(run.outcome.scores[name])


def test_personal_methods_label_by_the_mixture_of_the_site_as_the_product_does():
    trial = Trial("digits", "", "a", "fedem", 0, {"k": 10})
    dealt = trial.dealt()
    run = run_on_train(trial, dealt)
    same = dataclasses.replace(dealt, test=dealt.train)
    truth = dealt.y[np.concatenate(list(dealt.train.values()))]
    table = contingency_table(truth, comparison._labels(trial, same, run)[0])
    assert adjusted_rand_index(table) == pytest.approx(run.outcome.scores["ari"])


def test_a_command_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    file = tmp_path / "scores.jsonl"
    command = ["--sets", "digits", "--methods", "microcluster,kmeans", "--seeds", "1", "--json", str(file)]
    main([*command, "--settings", "refine-rounds=1,k-rule=bic"])
    printed = capsys.readouterr().out
    assert "microcluster refine-rounds=1 k-rule=bic" in printed
    assert [json.loads(line)["seed"] for line in file.read_text().splitlines()] == [0, 0]
    made = read(file, Score)
    monkeypatch.setattr(comparison, "run_trial", lambda trial: score("digits", trial.method, 0.5))
    main(command)
    # K-means was there; micro-clusters of other settings were not.
    assert [one.method for one in read(file, Score)[2:]] == ["microcluster"]
    assert read(file, Score)[:2] == made
    capsys.readouterr()
    main(["--read", str(file)])
    assert "digits, a, K* = 10" in capsys.readouterr().out


def test_summaries_take_the_sets_and_seeds_that_every_method_has():
    scores = [
        score("one", "microcluster", 0.6),
        score("one", "microcluster", 0.8, seed=1),
        score("one", "microcluster", 0.0, seed=2),
        score("one", "fedgem+asm", 0.4, own=0.3),
        score("one", "fedgem+asm", 0.6, own=0.3, seed=1),
        score("two", "microcluster", 0.3, regime="natural", k_hat=2),
        score("two", "fedgem+asm", 0.1, own=0.4, regime="natural"),
        score("three", "microcluster", 0.9),
        score("one", "fedgem+asm", 0.5, own=0.3, regime="b"),
    ]
    first, second = summaries(scores, "microcluster").split("\n\n")
    title, _, ours, other = first.splitlines()
    assert title == "regime a and natural sites, 2 sets: one, two"
    assert ours.split() == ["microcluster", "0.500", "-", "0.500", "1.00", "1.00", "2.0"]
    # 0.7 - 0.5 in set one, 0.3 - 0.4 in set two: the better reading of each set.
    assert other.split()[-7:] == ["1", "of", "2", "+0.050", "-0.100", "to", "+0.200"]
    assert second.startswith("regime b, 1 sets: one")
    assert tables(scores).count("K* = 3") == 4


def test_intervals_hold_the_mean_and_shrink():
    rng = np.random.default_rng(0)
    few, many = (rng.normal(1, 1, size=n) for n in (10, 1000))
    for values in (few, many):
        low, high = interval(values)
        assert low < values.mean() < high
    assert np.ptp(interval(many)) < np.ptp(interval(few)) / 3
    assert np.ptp(interval(many)) == pytest.approx(2 * 1.96 / np.sqrt(1000), rel=0.1)


def test_rows_that_lack_a_value_take_no_part(tmp_path):
    X = np.arange(40.0).reshape(10, 4)
    X[3, 1], X[5, 3] = np.nan, np.nan
    np.savez(tmp_path / "t.npz", X=X, y=np.arange(10) % 2, site=np.arange(10) // 5)
    dealt = deal(LabelledSet("t.npz", 2, last_column=3), str(tmp_path), "a", np.random.default_rng(0))
    assert dealt.X.shape == (9, 3)
    assert 12 not in dealt.X[:, 0]
    assert [len(dealt.train[name]) + len(dealt.test[name]) for name in dealt.train] == [4, 5]


@pytest.mark.parametrize("method", ["kfed", "fedkmeans", "spahm"])
def test_rivals_are_scored_on_held_out_rows_of_any_regime(method):
    settings = {} if method == "fedkmeans" else {"local-k": 6}
    one = run_trial(Trial("digits", "", "dirichlet-0.5", method, 0, settings))
    assert 0.2 < one.ari < 1
    assert one.rounds >= 1
    assert one.bytes_up > 0
    assert one.k_hat == 10 or method == "spahm"


def test_a_dirichlet_regime_deals_every_row_once():
    dealt = Trial("digits", "", "dirichlet-0.5", "kfed", 0, {}).dealt()
    rows = np.concatenate([*dealt.train.values(), *dealt.test.values()])
    assert sorted(rows) == list(range(len(dealt.y)))
    assert sum(map(len, dealt.test.values())) == pytest.approx(len(rows) / 5, rel=0.1)
