"""The tables of special cases name what exists, and the page names them."""

from __future__ import annotations

import importlib
import inspect
import re

import jax
import jax.numpy as jnp
import pytest
from helpers import ROOT

import fad
import fad.numpy as fnp
import fad.scipy.ndimage
from fad.arrays import special_cases as cases
from fad.formulas import INSTEAD, SMOOTH

PAGE = ROOT / "docs" / "namespaces.md"


def test_functions_of_the_tool_are_those_that_are_looked_up_there() -> None:
    there = {
        module: {*SMOOTH.get(module, ()), *INSTEAD.get(module, ())} for module in cases.WRITTEN
    }
    assert there == cases.WRITTEN
    assert cases.WRITTEN.keys() >= SMOOTH.keys() | INSTEAD.keys()


def test_tables_name_what_exists() -> None:
    old = {"pgather", "pvary", "psend", "precv"}  # not in all versions of JAX, or deprecated
    tables = [
        cases.HOST, cases.ON_VALUES, cases.BODIES, cases.MAKERS, cases.COLLECTIVES,
        cases.FACTORIES, cases.CLASSES, cases.INDEXERS, cases.MISSING, cases.ROLES,
    ]  # fmt: skip
    for table in tables:
        for module, names in table.items():
            for name in set(names) - old:
                assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
    for name in cases.NOT_DRAWING:
        assert hasattr(jax.random, name)
    for module, functions in cases.ROLES.items():
        for name, roles in functions.items():
            parameters = inspect.signature(getattr(importlib.import_module(module), name))
            if not any(p.kind is p.VAR_KEYWORD for p in parameters.parameters.values()):
                assert set(roles) <= set(parameters.parameters), name


def test_the_page_names_everything_that_is_treated_specially() -> None:
    page = PAGE.read_text()
    named = set(re.findall(r"`([\w.]+)`", page))
    for table in (
        cases.MISSING, cases.HOST, cases.ON_VALUES, cases.BODIES, cases.MAKERS,
        cases.COLLECTIVES, cases.CLASSES, cases.INDEXERS,
    ):  # fmt: skip
        for module, names in table.items():
            for name in names:
                assert name in named, f"{module}.{name} is not on {PAGE.name}"
    for name in cases.NOT_DRAWING:
        assert name in named
    for module, functions in SMOOTH.items():
        for name in functions:
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
            assert name in named, f"{module}.{name} is not on {PAGE.name}"
    for reasons in cases.MISSING.values():
        for reason in reasons.values():
            assert reason.split(";")[0] in " ".join(page.split())


def test_numbers_that_jax_compiles_in() -> None:
    """JAX annotates them as arrays, and takes numbers alone."""
    x, y = fad.tensor([1.0, 2.0, 3.0]), jnp.array([2.0, 5.0])
    both = fnp.intersect1d(x, y, size=2, fill_value=7.0)
    assert both.tolist() == [2.0, 7.0]
    assert x.compress(x > 2.0, size=2, fill_value=-1.0).tolist() == [3.0, -1.0]
    sample = lambda x: fad.scipy.ndimage.map_coordinates(x, [y], order=1, cval=0.5)
    assert sample(x).tolist() == [3.0, 0.5]
    assert fad.grad(lambda x: sample(x).sum())(x).tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(TypeError, match=r"fill_value is Tensor float32\[\]\. Write float\(x\)"):
        fnp.intersect1d(x, y, size=2, fill_value=x[0])
