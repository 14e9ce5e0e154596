"""Experiments of the papers, each a command: ``python -m simulations.experiments.<name> --help``."""
