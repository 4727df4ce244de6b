"""docs/comparison.md: each cell is what its program gives, where the library is installed in that version."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest
from helpers import ROOT

from tests.comparison.features import FEATURES, Absent, outcome
from tests.comparison.page import COLUMNS, PAGE, read

NEEDS = {
    "torch": ("torch",),
    "jax": ("jax",),
    "hijax": ("jax",),
    "mlx": ("mlx",),
    "autograd": ("autograd",),
    "torchax": ("torchax", "torch"),
    "fad": (),
}


def test_the_table_has_all_rows() -> None:
    for name, cells in read().items():
        assert list(cells) == ["version", *FEATURES], name


@pytest.mark.parametrize("library", COLUMNS)
def test_the_cells_are_what_the_programs_give(library: str) -> None:
    expected = read()[library]
    for needed in NEEDS[library]:
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed; the cells are of {expected['version']}")
    if NEEDS[library]:
        here = importlib.metadata.version(NEEDS[library][0])
        version = expected["version"].split()[-1]
        if here.split(".")[:2] != version.split(".")[:2]:
            pytest.skip(f"{library} {here} is installed; the cells are of {expected['version']}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.comparison", library],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert not done.returncode, done.stderr
    _, brace, rest = done.stdout.partition("{")  # what a library prints comes before
    found = json.loads(brace + rest)[library]
    assert {k: found[k] for k in FEATURES} == {k: expected[k] for k in FEATURES}


def test_what_is_not_right_is_told() -> None:
    feature = "a gradient rule is used"

    def warn() -> float:
        import warnings

        warnings.warn("words", stacklevel=1)
        return 27.0

    def fail() -> float:
        raise ValueError("words")

    assert outcome(feature, lambda: 54.0) == "yes"
    assert outcome(feature, lambda: 27.0) == "**silently** 27.0, not 54.0"
    assert outcome(feature, warn) == "warns, and gives 27.0, not 54.0"
    assert outcome(feature, fail) == "raises ValueError"
    assert outcome(feature, Absent("json.no_name")) == "no `json.no_name`"
    with pytest.raises(AssertionError, match=r"json.loads is there"):
        outcome(feature, Absent("json.loads"))


def test_the_fault_that_is_cited_by_number_is_the_one_that_jax_names() -> None:
    from jax.experimental import jet

    (number,) = set(re.findall(r"/issues/(\d+)", PAGE.read_text()))
    assert (
        f"outstanding primitive rules <https://github.com/jax-ml/jax/issues/{number}>"
        in jet.__doc__
    )
    assert (
        read()["jax"]["derivatives of order 3 through a `scan`, in one pass"] == "raises KeyError"
    )
