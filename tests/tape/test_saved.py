"""Saved values: hooks for them at every level, versions, names, and what is given back."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad import autograd
from fad.core.level import flush
from fad.core.tensor import storage_of
from fad.errors import GradientError


def write(t: fad.Tensor) -> None:
    """An in-place change, as far as versions are concerned."""
    flush()
    storage_of(t).version += 1


def f(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) * fnp.exp(x) * x)


X = np.array([0.5, -1.0, 2.0], np.float32)
DERIVATIVES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "grad": (fad.grad(f), jax.grad(lambda x: jnp.sum(jnp.sin(x) * jnp.exp(x) * x))),
    "hessian": (
        fad.jacrev(fad.grad(f)),
        jax.hessian(lambda x: jnp.sum(jnp.sin(x) * jnp.exp(x) * x)),
    ),
    "forward over reverse": (
        fad.jacfwd(fad.grad(f)),
        jax.hessian(lambda x: jnp.sum(jnp.sin(x) * jnp.exp(x) * x)),
    ),
    "per lane": (
        lambda x: fad.vmap(fad.grad(f))(x[:, None]),
        lambda x: jax.vmap(jax.grad(lambda x: jnp.sum(jnp.sin(x) * jnp.exp(x) * x)))(x[:, None]),
    ),
}


# Hooks for saved values

HOOKS: dict[str, Callable[[], Any]] = {
    "same": lambda: autograd.saved_tensors_hooks(lambda t: t, lambda t: t),
    "pair": lambda: autograd.saved_tensors_hooks(lambda t: (t.shape, t), lambda p: p[1]),
    "twice and half": lambda: autograd.saved_tensors_hooks(lambda t: t * 2.0, lambda t: t / 2.0),
    "on the host": autograd.save_on_cpu,
    "mutable": autograd.allow_mutation_on_saved_tensors,
}


@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("name", DERIVATIVES)
def test_hooks_inside_transforms(name: str, hooks: Callable[[], Any]) -> None:
    ours, native = DERIVATIVES[name]
    with hooks():
        got = ours(X)
    np.testing.assert_allclose(got, native(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS)
def test_hooks_on_the_tape(hooks: Callable[[], Any]) -> None:
    x = fad.tensor(X, requires_grad=True)
    with hooks():
        y = f(x)
    (g,) = autograd.grad(y, x, create_graph=True)
    (h,) = autograd.grad(g.sum(), x)
    expected = DERIVATIVES["hessian"][1](X).sum(0)
    np.testing.assert_allclose(h.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_hooks_see_tensors_of_the_level_that_saves() -> None:
    seen: list[Any] = []

    def pack(t: Any) -> Any:
        seen.append((t.level.kind, t.shape, t.requires_grad))
        return t

    with autograd.saved_tensors_hooks(pack, lambda t: t):
        fad.vmap(fad.grad(lambda x: fnp.exp(x)))(jnp.ones(3))
        x = leaf([1.0, 2.0])
        fnp.exp(x)
    assert seen == [("grad", (), False), ("eager", (2,), False)]


def test_a_hook_that_leaves_fad_is_refused_where_it_would_lose_a_derivative() -> None:
    def hooks() -> Any:
        return autograd.saved_tensors_hooks(lambda t: t.numpy(), fad.tensor)

    x = leaf(2.0)
    with hooks():
        assert float(autograd.grad(x * x * x, x)[0]) == 12.0
        assert float(fad.grad(lambda x: x * x)(2.0)) == 4.0
        with pytest.raises((GradientError, TypeError), match=r"numpy\(\)"):
            fad.grad(fad.grad(lambda x: x * x * x))(2.0)


def test_hooks_are_refused_in_a_block() -> None:
    with autograd.disable_saved_tensors_hooks("not here"):
        with pytest.raises(GradientError, match="not here"):
            autograd.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
    with autograd.save_on_cpu(), pytest.raises(GradientError, match="not here"):
        autograd.disable_saved_tensors_hooks("not here").__enter__()


def test_an_exception_leaves_no_hooks_behind() -> None:
    x = leaf(2.0)
    with pytest.raises(ZeroDivisionError):
        with autograd.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t):
            x * x
    (x * x).backward()
    assert float(x.grad) == 4.0


def test_one_hook_object_entered_twice() -> None:
    count: list[int] = []
    hooks = autograd.saved_tensors_hooks(lambda t: count.append(1) or t, lambda t: t)
    x = leaf(2.0)
    with hooks:
        with hooks:
            fnp.exp(x)
        fnp.exp(x)
    fnp.exp(x)
    assert len(count) == 2


def test_an_exit_too_many_says_so_and_changes_nothing() -> None:
    outer = autograd.saved_tensors_hooks(lambda t: t, lambda t: t)
    for block in (autograd.saved_tensors_hooks(lambda t: t, lambda t: t), autograd.save_on_cpu()):
        with outer:
            before = fad.core.level.state.saved_hooks
            with pytest.raises(GradientError, match="left more often than it was entered"):
                block.__exit__(None, None, None)
            assert fad.core.level.state.saved_hooks == before


def test_hooks_are_weakly_referenceable(torch: Any) -> None:
    for library in (torch, fad):
        block = library.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
        assert weakref.ref(block)() is block


# Versions


def test_the_version_error_says_what_and_where() -> None:
    x, w = leaf([1.0, 2.0]), fad.tensor([3.0, 4.0])
    y = (x * w).sum()
    write(w)
    with pytest.raises(
        GradientError,
        match=r"modified by an inplace operation: \[float32 \[2\]\], saved for MultiplyBackward, is "
        "at version 1; expected version 0",
    ):
        y.backward()
    assert x.grad is None
    u = x * 1.0
    y = (u * u).sum()
    write(u)
    with pytest.raises(GradientError, match="output 0 of MultiplyBackward, saved for Multiply"):
        y.backward()


def test_versions_count_from_when_a_value_was_saved() -> None:
    x, w = leaf(2.0), fad.tensor(3.0)
    write(w)
    y = x * w
    y.backward(retain_graph=True)
    write(w)
    with pytest.raises(GradientError, match="at version 2; expected version 1"):
        y.backward()


# Each on a line that no other write is on.
LINES: dict[str, Callable[[fad.Tensor], object]] = {
    "y.add_(1.0)": lambda y: y.add_(1.0),
    "y.__setitem__(0, 5.0)": lambda y: y.__setitem__(0, 5.0),
    "y.__setitem__(y > 1.0, 0.0)": lambda y: y.__setitem__(y > 1.0, 0.0),
    "y[1:].mul_(2.0)": lambda y: y[1:].mul_(2.0),
    "y.data.mul_(3.0)": lambda y: y.data.mul_(3.0),
    "setattr(y, 'data', y.data * 2.0)": lambda y: setattr(y, "data", y.data * 2.0),
    "y.detach().zero_()": lambda y: y.detach().zero_(),
    "autograd.increment_version(y)": lambda y: autograd.increment_version(y),
    "y.unsqueeze_(0)": lambda y: y.unsqueeze_(0),
    "clamp_(y)": lambda y: clamp_(y),
}


def clamp_(y: fad.Tensor) -> None:
    """A helper of a library: the traceback has its line, and that of its caller."""
    with fad.no_grad():
        y.clamp_(0.0, 1.0)


@pytest.mark.parametrize("kept", ["input", "output", "view", "of a Function", "inside of grad"])
@pytest.mark.parametrize("line", LINES)
def test_the_version_error_names_the_line_of_the_write(line: str, kept: str) -> None:
    def saved(x: fad.Tensor) -> tuple[fad.Tensor, fad.Tensor]:
        y = fnp.exp(x)
        if kept == "output":
            return y, y
        if kept == "view":
            return y, y[1:] * y[:-1]
        return y, Product.apply(y, y) if kept == "of a Function" else y * y

    def program(x: fad.Tensor) -> fad.Tensor:
        y, z = saved(x)
        LINES[line](y)
        y.add_(1.0)  # a later write
        return z.sum()

    def fails(anomaly: bool) -> str:
        with autograd.set_detect_anomaly(anomaly):
            with pytest.raises(GradientError, match="modified by an inplace operation") as error:
                if kept == "inside of grad":
                    fad.grad(program)(fad.tensor([1.0, 2.0, 3.0]))
                else:
                    program(leaf([1.0, 2.0, 3.0])).backward()
            return str(error.value)

    assert "set_detect_anomaly(True): then this error has the line of the write" in fails(False)
    text = fails(True)
    lines = text[text.index("Traceback of the write:") :].splitlines()
    code = lines[-1].strip().replace('"', "'")
    caller = lines[-3].strip().replace('"', "'")
    assert "test_saved.py" in lines[-2] and "later write" not in text
    assert line in caller and code == "y.clamp_(0.0, 1.0)" if line == "clamp_(y)" else line in code


class Product(fad.Function):
    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * y, g * x


def test_the_line_of_a_write_that_backward_makes() -> None:
    x = leaf(2.0)
    with autograd.detect_anomaly():
        (x**3).backward(create_graph=True)
        square = x.grad * x.grad
        (x * x).backward()  # adds to x.grad, which `square` has saved
        with pytest.raises(GradientError, match=r"\(x \* x\)\.backward\(\)  # adds to x.grad"):
            square.backward()


def test_mutation_is_allowed_by_block_and_by_thread() -> None:
    x, w = leaf(2.0), fad.tensor(3.0)
    before = x * w
    with autograd.allow_mutation_on_saved_tensors():
        inside = x * w
        write(w)
    inside.backward()
    assert float(x.grad) == 3.0, "wherever the pass runs"
    with pytest.raises(GradientError, match="modified by an inplace"):
        before.backward()
    with autograd.allow_mutation_on_saved_tensors(), pytest.raises(GradientError, match="modified"):
        before.backward()


# What is given back


class Watched:
    """Weak references to the nodes and saved arrays of a graph."""

    def __init__(self, *roots: fad.Tensor) -> None:
        self.nodes: list[Any] = []
        self.arrays: list[Any] = []
        todo = [t.grad_fn for t in roots]
        seen = set(todo)
        while todo:
            node = todo.pop()
            self.nodes.append(weakref.ref(node))
            for value in getattr(node, "saved_values", tuple)():
                if isinstance(value, jax.Array):
                    self.arrays.append(weakref.ref(value))
            for n, _ in node.next_functions:
                if n is not None and n not in seen:
                    seen.add(n)
                    todo.append(n)

    def alive(self) -> tuple[int, int]:
        """How many nodes and arrays are alive, once no trace refers to any."""
        flush()
        return (
            sum(r() is not None for r in self.nodes),
            sum(r() is not None for r in self.arrays),
        )


def graph(x: Any) -> Any:
    y = fnp.exp(x) * x
    return (fnp.sin(y) * y).sum()


@pytest.fixture
def no_gc() -> Any:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("passes", [1, 4])
def test_saved_arrays_are_given_back_after_backward(
    no_gc: None, passes: int, create_graph: bool
) -> None:
    for _ in range(passes):  # the last ones may run compiled
        x = leaf([1.0, 2.0])
        y = graph(x)
        watched = Watched(y)
        assert watched.alive() == (6, len(watched.arrays)) and len(watched.arrays) >= 5
        y.backward(create_graph=create_graph, retain_graph=False)
        # What the graph saved is freed while its nodes are alive, except what is referenced otherwise: the
        # leaf, and with create_graph the gradient's own graph.
        kept = watched.alive()[1]
        assert kept <= 1 or create_graph
        x.grad = None
        del y
        assert watched.alive()[0] <= 1, "the accumulator lives as long as the leaf's graphs"
        del x
        assert watched.alive() == (0, 0)


class Swish(fad.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        s = 1.0 / (1.0 + fnp.exp(-x))
        ctx.save_for_backward(x, s)
        ctx.kept = {"twice": s * 2.0}
        return x * s

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, s = ctx.saved_tensors
        return g * (s + x * s * (ctx.kept["twice"] / 2.0 - s * s))


class Nested(autograd.NestedIOFunction):
    def forward_extended(self, xs: Any) -> Any:
        self.save_for_backward(xs)
        return {"y": xs[0] * xs[1]}

    def backward_extended(self, g: Any) -> Any:
        ((a, b),) = self.saved_tensors
        return [g["y"] * b, g["y"] * a]


def by_hand(x: Any) -> Any:
    class Double(autograd.Node):
        __slots__ = ("kept",)

        def apply(self, g: Any) -> Any:
            return g * 2.0 + self.kept * 0.0

        def release_variables(self) -> None:
            self.kept = None

        def saved_values(self) -> Any:
            return [self.kept.array]

    node = Double([autograd.create_gradient_edge(x)])
    node.kept = x.detach() * 2.0
    return autograd.set_history(x.detach() * 2.0, node)


GRAPHS: dict[str, Callable[[Any], Any]] = {
    "function": lambda x: Swish.apply(x * 1.0).sum(),
    "nested": lambda x: Nested.apply([x * 1.0, x * 2.0])["y"].sum(),
    "by hand": lambda x: by_hand(x * 1.0).sum(),
    "several outputs": lambda x: (lambda a, b: (a * b).sum())(*fnp.split(fnp.exp(x), 2)),
    "sorted": lambda x: (fnp.sort(x * 2.0) * x).sum(),
}


@pytest.mark.parametrize("cycle", [False, True], ids=["", "cycle"])
@pytest.mark.parametrize("kind", GRAPHS)
def test_every_kind_of_graph_is_given_back(no_gc: None, kind: str, cycle: bool) -> None:
    x = leaf([1.0, 2.0])
    y = GRAPHS[kind](x)
    watched = Watched(y)
    nodes, arrays = watched.alive()
    assert nodes >= 4 and arrays >= 1
    if cycle:
        y.register_hook(lambda g, y=y: None)
    y.backward()
    assert watched.alive()[1] <= 1, "what was saved, but for the leaf's own array"
    assert x.grad is not None
    del x, y
    if cycle:
        assert watched.alive()[0] >= 4
        gc.collect()
    assert watched.alive() == (0, 0)


@pytest.mark.parametrize("create_graph", [False, True])
def test_anomaly_mode_keeps_nothing(create_graph: bool) -> None:
    """Nodes remember in whose backward pass they were made; that ends with the graph too."""
    x = leaf([1.0, 2.0])
    with autograd.detect_anomaly():
        y = graph(x)
        watched = Watched(y)
        (g,) = autograd.grad(y, x, create_graph=create_graph)
        if create_graph:
            watched.nodes += Watched(g).nodes
            autograd.grad(g.sum(), x)
    del x, y, g
    gc.collect()
    assert watched.alive() == (0, 0)


def test_a_graph_without_backward_is_given_back(no_gc: None) -> None:
    hooks = autograd.saved_tensors_hooks(lambda t: t, lambda t: t)
    for block in (fad.enable_grad(), hooks, autograd.allow_mutation_on_saved_tensors()):
        with block:
            x = leaf([1.0, 2.0])
            y = graph(x)
        watched = Watched(y)
        del x, y
        assert watched.alive() == (0, 0)


def test_graphs_of_transforms_are_given_back(no_gc: None) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = graph(x)
        seen.append(weakref.ref(y.grad_fn))
        return y

    x = jnp.array([1.0, 2.0])
    fad.grad(f)(x)
    fad.jacrev(fad.grad(f))(x)
    fad.vmap(fad.grad(f))(x[:, None])
    fad.jvp(fad.grad(f), (x,), (x,))
    _, pull = fad.vjp(f, x)
    pull(1.0)
    assert [r() is None for r in seen[:-1]] == [True] * (len(seen) - 1)
    assert seen[-1]() is not None
    del pull
    assert seen[-1]() is None


def test_a_dual_level_keeps_no_cycle(no_gc: None) -> None:
    with fad.dual_level():
        x = fad.make_dual(fad.tensor(2.0), fad.tensor(1.0)).requires_grad_()
        y = fnp.exp(x)
        node = weakref.ref(y.grad_fn)
        (g,) = autograd.grad(y, x)
        assert not g.requires_grad, "a plain pass records nothing"
        del y, g
        assert node() is None


def test_cycles_of_the_user_need_a_collection() -> None:
    x = leaf([1.0, 2.0])
    y = graph(x)
    watched = Watched(y)
    y.register_hook(lambda g, y=y: None)
    y.backward()
    del x, y
    gc.collect()
    assert watched.alive() == (0, 0)


def test_an_exception_keeps_nothing_once_it_is_gone(no_gc: None) -> None:
    x = leaf([1.0, 2.0])
    y = graph(x)
    watched = Watched(y)
    x.register_hook(lambda g: 1 / 0)
    try:
        y.backward()
    except ZeroDivisionError:
        pass
    del x, y
    assert watched.alive() == (0, 0)


def test_training_steps_do_not_grow(full: bool) -> None:
    """10,000 small steps: what Python allocates stays, and so does the number of objects."""
    w = leaf([0.5, -0.5])
    x = fad.tensor([1.0, 2.0])

    def steps(count: int) -> None:
        nonlocal w
        for _ in range(count):
            loss = (w * x).sum()
            loss.backward()
            w = (w.detach() - w.grad * 1e-4).requires_grad_()

    fad.autograd.compiled.clear_cache()  # what is compiled of it, is in the first steps
    steps(500)
    gc.collect()
    objects, arrays = len(gc.get_objects()), len(jax.live_arrays())
    tracemalloc.start()
    try:
        steps(500)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        steps(2_000)
        gc.collect()
        growth = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    steps(7_500 if not full else 50_000)
    gc.collect()
    assert growth < 40_000, f"{growth} bytes in 2,000 steps"
    assert len(gc.get_objects()) - objects < 200
    assert len(jax.live_arrays()) <= arrays


# Names


V = jnp.array([0.5, -1.0, 2.0])


def test_saved_values_that_were_changed():
    x = leaf(V)
    for change in (
        lambda y: y.mul_(2.0),
        lambda y: y[:1].mul_(2.0),
        lambda y: y.detach().mul_(2.0),
    ):
        for op in (lambda y: fnp.sin(y), lambda y: y * y):
            y = x * 1.0
            z = op(y)
            change(y)
            with pytest.raises(GradientError, match="modified by an inplace operation"):
                z.sum().backward()
        y = fnp.exp(x)
        change(y)
        with pytest.raises(GradientError, match="is output 0 of ExpBackward"):
            y.sum().backward()
        with fad.autograd.allow_mutation_on_saved_tensors():
            y = x * 1.0
            z = fnp.sin(y)
            change(y)
        (g,) = fad.autograd.grad(z.sum(), x)
        assert_close(g, jnp.cos(V))
