"""How a Tensor shows itself in a notebook: what it is, its values, and a small picture of them."""

from __future__ import annotations

import base64
import html
import struct
import zlib

import jax
import numpy as np

from fad.core.tensor import Tensor
from fad.errors import HostValueError, LevelError
from fad.methods.values import facts, unwrap

_SMALL = 8  # values in a row that need no picture
_LARGE = 1 << 24  # elements of which no picture is made: it would take long
_SLICES = 8  # of an array with more than two dimensions
_RED, _BLUE, _ODD = np.array([[178, 24, 43], [33, 102, 172], [240, 180, 0]], np.float64)


def shrunk(values: np.ndarray, most: int) -> np.ndarray:
    """A matrix with at most so many rows and columns; of the values that share a place, the largest."""
    for axis in (0, 1):
        step = -(-values.shape[axis] // most)
        if step > 1:
            starts = np.arange(0, values.shape[axis], step)
            high = np.maximum.reduceat(values, starts, axis)
            low = np.minimum.reduceat(values, starts, axis)
            values = np.where(np.abs(low) > np.abs(high), low, high)
    return values


def colored(values: np.ndarray, largest: float) -> np.ndarray:
    """Colors of a real matrix: white is zero, red above, blue below, orange a value that is not finite.

    What is not zero is never white, however small.
    """
    finite = np.isfinite(values)
    share = np.clip(np.abs(np.where(finite, values, 0.0)) / (largest or 1.0), 0.0, 1.0)
    share = np.where(share > 0.0, 0.12 + 0.88 * share, 0.0)[..., None]
    full = np.where(values[..., None] < 0, _BLUE, _RED)
    rgb = np.where(finite[..., None], 255.0 + share * (full - 255.0), _ODD)
    return rgb.round().astype(np.uint8)


def png(rgb: np.ndarray) -> bytes:
    """A PNG file of an array of colors ``(height, width, 3)``."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    height, width, _ = rgb.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), rgb.reshape(height, -1)], axis=1)
    data = zlib.compress(rows.tobytes())
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def data_uri(rgb: np.ndarray) -> str:
    """`png` as an address that a page can show."""
    return f"data:image/png;base64,{base64.b64encode(png(rgb)).decode()}"


def real(values: np.ndarray) -> np.ndarray:
    """Numbers that can be drawn: those of complex dtype by their absolute value."""
    return np.abs(values) if np.iscomplexobj(values) else values.astype(np.float64)


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
    return real(np.asarray(value))


def _picture(values: np.ndarray) -> str:
    """An image of a matrix, or of the first matrices of a larger array; a line of a vector."""
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    if values.ndim == 1:
        return _line(values) if finite.size else ""
    parts = values.reshape(-1, *values.shape[-2:])[:_SLICES]
    images = []
    for part in parts:
        rgb = colored(shrunk(part, 256), largest)
        scale = max(1.0, min(16.0, 160.0 / max(rgb.shape[:2])))
        height, width = rgb.shape[0] * scale, rgb.shape[1] * scale
        images.append(
            f'<img src="{data_uri(rgb)}" width="{width:.0f}" height="{height:.0f}" '
            'style="image-rendering: pixelated; border: 1px solid #cfd8dc; margin: 2px">'
        )
    more = np.prod(values.shape[:-2], dtype=int) - len(parts)
    return "".join(images) + (f" and {more} more" if more > 0 else "")


def _line(values: np.ndarray) -> str:
    """A vector as a line."""
    points = values[:: -(-values.size // 256)]
    points = np.where(np.isfinite(points), points, np.nan)
    low, high = np.nanmin(points), np.nanmax(points)
    places = 60.0 - 56.0 * (points - low) / ((high - low) or 1.0)
    step = 240.0 / max(1, len(points) - 1)
    shown = [f"{k * step:.1f},{y:.1f}" for k, y in enumerate(places) if np.isfinite(y)]
    return (
        '<svg width="244" height="64" viewBox="-2 0 244 64"><polyline fill="none" stroke="#b2182b" '
        f'points="{" ".join(shown)}"/></svg>'
    )


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
        parts.append(_picture(values))
        parts.append(f"<details><summary>values</summary><pre>{text}</pre></details>")
    else:
        parts.append(f"<pre>{text}</pre>")
    return f"<div>{'<br>'.join(parts)}</div>"


MEMBERS: dict[str, object] = {"_repr_html_": _repr_html_}
