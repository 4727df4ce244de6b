"""Patterns with their colours, as text and pictures."""

from __future__ import annotations

import io
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.sparse import BCOO

import fad
import fad.numpy as fnp
from fad import viz
from fad.errors import ArgumentError

BAND = fad.sparsity(lambda x: x[1:] * x[:-1])(jnp.ones(6))


def test_text_has_a_letter_for_each_product() -> None:
    head, *lines = str(viz.pattern(BAND)).splitlines()
    assert head == "pattern: 5 × 6, 10 of 30 entries, by 2 products of columns"
    found = [[c != "." for c in line] for line in lines]
    np.testing.assert_array_equal(found, BAND.todense() != 0)
    for column in zip(*lines, strict=True):  # all entries of a column are in one product
        assert len({c for c in column if c != "."}) == 1
    for line in lines:  # entries of a row are not
        assert sorted(c for c in line if c != ".") == ["a", "b"]


def test_rows_hessians_and_shapes() -> None:
    total = viz.pattern(fad.sparsity(lambda x: x.reshape(2, 3).sum(1))(jnp.ones(6)))
    assert total.count == 1 and str(total).splitlines()[1:] == ["aaa...", "...aaa"]
    assert "product of rows" in str(total)
    f = lambda x: (x[:-1] * x[-1]).sum() + (x**3).sum()
    arrow = viz.pattern(fad.sparse_hessian(f)(jnp.ones(9)), symmetric=True)
    assert arrow.count == 2
    assert str(viz.pattern(fad.sparse_pattern(f, hessian=True)(jnp.ones(9)))) == str(arrow)
    square = fad.sparsity(lambda x: x * x)(jnp.ones((2, 3)))
    assert str(viz.pattern(square)).startswith("pattern: 6 × 6, 6 of 36 entries, by 1 product of")
    assert str(viz.pattern(fad.sparsity(fnp.sum)(jnp.ones(3)), 0)).endswith("\naaa")
    empty = viz.pattern(fad.sparsity(lambda x: x)(jnp.ones(0)))
    assert empty.count == 0 and "<svg" in empty.svg()


def test_a_large_pattern_is_cut_in_text_and_whole_in_the_picture() -> None:
    large = viz.pattern(fad.sparsity(fnp.diff)(jnp.ones(3000)))
    lines = str(large).splitlines()
    assert len(lines) == 42 and lines[-1] == "..." and lines[1].endswith(". ...")
    reader = pytest.importorskip("matplotlib.image", reason="reads the picture")
    pixels = reader.imread(io.BytesIO(large.png()))
    assert max(pixels.shape) <= 512 and not np.all(pixels[-1, -1, :3] == 1.0)


def test_files(tmp_path: Path) -> None:
    p = viz.pattern(BAND)
    for name in ("a.svg", "a.html", "a.png", "a.txt"):
        p.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 50
    assert (tmp_path / "a.txt").read_text() == str(p)
    assert "2 products of columns" in p._repr_html_() and "10 entries" in repr(p)


def test_each_format_of_sparse_matrices_has_the_same_picture() -> None:
    f, x = fnp.diff, fnp.arange(4.0)
    expected = str(viz.pattern(fad.sparsity(f)(x)))
    for format in ("bcoo", "bcsr", "scipy"):
        assert str(viz.pattern(fad.sparse_jacobian(f, format=format)(x))) == expected
    padded = BCOO.fromdense(np.eye(2), nse=3)  # one place is out of the matrix
    assert str(viz.pattern(padded)).startswith("pattern: 2 × 2, 2 of 4 entries")


def test_bad_input() -> None:
    with pytest.raises(ArgumentError, match="expected a BCOO.*fad.viz.matrix"):
        viz.pattern(jnp.ones((2, 2)))
    with pytest.raises(ArgumentError, match="out_ndim is 3"):
        viz.pattern(BAND, out_ndim=3)
    with pytest.raises(ArgumentError, match="symmetric, and the matrix is 5 × 6"):
        viz.pattern(BAND, symmetric=True)
    with pytest.raises(ArgumentError, match="must end with one of"):
        viz.pattern(BAND).save("a.jpg")
