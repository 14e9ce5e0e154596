"""The study of personal mixtures: what is drawn, how it is scored, and what its command does."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from fedcluster_app.gtvmin import Bounds
from fedcluster_app.mixtures import Mixture
from simulations.experiments import personal
from simulations.experiments.personal import (
    Trial,
    main,
    paper,
    run_trial,
    score,
    starts,
)
from simulations.experiments.personal_data import PUBLISHED, READINGS, SCENARIOS, TABLES, Network, draw, peers
from simulations.experiments.personal_scores import Score, median_interval, tables
from simulations.experiments.trials import read


@pytest.fixture
def small(monkeypatch):
    """Three sites, few rows and rounds."""
    for name in ("iso", "aniso"):
        scenario = dataclasses.replace(SCENARIOS[name], sites=3, rows=30, rounds=2)
        monkeypatch.setitem(SCENARIOS, name, scenario)
    monkeypatch.setitem(TABLES, "table2", ("iso", "aniso"))


def made(method, ll, *, reading="A", seed=0, scenario="iso", error=0.1):
    return Score(scenario, reading, method, seed, ll, ll, error, 0.9, 2.0, 1.0)


@pytest.mark.parametrize("name", ["iso", "var", "aniso", "sbm 0.2"])
def test_rows_come_from_the_truth_of_their_site(name):
    scenario = dataclasses.replace(SCENARIOS[name], rows=4000)
    drawn = draw(scenario, READINGS["A"], 1)
    assert list(drawn.train) == list(drawn.graph.names)
    for site, truth in list(drawn.truths.items())[:: scenario.sites - 1]:
        mean = truth.weights @ truth.means
        spread = np.sqrt(200 / scenario.rows)
        np.testing.assert_allclose(drawn.train[site].mean(axis=0), mean, atol=spread)
        assert drawn.test[site].shape == (400, 2)
        for c, center in enumerate(truth.means):
            np.testing.assert_allclose(drawn.test[site][drawn.labels[site] == c].mean(axis=0), center, atol=1)


def test_shapes_of_the_clusters_are_those_of_the_paper():
    volumes = {
        name: draw(SCENARIOS[name], READINGS["A"], 0).truths["site-00"] for name in ("iso", "var", "aniso")
    }
    np.testing.assert_array_equal(volumes["iso"].covariances, [1, 1])
    np.testing.assert_allclose(volumes["var"].covariances, [0.5, 2])
    np.testing.assert_allclose(np.linalg.eigvalsh(volumes["aniso"].covariances), [[0.3, 2]] * 2)
    assert not np.allclose(*volumes["aniso"].covariances)


def test_blocks_share_a_shift_and_sites_elsewhere_are_alike():
    drawn = draw(SCENARIOS["sbm 0"], READINGS["A"], 0)
    means = np.array([truth.means for truth in drawn.truths.values()])
    shifts = means - means[0]
    np.testing.assert_allclose(shifts, np.broadcast_to(shifts[:, :1], shifts.shape), atol=1e-12)
    for block in range(3):
        np.testing.assert_array_equal(means[5 * block : 5 * block + 5], means[[5 * block] * 5])
    assert np.abs(shifts[[5, 10]]).max(axis=(1, 2)).min() > 1
    assert [len(part) for part in drawn.graph.islands] == [5, 5, 5]
    assert (
        np.ptp([t.means for t in draw(SCENARIOS["er"], READINGS["A"], 0).truths.values()], axis=0).max() == 0
    )


def test_readings_differ_in_the_labels_and_not_in_the_truth():
    a, b, c = (draw(SCENARIOS["er"], READINGS[name], 3) for name in "ABC")
    for site in a.train:
        np.testing.assert_array_equal(a.train[site], b.train[site])
        np.testing.assert_array_equal(a.truths[site].means, c.truths[site].means)
        assert set(np.bincount(a.labels[site])) == {80}
        assert len(set(np.bincount(c.labels[site]))) > 1
    assert a.graph == c.graph
    assert draw(SCENARIOS["er"], READINGS["A"], 4).graph != a.graph


def test_digits_are_all_used_once_and_on_a_common_scale():
    drawn = draw(SCENARIOS["digits 0.5"], READINGS["A"], 0)
    train, test = (np.concatenate(list(part.values())) for part in (drawn.train, drawn.test))
    assert len(train) + len(test) == 1797
    assert len(np.unique(np.concatenate([train, test]), axis=0)) == 1797
    assert np.concatenate([train, test]).std() == pytest.approx(1)
    for site, rows in drawn.train.items():
        assert len(drawn.test[site]) == pytest.approx(2 / 3 * len(rows), abs=1)
        assert len(drawn.labels[site]) == len(drawn.test[site])


def test_settings_are_those_of_the_paper_but_for_the_changes():
    iso, digits = SCENARIOS["iso"], SCENARIOS["digits 1"]
    assert [paper(iso, name, {}).alpha for name in ("euclidean", "kl", "mmd")] == [1, 0.1, 1]
    assert (paper(digits, "mmd", {}).alpha, paper(digits, "mmd", {}).step_size) == (1, 0.01)
    assert not paper(iso, "mmd", {}).guarded
    assert (paper(iso, "mmd", {}).bounds.weight_floor, Bounds().variance_floor) == (0.02, 0.01)
    changed = paper(iso, "kl", {"alpha": 3, "guard": True, "variance_floor": 0.1})
    assert (changed.alpha, changed.guarded, changed.bounds.variance_floor) == (3, True, 0.1)


@pytest.mark.parametrize("reading", ["A", "B"])
def test_sites_start_from_their_own_clusters(reading):
    scenario = dataclasses.replace(SCENARIOS["iso"], rows=400, sites=3)
    drawn = draw(scenario, READINGS[reading], 0)
    begun = starts(drawn, 2, READINGS[reading], paper(scenario, "mmd", {}), 0)
    for site, truth in drawn.truths.items():
        order = truth.means[:, 0].argsort()
        found = begun[site].means[begun[site].means[:, 0].argsort()]
        np.testing.assert_allclose(found, truth.means[order], atol=0.3)


def test_scores_of_the_truth():
    scenario = SCENARIOS["aniso"]
    drawn = draw(scenario, READINGS["C"], 0)
    found = score(drawn, drawn.truths)
    # Entropy of two clusters that hardly overlap.
    expected = -(np.log(2) + np.log(2 * np.pi) + 1 + 0.5 * np.log(0.6))
    assert found["ll"] == pytest.approx(expected, abs=0.06)
    assert found["error"] == 0
    assert found["effective"] == pytest.approx(2)
    assert found["nmi"] > 0.95


def test_scores_are_means_over_sites():
    X, names = np.array([[0.0], [1.0], [10.0], [11.0]]), ("a", "b")
    labels = {"a": np.array([0, 0, 1, 1]), "b": np.array([0, 1, 0, 1])}
    mixture = Mixture(np.array([0.5, 0.5]), np.array([[10.0], [1.0]]), np.ones(2))
    truth = Mixture(np.array([0.5, 0.5]), np.array([[0.0], [10.0]]), np.ones(2))
    sites = dict.fromkeys(names, X)
    drawn = Network(None, sites, {"a": X, "b": X + 1}, labels, dict.fromkeys(names, truth))
    found = score(drawn, dict.fromkeys(names, mixture))
    guessed = np.array([1, 1, 0, 0])
    nmi = [normalized_mutual_info_score(labels[name], guessed) for name in names]
    assert found["nmi"] == pytest.approx(np.mean(nmi))
    assert found["error"] == pytest.approx(0.5)
    near = np.array([1, 0, 0, 1, 0, 1, 1, 4])
    assert found["ll"] == pytest.approx(-np.log(2) - 0.5 * np.log(2 * np.pi) - 0.5 * near.mean(), abs=1e-6)
    assert found["train_ll"] > found["ll"]
    assert score(dataclasses.replace(drawn, truths={}), {"a": mixture, "b": mixture})["error"] is None


def test_peers_on_digits_are_made_feasible():
    drawn = draw(SCENARIOS["digits 1"], READINGS["A"], 0)
    one = dataclasses.replace(drawn, train={"site-00": drawn.train["site-00"]})
    found = peers(one, SCENARIOS["digits 1"], 0, pooled=False, n_init=1)["site-00"]
    assert np.linalg.eigvalsh(found.covariances).min() == pytest.approx(0.01)
    assert found.weights.min() >= 0.02 - 1e-12
    free = peers(one, dataclasses.replace(SCENARIOS["iso"], k=10), 0, pooled=False, n_init=1)["site-00"]
    assert np.linalg.eigvalsh(free.covariances).min() < 0.005


@pytest.mark.parametrize("method", personal.METHODS)
def test_a_trial_is_a_function_of_its_seed(small, method):
    one, two, other = (run_trial(Trial("iso", "B", method, seed, {})) for seed in (0, 0, 1))
    assert dataclasses.replace(one, seconds=0) == dataclasses.replace(two, seconds=0)
    assert one.ll != other.ll
    assert -6 < one.ll < -3
    assert one.key == ("iso", "B", method, 0)


def test_settings_reach_the_run_and_name_its_score(small):
    alone, coupled = (run_trial(Trial("iso", "B", "mmd", 0, {"alpha": alpha})) for alpha in (0, 1))
    assert coupled.ll != alone.ll
    assert (alone.method, coupled.method) == ("mmd alpha=0", "mmd alpha=1")
    pooled = run_trial(Trial("iso", "B", "pool", 0, {"max_rounds": 1, "min_count": 0}))
    assert pooled.ll != run_trial(Trial("iso", "B", "pool", 0, {"max_rounds": 0, "min_count": 0})).ll
    assert pooled.method == "pool max_rounds=1 min_count=0"


def test_settings_go_to_the_methods_that_have_them(small, capsys):
    main(
        [
            *("--tables", "table2", "--readings", "A", "--seeds", "1"),
            *("--methods", "euclidean,pool,local", "--settings", "alpha=0,min_count=3"),
        ]
    )
    names = {line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("iso")}
    assert names == {"iso: euclidean alpha=0", "iso: pool min_count=3", "iso: local"}


def test_intervals_of_medians_hold_the_median_and_shrink():
    rng = np.random.default_rng(0)
    few, many = (rng.normal(1, 1, size=n) for n in (10, 400))
    for values in (few, many):
        low, high = median_interval(values)
        assert low <= np.median(values) <= high
    # The median of normal values spreads by sqrt(pi / 2) more than their mean.
    assert np.ptp(median_interval(many)) == pytest.approx(2 * 1.96 * np.sqrt(np.pi / 800), rel=0.25)
    assert median_interval(np.array([3.0])) == (3, 3)


def test_tables_have_published_beside_reproduced():
    scores = [made("kl", -3.5 - seed / 10, seed=seed) for seed in range(3)]
    scores += [
        made("kl", -4.0, reading="C"),
        made("kl alpha=3", -5.0),
        made("kl", -9.0, scenario="digits 1", error=None),
    ]
    first, second, *_ = tables(scores).split("\n\n")
    head, known, varied, digits = first.splitlines()
    assert head.split() == ["LL", "published", "A", "C", "seeds"]
    assert known.split() == [
        "iso:",
        "kl",
        "-3.54",
        "-3.600",
        "[-3.700,",
        "-3.500]",
        "-4.000",
        "[-4.000,",
        "-4.000]",
        "3/1",
    ]
    assert varied.split()[:5] == ["iso:", "kl", "alpha=3", "-", "-5.000"]
    assert varied.split()[-2:] == ["-", "1/0"]
    assert digits.split()[:4] == ["digits", "1:", "kl", "-12.4"]
    # Where no truth is known there is no error to print.
    assert "digits" not in second


def test_published_figures_are_of_scenarios_that_are_run():
    assert {scenario for scenario, _ in PUBLISHED} <= set(SCENARIOS)
    assert {method for _, method in PUBLISHED} == set(personal.PAPER)
    assert {figure for figures in PUBLISHED.values() for figure in figures} == set(personal.FIGURES)
    assert PUBLISHED["var", "mmd"] == {"ll": "-3.53", "error": "0.10", "nmi": "1.00"}
    assert set(SCENARIOS) == {name for names in TABLES.values() for name in names}


def test_a_command_goes_on_where_it_was(small, tmp_path, capsys, monkeypatch):
    file = tmp_path / "scores.jsonl"
    command = ["--tables", "table2", "--readings", "A", "--seeds", "1", "--json", str(file)]
    main([*command, "--methods", "euclidean,centralized", "--settings", "update=em,alpha=0.5"])
    printed = capsys.readouterr().out
    assert "aniso: euclidean update=em alpha=0.5" in printed
    assert "aniso: centralized" in printed
    assert len(file.read_text().splitlines()) == 4
    assert {json.loads(line)["scenario"] for line in file.read_text().splitlines()} == {"iso", "aniso"}
    before = read(file, Score)
    monkeypatch.setattr(
        personal, "run_trial", lambda trial: made(trial.method, -1.0, scenario=trial.scenario)
    )
    main([*command, "--methods", "euclidean,centralized"])
    # The centralised fits were there; coupled ones of other settings were not.
    assert read(file, Score)[:4] == before
    assert [one.method for one in read(file, Score)[4:]] == ["euclidean", "euclidean"]
    capsys.readouterr()
    main(["--read", str(file)])
    assert "aniso: euclidean update=em alpha=0.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tables", "table9"], "no tables table9; choose from table2"),
        (["--readings", "D"], "no readings D"),
        (["--methods", "wasserstein"], "no methods wasserstein"),
        (["--settings", "beta=3"], "no setting beta; choose from alpha"),
    ],
)
def test_unknown_names_are_refused(arguments, complaint, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert complaint in capsys.readouterr().err
