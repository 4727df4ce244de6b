"""All Scenarios, in the tables that they are printed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks import (
    bridge,
    first_minute,
    gpu,
    hooks,
    implicit,
    laplacians,
    loops,
    memory,
    models,
    processes,
    python_loops,
    real_sizes,
    sparse,
    steps,
    tape,
    taylor,
    torch_functions,
    traced,
    transforms,
    untidy,
    while_loops,
)
from benchmarks.scenarios import Scenario

__all__ = ["ALL", "TABLES"]

TABLES: Mapping[str, Sequence[Scenario]] = {
    "eager transforms": transforms.SCENARIOS,
    "the tape": tape.SCENARIOS,
    "traced code": [*traced.SCENARIOS, *bridge.SCENARIOS],
    "other work": models.SCENARIOS,
    "real sizes": real_sizes.SCENARIOS,
    "loops that change": loops.SCENARIOS,
    "loops with a condition": while_loops.SCENARIOS,
    "Python loops": python_loops.SCENARIOS,
    "steps as they are written": steps.SCENARIOS,
    "hooks in compiled code": hooks.SCENARIOS,
    "untidy programs": untidy.SCENARIOS,
    "taylor": taylor.SCENARIOS,
    "PyTorch": torch_functions.SCENARIOS,
    "laplacians": laplacians.SCENARIOS,
    "sparse": sparse.SCENARIOS,
    "implicit": implicit.SCENARIOS,
    "fresh processes": processes.SCENARIOS,
    "the first minute": first_minute.SCENARIOS,
    "memory": memory.SCENARIOS,
    "GPU": gpu.SCENARIOS,
}
ALL: Sequence[Scenario] = [scenario for rows in TABLES.values() for scenario in rows]
