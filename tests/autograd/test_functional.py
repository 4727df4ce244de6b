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
from fad.errors import FadError, GradientError

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

    with pytest.raises(GradientError, match="is independent of input 1"):
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


STRICT: dict[str, tuple[Callable[..., Any], int]] = {  # the function, and how many inputs it has
    "cubic": (lambda x: (x * x * x).sum(), 1),
    "square": (lambda x: (x * x).sum(), 1),
    "linear": (lambda x: (3 * x).sum(), 1),
    "the same": (lambda x: (x * 1.0).sum(), 1),
    "vector": (lambda x: x * x, 1),
    "linear vector": (lambda x: x * 1.0, 1),
    "detached": (lambda x: x.detach().sum(), 1),
    "partly detached": (lambda x: (x * x.detach()).sum(), 1),
    "product": (lambda x, y: (x * x * y * y).sum(), 2),
    "sum of squares": (lambda x, y: (x * x).sum() + (y * y).sum(), 2),
    "linear in one": (lambda x, y: (x * x).sum() + y.sum(), 2),
    "one of two": (lambda x, y: (x * x).sum(), 2),
    "two outputs of one input each": (lambda x, y: (x * x, y * y), 2),
    "two outputs, one detached": (lambda x: (x * x, x.detach()), 1),
    "two linear outputs": (lambda x, y: (x * 2.0, y * 3.0), 2),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
@pytest.mark.parametrize("which", STRICT)
def test_strict_mode_refuses_what_pytorchs_refuses(
    torch: Any, which: str, name: str, create_graph: bool
) -> None:
    f, count = STRICT[which]

    def run(lib: Any, requires_grad: bool) -> str:
        xs = tuple([lib.tensor(d, requires_grad=requires_grad) for d in (X, Y)[:count]])
        outs = f(*xs)
        v: Any = None
        if name in ("jvp", "hvp", "vhp"):
            v = tuple([lib.tensor(V) for _ in xs])
        elif name == "vjp":
            v = map_arrays(lambda o: lib.tensor(np.ones(tuple(o.shape), np.float32)), outs)
        given = () if v is None else (v,)
        try:
            getattr(lib.autograd.functional, name)(
                f, xs, *given, create_graph=create_graph, strict=True
            )
        except RuntimeError:
            return "refused"
        return "taken"

    for requires_grad in (False, True):
        theirs = run(torch, requires_grad)
        for _ in range(3):  # what has been seen before is compiled
            assert run(fad, requires_grad) == theirs


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_they_record_under_no_grad(torch: Any, name: str) -> None:
    def run(lib: Any, create_graph: bool) -> list[bool]:
        x = lib.tensor(X, requires_grad=True)
        given = () if name in ("jacobian", "hessian") else (lib.tensor(V),)
        f = vector if name in ("vjp", "jvp", "jacobian") else scalar
        inside = []

        def seen(x: Any) -> Any:
            inside.append(lib.is_grad_enabled())
            return f(x)

        with lib.no_grad():
            call = getattr(lib.autograd.functional, name)
            out = call(seen, x, *given, create_graph=create_graph)
            assert not lib.is_grad_enabled()
        results = out if isinstance(out, tuple) else (out,)
        return [*inside[:1], *[r.requires_grad for r in results]]

    for create_graph in (False, True):
        assert run(fad, create_graph) == run(torch, create_graph)


@pytest.mark.parametrize("name", ["hvp", "vhp", "hessian"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_the_function_of_a_hessian_may_return_one_element_of_any_rank(
    torch: Any, name: str, shape: tuple[int, ...]
) -> None:
    def run(lib: Any) -> Any:
        given = () if name == "hessian" else (lib.tensor(V),)
        f = lambda x: (x**3).sum().reshape(shape)
        return map_arrays(
            lambda t: t.numpy(), getattr(lib.autograd.functional, name)(f, lib.tensor(X), *given)
        )

    assert_close(run(fad), run(torch))
    with pytest.raises(GradientError, match="single element"):
        getattr(functional, name)(lambda x: x, fad.tensor(X), fad.tensor(V))


@pytest.mark.parametrize("name", ["vjp", "jvp", "hvp", "vhp"])
def test_v_may_be_a_tuple_of_one(torch: Any, name: str) -> None:
    f = vector if name in ("vjp", "jvp") else scalar

    def run(lib: Any) -> Any:
        out = getattr(lib.autograd.functional, name)(f, lib.tensor(X), (lib.tensor(V),))
        return map_arrays(lambda t: t.numpy(), out)

    assert_close(run(fad), run(torch))


def on_host(lib: Any) -> Any:
    """sin, whose bodies are NumPy's."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return lib.tensor(np.sin(x.detach().numpy()))

    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return lib.tensor(g.detach().numpy() * np.cos(x.detach().numpy()))

    base = fad.Function if lib is fad else lib.autograd.Function
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Sine", (base,), members).apply


def test_rows_one_by_one_run_functions_that_leave_jax(torch: Any) -> None:
    expected = np.diag(np.cos(X))
    for lib in (fad, torch):
        got = lib.autograd.functional.jacobian(on_host(lib), lib.tensor(X), vectorize=False)
        assert_close(got.numpy(), expected)
    got = torch.func.jacrev(lambda x: torch.sin(x), chunk_size=1)(torch.tensor(X))
    assert_close(got.numpy(), expected)
    assert_close(fad.jacrev(on_host(fad), chunk_size=1)(X), expected)
    two = lambda x: (on_host(fad)(x), x.sum())
    assert_close(fad.jacrev(two, chunk_size=1)(X), (expected, np.ones(3, np.float32)))


@pytest.mark.parametrize(
    ("name", "f", "inputs", "more", "message"),
    [
        ("vjp", vector, X, (ONE,), "cotangent 0 must have the shape"),
        ("vjp", vector, X, ((V, V),), "the cotangent must have the structure"),
        ("jacobian", lambda x: x.argmax(), X, (), "output 0 has dtype int32"),
        ("jacobian", lambda: fad.tensor(1.0), (), (), "argnums is empty"),
        ("hessian", lambda x: x.argmax(), X, (), "the function must return a real scalar"),
        ("hessian", lambda: fad.tensor(1.0), (), (), "argnums is empty"),
        ("hvp", lambda x: x.argmax(), X, (V,), "the function must return a real scalar"),
        ("vhp", lambda x: x[0] * 1j, X, (V,), "the function must return a real scalar"),
        ("jvp", vector, X, ((V, V),), "v must have one entry for each input"),
    ],
)
def test_errors_name_the_function_that_was_called(
    name: str, f: Any, inputs: Any, more: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(FadError, match=f"^{name}: {message}"):
        getattr(functional, name)(f, inputs, *more)
