"""The laws of one module of `fad.testing`, each with the first Function of `wrong_rules` that breaks it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from wrong_rules import WRONG

from fad.testing import LAWS, check_function


def laws_of(module: ModuleType) -> list[str]:
    """The names of the laws that the module checks."""
    return [law.name for law in LAWS if law.check.__module__ == module.__name__]


def check_that_it_is_found_alone(law: str) -> None:
    """The law by itself, without those before it, finds what breaks it, under its own name."""
    case = next(w for w in WRONG if w.law == law)
    np.random.seed(0)
    options = {**case.options, "laws": (law,), "raise_exception": False}
    report = check_function(case.function, *case.args, **options)
    assert {v.law for v in report.violations} == {law}, report
    assert case.rule in {v.rule for v in report.violations}, report


def check_that_it_holds(function: Any, *args: Any, laws: list[str]) -> None:
    """Each of the laws was checked, and holds."""
    report = check_function(function, *args, laws=tuple(laws))
    assert report.passed == laws and not report.not_checked, report
