"""Scores: agreement from counts, silhouette, label-free scores that add up over sites."""

from fedcluster_app.metrics import additive
from fedcluster_app.metrics.additive import ScoreSums, score_sums, scores
from fedcluster_app.metrics.agreement import adjusted_rand_index, contingency_table, normalized_mutual_info
from fedcluster_app.metrics.silhouette import (
    silhouette_from_distances,
    silhouette_samples,
    silhouette_score,
)

__all__ = [
    "ScoreSums",
    "additive",
    "adjusted_rand_index",
    "contingency_table",
    "normalized_mutual_info",
    "score_sums",
    "scores",
    "silhouette_from_distances",
    "silhouette_samples",
    "silhouette_score",
]
