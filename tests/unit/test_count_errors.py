from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fedcluster_app.mixtures.distances import squared_distances
from simulations.experiments.counts import Trial, main, summarise
from simulations.experiments.families import FAMILIES, MOST_CLIENT_ROWS, Synthetic, clients

SYNTHETIC = [name for name, family in FAMILIES.items() if isinstance(family.source, Synthetic)]


def test_development_and_held_back_families_share_no_data():
    development = [family.source for family in FAMILIES.values() if not family.held_back]
    for family in FAMILIES.values():
        if family.held_back:
            assert family.source not in development
            file = getattr(family.source, "file", None)
            assert file is None or file not in [getattr(source, "file", None) for source in development]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_clients(name):
    source = FAMILIES[name].source
    made = list(clients(name, 3, 3, ""))
    again = list(clients(name, 3, 3, ""))
    for client, same in zip(made, again, strict=True):
        assert client.X.tobytes() == same.X.tobytes()
        assert client.X.shape == (len(client.y), source.d)
        assert len(client.y) <= MOST_CLIENT_ROWS
        assert source.k_min <= client.k <= source.k_max
        # Clusters are apart, and of about unit variance.
        means = np.array([client.X[client.y == label].mean(axis=0) for label in np.unique(client.y)])
        gaps = squared_distances(means, means)[np.triu_indices(client.k, 1)]
        assert (gaps > 3.0**2).all()
        within = client.X - means[np.unique(client.y, return_inverse=True)[1]]
        assert 0.4 < (within**2).mean() < 2
    assert made[0].X.tobytes() != next(iter(clients(name, 4, 1, ""))).X.tobytes()


def test_labelled_sets_come_scaled_and_mixed():
    made = list(clients("digits", 0, 3, ""))
    assert len(made) == 3
    for client in made:
        assert client.X.shape[1] == FAMILIES["digits"].source.pca
        assert (np.diff(client.y) < 0).any()
        assert 0.3 < client.X.var() < 3


def trial(family, client, estimator, k_true, k):
    return Trial(family, 0, client, 100, estimator, k_true, k, 0.25)


def test_summary_weighs_families_equally_and_leaves_single_clusters_out():
    counts = {"round-8": [(4, 5), (2, 2), (2, 1)], "t-8": [(5, 5)], "one-t-8": [(1, 9)]}
    trials = [
        trial(family, client, name, k_true, k if name == "a" else k_true)
        for name in ("a", "b")
        for family, pairs in counts.items()
        for client, (k_true, k) in enumerate(pairs)
    ]
    a, b = summarise(trials)
    assert a.families == {"round-8": 0.25, "t-8": 0.0, "one-t-8": 8.0}
    assert a.error == 0.125
    assert a.bias == pytest.approx((0.25 - 0.5) / 3 / 2)
    assert a.milliseconds == 250
    assert math.isnan(a.low)
    assert b.error == 0
    assert -0.25 <= b.low <= -0.125 <= b.high <= 0


def test_command_prints_a_table_and_writes_every_count(tmp_path, capsys):
    path = tmp_path / "counts.json"
    size = ["--seeds", "1", "--clients", "2", "--json", str(path)]
    main(["--families", "round-8,one-round-8", "--estimators", "asm;gmeans", *size])
    means, families = capsys.readouterr().out.split("\n\n")
    assert [line.split()[0] for line in means.splitlines()] == ["estimator", "asm", "gmeans"]
    assert [line.split()[0] for line in families.splitlines()] == ["family", "round-8", "one-round-8"]
    record = json.loads(path.read_text())
    assert [(one["family"], one["client"], one["estimator"]) for one in record[:3]] == [
        ("round-8", 0, "asm"),
        ("round-8", 0, "gmeans"),
        ("round-8", 1, "asm"),
    ]


@pytest.mark.parametrize(
    "arguments", [["--families", "nowhere"], ["--estimators", "abacus"], ["--families", "waveform"]]
)
def test_command_refuses_what_it_does_not_know(arguments, monkeypatch):
    monkeypatch.delenv("FEDCLUSTER_DATA", raising=False)
    with pytest.raises(SystemExit):
        main(arguments)
