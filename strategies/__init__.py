"""Flower strategies: who is told what and when; the arithmetic is in ``fedcluster_app``."""
