"""The ways to global clusters side by side, scored on rows that no site has seen.

FedGEM with local counts of its own and micro-clusters go through whole runs of the product; k-means and a
mixture of full covariances are given all train rows in one place, and the true number of classes. Every
score is a line of a file; a command that is given the file again makes only the runs that are not there::

    python -m simulations.experiments.comparison --data DIR --sets digits,waveform --json scores.jsonl
    python -m simulations.experiments.comparison --methods microcluster --settings refine-rounds=10
    python -m simulations.experiments.comparison --methods kfed,fedkmeans,spahm --regime dirichlet-0.5
    python -m simulations.experiments.comparison --read scores.jsonl more.jsonl

FedGEM's rivals are told the true number of classes where they need one, and sites let AFCL have their rows.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedcluster_app.config import Scalar, parse_run_config
from fedcluster_app.data.scaling import Scaling, agree_scaling, table_moments
from fedcluster_app.methods import METHODS
from fedcluster_app.metrics.agreement import adjusted_rand_index, contingency_table, normalized_mutual_info
from fedcluster_app.mixtures.densities import log_densities
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.mixtures.weights import site_weights
from fedcluster_app.results.model import Model, cluster_labels
from fedcluster_app.results.personal import PersonalModels
from fedcluster_app.steps.rows import aligned
from simulations.experiments.scores import Score, summaries, tables
from simulations.experiments.sets import SETS, Dealt
from simulations.experiments.trials import (
    Trial,
    own_labels,
    parse_settings,
    read,
    resumed,
    run_on_train,
    sets_at_hand,
)
from simulations.federation import LocalRun
from strategies.fedgem import FedGEMRun
from strategies.microcluster_results import site_models
from strategies.microcluster_rounds import MicroRun

OURS = "microcluster"
FEDERATED = ("fedgem+asm", "fedgem+consensus", OURS)
# Given all rows in one place and the true number of classes.
CENTRAL = ("kmeans", "gmm", "dpgmm")
RIVALS = tuple(
    method.name
    for method in METHODS.values()
    if method.family != "yardstick" and method.name not in ("fedgem", OURS)
)
KNOWN = (*FEDERATED, *RIVALS, *CENTRAL)


def label(trial: Trial) -> str:
    """Return the method with its settings."""
    return " ".join([trial.method, *(f"{key}={value}" for key, value in trial.settings.items())])


def run_trial(trial: Trial) -> Score:
    """Deal the set, run the method on the train rows, and score the held-out ones."""
    dealt = trial.dealt()
    truth = dealt.y[np.concatenate(list(dealt.test.values()))]
    start, own, sent, rounds = time.process_time(), None, 0.0, 0
    if trial.method in CENTRAL:
        with threadpool_limits(1):
            found = _central(trial, dealt)
        told = trial.method != "dpgmm"
        seconds, k_hat = time.process_time() - start, len(np.unique(dealt.y if told else found))
    else:
        run = run_on_train(replace(trial, settings={**_told(trial, dealt), **trial.settings}), dealt)
        seconds, k_hat = time.process_time() - start, int(run.outcome.k_hat or 0)
        found, own = _labels(trial, dealt, run)
        sent = float(np.mean([site.bytes_up for site in run.outcome.sites]))
        rounds = len(run.trace) - 2
    table, own_table = contingency_table(truth, found), None if own is None else contingency_table(truth, own)
    return Score(
        name=trial.name,
        regime=trial.regime,
        method=label(trial),
        seed=trial.seed,
        ari=adjusted_rand_index(table),
        nmi=normalized_mutual_info(table),
        own_ari=None if own_table is None else adjusted_rand_index(own_table),
        own_nmi=None if own_table is None else normalized_mutual_info(own_table),
        k_hat=k_hat,
        k_true=len(np.unique(dealt.y)),
        seconds=seconds,
        bytes_up=sent,
        rounds=rounds,
    )


def _told(trial: Trial, dealt: Dealt) -> dict[str, Scalar]:
    """Return what a method has to be told, and what sites have to allow."""
    if trial.method not in RIVALS:
        return {}
    told: dict[str, Scalar] = dict.fromkeys(METHODS[trial.method].required, len(np.unique(dealt.y)))
    return told | {"allow-unsafe": trial.method == "afcl"}


def _labels(trial: Trial, dealt: Dealt, run: LocalRun) -> tuple[IntArray, IntArray | None]:
    """Return labels of the held-out rows by all clusters, and by their own site's where it has some."""
    if trial.method == OURS:
        return _micro_labels(dealt, run), None
    if trial.method not in RIVALS:
        return _fedgem_labels(dealt, run)
    model = run.outcome.model
    assert model is not None
    personal = isinstance(model, PersonalModels)
    found = [
        model.predict(dealt.X[rows], site=name if personal else None) for name, rows in dealt.test.items()
    ]
    return np.concatenate(found), None


def _central(trial: Trial, dealt: Dealt) -> IntArray:
    """Return labels of the held-out rows by scikit-learn's fit to all train rows, scaled as ours are.

    The Dirichlet-process mixture is FedGEM's: spherical, defaults, truncated at the sum of the numbers of
    classes at the sites; it finds its own number of clusters below that.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

    train, test = (np.concatenate(list(part.values())) for part in (dealt.train, dealt.test))
    scaling = _agreed(trial, dealt.X[train])
    k = len(np.unique(dealt.y))
    model = KMeans(k, n_init=10, random_state=trial.seed)
    if trial.method == "gmm":
        model = GaussianMixture(k, n_init=3, random_state=trial.seed)
    if trial.method == "dpgmm":
        most = sum(len(np.unique(dealt.y[rows])) for rows in dealt.train.values())
        model = BayesianGaussianMixture(
            n_components=most,
            covariance_type="spherical",
            init_params="k-means++",
            random_state=trial.seed,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scaling.apply(dealt.X[train]))
    found: IntArray = model.predict(scaling.apply(dealt.X[test]))
    return found


def _agreed(trial: Trial, X: FloatArray) -> Scaling:
    source, ours = SETS[trial.name], parse_run_config({"method": OURS})
    columns = [str(column) for column in range(X.shape[1])]
    settings: dict[str, Any] = {"method": source.scaling, "pca": source.pca, "share": ours.axes_share}
    return agree_scaling(table_moments(X, full=True), columns, **settings)[0]


def _fedgem_labels(dealt: Dealt, run: LocalRun) -> tuple[IntArray, IntArray]:
    """Return the nearest of all clusters, and of the site's own, for the held-out rows of all sites."""
    model, state = run.outcome.model, run.strategy.state
    assert isinstance(model, Model)
    assert isinstance(state, FedGEMRun)
    assert state.final is not None
    near = [model.predict(dealt.X[rows]) for rows in dealt.test.values()]
    members = state.final.labels
    own = [
        own_labels(model, dealt.X[rows], members[name]) if name in members else model.predict(dealt.X[rows])
        for name, rows in dealt.test.items()
    ]
    return np.concatenate(near), np.concatenate(own)


def _micro_labels(dealt: Dealt, run: LocalRun) -> IntArray:
    """Return labels of the held-out rows as every site gives them; weights are fitted to train rows alone."""
    model, state = run.outcome.model, run.strategy.state
    assert isinstance(model, Model)
    assert isinstance(state, MicroRun)
    assert state.assembly is not None
    found, sites = [], site_models(state, state.assembly)
    for name in dealt.test:
        site = sites[name]
        train, test = (
            aligned(model.scaling.apply(dealt.X[part[name]]), site.offset, site.gain)
            for part in (dealt.train, dealt.test)
        )
        clusters = site.clusters
        if site.fit_weights:
            weights = site_weights(log_densities(train, clusters), clusters.weights)
            clusters = replace(clusters, weights=weights)
        found.append(cluster_labels(test, clusters))
    return np.concatenate(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("FEDCLUSTER_DATA", ""), help="folder of the files")
    parser.add_argument("--sets", default="digits", help=f"of {','.join(SETS)}")
    parser.add_argument("--methods", default=",".join((*FEDERATED, *CENTRAL)), help=f"of {','.join(KNOWN)}")
    parser.add_argument("--regime", default="a", help="a, b, dirichlet-0.5 (or another number), with commas")
    parser.add_argument("--seeds", type=int, default=5, help="how many: 0, 1, ...")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--settings", default="", help=f"key=value,... of the run config, {OURS} and rivals")
    parser.add_argument("--json", type=Path, help="file with a line for every score, made or continued")
    parser.add_argument("--read", type=Path, nargs="*", help="such files, instead of running")
    args = parser.parse_args(arguments)
    scores = list({score.key: score for file in args.read or () for score in read(file, Score)}.values())
    if args.read is None:
        names, methods = sets_at_hand(parser, args.sets, args.data), args.methods.split(",")
        if unknown := [method for method in methods if method not in KNOWN]:
            parser.error(f"no method {', '.join(unknown)}; choose from {', '.join(KNOWN)}")
        settings = parse_settings(args.settings)
        trials = [
            Trial(name, args.data, regime, method, seed, settings if method in (OURS, *RIVALS) else {})
            for name in names
            for regime in (args.regime.split(",") if SETS[name].k_max else ["natural"])
            for method in methods
            for seed in range(args.seeds)
        ]
        keyed = {(trial.name, trial.regime, label(trial), trial.seed): trial for trial in trials}
        scores = resumed(run_trial, keyed, args.jobs, args.json, Score)
    print(f"{tables(scores)}\n\n{summaries(scores, OURS)}")


if __name__ == "__main__":
    main()
