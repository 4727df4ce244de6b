"""One call of a Function as an operation: how often its bodies run, and what its node keeps of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import GradientError, RuleError
from fad.functions.rules import is_plain

X = jnp.array([0.3, -0.5, 0.7])
runs: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


class Closed(fad.Function):
    """sin(x); what it keeps is its input."""

    @staticmethod
    def forward(x: Any) -> Any:
        runs["forward"] += 1
        return fnp.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        runs["setup"] += 1
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        runs["vjp"] += 1
        return g * fnp.cos(ctx.saved_tensors[0])


class Open(Closed):
    """sin(x); it keeps a value that is neither an input nor an output."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        runs["setup"] += 1
        ctx.save_for_backward(fnp.cos(inputs[0]))

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        runs["vjp"] += 1
        return g * ctx.saved_tensors[0]


WAYS: dict[str, Any] = {
    "eager": lambda f: leaf_gradient(f),
    "grad": lambda f: fad.grad(lambda x: f(x).sum())(X),
    "vmap of grad": lambda f: fad.vmap(fad.grad(lambda x: f(x[None])[0]))(X),
    "vjp in vmap": lambda f: fad.vmap(lambda x: fad.vjp(f, x)[1](x * 0 + 1)[0])(X[:, None]),
}


def leaf_gradient(f: Any) -> Any:
    x = leaf(X)
    f(x).sum().backward()
    return x.grad


@pytest.mark.parametrize("F", [Closed, Open])
@pytest.mark.parametrize("way", WAYS)
def test_bodies_run_once_where_nothing_below_is_differentiated(way: str, F: Any) -> None:
    got = WAYS[way](F.apply)
    assert_close(jax.tree.map(lambda a: jnp.asarray(a).reshape(3), got), jnp.cos(X))
    assert runs == {"forward": 1, "setup": 1, "vjp": 1}


def test_setup_runs_again_where_a_value_needs_its_history() -> None:
    """The second derivative through a value that is neither an input nor an output."""
    for F, again in ((Closed, 0), (Open, 1)):
        runs.clear()
        slope = fad.grad(lambda x, F=F: fad.grad(lambda x: F.apply(x).sum())(x).sum())(X)
        assert_close(slope, -jnp.sin(X))
        assert runs["forward"] == 1 and runs["setup"] >= 1 + again
        x = leaf(X)
        (g,) = fad.autograd.grad(F.apply(x).sum(), x, create_graph=True)
        g.sum().backward()
        assert_close(x.grad, -jnp.sin(X))


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(
    "kept", [fad.tensor, jnp.asarray, np.asarray, list], ids=lambda f: f.__name__
)
def test_a_call_is_differentiated_with_the_numbers_that_it_drew(
    kept: Any, create_graph: bool
) -> None:
    """Also where the body runs again to give intermediate values their history."""

    class Dropout(fad.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            mask = np.random.choice([0.0, 2.0], x.shape).astype(np.float32)
            ctx.mask = kept(mask)
            return x * x * fnp.asarray(mask)

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * fnp.asarray(ctx.mask)

    x = leaf(np.ones(64, np.float32))
    out = Dropout.apply(x)
    (g,) = fad.autograd.grad(out.sum(), x, create_graph=create_graph)
    assert_close(g.detach(), out.detach())
    assert 0 < float(g.detach().sum()) < 128


def test_a_node_says_what_it_keeps_and_gives_it_back() -> None:
    x = leaf(X)
    node = Closed.apply(x).grad_fn
    assert node.name() == "ClosedBackward" and node.num_inputs == 1
    (saved,) = node.saved_values()
    assert_close(saved, X)
    assert_close(node(jnp.ones(3)).detach(), jnp.cos(X))
    node.release_variables()
    assert node.saved_values() == ()
    with pytest.raises(GradientError, match="a second time"):
        node(jnp.ones(3))


def test_saved_values_are_packed_by_hooks_and_changed_ones_are_found() -> None:
    packed: list[Any] = []
    x = leaf(X)
    with fad.autograd.saved_tensors_hooks(
        lambda t: packed.append(t) or 2.0, lambda _: fad.tensor(X)
    ):
        out = Open.apply(x)
    assert any([np.allclose(t.numpy(), np.cos(X)) for t in packed])
    out.sum().backward()
    assert_close(x.grad, X)  # what the hook has given back
    y = leaf(X) * 1.0
    out = Closed.apply(y)
    y += 1.0
    with pytest.raises(GradientError, match="in.?place"):
        out.sum().backward()


def test_integer_inputs_and_outputs_have_no_edge() -> None:
    class Pick(fad.Function):
        @staticmethod
        def forward(x: Any, i: Any) -> Any:
            return x[i], i + 1

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.i = inputs[1]

        @staticmethod
        def vjp(ctx: Any, g: Any, g_i: Any) -> Any:
            assert g_i.dtype == np.int32
            return fad.tensor([0.0, 0.0, 0.0]).at[ctx.i].set(g), None

    x = leaf(X)
    value, index = Pick.apply(x, fad.tensor(1))
    assert value.requires_grad and not index.requires_grad
    assert [e is None for e in (n for n, _ in value.grad_fn.next_functions)] == [False, True]
    value.backward()
    assert_close(x.grad, jnp.array([0.0, 1.0, 0.0]))


def test_an_argument_that_a_body_changes_from_outside_is_refused() -> None:
    y = fad.tensor(X)

    class Changes(Closed):
        @staticmethod
        def forward(x: Any) -> Any:
            y.mul_(2.0)
            return x * 1.0

    for run in (Changes.apply, lambda t: fad.grad(lambda x: Changes.apply(x * 0 + t).sum())(X)):
        if run is Changes.apply:
            with pytest.raises(RuleError, match=r"Changes: a body changed the Tensor.*mark_dirty"):
                fad.grad(lambda x: (x.sum() * run(y)).sum())(X)


def test_what_is_an_array_to_every_level() -> None:
    seen: dict[str, bool] = {}

    def look(name: str) -> Any:
        return lambda x: (seen.__setitem__(name, is_plain(x)), x.sum())[1]

    seen["array"], seen["tensor"], seen["leaf"] = (
        is_plain(X),
        is_plain(fad.tensor(X)),
        is_plain(leaf(X)),
    )
    fad.vmap(look("vmap"))(X[None]), fad.grad(look("grad"))(X)
    fad.jvp(look("jvp"), (X,), (X,)), fad.jit(look("jit"))(X)
    fad.grad(lambda x: fad.vmap(look("vmap in grad"))(x[None])[0])(X)
    assert [name for name, plain in seen.items() if plain] == ["array", "tensor", "vmap"]


class Product(fad.Function):
    """x * y; saves x alone for its vjp, and keeps y as an attribute."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.y = y
        return x * y

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return g * ctx.y, g * ctx.saved_tensors[0]


class CompiledProduct(Product):
    jax_rules = True


@pytest.mark.parametrize("f", [Product.apply, CompiledProduct.apply, fad.vmap(Product.apply)])
def test_hooks_pack_what_was_saved_for_backward_alone(f: Any) -> None:
    packed = []
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    with fad.autograd.saved_tensors_hooks(lambda t: packed.append(t) or t + 10.0, lambda t: t):
        z = f(x, y)
    z.sum().backward()
    assert len(packed) == 1
    assert_close(fnp.stack([x.grad, y.grad]).array, jnp.array([[3.0, 4.0], [11.0, 12.0]]))


@pytest.mark.parametrize("F", [Product, CompiledProduct])
def test_a_saved_value_has_hooks_of_its_own(F: Any) -> None:
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    z = F.apply(x, y)
    (raw,) = z.grad_fn._raw_saved_tensors
    raw.register_hooks(lambda t: t * 2.0, lambda t: t + 1.0)
    (gx, gy) = fad.autograd.grad(z.sum(), [x, y], create_graph=True)
    assert_close(fnp.stack([gx, gy]).array, jnp.array([[3.0, 4.0], [3.0, 5.0]]))
    z.sum().backward()
    with pytest.raises(GradientError, match="has been freed"):
        raw.register_hooks(lambda t: t, lambda t: t)


def test_a_write_to_another_saved_value_is_found_beside_hooks() -> None:
    x, y = leaf([1.0, 2.0]) * 1.0, fad.tensor([3.0, 4.0])
    z = Twice.apply(x, y)
    z.grad_fn._raw_saved_tensors[0].register_hooks(lambda t: t, lambda t: t)
    x += 1.0  # packed
    assert z.grad_fn.saved_tensors[0].tolist() == [1.0, 2.0]
    y += 1.0
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        z.sum().backward()


class Twice(fad.Function):
    """x * y, which saves both."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * y, g * x
