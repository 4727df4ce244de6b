"""Hooks at every level, in traced code, and what they may do; their order is compared with PyTorch's."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf

import fad
import fad.lax as flax
import fad.numpy as fnp
from fad import autograd
from fad.errors import GradientError, LevelError


def test_hooks_stay_with_the_node_not_the_tensor() -> None:
    x = leaf(2.0)
    seen: list[float] = []
    y = x * 3.0
    y.register_hook(lambda g: seen.append(g.item()))
    z = y * 5.0
    del y
    z.backward()
    assert seen == [5.0]


def test_retain_grad_does_not_keep_the_tensor() -> None:
    gc.disable()
    try:
        x = leaf(2.0)
        y = x * 3.0
        y.retain_grad()
        z, seen = y * 5.0, weakref.ref(y)
        del y
        assert seen() is None
        z.backward()
        assert float(x.grad) == 15.0
    finally:
        gc.enable()


# What hooks return


def test_arrays_are_taken_for_tensors() -> None:
    x = leaf([1.0, 2.0])
    x.register_hook(lambda g: jnp.full(2, 3.0))
    x.register_hook(lambda g: np.asarray(g.numpy() + 1.0))
    (x * 2.0).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0] and isinstance(x.grad, fad.Tensor)


def test_errors_name_the_hook() -> None:
    def my_hook(g: Any) -> Any:
        return fnp.ones(3)

    x = leaf([1.0, 2.0])
    x.register_hook(my_hook)
    with pytest.raises(
        GradientError,
        match=r"hook 'my_hook' has changed the size of value \(was \[2\] got \[3\]\)",
    ):
        x.sum().backward()


def test_a_hook_sees_no_gradient_as_none() -> None:
    class Drop(autograd.Node):
        def apply(self, g: Any) -> Any:
            return None

    x = leaf(1.0)
    seen: list[Any] = []
    x.register_hook(seen.append)
    node = Drop([autograd.create_gradient_edge(x)])
    node.add_input_metadata(x)
    autograd.backward(autograd.GradientEdge(node, 0))
    assert seen == [None] and x.grad is None
    x.register_hook(lambda g: fad.tensor(1.0))
    with pytest.raises(GradientError, match="can't replace a None gradient"):
        autograd.backward(autograd.GradientEdge(node, 0))


# Every level


def log_into(log: list[Any], result: Any = None) -> Callable[[Any], Any]:
    """A hook that notes the kind of level that it sees."""

    def hook(g: Any) -> Any:
        log.append(g.level.kind)
        return result(g) if result else None

    return hook


def hooked(log: list[Any]) -> Callable[[Any], Any]:
    """Three times x squared; the gradient of the square is doubled on the way."""

    def f(x: Any) -> Any:
        y = x * x
        if y.requires_grad:
            y.register_hook(log_into(log, lambda g: g * 2.0))
        return y * 3.0

    return f


def test_hooks_inside_grad() -> None:
    log: list[Any] = []
    assert float(fad.grad(hooked(log))(2.0)) == 24.0
    assert log == ["grad"]
    # The doubling is part of the gradient, and so of its derivative.
    assert float(fad.grad(fad.grad(hooked(log)))(2.0)) == 12.0
    assert log[1:] == ["grad"]
    assert float(fad.jvp(fad.grad(hooked(log)), (2.0,), (1.0,))[1]) == 12.0


def test_hooks_under_vmap() -> None:
    log: list[Any] = []
    out = fad.vmap(fad.grad(hooked(log)))(jnp.arange(3.0))
    assert out.tolist() == [0.0, 12.0, 24.0] and log == ["grad"], "once for all lanes"


def test_hooks_on_tensors_of_a_vmap() -> None:
    log: list[Any] = []
    shapes: list[Any] = []

    def f(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = x * x
        y.register_hook(log_into(log, lambda g: g * 2.0))
        x.register_hook(lambda g: shapes.append(g.shape))
        x.register_post_accumulate_grad_hook(lambda t: log.append("after"))
        y.sum().backward()
        return x.grad

    out = fad.vmap(f)(jnp.ones((4, 3)))
    assert out.shape == (4, 3) and np.all(np.asarray(out) == 4.0)
    assert log == ["vmap", "after"] and shapes == [(3,)]


def test_hooks_on_tensors_of_a_jvp() -> None:
    log: list[Any] = []

    def f(x: Any) -> Any:
        x = x.clone().requires_grad_()
        y = x * x * x
        y.register_hook(log_into(log, lambda g: g * 2.0))
        return autograd.grad(y, x)[0]

    out, out_t = fad.jvp(f, (2.0,), (1.0,))
    assert float(out) == 24.0 and float(out_t) == 24.0 and log == ["jvp"]


def test_hooks_in_a_dual_level() -> None:
    with fad.dual_level():
        x = fad.make_dual(fad.tensor(2.0), fad.tensor(1.0)).requires_grad_()
        seen: list[Any] = []
        y = fnp.exp(x)
        y.register_hook(lambda g: seen.append(fad.unpack_dual(g).tangent))
        x.register_hook(lambda g: seen.append(fad.unpack_dual(g).tangent))
        (g,) = autograd.grad(y * y, x)
        e2 = float(np.exp(2.0))
        assert float(fad.unpack_dual(g).tangent) == pytest.approx(4 * e2**2, rel=1e-5)
        assert [float(s) for s in seen] == pytest.approx([2 * e2, 4 * e2**2], rel=1e-5)


def test_hooks_of_outer_tensors_run_for_outer_passes() -> None:
    log: list[Any] = []
    x = leaf(2.0)
    x.register_hook(log_into(log, lambda g: g * 10.0))
    y = fad.grad(lambda t: t * t * x)(fad.tensor(3.0))
    assert log == [], "the inner transform differentiates another variable"
    y.backward()
    assert log == ["eager"] and float(x.grad) == 60.0


def test_node_hooks_inside_grad() -> None:
    log: list[Any] = []

    def f(x: Any) -> Any:
        y = x * x
        y.grad_fn.register_prehook(lambda o: (o[0] * 2.0,))
        y.grad_fn.register_hook(lambda i, o: log.append((len(i), o[0].level.kind)))
        return y

    assert float(fad.grad(f)(3.0)) == 12.0 and log == [(2, "grad")]


def test_hooks_with_batched_gradients() -> None:
    x = leaf([1.0, 2.0])
    y = x * x
    shapes: list[Any] = []
    y.register_hook(lambda g: shapes.append(g.shape) or g * 2.0)
    (g,) = autograd.grad(y, x, fnp.eye(2), is_grads_batched=True)
    assert g.tolist() == [[4.0, 0.0], [0.0, 8.0]] and shapes == [(2,)]


def test_several_tensors_inside_grad() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        a, b = x * 2.0, x * 3.0
        autograd.register_multi_grad_hook([a, b, x], lambda gs: seen.append(gs))
        autograd.register_multi_grad_hook([a, b], lambda g: seen.append(g), mode="any")
        return a * b

    assert float(fad.grad(f)(1.0)) == 12.0
    first, (ga, gb, gx) = seen
    assert float(ga) == 3.0 and float(gb) == 2.0 and float(gx) == 12.0
    assert float(first) in (2.0, 3.0)


# Traced code


def register_on(kind: str) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        def g(t: Any) -> Any:
            y = t * t
            if kind == "tensor":
                y.register_hook(print)
            elif kind == "leaf":
                t.register_hook(print)
            elif kind == "after":
                t.register_post_accumulate_grad_hook(print)
            elif kind == "pre":
                y.grad_fn.register_prehook(print)
            elif kind == "post":
                y.grad_fn.register_hook(print)
            elif kind == "saved":
                with autograd.saved_tensors_hooks(lambda t: t, lambda t: t):
                    y = y * t
            elif kind == "one saved":
                y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
            else:
                autograd.register_multi_grad_hook([y, t], print)
            return y

        return fad.grad(g)(x)

    return f


KINDS = ["tensor", "leaf", "after", "pre", "post", "saved", "one saved", "several"]


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_in_traced_code(kind: str) -> None:
    """In the body of jit they are code of the program; but for those of saved values, which give objects."""
    f = register_on(kind)
    if "saved" in kind:
        with pytest.raises(GradientError, match=r"would run once per trace, not at each execution"):
            fad.jit(f)(2.0)
    elif kind != "after":  # `fad.grad` adds to no ``.grad``
        assert float(fad.jit(f)(2.0)) == 4.0
    with pytest.raises(GradientError, match="traced"):
        flax.fori_loop(0, 2, lambda i, x: f(x), fad.tensor(1.0))
    with pytest.raises(GradientError, match="traced"):
        jax.jit(fad.to_jax(f))(2.0)
    assert fad.is_grad_enabled() and fad.core.level.state.levels == ()


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("after",)])
def test_hooks_run_under_native_grad_and_vmap(kind: str) -> None:
    # Here Python runs with each execution: there is no reason to refuse.
    x = jnp.array([1.0, 2.0])
    f = register_on(kind)
    native = fad.to_jax(f)
    assert jax.vmap(native)(x).tolist() == fad.vmap(f)(x).tolist()
    assert float(jax.grad(native)(2.0)) == float(fad.grad(f)(2.0))


def test_an_outer_hook_in_a_jit_body_is_refused_too() -> None:
    x = leaf(1.0)

    def f(y: Any) -> Any:
        x.register_hook(print)
        return y

    with pytest.raises(LevelError, match="each call would register one more"):
        fad.jit(f)(1.0)
    assert not x.meta or not x.meta.hooks


@pytest.mark.parametrize("kind", ["tensor", "leaf", "after", "pre", "post", "saved", "retain"])
def test_a_pass_in_traced_code_does_not_skip_hooks_of_an_outer_graph(kind: str) -> None:
    """They would run as often as the code is traced, not as often as it is executed."""
    x, runs = leaf(2.0), []
    if kind == "saved":
        with autograd.saved_tensors_hooks(lambda t: t, lambda t: runs.append(1) or t):
            y = x * x
    else:
        y = x * x

    def hook(*args: Any) -> None:
        runs.append(1)

    match kind:
        case "tensor":
            y.register_hook(hook)
        case "leaf":
            x.register_hook(hook)
        case "after":
            x.register_post_accumulate_grad_hook(hook)
        case "pre":
            y.grad_fn.register_prehook(hook)
        case "post":
            y.grad_fn.register_hook(hook)

    def f(ct: Any) -> Any:
        (g,) = autograd.grad(y, x, ct, retain_graph=True)
        if kind in ("leaf", "after"):
            y.backward(retain_graph=True)
        return g

    if kind == "retain":
        assert [float(fad.jit(f)(c)) for c in (1.0, 2.0)] == [4.0, 8.0]
        return
    refused = "traced.* includes a .*hook.* not at each execution"
    outside = r"backward\(\) inside of a transform \(to_jax"
    natively = outside if kind == "after" else refused
    compiled = "whose history is outside of it" if kind == "after" else refused
    for traced, match in ((fad.jit(f), compiled), (jax.jit(fad.to_jax(f)), natively)):
        with pytest.raises(GradientError, match=match):
            traced(1.0)
    assert runs == [] and x.grad is None
    assert float(f(1.0)) == 4.0 and runs


def test_what_is_no_hook_is_refused() -> None:
    x = leaf(1.0)
    y = x * 2.0
    for register in (
        x.register_hook,
        x.register_post_accumulate_grad_hook,
        y.grad_fn.register_hook,
        y.grad_fn.register_prehook,
    ):
        with pytest.raises(TypeError, match="a hook must be callable, got int 3"):
            register(3)


def test_hooks_around_a_compiled_function_run() -> None:
    seen: list[float] = []
    x = leaf(2.0)
    f = fad.jit(lambda t: fnp.sin(t) * t)
    for _ in range(3):
        y = f(x)
        y.register_hook(lambda g: seen.append(g.item()))
        x.register_hook(lambda g: seen.append("leaf"))  # type: ignore[arg-type]
        y.backward()
    assert seen == [1.0, "leaf", 1.0, "leaf", "leaf", 1.0, "leaf", "leaf", "leaf"]


def test_a_graph_that_repeats_is_not_compiled_past_its_hooks() -> None:
    x = leaf(2.0)
    seen: list[float] = []
    for k in range(8):
        y = x * x
        z = fnp.sin(y)
        if k == 7:
            y.register_hook(lambda g: seen.append(g.item()))
        z.backward()
    assert seen == [pytest.approx(np.cos(4.0))]


# What hooks may do


def test_hooks_compute_without_recording() -> None:
    x, w = leaf(2.0), leaf(3.0)
    seen: list[bool] = []
    y = x * w
    y.register_hook(lambda g: seen.append((w * g).requires_grad))
    y.backward(retain_graph=True)
    y.backward(create_graph=True)
    assert seen == [False, True]


class Doubled(autograd.Node):
    def apply(self, g: Any) -> Any:
        return g * 2.0


@pytest.mark.parametrize("transform", ["grad", "vmap"])
def test_hooks_of_a_node_built_by_hand_are_at_its_level(transform: str) -> None:
    """In vmap each lane is a number to them, as to the node itself."""
    shapes: list[Any] = []

    def f(x: Any) -> Any:
        x = x if transform == "grad" else x.requires_grad_()
        node = Doubled([autograd.create_gradient_edge(x)])
        node.add_input_metadata(x)
        node.register_prehook(lambda gs: shapes.append((gs[0].level.kind, gs[0].shape)))
        node.register_hook(lambda outs, gs: (outs[0] * 3.0,))
        (g,) = autograd.grad(autograd.GradientEdge(node, 0), [x], x.detach())
        shapes.append(g)
        return x

    if transform == "grad":
        fad.grad(f)(2.0)
        assert float(shapes.pop()) == 12.0
    else:
        fad.vmap(lambda x: (f(x), shapes.pop())[1])(fnp.arange(3.0))
    assert shapes == [(transform, ())]


def test_callbacks_run_last() -> None:
    x = leaf(2.0)
    order: list[Any] = []
    y = x * x
    y.register_hook(lambda g: autograd.queue_callback(lambda: order.append("callback")))
    x.register_hook(lambda g: order.append("leaf"))
    y.register_hook(
        lambda g: autograd.queue_callback(lambda: order.append(autograd.current_node()))
    )
    y.backward()
    assert order == ["leaf", "callback", None], "no node is being evaluated any more"
    with pytest.raises(GradientError, match="only be installed during backward"):
        autograd.queue_callback(print)


@pytest.mark.parametrize("depth", [100])
def test_reentrant_passes(depth: int) -> None:
    x = leaf(1.0)
    levels: list[int] = []

    def nest(left: int) -> None:
        with fad.enable_grad():
            y = x * 2.0
        y.register_hook(lambda g: nest(left - 1) if left else None)
        y.backward()
        levels.append(left)

    nest(depth)
    assert levels == list(range(depth + 1)) and float(x.grad) == 2.0 * (depth + 1)


def test_reentrant_passes_keep_modes_and_levels() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        def nest(left: int) -> None:
            y = x * 2.0
            if left:
                y.register_hook(lambda g: nest(left - 1))
            else:
                seen.append((len(fad.core.level.state.levels), fad.is_grad_enabled()))
            autograd.grad(y, x)

        nest(30)
        return x * 1.0

    assert float(fad.grad(f)(1.0)) == 1.0 and seen == [(1, True)]


def test_multi_hooks_count_a_root() -> None:
    a, b = leaf(2.0), leaf(3.0)
    y = a * b
    seen: list[int] = []
    autograd.register_multi_grad_hook([a, b, y], lambda gs: seen.append(len(gs)))
    y.backward()
    assert seen == [3], "PyTorch forgets to count a Tensor that is the only root"


def test_multi_hooks_make_no_cycles() -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf(2.0)
        y = x * x
        autograd.register_multi_grad_hook([x, y], lambda gs: None)
        node, seen = weakref.ref(y.grad_fn), weakref.ref(x)
        (y * 1.0).backward()
        del y, x
        assert node() is None and seen() is None
    finally:
        gc.enable()
