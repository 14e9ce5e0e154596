"""Gaussian mixture mathematics: the Mixture value, densities, EM, sufficient statistics, k-means."""
