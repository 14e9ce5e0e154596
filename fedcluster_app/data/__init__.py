"""A site's table: readers, checks, schema, and the scaling that all sites agree on."""

from fedcluster_app.data.readers import read_table
from fedcluster_app.data.scaling import Scaling, ScalingReport, agree_scaling, table_moments
from fedcluster_app.data.schema import first_mismatch
from fedcluster_app.data.table import Table, validated_table
from fedcluster_app.data.virtual import virtual_table

__all__ = [
    "Scaling",
    "ScalingReport",
    "Table",
    "agree_scaling",
    "first_mismatch",
    "read_table",
    "table_moments",
    "validated_table",
    "virtual_table",
]
