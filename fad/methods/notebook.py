"""How a Tensor shows itself in a notebook: what it is, its values, and a small picture of them."""

from __future__ import annotations

import html
import importlib

import jax
import numpy as np

from fad.core.tensor import Tensor
from fad.errors import HostValueError, LevelError
from fad.methods.values import facts, unwrap

_SMALL = 8  # values in a row that need no picture
_LARGE = 1 << 24  # elements of which no picture is made: it would take long


def _concrete(t: Tensor) -> np.ndarray | None:
    """The value as numbers, where it has one that can be drawn."""
    try:
        value = unwrap(t)
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
    values = _concrete(self)
    if values is not None and values.ndim and values.shape[-1] * values.size > _SMALL:
        finite = values[np.isfinite(values)]
        if finite.size:
            spread = f"{finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}"
            odd = values.size - finite.size
            parts.append(spread + (f", {odd} not finite" if odd else ""))
        parts.append(importlib.import_module("fad.viz.pictures").picture(values))  # a tool's
        parts.append(f"<details><summary>values</summary><pre>{text}</pre></details>")
    else:
        parts.append(f"<pre>{text}</pre>")
    return f"<div>{'<br>'.join(parts)}</div>"


MEMBERS: dict[str, object] = {"_repr_html_": _repr_html_}
