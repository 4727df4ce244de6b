"""Jacobians and hessians as images: every value is where it belongs."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse

import fad
import fad.numpy as fnp
from fad import viz
from fad.errors import ArgumentError
from fad.viz.pictures import colored

IMAGE = "{http://www.w3.org/2000/svg}image"


def images(m: viz.Matrix) -> list[tuple[dict[str, str], Any]]:
    """Attributes and pixels of each panel."""
    reader = pytest.importorskip("matplotlib.image", reason="reads the picture")
    found = []
    for image in list(ET.fromstring(m.svg()).iter(IMAGE))[:-1]:
        data = base64.b64decode(image.attrib["href"].partition(",")[2])
        pixels = np.round(reader.imread(io.BytesIO(data))[..., :3] * 255).astype(np.uint8)
        found.append((image.attrib, pixels))
    return found


def texts(m: viz.Matrix) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", m.svg())


def test_a_jacobian_is_one_image() -> None:
    j = fad.jacrev(lambda x: x[1:] - 2.0 * x[:-1])(jnp.ones(4))
    m = viz.matrix(j)
    ((_, pixels),) = images(m)
    assert pixels.tolist() == colored(np.asarray(j), 2.0).tolist()
    assert str(m) == "matrix: 3 × 4, 6 of 12 not zero, -2 to 1"
    assert texts(m)[-3:] == ["-2", "0", "2"]


def test_dimensions_of_the_output_are_rows() -> None:
    j = fad.jacrev(lambda x: fnp.outer(x[0], x[0]))(jnp.ones((2, 3)))
    assert j.shape == (3, 3, 2, 3)
    assert str(viz.matrix(j)).startswith("matrix: 9 × 6 (shape [3, 3, 2, 3]), ")
    assert str(viz.matrix(j, out_ndim=1)).startswith("matrix: 3 × 18 ")
    assert str(viz.matrix(jnp.ones(3))).startswith("matrix: 1 × 3 ")
    assert str(viz.matrix(2.0)) == "matrix: 1 × 1 (shape []), 1 of 1 not zero, 2 to 2"


def test_parts_of_a_jacobian_stand_next_to_each_other() -> None:
    j = fad.jacrev(lambda w, b: w @ jnp.ones(3) + b, argnums=(0, 1))(jnp.ones((2, 3)), jnp.ones(2))
    m = viz.matrix(j)
    assert str(m).splitlines() == [
        "matrix [0]: 2 × 6 (shape [2, 2, 3]), 6 of 12 not zero, 0 to 1",
        "matrix [1]: 2 × 2, 2 of 4 not zero, 0 to 1",
    ]
    (left, _), (right, _) = images(m)
    assert float(left["x"]) + float(left["width"]) <= float(right["x"])
    assert left["y"] == right["y"]


def test_parts_of_a_hessian_stand_in_a_square() -> None:
    def f(p: Any) -> Any:
        return (p["w"] ** 2).sum() * p["b"].sum()

    h = fad.hessian(f)({"b": jnp.ones(3), "w": jnp.ones((2, 2))})
    m = viz.matrix(h)
    places = [(attributes["x"], attributes["y"]) for attributes, _ in images(m)]
    assert places[0][1] == places[1][1] and places[2][1] == places[3][1]
    assert places[0][0] == places[2][0] and places[1][0] == places[3][0]
    assert [line.split(" (")[0].split(",")[0] for line in str(m).splitlines()] == [
        "matrix ['b']['b']: 3 × 3",
        "matrix ['b']['w']: 3 × 4",
        "matrix ['w']['b']: 4 × 3",
        "matrix ['w']['w']: 4 × 4",
    ]


def test_sparse_and_complex_and_tensors_and_what_is_not_finite() -> None:
    dense = jnp.array([[0.0, 3.0], [0.0, 0.0]])
    assert str(viz.matrix(sparse.BCOO.fromdense(dense))) == str(viz.matrix(dense))
    assert str(viz.matrix(fad.tensor(dense, requires_grad=True))) == str(viz.matrix(dense))
    assert "0 to 5" in str(viz.matrix(jnp.array([[3 + 4j, 0]])))
    m = viz.matrix(np.array([[np.nan, 1.0], [np.inf, 0.0]]))
    assert str(m).endswith("0 to 1, 2 not finite")
    assert images(m)[0][1][0, 0].tolist() == [240, 180, 0]


def test_a_large_matrix_is_shrunk_and_keeps_what_is_not_zero() -> None:
    values = np.zeros((1500, 1500), np.float32)
    values[700, 3] = -1.0
    ((attributes, pixels),) = images(viz.matrix(values))
    assert pixels.shape == (500, 500, 3)
    assert pixels[233, 1].tolist() == [33, 102, 172]
    assert float(attributes["width"]) <= 420


def test_without_any_array() -> None:
    assert images(viz.matrix({})) == [] and str(viz.matrix([])) == ""


def test_files(tmp_path: Path) -> None:
    m = viz.matrix(jnp.eye(3))
    m.save(tmp_path / "a.svg")
    m.save(tmp_path / "a.html")
    m.save(tmp_path / "a.txt")
    assert (tmp_path / "a.svg").read_text() == m.svg() and m.svg() in m._repr_html_()
    assert (tmp_path / "a.txt").read_text() == str(m)
    with pytest.raises(ArgumentError, match=r"must end with one of \.svg, .*, got 'a\.pdf'"):
        m.save("a.pdf")


def test_a_png_file(tmp_path: Path) -> None:
    reader = pytest.importorskip("matplotlib.image", reason="draws it (extra: viz)")
    viz.matrix({"a": jnp.eye(3), "b": -jnp.eye(3)}).save(tmp_path / "a.png")
    pixels = np.round(reader.imread(tmp_path / "a.png")[..., :3] * 255)
    for color in ([178, 24, 43], [33, 102, 172]):
        assert np.any(np.all(pixels == color, axis=-1))


@pytest.mark.parametrize(
    "wrong", ["x", [jnp.ones(2), "y"], {}.keys()], ids=["text", "list", "keys"]
)
def test_what_is_no_array_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"expected arrays with values, as fad\.jacrev"):
        viz.matrix(wrong)


def test_what_has_no_values_or_too_few_dimensions_is_refused() -> None:
    with pytest.raises(ArgumentError, match="out_ndim is 3, and the array has the shape"):
        viz.matrix(jnp.ones((2, 2)), out_ndim=3)
    with pytest.raises(ArgumentError, match="expected arrays with values"):
        jax.jit(lambda x: viz.matrix(x) and x)(jnp.ones((2, 2)))
