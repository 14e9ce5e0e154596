"""Phase 2, global: from every site's local components to global clusters, one method a file."""
