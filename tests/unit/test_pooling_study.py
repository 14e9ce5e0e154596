"""The study of pooling under strain: what is drawn, who lies, how it is scored, and what its command does."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

from fedcluster_app.gtvmin.pool_message import Summary
from simulations.experiments import personal, pooling
from simulations.experiments.personal_data import READINGS, SCENARIOS, draw
from simulations.experiments.pooling import Score, Trial, main, pooled, run_trial, table
from simulations.experiments.pooling_data import ATTACKS, KINDS, STUDIES, Variant, attacked, network_of
from simulations.experiments.trials import read

FEW = {"first": Variant(scenario="er"), "second": Variant(scenario="er", silent=True)}


@pytest.fixture
def small(monkeypatch):
    """Four sites with few rows, and a study of two variants."""
    monkeypatch.setitem(SCENARIOS, "er", dataclasses.replace(SCENARIOS["er"], k=2, rows=20, sites=4))
    monkeypatch.setitem(STUDIES, "silence", {"er": FEW})


def made(name, ll, *, study="silence", group="er", seed=0, inside=0.9):
    return Score(study, group, name, seed, ll, 0.1, 2.0, inside, None)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_follow_their_law_about_the_true_means(kind, monkeypatch):
    monkeypatch.setitem(SCENARIOS, "er", dataclasses.replace(SCENARIOS["er"], rows=5000, sites=2))
    drawn = network_of(Variant(scenario="er", rows=kind), 0)
    clean = draw(SCENARIOS["er"], READINGS["A"], 0)
    assert drawn.graph == clean.graph
    law = {"t(4)": stats.t(4).cdf, "skew": stats.expon(-1).cdf}.get(kind, stats.norm.cdf)
    for part, tables in (("train", drawn.train), ("test", drawn.test)):
        for name, X in tables.items():
            truth = clean.truths[name]
            labels = np.repeat(np.arange(5), len(X) // 5)
            kept = (X - truth.means[labels]).ravel()
            # The chance that the largest gap of so many draws is as large is below one in ten thousand.
            gap = stats.kstest(kept, law).statistic * np.sqrt(len(kept))
            assert gap < 2.3 or (kind, part) == ("junk", "train")
            np.testing.assert_array_equal(drawn.labels[name], clean.labels[name])


def test_junk_is_a_twentieth_of_the_rows_within_their_box():
    spoiled, clean = (network_of(Variant(rows=kind), 1) for kind in ("junk", "clean"))
    for name, X in clean.train.items():
        other = (spoiled.train[name] != X).any(axis=1)
        assert other.sum() == 3
        assert (spoiled.train[name][other] >= X.min(axis=0)).all()
        assert (spoiled.train[name][other] <= X.max(axis=0)).all()
        np.testing.assert_array_equal(spoiled.test[name], clean.test[name])


def test_one_site_lies_and_what_it_withheld_stays_withheld():
    said = Summary(np.array([10.0, 0.0]), np.array([[1.0, 2.0], [0.0, 0.0]]), np.tile(np.eye(2), (2, 1, 1)))
    mail = {"b": said, "a": said}
    assert attacked(mail, "", np.random.default_rng(0)) is mail
    for name in ATTACKS:
        told = attacked(mail, name, np.random.default_rng(0))
        assert told["b"] is said
        lie = told["a"]
        assert lie.counts[1] == 0
        assert lie.counts[0] == (10 if name in ("none", "not a number") else 1e10)
        assert lie.means.shape == (2, 2)
        assert lie.covariances.shape == (2, 2, 2)
    means = {name: ATTACKS[name](said, np.random.default_rng(0)).means[0] for name in ATTACKS}
    np.testing.assert_array_equal(means["means + 1e6"], [1 + 1e6, 2 + 1e6])
    np.testing.assert_array_equal(means["shifted copy"], [2, 2])
    assert np.isnan(means["not a number"]).all()


def test_without_strain_a_run_is_that_of_the_personal_study(small):
    variant = STUDIES["silence"]["er"]["first"]
    drawn = network_of(variant, 0)
    plain = personal.pool(drawn, 2, variant.settings, 0)
    strained = pooled(drawn, variant, variant.settings, 0)
    for name, result in plain.items():
        np.testing.assert_array_equal(result.mixture.means, strained[name].mixture.means)
    halved = pooled(drawn, dataclasses.replace(variant, silent=True), variant.settings, 0)
    rounds = [len(result.changes) for result in halved.values()]
    assert sum(rounds) < sum(len(result.changes) for result in plain.values())


def test_a_liar_is_not_scored_and_its_neighbours_trust_it_less(monkeypatch):
    monkeypatch.setitem(SCENARIOS, "er", dataclasses.replace(SCENARIOS["er"], sites=5))
    scored = []
    monkeypatch.setattr(
        pooling, "score", lambda drawn, found: scored.append(sorted(found)) or personal.score(drawn, found)
    )
    one = run_trial(Trial("attacks", "er", "tight points", 0))
    assert scored == [[f"site-{i:02d}" for i in range(1, 5)]]
    assert one.outside < 0.1
    assert one.inside > 0.9


def test_trust_is_of_edges_within_and_between_blocks():
    one = run_trial(Trial("rows", "clean", "pool", 2))
    assert one.inside > 0.95
    assert one.outside < 0.1
    alone = run_trial(Trial("rows", "clean", "alone", 2))
    assert (alone.inside, alone.outside) == (None, None)
    assert one.ll > alone.ll


def test_the_peer_is_the_mmd_of_the_personal_study():
    scenario = SCENARIOS["sbm 0.2"]
    short = dataclasses.replace(scenario, rounds=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCENARIOS, "sbm 0.2", short)
        ours = run_trial(Trial("rows", "clean", "mmd", 0))
        theirs = personal.run_trial(personal.Trial("sbm 0.2", "A", "mmd", 0, {}))
    assert (ours.ll, ours.error) == (theirs.ll, theirs.error)


def test_differences_are_by_seed_to_the_first_variant():
    scores = [made("first", ll, seed=seed) for seed, ll in enumerate((-4.0, -6.0, -5.0))]
    scores += [made("second", ll, seed=seed, inside=None) for seed, ll in enumerate((-3.9, -5.7, -5.2))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STUDIES, "silence", {"er": FEW})
        head, first, second = table(scores).splitlines()
    assert " ".join(head.split()) == "LL mu_err K inside outside difference of LL smallest wins seeds"
    assert " ".join(first.split()) == "silence: er first -5.000 0.100 2.0 0.90 - - - - 3"
    assert second.split()[3:8] == ["-5.200", "0.100", "2.0", "-", "-"]
    assert second.split()[8:] == ["+0.100", "[-0.200,", "+0.300]", "-0.200", "2/3", "3"]


def test_every_study_has_the_variants_that_it_is_about():
    assert list(STUDIES["counts"]["k known"]) == [f"at least {n}" for n in (0, 3, 5, 10)]
    assert not any(variant.known for variant in STUDIES["counts"]["k found"].values())
    assert set(STUDIES["rows"]) == set(KINDS)
    for kind, variants in STUDIES["rows"].items():
        assert {variant.rows for variant in variants.values()} == {kind}
        assert [name for name, variant in variants.items() if variant.alone] == ["alone"]
        assert variants["mmd"].settings is None
        assert variants["pool, uniform"].settings.uniform
    assert {variant.attack for variant in STUDIES["attacks"]["er"].values()} == set(ATTACKS)


def test_a_command_goes_on_where_it_was(small, tmp_path, capsys, monkeypatch):
    file = tmp_path / "scores.jsonl"
    command = ["--studies", "silence", "--json", str(file)]
    main([*command, "--seeds", "1"])
    printed = capsys.readouterr().out
    assert "silence: er" in printed
    before = read(file, Score)
    assert [json.loads(line)["name"] for line in file.read_text().splitlines()] == ["first", "second"]
    monkeypatch.setattr(pooling, "run_trial", lambda trial: made(trial.name, -1.0, seed=trial.seed))
    main([*command, "--seeds", "2"])
    assert read(file, Score)[:2] == before
    assert [one.seed for one in read(file, Score)[2:]] == [1, 1]
    capsys.readouterr()
    main(["--read", str(file)])
    assert "second" in capsys.readouterr().out


def test_unknown_studies_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--studies", "weather"])
    assert "no studies weather; choose from counts" in capsys.readouterr().err
