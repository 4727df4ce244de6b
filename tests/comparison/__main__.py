"""Runs the programs of libraries that are installed; see tests/comparison/__init__.py."""

from __future__ import annotations

import importlib
import json
import sys

from tests.comparison.features import FEATURES, outcome
from tests.comparison.page import COLUMNS, read, write


def run(library: str) -> dict[str, str]:
    """The version, and the outcomes of its programs."""
    module = importlib.import_module(f"tests.comparison.of_{library}")
    missing = sorted(set(FEATURES) ^ set(module.CELLS))
    assert not missing, f"{library}: rows that are not those of the table: {missing}"
    return {"version": module.VERSION, **{f: outcome(f, module.CELLS[f]) for f in FEATURES}}


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--write"] or COLUMNS
    found = {name: run(name) for name in names}
    print(json.dumps(found, indent=1))
    if "--write" in sys.argv:
        write({**read(), **found})
