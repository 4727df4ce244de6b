"""A Primitive: its derived rules are Primitives, each made once, and right against JAX's."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.core.primitive
from fad.core.level import bind
from fad.core.primitive import Primitive, forget_shapes
from fad.tape.vmap import BatchLevel

X = jnp.array([0.3, -0.8, 1.2])
Y = jnp.array([1.5, 2.0, -1.0])


def f(x: Any, y: Any) -> Any:
    """Several outputs in a dict, one without a derivative."""
    return {"a": jnp.sin(x) * y, "b": (jnp.argmax(x), x + y)}


@pytest.fixture
def primitive() -> Primitive:
    return Primitive("f", f)


def call(primitive: Primitive) -> Callable[..., Any]:
    return lambda *args: primitive.unflatten(bind(primitive, args))


def floats(out: Any) -> Any:
    return out["a"], out["b"][1]


def test_outputs_have_the_structure_of_the_function(primitive: Primitive) -> None:
    for x in (X, fad.tensor(X)):
        assert_close(call(primitive)(x, Y), f(X, Y))
    assert_close(call(primitive)(2.0, 1), jax.jit(f)(2.0, 1))
    assert repr(primitive) == "Primitive(f)"
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        bind(primitive, (X,))


def test_derivatives_and_batches_are_those_of_jax(primitive: Primitive) -> None:
    own, plain = call(primitive), f
    for in_dims in ((0, 0), (0, None), (None, 0)):
        args = [X if d is not None else X[0] for d in in_dims]
        assert_close(fad.vmap(own, in_dims)(*args), jax.vmap(plain, in_dims)(*args))
    g, h = (lambda x, y: floats(own(x, y))), (lambda x, y: floats(plain(x, y)))
    assert_close(fad.jvp(g, (X, Y), (Y, X)), jax.jvp(h, (X, Y), (Y, X)))
    assert_close(fad.vjp(g, X, Y)[1]((X, Y)), jax.vjp(h, X, Y)[1]((X, Y)))
    total = lambda out: (out[0] * out[1]).sum()
    second = lambda lib, k: lib.jacfwd(lib.jacrev(lambda x, y: total(k(x, y)), (0, 1)), (0, 1))
    assert_close(second(fad, g)(X, Y), jax.jit(second(jax, h))(X, Y))
    assert_close(
        fad.vmap(fad.grad(lambda x: total(g(x, 2.0))))(X),
        jax.vmap(jax.grad(lambda x: total(h(x, 2.0))))(X),
    )
    jitted = fad.jit(fad.grad(lambda x, y: total(g(x, y))))
    assert_close(jitted(X, Y), jax.grad(lambda x, y: total(h(x, y)))(X, Y))


def test_derived_rules_are_made_once_and_are_primitives(primitive: Primitive) -> None:
    made = []
    for _ in range(2):
        bind(primitive, (X, Y))
        plan = primitive.plan((True, False), (X, Y))
        made.append(
            [
                primitive.tangent((True, False)),
                primitive.full_vjp((True, True), None, (True, False)),
                plan,
                plan.vjp(None, (True,)),
            ]
        )
    assert all([a is b for a, b in zip(*made, strict=True)])
    tangent, full, plan, pulled = made[0]
    assert {type(p) for p in (tangent, full, pulled)} == {Primitive}
    assert primitive.tangent((False, True)) is not tangent
    assert primitive.plan((True, False), (X.astype(jnp.float16), Y)) is not plan


def test_a_number_and_an_array_of_its_form_share_a_plan(primitive: Primitive) -> None:
    number, array = (X, 2.0), (X, jax.device_put(2.0))
    assert primitive.plan((True, False), number) is primitive.plan((True, False), array)


def test_forward_mode_is_two_operations_for_levels_that_look_at_each(primitive: Primitive) -> None:
    names = []

    class Looking(fad.extend.RecordingLevel):
        def evaluate(self, op: Any, args: Any) -> Any:
            names.append(op.name)
            return fad.extend.map_outputs(self.lift, bind(op, self.unwrapped(args)[0]))

    operands = [fad.tensor(x) for x in (X, Y)]
    expected = primitive.jvp(operands, [operands[1], None])
    with Looking() as level, fad.extend.uncompiled():
        inside = [level.lift(x) for x in operands]
        got = primitive.jvp(inside, [inside[1], None])
    assert names == [primitive.name, f"{primitive.name}_jvp"]
    values = jax.tree.map(lambda t: t.value, got, is_leaf=lambda t: isinstance(t, fad.Tensor))
    assert_close(values, expected)


def test_integer_outputs_have_no_tangent(primitive: Primitive) -> None:
    outs, tangents = primitive.jvp((X, Y), (Y, None))
    assert [t is None for t in tangents] == [False, True, False]
    assert_close(outs, tuple(jax.tree.leaves(f(X, Y))))
    assert primitive.differentiable_outputs((True, False), outs) == (True, False, True)


def test_a_batch_of_tangents_is_another_than_a_batch() -> None:
    primal, tangents = jnp.float32(0.5), jnp.arange(3.0)
    jvp = Primitive("sin", jnp.sin)._derive_jvp((True,), outputs=True)
    with BatchLevel(3) as level:
        (shared, moved), dims = jvp.batch([primal, tangents], (None, 0), level)
        assert dims == (None, 0)
        assert (shared.shape, moved.shape) == ((), (3,))
        outs, dims = jvp.batch([tangents, tangents], (0, 0), level)
        assert dims == (0, 0) and [o.shape for o in outs] == [(3,), (3,)]


def test_shapes_can_be_forgotten(primitive: Primitive) -> None:
    plan = primitive.plan((True, False), (X, Y))
    expected = call(primitive)(X, Y)
    forget_shapes()
    assert primitive.plan((True, False), (X, Y)) is not plan
    assert_close(call(primitive)(X, Y), expected)


def test_a_body_is_traced_once_for_its_shapes_in_traced_code() -> None:
    traced: list[int] = []

    def body(x: Any) -> Any:
        traced.append(1)
        return x * 2.0

    primitive = Primitive("counted", body)
    jax.make_jaxpr(lambda x: [bind(primitive, (x,)) for _ in range(5)])(X)
    assert len(traced) == 1
    jax.make_jaxpr(lambda x: bind(primitive, (x,)))(X[:2])
    assert len(traced) == 2


def test_a_function_of_data_needs_values() -> None:
    """``jit=False``: the shape of the output depends on the data."""
    nonzero = Primitive("nonzero", lambda x: jnp.nonzero(x > 0)[0], jit=False)
    assert_close(bind(nonzero, (X,)), np.array([0, 2], np.int32))
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(lambda x: bind(nonzero, (x,)))(X)


def test_positions_are_arguments_eagerly_and_constants_in_traced_code() -> None:
    take = Primitive("take", lambda x, i: x[i], positions=True)
    assert [bind(take, (X, i)).item() for i in range(3)] == X.tolist()
    text = str(jax.make_jaxpr(lambda x: bind(take, (x, 1)))(X))
    assert "dynamic_slice" not in text and "gather" not in text, text


def test_shapes_are_forgotten_while_other_threads_make_primitives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that goes through all Primitives is interrupted by others after each step."""
    # Those that other tests have made are left alone.
    monkeypatch.setattr(fad.core.primitive, "_all", weakref.WeakValueDictionary())
    done = threading.Event()

    def make() -> None:
        while not done.is_set():
            _ = [Primitive("made", lambda x: x) for _ in range(100)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=make) for _ in range(3)]
    try:
        for t in threads:
            t.start()
        for _ in range(100):
            forget_shapes()
    finally:
        done.set()
        for t in threads:
            t.join()
        sys.setswitchinterval(before)
