"""fedcluster: federated clustering when nobody knows the number of clusters."""

__version__ = "0.1.0"
