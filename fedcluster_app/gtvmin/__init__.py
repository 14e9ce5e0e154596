"""Personal mixtures coupled over a graph: generalised total variation minimisation (GTVMin)."""

from fedcluster_app.gtvmin import euclidean, kl, mmd, network, node
from fedcluster_app.gtvmin.generators import block_model, complete, erdos_renyi, nearest, ring
from fedcluster_app.gtvmin.graph import Graph, check_connected, from_edges
from fedcluster_app.gtvmin.graph_file import parse_graph
from fedcluster_app.gtvmin.network import NetworkResult, NetworkState
from fedcluster_app.gtvmin.node import NodeState, Report
from fedcluster_app.gtvmin.objective import (
    Certificate,
    Totals,
    certificate,
    edge_discrepancies,
    measure,
    total,
)
from fedcluster_app.gtvmin.progress import Progress, Stop, advance, status
from fedcluster_app.gtvmin.projection import Bounds
from fedcluster_app.gtvmin.settings import Discrepancy, Settings, Update
from fedcluster_app.gtvmin.starts import Start, kmeans_start, start_from_labels, start_from_mixture
from fedcluster_app.gtvmin.surrogate import Neighbour

__all__ = [
    "Bounds",
    "Certificate",
    "Discrepancy",
    "Graph",
    "Neighbour",
    "NetworkResult",
    "NetworkState",
    "NodeState",
    "Progress",
    "Report",
    "Settings",
    "Start",
    "Stop",
    "Totals",
    "Update",
    "advance",
    "block_model",
    "certificate",
    "check_connected",
    "complete",
    "edge_discrepancies",
    "erdos_renyi",
    "euclidean",
    "from_edges",
    "kl",
    "kmeans_start",
    "measure",
    "mmd",
    "nearest",
    "network",
    "node",
    "parse_graph",
    "ring",
    "start_from_labels",
    "start_from_mixture",
    "status",
    "total",
]
