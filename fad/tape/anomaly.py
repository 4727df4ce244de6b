"""Anomaly mode: where a NaN, or a failing backward rule, comes from."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from fad.errors import GradientError
from fad.graph import Node, running
from fad.tensor import Tensor

__all__ = [
    "check_forward",
    "check_gradients",
    "detect_anomaly",
    "explain",
    "mode",
    "remember",
    "set_detect_anomaly",
]


class _Mode:
    """Whether anomaly mode is on; one for the process, as in PyTorch."""

    __slots__ = ("check_nan", "on")

    def __init__(self) -> None:
        self.on = False
        self.check_nan = True


mode = _Mode()


class set_detect_anomaly:
    """Switch anomaly mode by a bool: at once, and until the ``with`` block ends if used as one.

    Arguments:
        mode: whether to be in anomaly mode.
        check_nan: whether to look for NaN in values, tangents and gradients.

    Source: ``torch.autograd.set_detect_anomaly``.
    """

    __slots__ = ("_before",)

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _set(bool(mode), bool(check_nan))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        _set(*self._before)


class detect_anomaly:
    """A block in which each node remembers the line that made it, and NaN is an error.

    A backward rule that fails, or returns NaN, raises with the traceback of the forward call; with
    ``create_graph``, those of the nodes whose backward pass made it too. Beyond PyTorch, a NaN in a
    forward value or in a tangent raises where it arises, with the level and the lanes of vmap.

    Arguments:
        check_nan: whether to look for NaN.

    Source: ``torch.autograd.detect_anomaly``.

    >>> import fad, fad.numpy as fnp
    >>> x = fad.tensor(0.0, requires_grad=True)
    >>> with fad.autograd.detect_anomaly():
    ...     (fnp.sqrt(x) * 0.0).backward()
    Traceback (most recent call last):
    fad.errors.GradientError: Function 'SqrtBackward' returned nan values in its 0th output. ...
    """

    __slots__ = ("_before", "check_nan")

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> Self:
        self._before.append(_set(True, self.check_nan))
        return self

    def __exit__(self, *exc: object) -> None:
        _set(*self._before.pop())


def _set(on: bool, check_nan: bool) -> tuple[bool, bool]:
    before = (mode.on, mode.check_nan)
    mode.on, mode.check_nan = on, check_nan
    return before


def remember(node: Node) -> None:
    """Keep in the node's metadata where it was made, and in whose backward pass."""
    node.metadata["traceback_"] = traceback.format_stack()[:-1]
    if running.current is not None:
        node.metadata["parent_"] = running.current


def explain(node: Node) -> str:
    """The forward tracebacks of a node, and of those whose backward pass made it."""
    parts = []
    at: Node | None = node
    first = True
    while at is not None:
        lines = at.metadata.get("traceback_")
        what = (
            f"Error detected in {at.name()}. "
            if first
            else f"\nPrevious calculation was induced by {at.name()}. "
        )
        if lines is None:
            parts.append(
                f"{what}No forward pass information available. Enable detect_anomaly during the "
                "forward pass for more information."
            )
        else:
            parts.append(
                f"{what}Traceback of forward call that caused the error:\n{''.join(lines)}"
            )
        at = at.metadata.get("parent_")
        first = False
    return "".join(parts)


def warn_of(node: Node) -> None:
    """Show `explain` as a warning, as PyTorch does before the error itself."""
    warnings.warn(explain(node), stacklevel=2)


def _find_nan(x: Any) -> tuple[bool, str]:
    """Whether a value holds NaN, and in which lanes of vmap."""
    dims: list[tuple[str, int]] = []
    while isinstance(x, Tensor):
        kind, aux = x.level.kind, x.aux
        x = x.value
        if kind == "vmap" and aux is not None:
            dims.append((f"level {kind}", aux))
    if isinstance(x, jax.core.Tracer) or not isinstance(x, (jax.Array, np.ndarray)):
        return False, ""
    if not jnp.issubdtype(x.dtype, np.inexact):
        return False, ""
    bad = np.isnan(np.asarray(x).astype(np.complex64 if np.iscomplexobj(x) else np.float32))
    if not bad.any():
        return False, ""
    if not dims:
        return True, ""
    outer = dims[-1][1]
    lanes = np.flatnonzero(np.moveaxis(bad, outer, 0).reshape(bad.shape[outer], -1).any(1))
    return True, f", in vmap lane {', '.join(map(str, lanes[:8].tolist()))}"


def check_gradients(node: Node, grads: Sequence[Any]) -> None:
    """Raise if a gradient that ``node`` computed is NaN."""
    for i, g in enumerate(grads):
        if g is None:
            continue
        found, lanes = _find_nan(g)
        if found:
            raise GradientError(
                f"Function '{node.name()}' returned nan values in its {i}th output{lanes}. "
                f"{explain(node)}"
            )


def check_forward(name: str, level: Any, args: Sequence[Any], out: Any) -> None:
    """Raise if a forward call made a NaN, in a value or a tangent, that was not in its arguments."""
    outs = out if type(out) is tuple else (out,)
    for k, o in enumerate(outs):
        for what, value in (("value", o), ("tangent", _tangent(o))):
            if value is None or not _find_nan(value)[0]:
                continue
            if any(_find_nan(a)[0] or _find_nan(_tangent(a))[0] for a in args):
                return
            lanes = _find_nan(value)[1]
            raise GradientError(
                f"'{name}' gave nan in the {what} of its {k}th output, at {level!r}{lanes}, from "
                "arguments without nan"
            )


def _tangent(x: Any) -> Any:
    return x.aux if isinstance(x, Tensor) and x.level.kind in ("jvp", "dual") else None
