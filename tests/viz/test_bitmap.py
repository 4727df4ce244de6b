"""PNG files of graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_graphs import chain

import fad
from fad import viz
from fad.viz import bitmap

pytest.importorskip("fast_sugiyama", reason="places boxes (extra: viz)")
image = pytest.importorskip("matplotlib.image", reason="draws them (extra: viz)")


def test_a_file_has_what_is_drawn(tmp_path: Path) -> None:
    viz.graph(chain(2)).save(tmp_path / "a.png")
    pixels = image.imread(tmp_path / "a.png")[..., :3]
    height, width, _ = pixels.shape
    assert height > width / 2 and width >= 590
    leaf = np.array([0xD9, 0xF2, 0xD9]) / 255.0  # its color
    assert np.any(np.all(np.abs(pixels - leaf) < 0.01, axis=-1))


def test_a_file_of_nothing(tmp_path: Path) -> None:
    viz.graph(fad.tensor(1.0)).save(tmp_path / "a.png")
    assert image.imread(tmp_path / "a.png").min() < 0.5  # the text that says so


def test_a_large_picture_has_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitmap, "_LARGEST", 500.0)
    data = viz.graph(chain(10), fold=False).png()
    assert data.startswith(b"\x89PNG") and 490 <= int.from_bytes(data[20:24]) <= 501
