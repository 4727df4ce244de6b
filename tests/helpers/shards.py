"""A mesh of eight devices, and whether an array lies on it by rows."""

from __future__ import annotations

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = jax.make_mesh((4, 2), ("rows", "columns"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
BY_ROWS = NamedSharding(MESH, P("rows"))


def lies_by_rows(x):
    return x.sharding.is_equivalent_to(BY_ROWS, 2)
