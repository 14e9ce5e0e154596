"""Labelled data sets as the experiments take them: prepared, dealt to sites, a fifth of the rows held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedcluster_app.mixtures.types import FloatArray, IntArray
from simulations.partitions import by_site, dirichlet, regime_a, regime_b, stratified_split
from simulations.sources import load_source, numbered_names


@dataclass(frozen=True)
class LabelledSet:
    """Where a data set is and how it takes part.

    Attributes
    ----------
    file : str
        Name in the data folder; empty for scikit-learn's digits.
    sites : int
        Number of sites.
    k_min, k_max : int
        Range of the number of classes at a site; 0 if the sites are those of the file.
    features, labels : str
        Arrays of the file.
    first_column : int
        Columns before it are left out.
    last_column : int or None
        So are columns from it on. Rows that lack a value in the others are left out too.
    keep : mapping of str to ints
        Only rows with these values in these arrays are used.
    scaling, pca
        Settings of a run.
    """

    file: str
    sites: int
    k_min: int = 0
    k_max: int = 0
    features: str = "X"
    labels: str = "y"
    first_column: int = 0
    last_column: int | None = None
    keep: Mapping[str, Sequence[int]] = field(default_factory=dict)
    scaling: str = "standard"
    pca: int = 0


SETS = {
    "digits": LabelledSet("", 5, 2, 8, pca=10),
    "digits-10": LabelledSet("", 10, 2, 8, pca=10),
    "waveform": LabelledSet("waveform.npz", 5, 2, 3),
    "abalone": LabelledSet("abalone.npz", 5, 2, 8),
    "frogA": LabelledSet("frogs_anuran.npz", 5, 2, 10, labels="species", first_column=1),
    "frogB": LabelledSet("frogs_anuran.npz", 5, 2, 8, labels="genus", first_column=1),
    "cwru": LabelledSet("cwru_bearing_features.npz", 5, 2, 8),
    "penbased": LabelledSet("penbased.npz", 10, 2, 8),
    "tep": LabelledSet("tep_faults.npz", 5, 2, 5, keep={"is_test": [0], "y": [1, 2, 4, 6, 7]}),
    "penguins": LabelledSet("penguins_3islands.npz", 3),
    "mnist": LabelledSet("mnist_test_features.npz", 25, 2, 8, features="hog_pca"),
    "mnist-20": LabelledSet("mnist_test_features.npz", 20, 2, 8, features="hog_pca"),
    "fmnist": LabelledSet("fashion_mnist_test_features.npz", 25, 2, 8, features="hog_pca"),
    "mnist-vae": LabelledSet("mnist_vae10.npz", 100, 2, 8, scaling="none"),
    "fmnist-vae": LabelledSet("fashion_mnist_vae64.npz", 100, 2, 8, scaling="none"),
    "emnist": LabelledSet("emnist_balanced_9424_features.npz", 25, 2, 8, features="hog_pca"),
    "emnist-45": LabelledSet("emnist_balanced_9424_features.npz", 25, 2, 45, features="hog_pca"),
    "emnist-vae": LabelledSet("emnist_vae16.npz", 25, 2, 8),
    "cifar": LabelledSet("cifar10_test_features.npz", 25, 2, 8, features="patch_pca"),
    "heart": LabelledSet("heart_disease_4sites.npz", 4, labels="y_binary", last_column=10),
    "wholesale": LabelledSet("wholesale_customers.npz", 3),
    "cmapss": LabelledSet("cmapss_fd001_fd003.npz", 10, 2, 3, keep={"part": [0]}),
}


@dataclass(frozen=True, eq=False)
class Dealt:
    """A table in the hands of its sites.

    Attributes
    ----------
    X : (n, d) array
    y : (n,) int array
        Classes, from 0.
    train, test : mappings of site name to int array
        Row numbers.
    """

    X: FloatArray
    y: IntArray
    train: Mapping[str, IntArray]
    test: Mapping[str, IntArray]


def deal(source: LabelledSet, folder: str, regime: str, rng: np.random.Generator) -> Dealt:
    """Deal a set by regime; where it deals all rows, sites each hold out a fifth of every class of theirs.

    Parameters
    ----------
    source
        The set.
    folder
        Where its file is.
    regime
        "a" or "b" of `simulations.partitions`, or "dirichlet-" and a concentration; sets with sites of their
        own pass it over.
    rng
        Source of randomness.
    """
    X, y, sites = _read(source, folder)
    kind, _, concentration = regime.partition("-")
    if sites is None and kind != "dirichlet":
        dealer = {"a": regime_a, "b": regime_b}[regime]
        parts = dealer(y, source.sites, rng, k_min=source.k_min, k_max=source.k_max)
        train, test = parts.train, parts.test
    else:
        dealt = dirichlet(y, source.sites, float(concentration), rng) if sites is None else by_site(sites)
        splits = [(rows, *stratified_split(y[rows], rng)) for rows in dealt]
        train, test = [rows[kept] for rows, kept, _ in splits], [rows[held] for rows, _, held in splits]
    names = numbered_names(source.sites)
    return Dealt(X, y, dict(zip(names, train, strict=True)), dict(zip(names, test, strict=True)))


def _read(source: LabelledSet, folder: str) -> tuple[FloatArray, IntArray, IntArray | None]:
    """Return rows (n, d), classes (n,), and the natural site of every row where the set goes by it."""
    if not source.file:
        digits = load_source("digits")
        assert digits.labels is not None
        return digits.X, digits.labels, None
    with np.load(Path(folder, source.file), allow_pickle=False) as arrays:
        rows = np.arange(len(arrays[source.labels]))
        for name, values in source.keep.items():
            rows = rows[np.isin(arrays[name][rows], values)]
        X = arrays[source.features][rows, source.first_column : source.last_column].astype(np.float64)
        complete = ~np.isnan(X).any(axis=1)
        rows, X = rows[complete], X[complete]
        y = np.unique(arrays[source.labels][rows], return_inverse=True)[1].astype(np.int64)
        return X, y, None if source.k_max else arrays["site"][rows]
