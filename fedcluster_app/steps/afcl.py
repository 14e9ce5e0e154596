"""AFCL at a site: rows as seeds, then all rows in thin disguise; only where single rows may leave."""

from __future__ import annotations

from fedcluster_app.aggregation import afcl
from fedcluster_app.messages import AFCLRecords, AFCLSeeds, AskAFCLRound, AskAFCLSeeds
from fedcluster_app.site import Site
from fedcluster_app.steps.centers import rows_and_k
from fedcluster_app.steps.rows import contributed, let_rows_go


def seeds(site: Site, ask: AskAFCLSeeds) -> AFCLSeeds:
    """Draw rows as seeds."""
    _agreed_to(site)
    X, k = rows_and_k(site, ask)
    return AFCLSeeds(afcl.client_start(X, k, site.rng("afcl")))


def advance(site: Site, ask: AskAFCLRound) -> AFCLRecords:
    """Let the nearest seed win each row, and send what is left of the rows."""
    _agreed_to(site)
    return AFCLRecords(**vars(afcl.client_step(contributed(site, ask), ask.seeds, ask.weights)))


def _agreed_to(site: Site) -> None:
    let_rows_go(site, "afcl lets the coordinator rebuild every row")
