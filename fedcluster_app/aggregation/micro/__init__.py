"""The mathematics of one-shot reconciliation by micro-clusters."""
