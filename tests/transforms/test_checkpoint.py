"""``checkpoint``: bodies that close over values of other levels, differentiate, and switch recording off."""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from jax.ad_checkpoint import checkpoint_name

import fad
import fad.numpy as fnp
from fad.core.primitive import Primitive
from fad.errors import ArgumentError, GradientError, LevelError
from tests.fuzzing.functions import OneMethodWave

X = jnp.array([0.3, -0.8, 1.2])


def test_checkpoint_closes_over_outer_variables() -> None:
    def f(xp: Any, checkpoint: Any, w: Any) -> Any:
        return xp.sum(checkpoint(lambda x: xp.sin(x) * w * w)(w * X))

    got = functools.partial(f, fnp, fad.checkpoint)
    expected = functools.partial(f, jnp, jax.checkpoint)
    assert_close(fad.grad(got)(X), jax.grad(expected)(X))
    assert_close(fad.hessian(got)(X), jax.jit(jax.hessian(expected))(X))


def test_a_checkpointed_body_may_differentiate_a_function_that_saves_an_intermediate_value() -> (
    None
):
    f, plain = (
        lambda x, g=g: g(x, 0.5 * x) for g in (OneMethodWave.apply, lambda x, y: jnp.sin(x) * y)
    )
    expected = jax.jvp(jax.jacrev(plain), (X,), (X,))[1]
    again = fad.checkpoint(fad.jacrev(f))
    assert_close(fad.jvp(again, (X,), (X,))[1], expected)
    assert_close(fad.linearize(again, X)[1](X), expected)
    assert_close(
        fad.vmap(fad.grad(fad.checkpoint(fad.grad(f))))(X),
        jax.jit(jax.vmap(jax.grad(jax.grad(plain))))(X),
    )


def test_no_grad_inside_of_checkpoint() -> None:
    def f(x: Any) -> Any:
        with fad.no_grad():
            y = fnp.sin(x)
        return fnp.sum(x * y)

    assert_close(fad.grad(fad.checkpoint(f))(X), jnp.sin(X))


def test_checkpoint_in_a_vmap_that_is_over_computes_with_what_it_closes_over() -> None:
    lanes = jnp.arange(6.0).reshape(3, 2)

    def f(x):
        def lane(s):
            return fad.checkpoint(lambda y: y * fnp.sin(s[0]) + s[1])(x)

        return fad.vmap(lane)(lanes).sum()

    expected = jnp.sin(lanes[:, 0]).sum()
    np.testing.assert_allclose(fad.grad(f)(2.0), expected, rtol=1e-6)
    _, pull = fad.vjp(f, jnp.float32(2.0))
    np.testing.assert_allclose(pull(jnp.float32(1.0))[0], expected, rtol=1e-6)
    kept: list[Any] = []

    def leaking(s):
        kept.append(s)
        return fad.checkpoint(lambda y: y * s[0])(s[1])

    fad.grad(lambda lanes: fad.vmap(leaking)(lanes).sum())(lanes)
    with pytest.raises(LevelError, match="vmap had finished"):
        kept[0] + 1.0


# As in PyTorch: `torch.utils.checkpoint.checkpoint(f, *args, use_reentrant=False)`.


def _checkpointed(library: Any, f: Any) -> Any:
    if library is fad:
        return fad.checkpoint(f)
    again = importlib.import_module("torch.utils.checkpoint").checkpoint
    return lambda *args, **kwargs: again(f, *args, use_reentrant=False, **kwargs)


class _Options:
    factor = 3.0


def _arguments_that_are_no_arrays(library: Any) -> list[Any]:
    def f(x: Any, how: str, nothing: None, options: _Options, *, power: int) -> Any:
        assert (how, nothing) == ("square", None)
        return (x**power * options.factor).sum()

    x = library.tensor([1.0, 2.0], requires_grad=True)
    _checkpointed(library, f)(x, "square", None, _Options(), power=2).backward()
    return [x.grad.tolist()]


def _results_that_are_no_arrays(library: Any) -> list[Any]:
    x = library.tensor([1.0, 2.0], requires_grad=True)
    out = _checkpointed(library, lambda x: ((x * x).sum(), "text", None, [_Options, 3]))(x)
    out[0].backward()
    return [x.grad.tolist(), *out[1:]]


def _how_often_the_body_runs(library: Any) -> list[Any]:
    runs = []

    def f(x: Any) -> Any:
        runs.append(1)
        return (x * x).sum()

    x = library.tensor([1.0, 2.0], requires_grad=True)
    y = _checkpointed(library, f)(x)
    forward = len(runs)
    y.backward()
    return [forward, len(runs), x.grad.tolist()]


def _gradient_of_a_leaf_of_its_own(library: Any) -> list[Any]:
    def f(x: Any) -> Any:
        t = x.detach().requires_grad_()
        (g,) = library.autograd.grad((t**3).sum(), t)
        return (g * x).sum()

    x = library.tensor([1.0, 2.0], requires_grad=True)
    _checkpointed(library, f)(x).backward()
    return [x.grad.tolist()]


def _gradient_inside(create_graph: bool) -> Any:
    def program(library: Any) -> list[Any]:
        def f(x: Any, w: Any) -> Any:
            assert x.requires_grad and not w.requires_grad
            y = (x**3 * w).sum()
            assert y.requires_grad
            (g,) = library.autograd.grad(y, x, create_graph=create_graph)
            return (g * x * closed).sum()

        closed = library.tensor([1.0, 3.0], requires_grad=True)
        x = library.tensor([1.0, 2.0], requires_grad=True)
        out = _checkpointed(library, f)(x, library.tensor([5.0, 1.0]))
        out.backward()
        return [out.item(), x.grad.tolist(), closed.grad.tolist()]

    return program


def _gradient_of_an_intermediate_value(library: Any) -> list[Any]:
    def f(x: Any) -> Any:
        y = x * 2.0
        (g,) = library.autograd.grad((y**2).sum(), y, create_graph=True)
        return (g * x).sum()

    x = library.tensor([1.0, 2.0], requires_grad=True)
    _checkpointed(library, lambda x: _checkpointed(library, f)(x * x))(x).backward()
    return [x.grad.tolist()]


def _branch_of_a_nested_body_to_the_second_order(library: Any) -> list[Any]:
    inner = _checkpointed(library, lambda x: x**3 if x.requires_grad else x)
    x = library.tensor(2.0, requires_grad=True)
    y = _checkpointed(library, lambda x: inner(x * 1.0))(x)
    (g,) = library.autograd.grad(y, x, create_graph=True)
    (h,) = library.autograd.grad(g, x)
    return [y.item(), g.item(), h.item()]


def _gradient_of_one_of_two(library: Any) -> list[Any]:
    def f(x: Any, y: Any) -> Any:
        return (library.autograd.grad((x * x * y).sum(), x, create_graph=True)[0] * x).sum()

    x = library.tensor([1.0, 2.0], requires_grad=True)
    y = library.tensor([3.0, 4.0], requires_grad=True)
    (g,) = library.autograd.grad(_checkpointed(library, f)(x, y), y)
    return [g.tolist()]


def _branch_on_what_requires_grad(library: Any) -> list[Any]:
    x = library.tensor([1.0, 2.0], requires_grad=True)
    f = _checkpointed(library, lambda x: (x * x if (x * 1.0).requires_grad else x).sum())
    f(x).backward()
    return [x.grad.tolist(), f(x.detach()).item()]


def _gradient_of_what_is_closed_over(create_graph: bool) -> Any:
    def program(library: Any) -> list[Any]:
        def f(x: Any) -> Any:
            y = (x * w * w + w**3 * v * x * x).sum()  # w**3 alone is computed outside
            a, b = library.autograd.grad(y, [w, x], create_graph=create_graph, retain_graph=True)
            return a * x + b * w

        x = library.tensor([1.0, 2.0], requires_grad=True)
        w = library.tensor([3.0, 4.0], requires_grad=True)
        v = w * 2.0
        out = _checkpointed(library, f)(x)
        out.sum().backward()
        return [out.tolist(), x.grad.tolist(), w.grad.tolist()]

    return program


def _gradient_of_what_alone_requires_grad(library: Any) -> list[Any]:
    w = library.tensor([3.0, 4.0], requires_grad=True)

    def f(x: Any) -> Any:
        (a,) = library.autograd.grad((x * w**3).sum(), w, create_graph=True)
        return a * x

    out = _checkpointed(library, f)(library.tensor([1.0, 2.0]))
    (g,) = library.autograd.grad(out.sum(), w, create_graph=True)
    (h,) = library.autograd.grad(g.sum(), w)
    return [out.tolist(), g.tolist(), h.tolist()]


def _gradient_of_what_is_not_used(library: Any) -> list[Any]:
    x, w, v = [library.tensor([1.0, 2.0], requires_grad=True) for _ in range(3)]

    def f(x: Any) -> Any:
        return library.autograd.grad((x * w).sum(), [w, v], allow_unused=True)

    a, b = _checkpointed(library, f)(x)
    return [a.tolist(), b]


PROGRAMS = [
    _gradient_of_what_is_closed_over(True),
    _gradient_of_what_is_closed_over(False),
    _gradient_of_what_alone_requires_grad,
    _gradient_of_what_is_not_used,
    _gradient_inside(True),
    _gradient_inside(False),
    _gradient_of_an_intermediate_value,
    _branch_of_a_nested_body_to_the_second_order,
    _gradient_of_one_of_two,
    _branch_on_what_requires_grad,
    _arguments_that_are_no_arrays,
    _results_that_are_no_arrays,
    _how_often_the_body_runs,
    _gradient_of_a_leaf_of_its_own,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_torch(program: Any, torch: Any) -> None:
    assert program(fad) == program(torch)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        fad.grad,
        fad.vmap,
        lambda f: fad.vmap(fad.grad(f)),
        lambda f: fad.grad(lambda x: fad.vmap(f)(x).sum()),
        lambda f: fad.vmap(fad.grad(fad.grad(f))),
    ],
)
def test_the_body_runs_once_in_the_forward_pass(transform: Any) -> None:
    runs: list[int] = []
    forward: list[int] = []

    def f(x: Any) -> Any:
        runs.append(1)
        return (fnp.sin(x) * x).sum()

    def g(x: Any) -> Any:
        out = fad.checkpoint(f)(x)
        forward.append(len(runs))
        return out

    with fad.autograd.compiled(False):
        transform(g)(X)
    assert forward[0] == 1


def test_a_gradient_inside_under_transforms() -> None:
    def f(x: Any) -> Any:
        (g,) = fad.autograd.grad((x**3).sum(), x, create_graph=True)
        return (g * x).sum()

    def constant(x: Any) -> Any:
        return (fad.autograd.grad((x**3).sum(), x)[0] * x).sum()

    for transform in (lambda f: f, fad.vmap, fad.jit):
        assert_close(transform(fad.grad(fad.checkpoint(f)))(X), 9.0 * X * X)
        assert_close(transform(fad.grad(fad.checkpoint(constant)))(X), 3.0 * X * X)


def test_a_gradient_of_what_is_closed_over_under_transforms() -> None:
    def checkpointed(body: Any) -> Any:
        return lambda w: fad.checkpoint(lambda x: body(x, w))(fnp.array(X))

    def alone(x: Any, w: Any) -> Any:
        return (fad.autograd.grad((x * w**3).sum(), w, create_graph=True)[0] * x).sum()

    def together(x: Any, w: Any) -> Any:
        return (fad.autograd.grad((x * w * w * w).sum(), w, create_graph=True)[0] * x).sum()

    expected = 6.0 * X * X * X
    lanes, of_lanes = jnp.stack([X, 2.0 * X]), jnp.stack([expected, 2.0 * expected])
    assert_close(fad.grad(checkpointed(alone))(X), expected)
    assert_close(fad.vmap(fad.grad(checkpointed(alone)))(lanes), of_lanes)
    assert_close(fad.jit(fad.grad(checkpointed(together)))(X), expected)
    with pytest.raises(GradientError, match="pass it as an argument"):
        fad.jit(fad.vmap(fad.grad(checkpointed(together))))(lanes)


def test_a_gradient_that_cannot_be_a_constant_is_refused() -> None:
    w = fad.tensor(2.0, requires_grad=True)

    def f(x: Any) -> Any:
        return (fad.autograd.grad((x**2).sum(), x)[0] * w).sum()

    with pytest.raises(GradientError, match="several levels differentiate"):
        fad.grad(fad.checkpoint(f))(X)
    with pytest.raises(GradientError, match="several levels differentiate"):
        fad.grad(fad.grad(fad.checkpoint(lambda x: fad.autograd.grad(x * x, x)[0])))(1.0)


def test_a_branch_on_what_requires_grad_is_the_same_at_every_level() -> None:
    def f(x: Any) -> Any:
        return x**3 if x.requires_grad else x

    nested = fad.checkpoint(lambda x: fad.checkpoint(f)(x * 1.0))
    for transform in (
        lambda f: fad.grad(fad.grad(f)),
        lambda f: fad.jacfwd(fad.grad(f)),
        lambda f: fad.grad(lambda x: fad.jvp(f, (x,), (1.0,))[1]),
        lambda f: lambda x: fad.vmap(fad.grad(fad.grad(f)))(x * X),
    ):
        for checkpointed in (fad.checkpoint(f), nested):
            assert_close(transform(checkpointed)(2.0), transform(f)(2.0))


def test_what_the_body_closes_over_may_belong_to_another_level() -> None:
    w = fad.tensor(2.0, requires_grad=True)
    out = fad.grad(fad.checkpoint(lambda x: (x * x * w if x.requires_grad else x).sum()))(X)
    assert_close(out.detach().array, 4.0 * X)
    out.sum().backward()
    assert_close(w.grad.array, (2.0 * X).sum())


def test_compiled_code_reads_what_a_checkpointed_body_closes_over() -> None:
    s = fad.tensor(2.0)
    for f in (
        lambda: fad.checkpoint(lambda: s * 3.0)(),
        lambda: fad.checkpoint(lambda x: x * 3.0)(s),
    ):
        compiled = fad.jit(f)
        s.fill_(2.0)
        assert float(compiled()) == 6.0
        s.fill_(5.0)
        assert float(compiled()) == 15.0


# Policies


POLICIES = jax.checkpoint_policies


def two_layers(xp: Any, x: Any, w: Any) -> Any:
    return xp.sum(xp.cos(xp.sin(xp.sin(x @ w)) @ w))


@pytest.mark.parametrize(
    ("policy", "products"),
    [("nothing_saveable", 0), ("dots_saveable", 2), ("everything_saveable", 4)],
)
def test_a_policy_says_what_is_kept(policy: str, products: int) -> None:
    w = fad.tensor(jnp.eye(3) * 0.5, requires_grad=True)
    x = fad.tensor(jnp.ones((2, 3)), requires_grad=True)
    body = fad.checkpoint(functools.partial(two_layers, fnp), policy=getattr(POLICIES, policy))
    kept: list[Any] = []
    keep = lambda t: kept.append(t.shape) or t
    with fad.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        out = body(x, w)
    assert len([shape for shape in kept if shape == (2, 3)]) - 1 == products
    out.backward()
    expected = jax.grad(functools.partial(two_layers, jnp), (0, 1))(x.array, w.array)
    assert_close((x.grad.array, w.grad.array), expected)


@pytest.mark.parametrize("name", ["jit", "hessian", "vmap"])
def test_a_policy_under_transforms(name: str) -> None:
    w = jnp.eye(3) * 0.5
    checkpointed = fad.checkpoint(policy=POLICIES.dots_saveable)(functools.partial(two_layers, fnp))
    f = lambda x: checkpointed(x, w) * 2.0
    plain = lambda x: two_layers(jnp, x, w) * 2.0
    if name == "vmap":
        lanes = jnp.stack([X, 2 * X])
        assert_close(fad.vmap(fad.grad(f))(lanes), jax.jit(jax.vmap(jax.grad(plain)))(lanes))
        assert_close(jax.grad(fad.to_jax(f))(X), jax.grad(plain)(X))
    else:
        assert_close(getattr(fad, name)(f)(X), getattr(jax, name)(plain)(X))


def test_a_policy_with_a_function_a_closure_and_what_is_no_array() -> None:
    def f(x: Any) -> Any:
        body = fad.checkpoint(
            lambda y, how: {"out": OneMethodWave.apply(x, y), "how": how},
            policy=POLICIES.nothing_saveable,
        )
        out = body(2.0 * x, "sin")
        assert out["how"] == "sin"
        return out["out"].sum()

    plain = lambda x: OneMethodWave.apply(x, 2.0 * x).sum()
    assert_close(fad.grad(f)(X), fad.grad(plain)(X))
    assert_close(fad.jvp(f, (X,), (X,)), fad.jvp(plain, (X,), (X,)))


def test_a_policy_that_names_what_is_kept() -> None:
    named = fad.from_jax(lambda x: checkpoint_name(x, "product"))
    policy = POLICIES.save_only_these_names("product")
    body = fad.checkpoint(lambda x: fnp.sum(fnp.sin(named(x @ x))), policy=policy)
    x = fad.tensor(jnp.eye(3), requires_grad=True)
    kept: list[Any] = []
    with fad.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        out = body(x)
    assert kept == [(3, 3), (3, 3)]
    out.backward()
    assert_close(x.grad.array, jax.grad(lambda x: jnp.sum(jnp.sin(x @ x)))(x.array))


def test_a_policy_of_the_wrong_kind_and_a_body_that_writes() -> None:
    with pytest.raises(TypeError, match="policy must be one of jax.checkpoint_policies, got str"):
        fad.checkpoint(fnp.sin, policy="dots_saveable")
    body = fad.checkpoint(lambda x: x.mul_(2.0), policy=POLICIES.nothing_saveable)
    with pytest.raises(LevelError, match="changes an argument in place"):
        body(fad.tensor(X))


def test_memory_is_that_of_the_inputs_and_a_backward_pass_frees_it() -> None:
    w = fad.tensor(X, requires_grad=True)
    inputs, outputs = [], []
    layer = fad.checkpoint(lambda a, b: fnp.sin(a["x"] * b))
    y = w * 1.0
    for _ in range(3):
        inputs.append(weakref.ref(y.array))
        y = layer({"x": y}, w)
    outputs.append(weakref.ref(y.array))
    y = (y * 2.0 + 1.0).sum()
    assert [r() is not None for r in inputs] == [True] * 3
    assert outputs[0]() is None  # nothing refers to it
    y.backward()
    assert [r() is not None for r in inputs] == [False] * 3
    assert_close(w.grad.array, fad.grad(lambda v: fnp.sum(2.0 * plain_layers(v, 3)))(X))


def plain_layers(w: Any, count: int) -> Any:
    y = w * 1.0
    for _ in range(count):
        y = fnp.sin(y * w)
    return y


def test_arguments_and_options_of_torchs_checkpoint_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"write fad\.checkpoint\(f\)\(\*args\)$"):
        fad.checkpoint(fnp.sin, X)
    for options in ({"use_reentrant": False}, {"preserve_rng_state": True, "debug": True}):
        with pytest.raises(ArgumentError, match=f"no options {', '.join(options)}$"):
            fad.checkpoint(fnp.sin, X, **options)


def test_a_loop_differentiates_what_it_carries_through_a_checkpoint():
    """What a scan carries is traced there and requires no grad, and is differentiated all the same."""

    def f(w, run):
        @fad.checkpoint
        def body(state):
            return fnp.sin(state * w) + w

        def step(state, _):
            state = body(state)
            return state, state.sum()

        return run(step, fnp.ones(3))

    def scanned(step, state):
        state, sums = fad.lax.scan(step, state, None, length=4)
        return state.sum() + sums.sum()

    def looped(step, state):
        total = 0.0
        for _ in range(4):
            state, s = step(state, None)
            total = total + s
        return state.sum() + total

    x = jnp.array([0.3, 0.5, 0.7])
    expected = fad.grad(lambda w: f(w, looped))(x)
    np.testing.assert_allclose(fad.grad(lambda w: f(w, scanned))(x), expected, rtol=1e-5)
    np.testing.assert_allclose(fad.jit(fad.grad(lambda w: f(w, scanned)))(x), expected, rtol=1e-5)


def of_a_constant_made_inside(a: Any) -> Any:
    return fnp.array(3.0) * a * a


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: fad.checkpoint(fad.checkpoint(f)),
        lambda f: fad.checkpoint(fad.checkpoint(fad.checkpoint(f))),
        lambda f: fad.checkpoint(fad.jit(f)),
        lambda f: fad.jit(fad.checkpoint(fad.jit(f))),
        lambda f: fad.jit(fad.checkpoint(fad.checkpoint(f))),
        lambda f: fad.checkpoint(fad.jit(fad.checkpoint(f))),
    ],
    ids=["two", "three", "jit inside", "jit on both sides", "jit around two", "jit between"],
)
def test_a_constant_made_inside_of_nested_bodies_is_the_same_in_each_run(wrap: Any) -> None:
    f = wrap(of_a_constant_made_inside)
    assert float(f(2.0)) == 12.0
    assert [float(x) for x in fad.jvp(f, (2.0,), (1.0,))] == [12.0, 12.0]
    assert float(fad.grad(f)(2.0)) == 12.0
    assert float(fad.grad(fad.grad(f))(2.0)) == 6.0
    assert fad.vmap(fad.grad(f))(jnp.array([1.0, 2.0])).tolist() == [6.0, 12.0]
    assert float(jax.jit(jax.grad(fad.to_jax(f)))(2.0)) == 12.0


def test_what_a_nested_body_makes_of_a_tracer_outside_has_its_derivative() -> None:
    def loss(s: Any) -> Any:
        def body(a: Any) -> Any:
            return fad.jit(lambda a: fnp.array(1.0) * a * (fad.tensor(s) * 2.0))(a)

        return fad.to_jax(fad.checkpoint(fad.checkpoint(body)))(3.0)

    for wrap in (lambda f: f, jax.jit):
        assert float(wrap(jax.grad(loss))(2.0)) == 6.0


def test_whether_jax_replaces_calls_is_known_once_for_an_operation(monkeypatch):
    """The first run of a body asks that of each operation."""

    def body(x):
        for _ in range(20):
            x = fnp.sin(x) * 1.01 + 0.5
        return x

    f = fad.checkpoint(body)
    x = fad.tensor([1.0, 2.0], requires_grad=True)

    def calls():
        count = 0

        def note(frame, event, arg):
            nonlocal count
            count += event == "call"

        f(x), f(x)
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            f(x)
        finally:
            sys.setprofile(before)
        return count

    asking = calls()
    monkeypatch.setattr(Primitive, "is_replaced", lambda self, values: False)
    assert asking - calls() < 60 * 2
