"""The transforms whose results differ from those at the top of fad, next to ``torch.func``."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import fad
import fad.func
from fad.errors import GradientError


def test_gradient_comes_first(torch: Any) -> None:
    for library in (torch, fad):
        x = library.tensor(3.0)
        g, y = library.func.grad_and_value(lambda x: x**2)(x)
        assert (g.item(), y.item()) == (6.0, 9.0)
        g, (y, aux) = library.func.grad_and_value(lambda x: (x**2, x * 5.0), has_aux=True)(x)
        assert (g.item(), y.item(), aux.item()) == (6.0, 9.0, 15.0)
        both, _ = library.func.grad_and_value(lambda x, y: x * y, argnums=(0, 1))(x, 2.0 * x)
        assert [g.item() for g in both] == [6.0, 3.0]
        found = library.func.vmap(library.func.grad_and_value(lambda x: x**2))(
            library.tensor([1.0, 2.0])
        )
        assert [t.tolist() for t in found] == [[2.0, 4.0], [1.0, 4.0]]


def test_vjp_gives_a_tuple_in_both(torch: Any) -> None:
    for library in (torch, fad):
        x = library.tensor(2.0)
        out, pull = library.func.vjp(lambda x: x**2, x)
        assert (out.item(), *[g.item() for g in pull(x)]) == (4.0, 8.0)


def test_strict_jvp(torch: Any) -> None:
    for library in (torch, fad):
        x = library.tensor(3.0)
        constant = library.tensor(1.0)
        assert [t.item() for t in library.func.jvp(lambda x: constant, (x,), (x,))] == [1.0, 0.0]
        with pytest.raises(RuntimeError, match="independent of the input"):
            library.func.jvp(lambda x: constant, (x,), (x,), strict=True)
        found = library.func.jvp(lambda x: (x**2, x), (x,), (x,), strict=True, has_aux=True)
        assert [t.item() for t in found] == [9.0, 18.0, 3.0]
    with pytest.raises(GradientError, match="output 1 of f"):
        fad.func.jvp(lambda x: (x, constant), (fad.tensor(1.0),), (fad.tensor(1.0),), strict=True)


def test_functionalize_takes_remove(torch: Any) -> None:
    def f(x: Any) -> Any:
        x += 1.0
        return x * 2.0

    for library in (torch, fad):
        for remove in ("mutations", "mutations_and_views"):
            x = library.tensor(1.0)
            assert library.func.functionalize(f, remove=remove)(x).item() == 4.0
        with pytest.raises(RuntimeError, match="Valid options are"):
            library.func.functionalize(f, remove="everything")(library.tensor(1.0))


def test_arguments_have_pytorchs_names_and_order(torch: Any) -> None:
    """Of what can be given by position; the function itself is always the first."""
    for name in fad.func.__all__:
        if name == "stack_module_state":
            continue
        theirs, ours = (
            [
                p.name
                for p in inspect.signature(getattr(library.func, name)).parameters.values()
                if p.kind is not p.KEYWORD_ONLY
            ]
            for library in (torch, fad)
        )
        assert ours[1:] == theirs[1:], name


def test_functionalize_writes_arguments(torch: Any) -> None:
    def of_input(x: Any) -> Any:
        x.add_(1.0)
        return x * 2.0

    def of_view(x: Any) -> Any:
        x[1:].mul_(3.0)
        return x

    def of_nothing(x: Any) -> Any:
        y = x * 1.0
        y[0] = 7.0
        return y

    for f in (of_input, of_view, of_nothing):
        found = []
        for library in (torch, fad):
            x = library.tensor([1.0, 2.0, 3.0])
            y = library.func.functionalize(f)(x)
            assert y is not x
            found.append([x.tolist(), y.tolist()])
        assert found[0] == found[1]
        lanes = fad.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
        z = fad.func.vmap(fad.func.functionalize(f))(lanes)
        assert [lanes[1].tolist(), z[1].tolist()] == found[0]
        x = fad.tensor([1.0, 2.0, 3.0])
        fad.functionalize(f)(x)  # which is pure
        assert x.tolist() == [1.0, 2.0, 3.0] and not x.version


def test_vmap_shares_keyword_arguments(torch: Any) -> None:
    def f(x: Any, *, scale: Any = 1.0, shift: Any = None, kind: str = "") -> Any:
        return x * scale + (0.0 if shift is None else shift) + len(kind)

    found = []
    for library in (torch, fad):
        x = library.tensor([[1.0, 2.0], [3.0, 4.0]])
        mapped = library.func.vmap(f)
        found.append([mapped(x, scale=4.0, shift=x, kind="ab").tolist(), mapped(x).tolist()])
    assert found[0] == found[1]
