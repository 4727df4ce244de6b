"""NestedIOFunction: instance methods over nested inputs and outputs, on the tape and in transforms."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import NestedIOFunction
from fad.errors import GradientError, RuleError


class Mix(NestedIOFunction):
    """(x, [y, {"z": z}]) -> {"a": x * y, "b": (y * z, [x * x * z])}."""

    def forward_extended(self, x: Any, rest: Any) -> Any:
        y, z = rest[0], rest[1]["z"]
        self.save_for_backward(x, {"rest": rest})
        return {"a": x * y, "b": (y * z, [x * x * z])}

    def backward_extended(self, g: Any) -> Any:
        x, kept = self.saved_tensors
        y, z = kept["rest"][0], kept["rest"][1]["z"]
        ga, (gb, (gc,)) = g["a"], g["b"]
        return (
            ga * y + 2.0 * gc * x * z,
            [ga * x + gb * z, {"z": gb * y + gc * x * x}],
        )


def by_hand(x: Any, rest: Any) -> Any:
    y, z = rest[0], rest[1]["z"]
    return {"a": x * y, "b": (y * z, [x * x * z])}


def total(out: Any) -> Any:
    return fnp.sin(out["a"]) + out["b"][0] * out["b"][1][0]


ARGS = (1.5, [2.0, {"z": -0.5}])


def test_on_the_tape() -> None:
    x, y, z = leaf(1.5), leaf(2.0), leaf(-0.5)
    out = Mix.apply(x, [y, {"z": z}])
    assert out["a"].grad_fn.name() == "MixBackward"
    assert [n.variable for n, _ in out["a"].grad_fn.next_functions if n is not None] == [x, y, z]
    (fnp.sin(out["a"]) + out["b"][0] * out["b"][1][0]).backward()
    expected = jax.grad(lambda *a: total_jnp(by_hand(*a)), (0, 1))(*ARGS)
    np.testing.assert_allclose(x.grad, expected[0], rtol=1e-6)
    np.testing.assert_allclose(y.grad, expected[1][0], rtol=1e-6)
    np.testing.assert_allclose(z.grad, expected[1][1]["z"], rtol=1e-6)
    with pytest.raises(GradientError, match="second time"):
        out["a"].backward()


def total_jnp(out: Any) -> Any:
    return jnp.sin(out["a"]) + out["b"][0] * out["b"][1][0]


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: fad.grad(f, (0, 1))(*ARGS),
    "jvp": lambda f: fad.jvp(f, ARGS, ARGS),
    "hessian": lambda f: fad.hessian(f, (0, 1))(*ARGS),
    "jacrev of jacrev": lambda f: fad.jacrev(fad.jacrev(f))(*ARGS),
    "vmap": lambda f: fad.vmap(lambda x: f(x, ARGS[1]))(jnp.arange(3.0)),
    "vmap of grad": lambda f: fad.vmap(fad.grad(lambda x: f(x, ARGS[1])))(jnp.arange(3.0)),
    "grad of vmap": lambda f: fad.grad(
        lambda xs: (fad.vmap(lambda x: f(x, [xs[0], {"z": x}]))(xs)).sum()
    )(jnp.arange(3.0)),
    "jit of grad": lambda f: fad.jit(fad.grad(f))(*ARGS),
    "checkpoint": lambda f: fad.grad(fad.checkpoint(f))(*ARGS),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_under_transforms(name: str) -> None:
    found = TRANSFORMS[name](lambda *a: total(Mix.apply(*a)))
    expected = TRANSFORMS[name](lambda *a: total(by_hand(*a)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)


def test_the_rule_is_the_users() -> None:
    class Wrong(NestedIOFunction):
        def forward_extended(self, xs: Any) -> Any:
            return [x * 2.0 for x in xs]

        def backward_extended(self, *grads: Any) -> Any:
            return ([g * 100.0 for g in grads],)

    def f(x: Any) -> Any:
        a, b = Wrong.apply([x, x])
        return a + b

    assert float(fad.grad(f)(1.0)) == 200.0
    assert fad.vmap(fad.grad(f))(jnp.ones(2)).tolist() == [200.0, 200.0]
    assert fad.grad(lambda v: fad.vmap(f)(v).sum())(jnp.ones(2)).tolist() == [200.0, 200.0]
    assert float(fad.jvp(f, (1.0,), (1.0,))[1]) == 200.0, "derived from the rule"
    assert float(jax.grad(f)(1.0)) == 200.0, "in plain JAX too"


class Pair(NamedTuple):
    left: Any
    right: Any


def test_containers() -> None:
    """Named tuples and other pytrees go in, are saved, and come out as they are."""
    seen: list[Any] = []

    @functools.partial(
        jax.tree_util.register_dataclass, data_fields=["value"], meta_fields=["name"]
    )
    class Box:
        def __init__(self, value: Any, name: str) -> None:
            self.value, self.name = value, name

    class Swap(NestedIOFunction):
        def forward_extended(self, p: Any, box: Any, word: str, none: Any) -> Any:
            assert (word, none) == ("word", None)
            self.save_for_backward(Pair(box, None), p.left)
            return Pair(p.right * box.value, Box(p.left * 1.0, box.name))

        def backward_extended(self, g: Any) -> Any:
            pair, left = self.saved_tensors
            seen.append((pair, left, g.right))
            return Pair(g.right.value, g.left * pair.left.value), None, None, None

    a, b = leaf(2.0), leaf(3.0)
    out = Swap.apply(Pair(a, b), Box(fad.tensor(5.0), "name"), "word", None)
    assert isinstance(out, Pair) and out.right.name == "name" and float(out.left) == 15.0
    (out.left * out.right.value).backward()
    assert (float(a.grad), float(b.grad)) == (15.0, 10.0)
    pair, left, g_box = seen[0]
    assert isinstance(pair, Pair) and pair.left.name == "name" and pair.right is None
    assert float(left) == 2.0 and float(g_box.value) == 15.0


@pytest.mark.parametrize(
    "returned",
    [
        lambda gx, gy, gz: (gx, [gy, gz]),
        lambda gx, gy, gz: (gx, (gy, gz)),
        lambda gx, gy, gz: (gx, gy, gz),
        lambda gx, gy, gz: [gx, [gy, gz]],
        lambda gx, gy, gz: (gx, None),
        lambda gx, gy, gz: (gx, [gy, None]),
    ],
    ids=["nested", "tuple for list", "flat", "list", "None for a list", "None in a list"],
)
def test_gradients_nested_or_flat(returned: Any) -> None:
    class Sum(NestedIOFunction):
        def forward_extended(self, x: Any, ys: Any) -> Any:
            return x + 2.0 * ys[0] + 3.0 * ys[1]

        def backward_extended(self, g: Any) -> Any:
            return returned(g, 2.0 * g, 3.0 * g)

    x, y, z = leaf(1.0), leaf(1.0), leaf(1.0)
    Sum.apply(x, [y, z]).backward()
    found = [None if t.grad is None else float(t.grad) for t in (x, y, z)]
    shown = jax.tree.leaves(returned(1.0, 2.0, 3.0), is_leaf=lambda v: v is None)
    assert found == (shown if len(shown) == 3 else [1.0, None, None])


def test_one_nested_input_and_one_gradient() -> None:
    class Dot(NestedIOFunction):
        def forward_extended(self, xs: Any) -> Any:
            self.save_for_backward(*xs)
            return xs[0] * xs[1]

        def backward_extended(self, g: Any) -> Any:
            a, b = self.saved_tensors
            return [g * b, g * a]

    assert [float(g) for g in fad.grad(lambda xs: Dot.apply(xs))((2.0, 3.0))] == [3.0, 2.0]


def test_attributes_are_those_of_one_call() -> None:
    class Power(NestedIOFunction):
        scale = 1.0

        def __init__(self, exponent: int) -> None:
            self.exponent = exponent

        def forward_extended(self, xs: Any) -> Any:
            (x,) = xs
            self.below = x ** (self.exponent - 1)
            self.saved_data["kept"] = {"x": x}
            self.scale = self.scale * 2.0
            return [self.below * x * self.scale]

        def backward_extended(self, g: Any) -> Any:
            assert self.needs_input_grad == (True,)
            assert float(self.saved_data["kept"]["x"]) in (2.0, 3.0)
            assert not hasattr(self, "left_behind")
            self.left_behind = True
            return [self.scale * self.exponent * self.below * g]

    cube = Power(3)
    a, b = leaf(2.0), leaf(3.0)
    (ya,), (yb,) = cube([a]), cube([b])
    (yb + ya).backward()
    assert (float(ya), float(yb)) == (16.0, 54.0)
    assert (float(a.grad), float(b.grad)) == (24.0, 54.0)
    assert vars(cube) == {"exponent": 3} and Power.scale == 1.0
    x = leaf(2.0)
    (g,) = autograd.grad(cube([x])[0], x, create_graph=True)
    (h,) = autograd.grad(g, x)
    assert (float(g), float(h)) == (24.0, 24.0), "what was kept on self has its history"
    with pytest.raises(TypeError, match="exponent"):
        Power.apply([x])


def test_marks() -> None:
    class Step(NestedIOFunction):
        def forward_extended(self, state: Any, x: Any) -> Any:
            state["u"] += x
            count = x * 0.0 + 7.0
            self.mark_dirty(state)
            self.mark_non_differentiable(counts=[count])
            return state, {"count": count}

        def backward_extended(self, g_state: Any, g_info: Any) -> Any:
            assert float(g_info["count"]) == 0.0
            return {"u": g_state["u"]}, g_state["u"]

    w, x = leaf(2.0), leaf(3.0)
    u = w * 1.0
    state, info = Step.apply({"u": u}, x)
    assert state["u"] is u and u.version == 1 and float(u) == 5.0
    assert not info["count"].requires_grad and u.grad_fn.name() == "StepBackward"
    (u * 2.0).backward()
    assert (float(w.grad), float(x.grad)) == (2.0, 2.0)


def test_zero_gradients_may_stay_none() -> None:
    class Two(NestedIOFunction):
        def forward_extended(self, x: Any) -> Any:
            self.set_materialize_grads(False)
            return x * 2.0, [x * 3.0]

        def backward_extended(self, g: Any, gs: Any) -> Any:
            assert g is None
            return gs[0] * 3.0

    x = leaf(1.0)
    Two.apply(x)[1][0].backward()
    assert float(x.grad) == 3.0


def test_a_missing_backward_is_derived() -> None:
    class Square(NestedIOFunction):
        def forward_extended(self, xs: Any) -> Any:
            return [x * x for x in xs]

    class Cube(Square):
        def forward_extended(self, xs: Any) -> Any:
            return [x * x * x for x in xs]

    assert float(fad.grad(lambda x: Square.apply([x])[0])(3.0)) == 6.0
    assert float(fad.grad(fad.grad(lambda x: Cube.apply([x])[0]))(3.0)) == 18.0


def test_inheritance() -> None:
    class Other(Mix):
        def backward_extended(self, g: Any) -> Any:
            return tuple(super().backward_extended(g))

    f = fad.grad(lambda *a: total(Other.apply(*a)))
    assert np.allclose(f(*ARGS), fad.grad(lambda *a: total(Mix.apply(*a)))(*ARGS))


def test_once_differentiable() -> None:
    class Exp(NestedIOFunction):
        def forward_extended(self, xs: Any) -> Any:
            out = [fnp.exp(xs[0])]
            self.save_for_backward(out)
            return out

        @autograd.once_differentiable
        def backward_extended(self, g: Any) -> Any:
            ((y,),) = self.saved_tensors
            return [np.asarray(y.numpy() * g.numpy())]

    x = leaf(0.0)
    (g,) = autograd.grad(Exp.apply([x])[0], x, create_graph=True)
    assert float(g) == 1.0
    with pytest.raises(GradientError, match="once_differentiable"):
        g.backward()


@pytest.mark.parametrize("jax_rules", [False, True])
def test_compiled_bodies(jax_rules: bool) -> None:
    runs: list[int] = []
    rules = jax_rules

    class Scale(NestedIOFunction):
        jax_rules = rules

        def __init__(self, by: float) -> None:
            self.by = by

        def forward_extended(self, xs: Any) -> Any:
            runs.append(1)
            self.save_for_backward(xs)
            return {"out": xs[0] * xs[1] * self.by}

        def backward_extended(self, g: Any) -> Any:
            ((a, b),) = self.saved_tensors
            return [g["out"] * b * self.by, g["out"] * a * self.by]

    def f(x: Any, by: float) -> Any:
        return Scale(by)([x, x])["out"]

    for _ in range(3):
        assert float(fad.grad(f)(3.0, 2.0)) == 12.0
    count = len(runs)
    assert count < 3 if jax_rules else count == 3
    assert float(fad.grad(f)(3.0, 5.0)) == 30.0 and len(runs) > count


def test_memory_of_a_call_is_given_back() -> None:
    gc.disable()
    try:
        x = leaf(2.0)
        out = Mix.apply(x, [x, {"z": x}])
        node = weakref.ref(out["a"].grad_fn)
        out["a"].backward()
        del out
        assert node() is None
    finally:
        gc.enable()


def test_errors() -> None:
    with pytest.raises(RuleError, match=r"Bad defines forward: .* write forward_extended"):

        class Bad(NestedIOFunction):
            @staticmethod
            def forward(x: Any) -> Any:
                return x

    with pytest.raises(RuleError, match="leave @staticmethod out"):

        class Static(NestedIOFunction):
            @staticmethod
            def forward_extended(x: Any) -> Any:
                return x

    class Nothing(NestedIOFunction):
        pass

    with pytest.raises(RuleError, match="Nothing has no forward_extended"):
        Nothing.apply(1.0)
    with pytest.raises(RuleError, match=r"Mix: self\.save_for_backward is for forward_extended"):
        Mix().save_for_backward(leaf(1.0))
    with pytest.raises(TypeError, match="positional arguments only, got rest"):
        Mix.apply(1.0, rest=[])

    class Few(NestedIOFunction):
        def forward_extended(self, x: Any, ys: Any) -> Any:
            return x * ys[0] * ys[1]

        def backward_extended(self, g: Any) -> Any:
            return g, [g, g, g]

    with pytest.raises(RuleError, match="Few.* gradient for argument"):
        Few.apply(leaf(1.0), [leaf(1.0), leaf(1.0)]).backward()


# The same class body in PyTorch


class Body:
    """Written for both libraries: [a, [b]], c -> (a * c, [b * c * c]), without a derivative in b * 0."""

    save_for_backward: Any
    saved_tensors: Any
    mark_non_differentiable: Any

    def forward_extended(self, ab: Any, c: Any) -> Any:
        a, (b,) = ab
        self.save_for_backward([a, [b]], c)
        self.factor = 3.0
        flat = b * 0.0
        self.mark_non_differentiable([flat])
        return a * c, [b * c * c, [flat]]

    def backward_extended(self, g: Any, rest: Any) -> Any:
        (a, (b,)), c = self.saved_tensors
        h = rest[0]
        return [g * c * self.factor, (h * c * c,)], g * a + 2.0 * h * b * c


def test_the_same_body_in_torch(torch: Any) -> None:
    """PyTorch's own class cannot be called any more; its helpers run the body in a plain Function."""
    helpers = torch.autograd.function

    class Run(Body):
        def __init__(self, ctx: Any) -> None:
            self.ctx = ctx

        def save_for_backward(self, *args: Any) -> None:
            self.ctx.save_for_backward(*helpers._iter_tensors(args))
            self.nested = helpers._map_tensor_data(args)

        @property
        def saved_tensors(self) -> Any:
            return helpers._unflatten(self.ctx.saved_tensors, self.nested)

        def mark_non_differentiable(self, *args: Any) -> None:
            self.ctx.mark_non_differentiable(*helpers._iter_tensors(args))

    class Flat(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, inputs: Any, *flat: Any) -> Any:
            ctx.run = Run(ctx)
            ctx.output = ctx.run.forward_extended(*helpers._unflatten(flat, inputs()))
            return tuple(helpers._iter_tensors(ctx.output))

        @staticmethod
        def backward(ctx: Any, *flat: Any) -> Any:
            grads = ctx.run.backward_extended(*helpers._unflatten(flat, ctx.output))
            return (None, *helpers._iter_None_tensors(grads))

    class Nested(Body, NestedIOFunction):
        pass

    def program(tensor: Any, apply: Any, grad: Any) -> list[Any]:
        a, b, c = (tensor(v, requires_grad=True) for v in ([1.0, 2.0], [3.0, -1.0], [0.5, 4.0]))
        out, (second, (flat,)) = apply([a, [b]], c)
        total = (out * second).sum() + (flat * out).sum()
        found: list[Any] = [flat.requires_grad, out.requires_grad]
        first = grad(total, [a, b, c], create_graph=True)
        found += [g.detach().tolist() for g in first]
        again = grad((first[0] * first[2]).sum(), [a, b, c])
        return [*found, *[g.tolist() for g in again]]

    def torch_apply(*inputs: Any) -> Any:
        flat = Flat.apply(lambda: inputs, *helpers._iter_tensors(inputs))
        return flat[0], [flat[1], [flat[2]]]

    expected = program(torch.tensor, torch_apply, torch.autograd.grad)
    found = program(fad.tensor, Nested.apply, autograd.grad)
    assert found[:2] == expected[:2] == [False, True]
    np.testing.assert_allclose(found[2:], expected[2:], rtol=1e-5)
