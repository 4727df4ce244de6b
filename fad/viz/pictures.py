"""Pictures of matrices and vectors, as PNG and HTML that need no other library."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

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
    """Colors of a real matrix: white is zero, red above, blue below, orange what is not finite.

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
    """Numbers that can be drawn: complex ones by their absolute value."""
    return np.abs(values) if np.iscomplexobj(values) else values.astype(np.float64)


def picture(values: np.ndarray) -> str:
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
