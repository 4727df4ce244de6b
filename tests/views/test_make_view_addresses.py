"""Views, copies and the argument itself: the table in docs/views.md, against NumPy and PyTorch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from helpers import ROOT, assert_close

import fad
import fad.numpy as fnp
from fad.views.make_view import has_strides, is_row_major, shares

COLUMNS = ["contiguous", "transposed", "expanded", "sliced", "steps"]


def table() -> list[tuple[str, str, list[str]]]:
    """Each call of the table, whose it is, and what it gives for each column."""
    text = (ROOT / "docs" / "views.md").read_text()
    rows = [re.split(r" *\| *", line)[1:-1] for line in text.splitlines() if line.startswith("| ")]
    head = rows.index(["of", "call", *COLUMNS])
    found = []
    for row in rows[head + 2 :]:
        if len(row) != 2 + len(COLUMNS):
            break
        found += [(row[0], call, row[2:]) for call in re.findall("`([^`]+)`", row[1])]
    return found


def argument(library: str, column: str) -> Any:
    """The argument of a column, and what it is a view of."""
    data = np.arange(32.0, dtype=np.float32).reshape(4, 8)
    x = data[:, :4].copy() if column in COLUMNS[:3] else data
    base: Any = x
    if library == "PyTorch":
        base = pytest.importorskip("torch").tensor(x)
    elif library == "fad":
        base = fad.tensor(x)
    expand = np.broadcast_to if library == "NumPy" else lambda x, shape: x.expand(shape)
    views = {
        "contiguous": lambda x: x,
        "transposed": lambda x: x.T,
        "expanded": lambda x: expand(x[0], (4, 4)),
        "sliced": lambda x: x[:, 2:6],
        "steps": lambda x: x[:, ::2],
    }
    return base, views[column](base)


def result(library: str, call: str, column: str) -> str:
    """Whether ``call`` gives a view, a copy, or its argument itself."""
    base, x = argument(library, column)
    torch = pytest.importorskip("torch") if library == "PyTorch" else None
    names = {"x": x, "np": fnp if library == "fad" else np, "fad": torch or fad}
    out = eval(call, names)
    out = out[0] if isinstance(out, (tuple, list)) else out
    if out is x:
        return "itself"
    if library == "fad":
        return "view" if shares(out, base) else "copy"
    if torch is None:
        return "view" if np.shares_memory(out, base) else "copy"
    same = out.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    return "view" if same else "copy"


ROWS = table()


def test_each_cell_of_the_table_is_what_fad_gives() -> None:
    assert len(ROWS) > 80
    wrong = [
        (call, column, cell)
        for _, call, cells in ROWS
        for column, cell in zip(COLUMNS, cells, strict=True)
        if result("fad", call, column) != cell
    ]
    assert not wrong


@pytest.mark.parametrize("library", ["NumPy", "PyTorch"])
@pytest.mark.filterwarnings("ignore")  # PyTorch's, of `x.T` of what is no matrix
def test_each_cell_of_the_table_is_what_the_other_library_gives(library: str) -> None:
    wrong = [
        (call, column, cell)
        for of, call, cells in ROWS
        if of in (library, "both")
        for column, cell in zip(COLUMNS, cells, strict=True)
        if result(library, call, column) != cell
    ]
    assert not wrong


@pytest.mark.parametrize("library", ["NumPy", "PyTorch"])
def test_values_after_a_write_to_what_may_be_a_copy(library: str) -> None:
    calls = [
        "x.reshape(2, -1)",
        "x.ravel()",
        "x.reshape(-1)",
        "x[1:].reshape(-1)",
        "x.T.reshape(-1)",
    ]
    calls += ["x[..., None].reshape(4, 2, 2)", "x[:2, :1].reshape(2)"]
    calls += ["x.diagonal().reshape(2, 2)"] if library == "PyTorch" else []  # NumPy's is read-only
    for call in calls:
        for column in COLUMNS:
            if column == "expanded":  # NumPy's and PyTorch's cannot be written to, or only in part
                continue
            got = []
            for name in ("fad", library):
                base, x = argument(name, column)
                eval(call, {"x": x})[...] = 77.0
                got.append(np.asarray(base))
            np.testing.assert_array_equal(*got, err_msg=f"{call} of {column}")


def test_what_is_contiguous_is_what_pytorch_says(torch: Any) -> None:
    calls = ["x", "x[1:]", "x[:, 1:]", "x[1]", "x[:, 1]", "x[:1]", "x[:, :1]", "x[:0].T", "x.T[:1]"]
    calls += ["x[None]", "x[:, None]", "x.T.T", "x[1:2, ::2]", "x[2:, 2:].T", "x.diagonal()"]
    for call in calls:
        for column in COLUMNS:
            got = [
                eval(call, {"x": argument(name, column)[1]}).is_contiguous()
                for name in ("fad", "PyTorch")
            ]
            assert got[0] == got[1], f"{call} of {column}"


def test_parts_of_complex_numbers_and_other_dtypes(torch: Any) -> None:
    calls = ["z.real.reshape(-1)", "z.imag.reshape(-1)", "z.imag.ravel()", "z.T.real.reshape(-1)"]
    for call in calls:
        ours, theirs = (
            fad.zeros(2, 3, dtype=fad.complex64),
            torch.zeros(2, 3, dtype=torch.complex64),
        )
        for z in (ours, theirs):
            eval(call, {"z": z})[1] = 5.0
        assert_close(ours, theirs.numpy())
    x = fad.zeros(2, 3)
    x.view(fad.int32).reshape(-1)[1] = 7
    x.view(fad.uint8).T.reshape(-1)[2] = 9  # a copy
    assert x.view(fad.int32).tolist() == [[0, 7, 0], [0, 0, 0]]


def test_copies_are_differentiated_and_leave_their_source(torch: Any) -> None:
    def loss(lib: Any, x: Any) -> Any:
        y = x * 1.0
        z = y.swapaxes(0, 1).reshape(-1)
        z[1] *= 10.0
        w = y.swapaxes(0, 1).contiguous()
        w[0] *= w[1].clone()
        v = y[1:].reshape(-1)  # a view
        v *= 2.0
        return (y**2).sum() + (z**3).sum() + (w**2).sum()

    data = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    ours, theirs = fad.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    loss(fad, ours).backward()
    loss(torch, theirs).backward()
    assert_close(ours.grad, theirs.grad.numpy())
    assert_close(fad.grad(lambda x: loss(fad, x))(data), ours.grad)
    assert_close(fad.jit(fad.vmap(fad.grad(lambda x: loss(fad, x))))(data[None])[0], ours.grad)


def test_addresses() -> None:
    a = np.arange(24).reshape(2, 3, 4)
    assert is_row_major(a) and is_row_major(a[1:]) and not is_row_major(a[:, 1:])
    for b in (a, a.T, a[::-1, ::2], np.broadcast_to(a[0, 0], (5, 4)), a[:0], np.array(3)):
        assert has_strides(b)
    assert not has_strides(a.T.reshape(-1)) and not has_strides(np.array([0, 1, 3]))


# Views of parts of elements, and of elements made of several, of `z`, 3 by 4 and complex, and `a`, real.
PARTS = """
t.view_as_real(z.T).reshape(4, 3, 2)
t.view_as_real(z.T).reshape(-1)
t.view_as_real(z[:, ::2]).flatten(0, 1)
t.view_as_real(z[1:]).reshape(-1)
t.view_as_real(z.T).contiguous()
t.view_as_real(z)[..., 1].reshape(-1)
t.view_as_real(z[:1].expand(3, 4)).reshape(12, 2)
z.T.real.reshape(4, 3)
z.T.real.reshape(-1)
z.real.reshape(-1)
z[:, 1:].imag.reshape(9)
z[:, 1:].imag[:1].reshape(3)
z.view(t.float32).T.reshape(8, 3)
z[:, 1:].view(t.float32).reshape(-1)
t.view_as_complex(a[:, 1:]).reshape(3, 3)
t.view_as_complex(a[:, ::2]).reshape(-1)
t.view_as_complex(a).T.reshape(-1)
t.view_as_complex(t.view_as_real(z.T)).reshape(4, 3)
"""


def _parts_of(t: Any, program: str) -> tuple[Any, Any]:
    numbers = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    z, a = t.tensor(numbers.view(np.complex64)[..., 0]), t.tensor(numbers)
    return (a if "a[" in program or "(a)" in program else z), eval(
        program, {"t": t, "z": z, "a": a}
    )


@pytest.mark.parametrize("program", PARTS.strip().splitlines())
def test_parts_of_elements_are_where_they_are_in_pytorch(torch: Any, program: str) -> None:
    found = []
    for t in (torch, fad):
        base, x = _parts_of(t, program)
        contiguous = x.is_contiguous()
        first = x
        for _ in range(x.ndim):
            first = first[-1]
        first.fill_(-7.0)
        found.append((x.tolist(), contiguous, base.tolist()))
    assert found[0] == found[1]


REPEATED = """
t.view_as_real(z[:1].expand(3, 4))[1, 2]
z[:1].expand(3, 4).imag[1, 1:3]
z[:1].expand(3, 4).view(t.float32)[0]
t.view_as_real(z)[:1].expand(3, 4, 2)[1, 2]
z.view(t.float32)[:1].expand(3, 8)[2, 3:]
t.view_as_complex(a)[:1].expand(3, 4)[1, 1:]
a[:1].expand(3, 4, 2).view(t.int32)[1]
"""


@pytest.mark.parametrize("program", REPEATED.strip().splitlines())
def test_parts_of_what_is_broadcast_are_written_to(torch: Any, program: str) -> None:
    found = []
    for t in (torch, fad):
        base, x = _parts_of(t, program)
        x.mul_(3)
        found.append(base.tolist())
    assert found[0] == found[1]


def test_a_write_to_parts_of_what_is_broadcast_has_derivatives(torch: Any) -> None:
    data = (np.arange(8, dtype=np.float32).reshape(2, 4) + 1j).astype(np.complex64)

    def f(t: Any, z: Any) -> Any:
        z = z * 1
        x = t.view_as_real(z[:1].expand(3, 4))[1, :, 0]
        x.mul_(x.clone())
        return (t.view_as_real(z) ** 2).sum()

    z = torch.tensor(data, requires_grad=True)
    f(torch, z).backward()
    for g in (fad.grad(lambda z: f(fad, z)), fad.jit(fad.grad(lambda z: f(fad, z)))):
        assert_close(np.asarray(g(data)), z.grad.numpy())
    lanes = fad.vmap(fad.grad(lambda z: f(fad, z)))(np.stack([data, data]))
    assert_close(np.asarray(lanes)[1], z.grad.numpy())


def test_what_overlaps_in_parts_is_an_error() -> None:
    z = fad.tensor(np.ones((1, 2), np.complex64))
    a = fad.tensor(np.ones((1, 2), np.float32))
    for x in (fad.view_as_real(z.expand(2, 2)), fad.view_as_complex(a).expand(2)):
        with pytest.raises(fad.errors.ArgumentError, match="more than one element"):
            x.mul_(2)
    x = fad.view_as_complex(a.expand(3, 2))[0]
    with pytest.raises(fad.errors.ArgumentError, match="cannot write through 'view_as_complex'"):
        x.fill_(2.0)
    assert a.tolist() == [[1.0, 1.0]]
