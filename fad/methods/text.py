"""A Tensor as text, and in notebooks."""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable

import jax
import numpy as np

import fad
from fad import Tensor
from fad.errors import GradientError, HostValueError, LevelError, describe
from fad.extend.types import Operand


def facts(self: Tensor) -> list[str]:
    """Level and kind where wrapped, and place in the graph, as ``repr`` says them."""
    parts = []
    if self.level.id != 0:
        parts.append(f"level={self.level.id} ({self.level.kind})")
        if not self.level.alive:
            parts[-1] = parts[-1][:-1] + ", finished)"
        tangent = self.level.tangent(self)
        if self.level.maps and self.aux is not None:
            parts.append(f"batch_dim={self.aux}")
        if tangent is not None:
            parts.append(f"tangent={_short(tangent)}")
    try:
        if self.grad_fn is not None:
            parts.append(f"grad_fn=<{self.grad_fn.name()}>")
        elif self.requires_grad:
            parts.append("requires_grad=True")
    except GradientError:
        parts.append("grad_fn=<Invalid>")
    return parts


def _repr(self: Tensor) -> str:
    """Value, dtype, level and kind where wrapped, and place in the graph."""
    inner = self.value
    dtype = f"dtype={_safe(lambda: self.dtype)}"
    return f"Tensor({_short(inner)}, {', '.join([dtype, *facts(self)])})"


def _safe(f: Callable[[], object]) -> object:
    """What ``f`` returns; "?" where a Tensor in an odd state has no answer."""
    try:
        return f()
    except (AttributeError, LevelError):
        return "?"


def _short(value: Operand) -> str:
    """An array's values as text; the type and shape of what has none."""
    while isinstance(value, Tensor) and not value.level.maps:
        value = value.value
    if isinstance(value, Tensor):
        return repr(value)
    if isinstance(value, jax.core.Tracer) or not isinstance(value, (jax.Array, np.ndarray)):
        return f"<{describe(value)}>"
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        return f"<{describe(value)}>"
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return f"<{describe(value)}, in part on other processes>"
    if isinstance(value, jax.Array) and value.is_deleted():
        return f"<{describe(value)}, deleted>"
    return np.array2string(
        np.asarray(value), separator=", ", threshold=20, edgeitems=3, prefix="Tensor("
    )


# How a Tensor shows itself in a notebook: what it is, its values, and a small picture of them.

_SMALL = 8  # values in a row that need no picture
_LARGE = 1 << 24  # elements of which no picture is made: it would take long


def _drawable(t: Tensor) -> np.ndarray | None:
    """The value as numbers, where it has one that can be drawn."""
    try:
        value = fad.stop_gradient(t).array
    except (HostValueError, LevelError):
        return None
    if isinstance(value, jax.core.Tracer) or not isinstance(value, jax.Array):
        return None
    if value.is_deleted() or not value.is_fully_addressable or value.size > _LARGE:
        return None
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended) or not value.size:
        return None
    numbers = np.asarray(value)
    return np.abs(numbers) if np.iscomplexobj(numbers) else numbers.astype(np.float64)


def _repr_html_(self: Tensor) -> str:
    """Shape, dtype, level and place in the graph; the values, and from a few on a picture of them.

    A picture of a matrix is white where it is zero, red above and blue below, and orange where it is not
    finite.
    """
    text = html.escape(repr(self))
    try:
        form = f"{self.dtype}{list(self.shape)}"
    except LevelError:
        return f"<pre>{text}</pre>"
    about = " · ".join([form, *facts(self)])
    parts = [f"<b>Tensor</b> <code>{html.escape(about)}</code>"]
    values = _drawable(self)
    if values is not None and values.ndim and values.shape[-1] * values.size > _SMALL:
        finite = values[np.isfinite(values)]
        if finite.size:
            spread = f"{finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}"
            odd = values.size - finite.size
            parts.append(spread + (f", {odd} not finite" if odd else ""))
        parts.append(importlib.import_module("fad.viz.pictures").picture(values))
        parts.append(f"<details><summary>values</summary><pre>{text}</pre></details>")
    else:
        parts.append(f"<pre>{text}</pre>")
    return f"<div>{'<br>'.join(parts)}</div>"


MEMBERS: dict[str, object] = {"__repr__": _repr, "_repr_html_": _repr_html_}
