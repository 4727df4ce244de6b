"""Tensors in notebooks: what is said of them, and pictures that show their values."""

from __future__ import annotations

import base64
import html
import io
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.viz.pictures import colored, png, shrunk


def image(text: str) -> np.ndarray:
    """The pixels of the first picture."""
    reader = pytest.importorskip("matplotlib.image", reason="reads the picture")
    data = re.search(r'src="data:image/png;base64,([^"]*)"', text)
    assert data is not None
    return np.round(reader.imread(io.BytesIO(base64.b64decode(data[1])))[..., :3] * 255)


def shown(t: Any) -> str:
    text: str = t._repr_html_()
    for tag in ("div", "pre", "b", "code", "details", "svg"):
        assert text.count(f"<{tag}>") + text.count(f"<{tag} ") == text.count(f"</{tag}>")
    return text


def test_a_small_tensor_is_text() -> None:
    text = shown(fad.tensor([1.0, 2.0], requires_grad=True))
    assert "<code>float32[2] · requires_grad=True</code>" in text
    assert "Tensor([1., 2.], dtype=float32, requires_grad=True)" in text
    assert "<img" not in text and "<svg" not in text and "<details>" not in text


def test_a_matrix_has_a_picture() -> None:
    x = fad.tensor([[0.0, 1.0, -1.0], [0.0, 0.001, jnp.nan]])
    text = shown(x)
    pixels = image(text)
    assert pixels.shape == (2, 3, 3)
    red, blue = [178, 24, 43], [33, 102, 172]
    assert pixels[0].tolist() == [[255, 255, 255], red, blue]
    assert pixels[1, 0].tolist() == [255, 255, 255] and pixels[1, 2].tolist() == [240, 180, 0]
    assert 240 > pixels[1, 1, 1] > 200  # small, and not white
    assert "-1 to 1, mean 0.0002, 1 not finite" in text


def test_a_vector_has_a_line() -> None:
    text = shown(fad.tensor(jnp.linspace(-1.0, 1.0, 500)))
    points = re.search(r'points="([^"]*)"', text)
    assert points is not None
    ys = [float(p.split(",")[1]) for p in points[1].split()]
    assert 200 < len(ys) <= 256 and ys == sorted(ys, reverse=True)


def test_larger_arrays_show_their_first_matrices() -> None:
    assert shown(fnp.ones((3, 4, 5))).count("<img") == 3
    many = shown(fnp.ones((3, 4, 5, 5)))
    assert many.count("<img") == 8 and "and 4 more" in many


@pytest.mark.parametrize(
    "x",
    [
        fad.tensor(1.0),
        fnp.zeros((0, 3)),
        fnp.zeros((3, 3)),
        fad.tensor([[True, False]] * 5),
        fad.tensor([[1 + 2j, 3j]] * 5),
        fad.tensor([jnp.nan] * 20),
        fad.tensor([[jnp.inf] * 5] * 5),
        fad.tensor(jnp.ones((4, 4), jnp.bfloat16)),
        fad.asarray(jax.random.key(0)),
    ],
    ids=lambda x: f"{x.dtype}{list(x.shape)}",
)
def test_every_tensor_shows_itself(x: Any) -> None:
    assert html.escape(str(x.dtype)) in shown(x)


def test_inside_of_transforms() -> None:
    seen = []

    def f(x: Any) -> Any:
        y = fnp.sin(x)
        seen.append(shown(y))
        return y.sum()

    X = jnp.ones((4, 5))
    fad.grad(f)(X)
    fad.vmap(f)(X)
    fad.jvp(f, (X,), (X,))
    fad.jit(f)(X)
    assert "(grad)" in seen[0] and "grad_fn=&lt;SinBackward&gt;" in seen[0] and "<img" in seen[0]
    assert "float32[5]" in seen[1] and "(vmap)" in seen[1] and "<img" not in seen[1]
    assert "tangent=" in seen[2] and "<img" in seen[2]
    assert "float32[4, 5]" in seen[3] and "<img" not in seen[3]


def test_a_tensor_that_has_outlived_its_vmap() -> None:
    kept = []
    fad.vmap(lambda x: kept.append(x) or x)(jnp.ones(3))  # type: ignore[func-returns-value]
    assert "finished" in shown(kept[0])


def test_a_donated_tensor() -> None:
    x = fad.tensor(jnp.ones((5, 5)))
    x.array.delete()
    assert "deleted" in shown(x)


def test_reading_changes_nothing() -> None:
    x = fad.tensor(jnp.ones((4, 4)), requires_grad=True)
    y = (x * x).sum()
    shown(x)
    y.backward()
    assert x.grad.tolist() == (2 * jnp.ones((4, 4))).tolist()


def test_a_matrix_is_shrunk_to_what_is_largest() -> None:
    x = np.zeros((10, 7))
    x[4, 6], x[9, 0] = -3.0, 2.0
    small = shrunk(x, 3)
    assert small.shape == (3, 3)
    assert small.tolist() == [[0, 0, 0], [0, 0, -3.0], [2.0, 0, 0]]


def test_png_files_can_be_read() -> None:
    reader = pytest.importorskip("matplotlib.image", reason="reads the picture")
    rgb = colored(np.arange(-6.0, 6.0).reshape(3, 4), 6.0)
    read = np.round(reader.imread(io.BytesIO(png(rgb))) * 255)
    assert read[..., :3].tolist() == rgb.tolist()
