"""One line that makes pytest tests of a Function: one test for each law."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from fad.errors import hints_of as _hints_of
from fad.testing.function_checks import LAWS, LawError, Report, check_function

__all__ = ["function_tests"]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)


def function_tests(
    function: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    order: int = 2,
    skip: Sequence[str] = (),
    double: bool = True,
    seed: int = 0,
) -> Callable[..., None]:
    """A parametrized pytest test of a Function, with one case for each law.

    Give it a name that pytest collects. The laws are checked once, when the first case runs; a law
    that does not apply is a skipped case, and says why.

    Arguments:
        function, args, kwargs, order, skip, double, seed: as for `fad.testing.check_function`.

    Returns:
        The test.

    >>> import numpy as np
    >>> import fad.numpy as fnp
    >>> test_sine = function_tests(fnp.sin, np.ones(2))
    """
    reports: list[Report] = []
    names = [law.name for law in LAWS if law.name not in skip]
    names += ["well-formed"] + (["higher orders"] if order >= 3 else [])

    @pytest.mark.parametrize("law", names)
    def test(law: str) -> None:
        if not reports:
            reports.append(
                check_function(
                    function,
                    *args,
                    kwargs=kwargs,
                    order=order,
                    skip=skip,
                    double=double,
                    seed=seed,
                    raise_exception=False,
                )
            )
        report = reports[0]
        broken = [v for v in report.violations if v.law == law or _is_order(v.law, law)]
        if broken:
            raise LawError(Report(report.function, violations=broken))
        if law in report.not_checked:
            pytest.skip(report.not_checked[law])

    return test


def _is_order(what: str, law: str) -> bool:
    return law == "higher orders" and what.startswith("order ")
