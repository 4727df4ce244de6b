"""``SparsePattern``: what it says, and files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError

X = np.ones(6, np.float32)
ARROW = lambda x: (x[:-1] * x[-1]).sum() + (x**3).sum()


def test_what_it_says() -> None:
    band = fad.sparse_pattern(fnp.diff)(X)
    assert repr(band) == "SparsePattern(5 × 6, 10 entries, 2 products forward)"
    rows = fad.sparse_pattern(lambda x: x.reshape(2, 3).sum(1))(X)
    assert repr(rows) == "SparsePattern(2 × 6, 6 entries, 1 product reverse)"
    arrow = fad.sparse_pattern(ARROW, hessian=True)(X)
    assert repr(arrow) == "SparsePattern(6 × 6, 16 entries, 2 products of a Hessian)"
    assert (arrow.mode, arrow.shape, arrow.nse) == ("hessian", (6, 6), 16)
    dense = np.zeros(band.shape)
    dense[band.rows, band.cols] = 1
    np.testing.assert_array_equal(dense, fad.sparsity(fnp.diff)(X).todense())
    nothing = fad.sparse_pattern(lambda x: x[:0])(X)
    assert (nothing.shape, nothing.nse, nothing.products) == ((0, 6), 0, 0)


def test_values_and_compiled_code_do_not_matter(tmp_path: Path) -> None:
    inside: list[Any] = []

    @fad.jit
    def f(x: Any) -> Any:
        inside.append(fad.sparse_pattern(fnp.diff)(x))
        return fad.sparse_jacobian(fnp.diff, pattern=inside[0])(x).data

    assert f(X).tolist() == [-1, 1] * 5
    assert repr(inside[0]) == repr(fad.sparse_pattern(fnp.diff)(X))
    inside[0].save(tmp_path / "empty.npz")
    assert fad.SparsePattern.load(str(tmp_path / "empty.npz")).nse == 10


def saved(path: Path, **changed: Any) -> Path:
    """The pattern of an arrow in a file, with other arrays in it."""
    fad.sparse_pattern(ARROW, hessian=True)(X).save(path)
    with np.load(path) as found:
        arrays = {**found, **{k: change(found[k].copy()) for k, change in changed.items()}}
    np.savez(path, **arrays)
    return path


def put(at: int, value: int) -> Any:
    def change(x: np.ndarray) -> np.ndarray:
        x[at] = value
        return x

    return change


CHANGES: dict[str, Any] = {
    "an entry outside": {"cols": put(0, 6)},
    "a negative row": {"rows": put(0, -1)},
    "entries out of order": {"rows": lambda x: x[::-1], "cols": lambda x: x[::-1]},
    "an entry less": {"rows": lambda x: x[:-1]},
    "one colour for all": {"colors": np.zeros_like},
    "a colour less": {"colors": lambda x: x[:-1]},
    "colours in another order": {"colors": lambda x: x[::-1]},
    "no such product": {"products": put(0, 9)},
    "another place": {"places": put(0, 3)},
    "a place outside": {"places": put(0, 99)},
    "floats": {"rows": lambda x: x.astype(float)},
    "no text": {"about": lambda x: np.array("{")},
    "another version": {
        "about": lambda x: np.array(str(x).replace('"version": 1', '"version": 0'))
    },
}


@pytest.mark.parametrize("name", CHANGES)
def test_files_that_are_none(name: str, tmp_path: Path) -> None:
    path = tmp_path / "pattern.npz"
    assert fad.SparsePattern.load(saved(path)).products == 2
    with pytest.raises(ArgumentError, match=r"is no pattern that .*Find it again"):
        fad.SparsePattern.load(saved(path, **CHANGES[name]))


def test_other_files(tmp_path: Path) -> None:
    for name, text in {"text": b"pattern", "nothing": b""}.items():
        (tmp_path / name).write_bytes(text)
        with pytest.raises(ArgumentError, match="is no pattern"):
            fad.SparsePattern.load(tmp_path / name)
    np.savez(tmp_path / "other.npz", rows=X)
    with pytest.raises(ArgumentError, match="is no pattern"):
        fad.SparsePattern.load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        fad.SparsePattern.load(tmp_path / "missing.npz")


def test_a_damaged_file_is_refused_or_whole(tmp_path: Path) -> None:
    """A byte that has changed is an error that says what to do, or is in no array."""
    pattern = fad.sparse_pattern(fnp.diff)(fnp.zeros(30))
    path = tmp_path / "pattern.npz"
    pattern.save(path)
    whole = path.read_bytes()
    refused = 0
    for k in range(0, len(whole), 11):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 0xFF]) + whole[k + 1 :])
        try:
            found = fad.SparsePattern.load(path)
        except ArgumentError as error:
            assert "fad.sparse_pattern(f)(*args)" in str(error)
            refused += 1
        else:
            np.testing.assert_array_equal(found.rows, pattern.rows)
    assert refused > 20


def test_of_a_matrix() -> None:
    found = fad.sparse_pattern(fnp.diff)(fnp.zeros(5))
    dense = np.asarray(fad.jacfwd(fnp.diff)(jnp.ones(5)))
    matrices = (
        dense,
        fad.sparsity(fnp.diff)(jnp.ones(5)),
        fad.sparse_jacobian(fnp.diff, format="bcsr")(jnp.ones(5)),
    )
    for matrix in matrices:
        pattern = fad.SparsePattern.from_matrix(matrix)
        assert str(pattern) == str(found)
        assert pattern.shown_by.tolist() == found.shown_by.tolist()
        jacobian = fad.sparse_jacobian(fnp.diff, pattern=pattern)(jnp.ones(5))
        assert np.array_equal(jacobian.todense(), dense)
    hessian = fad.SparsePattern.from_matrix(np.eye(3), symmetric=True)
    assert fad.sparse_hessian(lambda x: (x**3).sum(), pattern=hessian)(jnp.ones(3)).nse == 3
    tall = fad.SparsePattern.from_matrix(np.ones((2, 3, 4)), out_ndim=2)
    assert tall.shape == (6, 4) and tall.mode == "forward"
    with pytest.raises(ArgumentError, match="from_matrix: out_ndim is 3"):
        fad.SparsePattern.from_matrix(dense, 3)
    with pytest.raises(ArgumentError, match="from_matrix: symmetric, and the matrix is 4 × 5"):
        fad.SparsePattern.from_matrix(dense, symmetric=True)
    with pytest.raises(ArgumentError, match="from_matrix: the matrix must be an array"):
        fad.SparsePattern.from_matrix("diagonal")
