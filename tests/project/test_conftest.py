"""The test tools themselves: a leak is caught, a failure names its seed, sweeps are sampled."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from helpers import ROOT

import fad

HERE = Path(__file__).resolve().parents[1]
SUITE = """
import fad, itertools, pytest

def test_leaves_the_grad_mode_changed():
    fad.set_grad_enabled(False)

def test_after_it_all_is_as_before():
    assert fad.is_grad_enabled()

def test_fails():
    assert False

@pytest.mark.sweep("k", range(100), sample=7)
def test_sweep(k):
    pass

SEEN = []

@pytest.mark.sweep("case", [*itertools.product("abcdef", range(6), [True, False])], sample=6)
def test_cases(case):
    SEEN.append(case)

def test_each_part_of_cases_is_in_a_sample():
    assert [len(set(part)) for part in zip(*SEEN)] == [6, 6, 2]

@pytest.mark.full
def test_long():
    pass
"""


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ([], "1 failed, 16 passed, 1 skipped, 1 error"),
        (
            ["--full", "--one-in", "4", "-k", "not each_part"],
            "1 failed, 46 passed, 130 deselected, 1 error",
        ),
    ],
)
def test_tools(tmp_path: Path, options: list[str], outcome: str) -> None:
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "test_suite.py").write_text(SUITE)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            HERE.parent / "pyproject.toml",
            "-p",
            "no:cacheprovider",
            "--seed",
            "3",
            *options,
            tmp_path,
        ],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
    )
    assert "the test left (running levels, grad mode) as ((), False)" in run.stdout, run.stdout
    assert "--seed 3" in run.stdout.partition("random seed")[2]
    assert outcome in run.stdout.splitlines()[-1]


def test_comparisons_with_pytorch_are_found(tmp_path: Path) -> None:
    """By the fixture, and by the module; without PyTorch installed, too."""
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text("def test_a(torch): pass\ndef test_b(): pass\n")
    (tmp_path / "test_all.py").write_text("torch = None\ndef test_c(): pass\n")
    options = [
        "-c",
        HERE.parent / "pyproject.toml",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-q",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", "oracle", tmp_path],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
    )
    found = [line.partition("::")[2] for line in run.stdout.splitlines() if "::" in line]
    assert sorted(found) == ["test_a", "test_c"], run.stdout


def test_a_program_under_another_name_is_found_among_the_compiled_ones() -> None:
    x, found = jnp.arange(7.0), []

    def first(x):
        return {"of the first": x * 3.25 + 11.0}

    def second(x):
        return x * 3.25 + 11.0

    def listen(event, **_):
        found.append(event.rpartition("/")[2])

    jax.jit(first)(x)
    jax.monitoring.register_event_listener(listen)
    try:
        values = jax.jit(second)(x).tolist()
    finally:
        jax.monitoring.unregister_event_listener(listen)
    assert found.count("cache_hits") == 1
    assert values[2] == 17.5
    assert jax.jit(lambda x: x * 3.5 + 11.0)(x).tolist()[2] == 18.0  # another program


def test_eight_devices() -> None:
    assert jax.device_count() == 8 and jax.default_backend() == "cpu"


def test_no_level_runs_between_tests() -> None:
    assert fad.core.level.state.levels == ()


NEEDED = {"hypothesis", "pytest", "pytest-xdist"}  # by all tests
OF_OTHER_NAMES = {"scikit-learn": "sklearn", "orbax-checkpoint": "orbax", "pyright": "pyright"}


def optional_packages() -> set[str]:
    """What the extras bring, as it is imported."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.split(r"[^\w-]", text)[0] for texts in table.values() for text in texts}
    return {OF_OTHER_NAMES.get(n, n) for n in names - NEEDED - {"scipy"}}  # JAX brings SciPy


OPTIONAL = optional_packages()


def imported_unasked(path: Path) -> set[str]:
    """The optional packages that a file imports when it is collected, without `importorskip` before."""
    asked: set[str] = set()
    found: set[str] = set()
    source = path.read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            names = [module or ""] if module else [a.name for a in node.names]
            found |= {name.partition(".")[0] for name in names} - asked
        elif "importorskip" in source and "importorskip" in (text := ast.unparse(node)):
            asked |= set(re.findall(r"['\"](\w+)", text))
    return found & OPTIONAL


def test_optional_packages_are_asked_for() -> None:
    found = {path: imported_unasked(path) for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    assert not {path: names for path, names in found.items() if names}


def test_an_import_that_is_not_asked_for_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import rich.table\nfrom torch import nn\nimport jax\n")
    assert imported_unasked(tmp_path / "test_a.py") == {"rich", "torch"}
