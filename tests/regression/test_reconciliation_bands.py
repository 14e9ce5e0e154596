"""FedGEM with estimated counts through a whole run; bands set from ten seeds, to hold for other seeds too."""

import json
import os

import numpy as np
import pytest

from fedcluster_app.data.scaling import Scaling
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.results.model import Model
from simulations.experiments.reconciliation import main, run_trial
from simulations.experiments.sets import SETS, deal
from simulations.experiments.trials import Trial, own_labels


@pytest.mark.parametrize(
    ("name", "counts", "ari", "own_ari", "k_hat"),
    [
        ("digits", "oracle", (0.57, 0.71), (0.59, 0.76), (9, 12.5)),
        ("digits", "asm", (0.41, 0.70), (0.33, 0.73), (8, 22)),
        ("penguins", "oracle", (0.84, 0.99), (0.86, 1.0), (3, 3)),
        ("penguins", "asm", (0.66, 0.79), (0.71, 0.93), (3.5, 5)),
        ("abalone", "oracle", (0.08, 0.115), (0.09, 0.135), (7, 10)),
        ("abalone", "asm", (0.08, 0.115), (0.09, 0.12), (5.5, 8.5)),
    ],
)
def test_held_out_scores(name, counts, ari, own_ari, k_hat, request):
    file = SETS[name].file
    folder = os.path.dirname(request.getfixturevalue("shared_data")(file)) if file else ""
    trials = [Trial(name, folder, "a", f"fedgem+{counts}", seed, {"min-count": 1}) for seed in range(3)]
    scores = [run_trial(trial) for trial in trials]
    for band, found in ((ari, "ari"), (own_ari, "own_ari"), (k_hat, "k_hat")):
        assert band[0] <= np.mean([getattr(score, found) for score in scores]) <= band[1], found
    errors = [score.local_error for score in scores]
    assert max(errors) == 0 if counts == "oracle" else 0 < np.mean(errors) < 1


@pytest.mark.parametrize("regime", ["a", "b"])
def test_no_row_is_both_learned_from_and_scored(regime):
    dealt = deal(SETS["digits"], "", regime, np.random.default_rng(0))
    train, test = (np.concatenate(list(parts.values())) for parts in (dealt.train, dealt.test))
    assert len(train) > 3 * len(test) > 0
    assert not set(train) & set(test)


def test_natural_sites_hold_out_a_fifth_each(shared_data):
    folder = os.path.dirname(shared_data("penguins_3islands.npz"))
    dealt = deal(SETS["penguins"], folder, "a", np.random.default_rng(0))
    assert [len(dealt.train[name]) + len(dealt.test[name]) for name in dealt.train] == [167, 124, 51]
    assert [len(rows) for rows in dealt.test.values()] == [34, 25, 10]


def test_own_labels_come_from_the_own_clusters():
    clusters = Mixture(np.full(3, 1 / 3), np.array([[0.0], [1.0], [5.0]]), np.ones(3))
    model = Model(("x",), Scaling(np.array([10.0]), np.array([2.0])), clusters)
    X = np.array([[10.2], [12.1], [30.0]])
    np.testing.assert_array_equal(model.predict(X), [0, 1, 2])
    np.testing.assert_array_equal(own_labels(model, X, np.array([2, 0])), [0, 0, 2])


def test_the_command_prints_a_table_and_repeats_itself(tmp_path, capsys):
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    papers = ["--init", "kmeans++", "--final-radius", "1", "--order", "released"]
    for file in files:
        main(["--sets", "digits", "--counts", "oracle", "--seeds", "1", "--json", str(file), *papers])
    head, line = capsys.readouterr().out.splitlines()[:2]
    assert head.split()[:3] == ["set", "counts", "seeds"]
    assert line.split()[:3] == ["digits", "oracle", "1"]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert json.loads(files[0].read_text())["scores"][0]["final_radius"] == 1


def test_the_command_names_what_is_missing(tmp_path, capsys):
    for arguments, told in (
        (["--sets", "digits,frog"], "no set frog; choose from digits, "),
        (
            ["--sets", "waveform,cwru", "--data", str(tmp_path)],
            "cwru_bearing_features.npz, waveform.npz not in",
        ),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert told in capsys.readouterr().err
