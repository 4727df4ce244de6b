"""Implicit differentiation: the derivatives of what a solver finds, by the equation that it solves.

A solver and its equation come in, and a function with derivatives goes out. `custom_root` and its kin
decorate a solver of one's own, in whatever it is written; `root` and its kin run those of optimistix and
lineax (the extra ``implicit``). Begin with NOTE [a solution and its equation] in `equations`; `systems` has
the linear systems.
"""

from typing import TYPE_CHECKING

from fad.errors import hints_of as _hints_of
from fad.implicit.decorators import custom_argmin as custom_argmin
from fad.implicit.decorators import custom_fixed_point as custom_fixed_point
from fad.implicit.decorators import custom_root as custom_root
from fad.implicit.solvers import argmin as argmin
from fad.implicit.solvers import fixed_point as fixed_point
from fad.implicit.solvers import linear_solve as linear_solve
from fad.implicit.solvers import root as root

__all__ = [
    "argmin",
    "custom_argmin",
    "custom_fixed_point",
    "custom_root",
    "fixed_point",
    "linear_solve",
    "root",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
