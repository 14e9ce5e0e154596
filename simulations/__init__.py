"""Simulations: data sources, partitions, in-process federation, experiments."""
