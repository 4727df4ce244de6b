"""The tables of special cases name what exists, and the page names them."""

from __future__ import annotations

import importlib
import inspect
import re

import jax
from helpers import ROOT

from fad.arrays import special_cases as cases
from fad.arrays.derive import SMOOTH

PAGE = ROOT / "docs" / "namespaces.md"


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
