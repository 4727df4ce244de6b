"""``fad.autograd.functional`` gives what PyTorch's gives: results, structure, errors, and strict mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import assert_close

import fad
from fad.autograd import functional
from fad.errors import GradientError

X = np.array([0.3, -0.8, 1.2], np.float32)
Y = np.array([1.5, 2.0, -1.0], np.float32)
V = np.array([1.0, 2.0, -0.5], np.float32)
M = np.array([[0.5, -1.0, 2.0], [1.0, 0.25, -0.75]], np.float32)
ONE = np.float32(1.0).reshape(())


def vector(x: Any) -> Any:
    return x * x * x + x.sum()


def scalar(x: Any) -> Any:
    return (x * x * x).sum() * x[0]


def two_in(x: Any, y: Any) -> Any:
    return (x * x * y).sum() + (y * y).sum() * x[1]


def two_in_two_out(x: Any, y: Any) -> Any:
    return x * y, (x * x).sum() + y


def rows(x: Any, y: Any) -> Any:
    return x @ y


# The name in both libraries, the function, its inputs, and what follows them.
CASES: list[tuple[str, Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]]] = [
    ("vjp", vector, X, (V,), {}),
    ("vjp", scalar, X, (), {}),
    ("vjp", scalar, X, (np.float32(2.0).reshape(()),), {}),
    ("vjp", two_in, (X, Y), (), {}),
    ("vjp", two_in, (X, Y), (), {"strict": True}),
    ("vjp", two_in_two_out, (X, Y), ((V, 2 * V),), {}),
    ("vjp", rows, (M, X), (V[:2],), {}),
    ("jvp", vector, X, (V,), {}),
    ("jvp", two_in, (X, Y), ((V, 2 * V),), {}),
    ("jvp", two_in_two_out, (X, Y), ((V, 2 * V),), {}),
    ("jvp", lambda x: x * X.tolist()[0], ONE, (), {}),
    ("hvp", scalar, X, (V,), {}),
    ("hvp", two_in, (X, Y), ((V, 2 * V),), {}),
    ("vhp", scalar, X, (V,), {}),
    ("vhp", two_in, (X, Y), ((V, 2 * V),), {}),
    ("jacobian", vector, X, (), {}),
    ("jacobian", vector, X, (), {"vectorize": True}),
    ("jacobian", vector, X, (), {"vectorize": True, "strategy": "forward-mode"}),
    ("jacobian", two_in_two_out, (X, Y), (), {}),
    ("jacobian", two_in_two_out, (X, Y), (), {"vectorize": True, "strategy": "forward-mode"}),
    ("jacobian", rows, (M, X), (), {}),
    ("hessian", scalar, X, (), {}),
    ("hessian", two_in, (X, Y), (), {}),
    ("hessian", two_in, (X, Y), (), {"vectorize": True}),
    ("hessian", scalar, X, (), {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}),
]


def map_arrays(f: Callable[[Any], Any], tree: Any) -> Any:
    return tuple([map_arrays(f, x) for x in tree]) if isinstance(tree, (tuple, list)) else f(tree)


def names(case: Any) -> str:
    return f"{case[0]} {case[1].__name__} {' '.join(map(str, case[4].values()))}"


@pytest.mark.parametrize("case", CASES, ids=names)
def test_results_are_those_of_pytorch(torch: Any, case: Any) -> None:
    name, f, inputs, rest, options = case
    got = getattr(functional, name)(
        f, *[map_arrays(fad.tensor, x) for x in (inputs, *rest)], **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's vmap says where it falls back to a loop
        want = getattr(torch.autograd.functional, name)(
            f, *[map_arrays(torch.tensor, x) for x in (inputs, *rest)], **options
        )
    tensors: list[Any] = []
    map_arrays(tensors.append, got)
    assert all([type(t) is fad.Tensor and not t.requires_grad for t in tensors])
    assert_close(
        map_arrays(lambda t: t.numpy(), got), map_arrays(lambda t: t.detach().numpy(), want)
    )


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_create_graph_lets_results_be_differentiated_again(torch: Any, name: str) -> None:
    def run(lib: Any) -> Any:
        x = lib.tensor(X, requires_grad=True)
        given = () if name in ("jacobian", "hessian") else (lib.tensor(V),)
        f = vector if name in ("vjp", "jvp", "jacobian") else scalar
        out = getattr(lib.autograd.functional, name)(f, x, *given, create_graph=True)
        results = out if isinstance(out, tuple) else (out,)
        assert all([r.requires_grad for r in results])
        sum([(r * r).sum() for r in results]).backward()
        return np.asarray(x.grad.numpy())

    assert_close(run(fad), run(torch))


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_strict_mode_refuses_an_input_that_an_output_does_not_depend_on(
    torch: Any, name: str
) -> None:
    def run(lib: Any, strict: bool) -> Any:
        x, y, v = lib.tensor(X), lib.tensor(Y), lib.tensor(V)
        given = () if name in ("jacobian", "hessian") else ((v, v),)
        given = () if name == "vjp" else given
        f = lambda x, y: (x * x * x).sum()
        return getattr(lib.autograd.functional, name)(f, (x, y), *given, strict=strict)

    words = "Output 0 of the user-provided function is independent of input 1"
    with pytest.raises(GradientError, match=words):
        run(fad, True)
    with pytest.raises(RuntimeError, match="is independent of"):
        run(torch, True)
    got, want = run(fad, False), run(torch, False)
    assert_close(
        map_arrays(lambda t: t.numpy(), got), map_arrays(lambda t: t.detach().numpy(), want)
    )


@pytest.mark.parametrize("where", ["plain", "grad", "vmap", "jit"])
def test_they_run_inside_of_transforms(where: str) -> None:
    f = lambda x: functional.vjp(vector, x, fad.tensor(V), create_graph=True)[1]
    by_hand = lambda x: 3 * x * x * V + V.sum()
    if where == "plain":
        assert_close(f(fad.tensor(X)).numpy(), by_hand(X))
    elif where == "grad":
        assert_close(fad.grad(lambda x: f(x).sum())(X), 6 * X * V)
    elif where == "vmap":
        assert_close(fad.vmap(f)(np.stack([X, Y])), np.stack([by_hand(X), by_hand(Y)]))
    else:
        assert_close(fad.jit(f)(X), by_hand(X))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: functional.vjp(vector, fad.tensor(X)), "v can only be None if the user-provided"),
        (lambda: functional.jvp(vector, fad.tensor(X)), "v can only be None if the input"),
        (lambda: functional.hvp(scalar, fad.tensor(X)), "v can only be None if the input"),
        (lambda: functional.vjp(scalar, "x"), r"vjp: inputs must be a Tensor or a tuple.*entry 0"),
        (lambda: functional.jvp(two_in, (X, Y), (V, "v")), r"jvp: v must be .*entry 1 is str 'v'"),
        (lambda: functional.jacobian(vector, X, strategy="both"), "got 'both'"),
        (
            lambda: functional.hessian(scalar, X, outer_jacobian_strategy="both"),
            "got 'both'",
        ),
    ],
)
def test_bad_calls_say_what_to_pass(call: Callable[[], Any], words: str) -> None:
    with pytest.raises((GradientError, TypeError, ValueError), match=words):
        call()


def test_a_failure_leaves_no_trace() -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError

    for name in ("vjp", "jacobian", "hessian"):
        for strict in (False, True):
            with pytest.raises(ZeroDivisionError):
                getattr(functional, name)(fails, fad.tensor(X), strict=strict)
    assert_close(functional.vjp(scalar, fad.tensor(X))[0].numpy(), scalar(X))
