"""FedGEM with estimated counts, scored on rows that no site has seen.

A labelled table is dealt to sites, four fifths of every site's rows go through a whole run of the product in
this process, and the rest are scored. Counts come from ASM or, for comparison, from the labels::

    python -m simulations.experiments.reconciliation --data DIR --sets digits,waveform --seeds 10 --jobs 2

The papers' setting is ``--init kmeans++ --final-radius 1``, with ``--order released`` for that of their code.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fedcluster_app.config import Scalar
from fedcluster_app.metrics.agreement import adjusted_rand_index, contingency_table, normalized_mutual_info
from fedcluster_app.results.model import Model
from fedcluster_app.results.tables import aligned
from simulations.experiments.sets import SETS, Dealt
from simulations.experiments.trials import Trial, own_labels, run_all, run_on_train, sets_at_hand
from simulations.federation import LocalRun
from strategies.fedgem import FedGEMRun


@dataclass(frozen=True)
class Score:
    """What one run gives on the held-out rows of all sites.

    Attributes
    ----------
    name, counts, seed
        The trial.
    ari, nmi : float
        Pooled rows, each labelled by the nearest global cluster.
    own_ari, own_nmi : float
        Pooled rows, each labelled by the nearest of its own site's clusters: the papers' reading.
    personal_ari : float
        Mean over sites of the ARI of the own labels.
    k_hat, k_true : int
        Global clusters found, and classes.
    final_radius : float
        The factor v that was used.
    local_error : float
        Mean over sites of abs(K_g - classes at the site) / classes at the site.
    """

    name: str
    counts: str
    seed: int
    ari: float
    nmi: float
    own_ari: float
    own_nmi: float
    personal_ari: float
    k_hat: int
    k_true: int
    final_radius: float
    local_error: float


def run_trial(trial: Trial) -> Score:
    """Deal the set, run the product on the train rows, and score the held-out ones."""
    dealt = trial.dealt()
    return _score(trial, dealt, run_on_train(trial, dealt))


def _score(trial: Trial, dealt: Dealt, run: LocalRun) -> Score:
    model, state = run.outcome.model, run.strategy.state
    assert isinstance(model, Model)
    assert isinstance(state, FedGEMRun)
    assert state.final is not None
    truth = [dealt.y[rows] for rows in dealt.test.values()]
    near = [model.predict(dealt.X[rows]) for rows in dealt.test.values()]
    own = [own_labels(model, dealt.X[rows], state.final.labels[name]) for name, rows in dealt.test.items()]
    near_table, own_table = (contingency_table(*map(np.concatenate, (truth, found))) for found in (near, own))
    site_tables = [contingency_table(*pair) for pair in zip(truth, own, strict=True)]
    held = {name: len(np.unique(dealt.y[rows])) for name, rows in dealt.train.items()}
    errors = [abs(site.details["k_counted"] / held[site.name] - 1) for site in run.outcome.sites]
    return Score(
        name=trial.name,
        counts=trial.method.partition("+")[2],
        seed=trial.seed,
        ari=adjusted_rand_index(near_table),
        nmi=normalized_mutual_info(near_table),
        own_ari=adjusted_rand_index(own_table),
        own_nmi=normalized_mutual_info(own_table),
        personal_ari=float(np.mean([adjusted_rand_index(counts) for counts in site_tables])),
        k_hat=state.final.k_hat,
        k_true=len(np.unique(dealt.y)),
        final_radius=state.final.final_radius,
        local_error=float(np.mean(errors)),
    )


def table(scores: Iterable[Score]) -> str:
    """Return means and standard deviations over the seeds, a line for every set and estimator."""
    groups: dict[tuple[str, str], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.name, score.counts), []).append(score)
    lines = [{"set": name, "counts": counts} | _cells(group) for (name, counts), group in groups.items()]
    return aligned([list(lines[0]), *(list(line.values()) for line in lines)])


def _cells(scores: Sequence[Score]) -> dict[str, str]:
    def mean(name: str) -> str:
        return f"{np.mean([getattr(score, name) for score in scores]):.3f}"

    def spread(name: str) -> str:
        return f"{mean(name)} ± {np.std([getattr(score, name) for score in scores]):.3f}"

    k_hat, k_true = np.array([score.k_hat for score in scores]), scores[0].k_true
    return {
        "seeds": str(len(scores)),
        "ARI": spread("ari"),
        "NMI": mean("nmi"),
        "own ARI": spread("own_ari"),
        "own NMI": mean("own_nmi"),
        "personal ARI": mean("personal_ari"),
        "K̂": f"{k_hat.mean():.1f}",
        "K*": str(k_true),
        "|K̂ - K*|": f"{np.abs(k_hat - k_true).mean():.1f}",
        "local error": mean("local_error"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("FEDCLUSTER_DATA", ""), help="folder of the files")
    parser.add_argument("--sets", default="digits", help=f"of {','.join(SETS)}")
    parser.add_argument("--counts", default="asm,oracle", help="estimators of the local counts")
    parser.add_argument("--regime", choices=("a", "b"), default="a")
    parser.add_argument("--seeds", type=int, default=5, help="how many: 0, 1, ...")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--init", default="kmeans", help="where means start")
    parser.add_argument("--final-radius", default="bic", help="bic, or the factor v")
    parser.add_argument("--order", default="nearest", help="pair order of the final grouping")
    parser.add_argument("--json", type=Path, help="file for the score of every run")
    args = parser.parse_args(arguments)
    names = sets_at_hand(parser, args.sets, args.data)
    settings: dict[str, Scalar] = {
        "init": args.init,
        "fedgem-final-radius": args.final_radius,
        "fedgem-order": args.order,
        "min-count": 1,
    }
    trials = [
        Trial(name, args.data, args.regime, f"fedgem+{counts}", seed, settings)
        for name in names
        for counts in args.counts.split(",")
        for seed in range(args.seeds)
    ]
    scores = list(run_all(run_trial, trials, args.jobs))
    print(table(scores))
    if args.json:
        record = {"settings": settings | {"regime": args.regime}, "scores": [asdict(one) for one in scores]}
        args.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
