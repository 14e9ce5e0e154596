"""Phase 0 at a site: who it is, and the moments of its table."""

from __future__ import annotations

from fedcluster_app import __version__
from fedcluster_app.data.scaling import lower_triangle, table_moments, takes_axes
from fedcluster_app.messages import AskBounds, AskHello, Bounds, Hello, SiteFolder
from fedcluster_app.site import Site
from fedcluster_app.steps.rows import let_rows_go


def answer(site: Site, ask: AskHello) -> Hello:
    """Introduce the site; the matrix of second moments is sent only if principal axes will be taken."""
    if site.virtual:
        site.memory.save(SiteFolder(ask.run_folder))
    table = site.table
    full = takes_axes(len(table.columns), pca=site.config.axes, share=site.config.axes_share)
    moments = table_moments(table.X, full=full) if table.n_rows >= site.min_count else None
    return Hello(
        site=site.name,
        version=__version__,
        rows=table.n_rows,
        columns=table.columns,
        partitions=site.node.num_partitions if site.virtual else 0,
        allow_unsafe=site.allows_rows,
        mean=moments.means[0] if moments else None,
        scatter=moments.scatters[0] if moments and not full else None,
        scatter_triangle=lower_triangle(moments.scatters[0]) if moments and full else None,
    )


def bounds(site: Site, ask: AskBounds) -> Bounds:
    """Say between which values the columns lie, if single rows may leave."""
    let_rows_go(site, "bounds='data' sends the extremes of every column, which are values of rows")
    X = site.table.X
    return Bounds(X.min(axis=0), X.max(axis=0))
