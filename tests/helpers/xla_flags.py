"""Flags of XLA for programs that are run once or twice: it compiles them fast, not well."""

from __future__ import annotations

import importlib.metadata

FLAGS = [
    "--xla_backend_optimization_level=0",
    # One piece of code each: splitting them takes half as long again.
    "--xla_cpu_parallel_codegen_split_count=1",
]
if importlib.metadata.version("jaxlib").startswith("0.10."):  # newer ones do not know this flag
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")


def with_flags(given: str, *flags: str) -> str:
    """What `XLA_FLAGS` has to be; a flag that is given stays as it is."""
    for flag in (*flags, *FLAGS):
        if flag.partition("=")[0] not in given:
            given = f"{given} {flag}".strip()
    return given
