"""Gaussian mixture mathematics: the Mixture value, densities, EM, sufficient statistics, k-means."""

from fedcluster_app.mixtures import em
from fedcluster_app.mixtures.densities import log_densities, log_joint, logsumexp, responsibilities
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.em import EMResult, EMState
from fedcluster_app.mixtures.kmeans import KMeansResult, kmeans, kmeans_plus_plus, lloyd
from fedcluster_app.mixtures.mixture import Kind, Mixture
from fedcluster_app.mixtures.sampling import sample
from fedcluster_app.mixtures.statistics import Statistics, collect, merge, merge_all, mixture_from

__all__ = [
    "EMResult",
    "EMState",
    "KMeansResult",
    "Kind",
    "Mixture",
    "Statistics",
    "collect",
    "em",
    "kmeans",
    "kmeans_plus_plus",
    "lloyd",
    "log_densities",
    "log_joint",
    "logsumexp",
    "merge",
    "merge_all",
    "mixture_from",
    "responsibilities",
    "sample",
    "squared_distances",
]
