"""The rows of the comparison, with what is right, and how an outcome is told."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["FEATURES", "Absent", "outcome"]

# What a program of the row must give. The rule of `cube` is wrong by a factor of 2, so that one sees it used:
# its derivative at 3 is 2 * 27, and the derivative of that is 2 * 18.
FEATURES: dict[str, Any] = {
    "gradient through a Python branch on a value": 6.0,
    "parameters in a dict": {"b": 1.0, "w": 6.0},
    "Hessian, forward over reverse": [[2.0, 0.0], [0.0, 0.2391336]],
    "derivatives of order 5 in one pass": [0.0, 1.0, 0.0, -1.0, 0.0, 1.0],
    "derivatives of order 3 through a `scan`, in one pass": [
        0.4450853,
        0.6972664,
        -0.9688873,
        -0.3240367,
    ],
    "sparse Jacobian, by its pattern": [2.0, 4.0, 6.0],
    "derivative of what a solver finds": 0.3535534,
    "a gradient rule is used": 54.0,
    "second derivative through a gradient rule": 36.0,
    "forward mode of a gradient rule": 54.0,
    "reverse mode of a tangent rule": 54.0,
    "`jvp` of `jvp` through a tangent rule": 36.0,
    "`vmap` of a gradient rule, no batch rule written": [1.0, 27.0],
    "`grad` of `vmap` of a gradient rule with a batch rule": [6.0, 54.0],
    "a gradient rule under `checkpoint`": 54.0,
    "slices written in place, gradient": [3.0, 5.0, 1.0],
    "a mapped value written to an array made inside `vmap`": [[1.0, 0.0], [2.0, 0.0]],
    "slices written in place, gradient compiled": [3.0, 5.0, 1.0],
    "`backward()`, and `.grad` of a leaf": [3.0, 5.0, 1.0],
    "a hook changes the gradient of an intermediate value": 6.0,
    "such a hook inside `grad`": 6.0,
    "such a hook in compiled code": 6.0,
    "hooks for saved values": 6.0,
    "a NaN in a gradient is an error": True,
    "reverse mode of a compiled loop of unknown length": 17496.0,
    "a write to `x.numpy()` changes `x`": 5.0,
    "an index out of range, in an array, is an error": True,
    "float64 without a setting": "float64",
    "a layer and an optimizer": 1.0,
}


class Absent:
    """A cell without a program: the library has none of these names, which would be the feature.

    Arguments:
        names: dotted names, from a module on.
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def __call__(self) -> Any:
        for name in self.names:
            value: Any = importlib.import_module(name.split(".")[0])
            for part in name.split(".")[1:]:
                if not hasattr(value, part):
                    break
                value = getattr(value, part)
            else:
                raise AssertionError(f"{name} is there: write a program for the cell")
        raise _NoName(self.names[0])


class _NoName(Exception):
    """There is no such name."""


def outcome(feature: str, program: Callable[[], Any]) -> str:
    """What a cell shows: `yes`, that a program raises, gives something else, or what name is missing."""
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = program()
    except _NoName as error:
        return f"no `{error}`"
    except AssertionError:
        raise
    except Exception as error:
        return f"raises {type(error).__name__}"
    right = FEATURES[feature]
    if _same(found, right):
        return "yes"
    told = [w for w in told if issubclass(w.category, UserWarning)]
    return f"{'warns, and gives' if told else '**silently**'} {_plain(found)}, not {right}"


def _same(found: Any, right: Any) -> bool:
    if isinstance(right, dict):
        return sorted(found) == sorted(right) and all([_same(found[k], right[k]) for k in right])
    if isinstance(right, (str, bool)):
        return bool(found == right)
    return bool(np.allclose(_plain(found), right, rtol=1e-4, atol=1e-5))


def _plain(x: Any) -> Any:
    return (
        x.tolist() if hasattr(x, "tolist") else [*map(_plain, x)] if type(x) in (list, tuple) else x
    )
