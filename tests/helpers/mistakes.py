"""Mistakes that people ask about in the forums of PyTorch and JAX, made there and in fad.

A row has what one does wrong, the words of the other library's error that one searches for, the program that
gives it, the same mistake in fad, and words of fad's error: what was got, and what to write instead. The
tables in docs/what-errors-tell.md have the rows, with where to read on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.numpy as fnp

J = jnp.array([1.0, 2.0, 3.0])


@dataclasses.dataclass(frozen=True)
class Mistake:
    """What is done wrong, in a library and in fad, and what each says.

    Attributes:
        what: the mistake, in a few words.
        says: words of the other library's error; "" where it says nothing.
        peer: the program that it refuses, a function of the module ``torch`` or ``jax``.
        program: the same in fad.
        words: what fad's error says; the last are what to write.
        page: where to read on.
    """

    what: str
    says: str
    peer: Callable[[Any], Any]
    program: Callable[[], Any]
    words: tuple[str, ...]
    page: str


def leaf(lib: Any = fad) -> Any:
    return lib.tensor([1.0, 2.0, 3.0], requires_grad=True)


def plain(lib: Any = fad) -> Any:
    return lib.tensor([1.0, 2.0, 3.0])


def exp(lib: Any, x: Any) -> Any:
    return fnp.exp(x) if lib is fad else lib.exp(x)


def both(f: Callable[[Any], Any]) -> dict[str, Any]:
    """The one program for PyTorch and fad."""
    return {"peer": f, "program": lambda: f(fad)}


def function(lib: Any, **members: Any) -> Any:
    """A Function, x * x, with some of its members replaced."""
    base = fad.Function if lib is fad else lib.autograd.Function
    body: dict[str, Any] = {
        "forward": lambda ctx, x: (ctx.save_for_backward(x), x * x)[1],
        "backward": lambda ctx, g: 2.0 * g * ctx.saved_tensors[0],
        **members,
    }
    return type("Square", (base,), {k: staticmethod(f) for k, f in body.items()})


def differentiated(lib: Any, **members: Any) -> None:
    function(lib, **members).apply(leaf(lib)).sum().backward()


def without_grad(lib: Any) -> None:
    w = leaf(lib)
    with lib.no_grad():
        loss = (w * w).sum()
    loss.backward()


def second_derivative(lib: Any) -> None:
    x = leaf(lib)
    (g,) = lib.autograd.grad((x**3).sum(), x)
    g.sum().backward()


def carried_over(lib: Any) -> None:
    w, h = leaf(lib), plain(lib)
    for _ in range(2):
        h = exp(lib, h * w)
        h.sum().backward()


def step_out_of_place(lib: Any) -> None:
    w = leaf(lib)
    for _ in range(2):
        (w * w).sum().backward()
        w = w - 0.1 * w.grad


def step_in_place(lib: Any) -> None:
    w = leaf(lib)
    (w * w).sum().backward()
    w -= 0.1 * w.grad


def saved_value_written(lib: Any) -> None:
    y = exp(lib, leaf(lib))
    y += 1.0
    y.sum().backward()


def zeroed_too_early(lib: Any) -> None:
    w = leaf(lib)
    w.grad.zero_()


def unpacked(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_tensors
    return 2.0 * g * x


def rule_of_a_product(lib: Any) -> None:
    f = function(lib, forward=lambda ctx, x, y: x * y, backward=lambda ctx, g: g)
    f.apply(leaf(lib), leaf(lib)).sum().backward()


def constant_hook(lib: Any) -> None:
    plain(lib).register_hook(print)


def part_of_views(lib: Any) -> None:
    first, *_ = (leaf(lib) * 1.0).unbind(0)
    first.add_(1.0)


def inference_saved(lib: Any) -> None:
    with lib.inference_mode():
        x = plain(lib)
    (x * leaf(lib)).sum().backward()


def unwritable(lib: Any) -> None:
    lib.ones(1, 3).expand(2, 3).add_(1.0)


OF_TORCH = (
    Mistake(
        "the loss is computed under `no_grad`, or of `x.detach()`",
        "does not require grad and does not have a grad_fn",
        **both(without_grad),
        words=(
            "backward(): element 0",
            "Tensor float32[]",
            "outside of no_grad",
            "without detach()",
        ),
        page="introduction.md#a-tensor-remembers-how-it-was-made",
    ),
    Mistake(
        "the loss is an `argmax` or a comparison",
        "does not require grad and does not have a grad_fn",
        peer=lambda torch: leaf(torch).argmax().backward(),
        program=lambda: leaf().argmax().backward(),
        words=("has dtype int32", "argmax", "values of floating dtype"),
        page="differences-from-pytorch.md#differences-from-pytorch",
    ),
    Mistake(
        "a gradient of a gradient, without `create_graph`",
        "does not require grad and does not have a grad_fn",
        **both(second_derivative),
        words=("does not require grad", "with create_graph=True"),
        page="graph.md#the-engine",
    ),
    Mistake(
        "`backward()` twice",
        "Trying to backward through the graph a second time",
        **both(lambda lib: (lambda y: (y.backward(), y.backward()))((leaf(lib) ** 2).sum())),
        words=("a second time", "Specify retain_graph=True"),
        page="graph.md#the-engine",
    ),
    Mistake(
        "a state that a loop carries keeps the graph of the step before",
        "Trying to backward through the graph a second time",
        **both(carried_over),
        words=("a second time", "ExpBackward", "h = h.detach()"),
        page="graph.md#the-engine",
    ),
    Mistake(
        "`backward()` of a vector",
        "grad can be implicitly created only for scalar outputs",
        **both(lambda lib: (leaf(lib) * 2.0).backward()),
        words=("an output of shape (3,)", "reduce it (y.sum())"),
        page="graph.md#the-engine",
    ),
    Mistake(
        "a cotangent of another shape",
        "Mismatch in shape: grad_output[0] has a shape of",
        **both(lambda lib: (leaf(lib) * 2.0).backward(lib.ones(2))),
        words=("has a shape of (2,)", "has a shape of (3,)", "fad.numpy.broadcast_to(g, y.shape)"),
        page="graph.md#the-engine",
    ),
    Mistake(
        "a cotangent that is a list",
        "gradients can be either Tensors or None, but got",
        **both(lambda lib: (leaf(lib) * 2.0).backward([1.0, 1.0, 1.0])),
        words=("but got list", "fad.tensor(...)"),
        page="graph.md#the-engine",
    ),
    Mistake(
        "an input that the loss does not use",
        "appears to not have been used in the graph",
        **both(lambda lib: lib.autograd.grad(leaf(lib).sum(), leaf(lib))),
        words=("at index 0", "Set allow_unused=True"),
        page="graph.md#the-engine",
    ),
    Mistake(
        "a value is changed in place that `backward` needs",
        "modified by an inplace operation",
        **both(saved_value_written),
        words=("[float32 [3]]", "ExpBackward, is at version 1", "write to a copy (x.clone())"),
        page="graph.md#saved-values",
    ),
    Mistake(
        "a step of descent writes to a leaf",
        "a leaf Variable that requires grad is being used in an in-place operation",
        **both(step_in_place),
        words=("subtract_: a leaf", "inside no_grad"),
        page="views.md#what-is-refused",
    ),
    Mistake(
        "a step of descent makes a new Tensor, which has no `.grad`",
        "unsupported operand type(s) for *: 'float' and 'NoneType'",
        **both(step_out_of_place),
        words=("x.grad is None until backward()", "write w -= rate * w.grad under no_grad"),
        page="for-pytorch-users.md#where-things-are",
    ),
    Mistake(
        "`x.grad.zero_()` before the first `backward()`",
        "'NoneType' object has no attribute 'zero_'",
        **both(zeroed_too_early),
        words=("x.grad is None until backward() has reached x",),
        page="for-pytorch-users.md#where-things-are",
    ),
    Mistake(
        "one of the views of `unbind` or `split` is written to",
        "is a view and is being modified inplace",
        **both(part_of_views),
        words=("UnstackBackward", "take the views one by one (x[i])"),
        page="views.md#what-is-refused",
    ),
    Mistake(
        "a broadcast Tensor is written to",
        "more than one element of the written-to tensor refers to a single memory location",
        **both(unwritable),
        words=("because it was broadcast", "clone() the tensor"),
        page="views.md#what-is-refused",
    ),
    Mistake(
        "`x.numpy()` of a Tensor that requires grad",
        "Can't call numpy() on Tensor that requires grad",
        **both(lambda lib: leaf(lib).numpy()),
        words=("numpy() of a Tensor that requires grad", "write x.detach().numpy()"),
        page="what-errors-tell.md#numbers-that-drop-a-derivative",
    ),
    Mistake(
        "integers that require grad",
        "Only Tensors of floating point and complex dtype can require gradients",
        **both(lambda lib: lib.tensor([1, 2], requires_grad=True)),
        words=("got int32", "x.astype(float)"),
        page="introduction.md#a-tensor-remembers-how-it-was-made",
    ),
    Mistake(
        "`x.item()` of a vector",
        "a Tensor with 3 elements cannot be converted to Scalar",
        **both(lambda lib: plain(lib).item()),
        words=("item() of Tensor float32[3]", "write x[i].item() for one of them"),
        page="for-pytorch-users.md#methods-of-a-tensor",
    ),
    Mistake(
        "`if x == y:` of vectors",
        "Boolean value of Tensor with more than one value is ambiguous",
        **both(lambda lib: 1 if plain(lib) == plain(lib) else 2),
        words=("bool() of Tensor bool[3]", "Use a.any() or a.all()"),
        page="for-numpy-users.md#what-differs-from-numpy",
    ),
    Mistake(
        "a loop over a scalar",
        "iteration over a 0-d tensor",
        **both(lambda lib: list(lib.tensor(1.0))),
        words=("a 0-d Tensor", "x.item()", "x[None]"),
        page="for-pytorch-users.md#methods-of-a-tensor",
    ),
    Mistake(
        "matrices that do not fit",
        "mat1 and mat2 shapes cannot be multiplied",
        **both(lambda lib: lib.ones(2, 3) @ lib.ones(2, 3)),
        words=("fad.numpy.matmul(Tensor float32[2,3], Tensor float32[2,3])", ".T or .mT"),
        page="what-errors-tell.md#tracebacks",
    ),
    Mistake(
        "shapes that do not broadcast",
        "must match the size of tensor b",
        **both(lambda lib: lib.ones(2, 3) + lib.ones(4)),
        words=("fad.numpy.add(Tensor float32[2,3], Tensor float32[4])", "write x[:, None]"),
        page="what-errors-tell.md#tracebacks",
    ),
    Mistake(
        "a reshape to another size",
        "is invalid for input of size 3",
        **both(lambda lib: plain(lib).reshape(2, 2)),
        words=("shape (3,) (size 3)", "one of them may be -1"),
        page="what-errors-tell.md#tracebacks",
    ),
    Mistake(
        "a device that is not there",
        "",
        peer=lambda torch: None,
        program=lambda: plain().to("cuda:0"),
        words=("there is no 'cuda' here, but 'cpu'", "Leave the device out"),
        page="devices.md#moving-a-tensor",
    ),
    Mistake(
        "a copy of what was computed, with `copy.deepcopy`",
        "support the deepcopy protocol",
        **both(lambda lib: __import__("copy").deepcopy(leaf(lib) * 2.0)),
        words=("Tensor float32[3] was computed from others", "write x.clone()", "x.detach()"),
        page="for-pytorch-users.md#methods-of-a-tensor",
    ),
    Mistake(
        "a hook on what does not require grad",
        "cannot register a hook on a tensor that doesn't require gradient",
        **both(constant_hook),
        words=("cannot register a hook", "x.requires_grad_() before it is used"),
        page="graph.md#hooks",
    ),
    Mistake(
        "a value of `inference_mode` in the loss",
        "Inference tensors cannot be saved for backward",
        **both(inference_saved),
        words=("make a clone", "fad.no_grad()"),
        page="graph.md#modes",
    ),
    Mistake(
        "a rule reads `ctx.saved_tensors`, and nothing was saved",
        "not enough values to unpack",
        **both(lambda lib: differentiated(lib, forward=lambda ctx, x: x * x, backward=unpacked)),
        words=("not enough values", "gave to ctx.save_for_backward(...)"),
        page="checking-rules.md#2-a-function",
    ),
    Mistake(
        "a rule reads an attribute of `ctx` that was not set",
        "object has no attribute 'scale'",
        **both(lambda lib: differentiated(lib, backward=lambda ctx, g: g * ctx.scale)),
        words=("no attribute 'scale'", "forward or setup_context has set, ctx.name = value"),
        page="checking-rules.md#2-a-function",
    ),
    Mistake(
        "a rule gives too few gradients",
        "returned an incorrect number of gradients (expected 2, got 1)",
        **both(rule_of_a_product),
        words=(
            "Square.backward returned 1 gradients, expected 2",
            "one for each argument of forward (x, y)",
        ),
        page="checking-rules.md#5-several-arguments-and-broadcasting",
    ),
    Mistake(
        "a rule gives a gradient of another shape",
        "returned an invalid gradient at index 0 - got [2]",
        **both(lambda lib: differentiated(lib, backward=lambda ctx, g: g[:2])),
        words=("Square.backward: the gradient for argument 'x' has shape (2,), expected (3,)",),
        page="checking-rules.md#5-several-arguments-and-broadcasting",
    ),
    Mistake(
        "a Function is called, without `apply`",
        "Legacy autograd function with non-static forward method is deprecated",
        **both(lambda lib: function(lib)()(leaf(lib))),
        words=("Square is not instantiated", "call Square.apply(...)"),
        page="checking-rules.md#2-a-function",
    ),
)


def draw_twice() -> Any:
    key = fad.random.key(0)
    with jax.debug_key_reuse(True):
        return fad.random.normal(key) + fad.random.normal(key)


def draw_twice_in_jax(jax: Any) -> Any:
    key = jax.random.key(0)
    with jax.debug_key_reuse(True):
        return jax.random.normal(key) + jax.random.normal(key)


def kept(compiled: Callable[[Any], Any]) -> Any:
    values: list[Any] = []
    compiled(lambda x: values.append(x) or x)(J)
    return values[0] + 1.0


def written(x: Any) -> Any:
    x[0] = 1.0
    return x


def rule_without_a_tuple(decorate: Any) -> Any:
    def square(x: Any) -> Any:
        return x * x

    f = decorate(square)
    f.defvjp(lambda x: (x * x, x), lambda x, g: 2.0 * x * g)
    return f


def repeated(x: Any, n: Any) -> Any:
    for _ in range(n):
        x = x * 2.0
    return x


OF_JAX = (
    Mistake(
        "`if` on a traced value",
        "Attempted boolean conversion of traced array",
        peer=lambda jax: jax.jit(lambda x: x if x > 0 else -x)(1.0),
        program=lambda: fad.jit(lambda x: x if x > 0 else -x)(1.0),
        words=(
            "bool() of a Tensor (Tensor bool[])",
            "fad.numpy.where(condition, a, b) or fad.lax.cond",
        ),
        page="for-jax-users.md#control-flow-dtypes-devices",
    ),
    Mistake(
        "`if` on a flag that is given to a compiled function",
        "Attempted boolean conversion of traced array",
        peer=lambda jax: jax.jit(lambda x, training: x if training else -x)(J, True),
        program=lambda: fad.jit(lambda x, training: x if training else -x)(J, True),
        words=("bool() of a Tensor (Tensor bool[])", "fad.jit(f, static_argnames=...)"),
        page="for-pytorch-users.md#fad-for-pytorch-users",
    ),
    Mistake(
        "`range(n)` with a traced `n`",
        "The __index__() method was called on traced array",
        peer=lambda jax: jax.jit(repeated)(J, 3),
        program=lambda: fad.jit(repeated)(J, 3),
        words=("index() of a Tensor (Tensor int32[])", "static_argnums", "fad.lax.fori_loop"),
        page="for-jax-users.md#control-flow-dtypes-devices",
    ),
    Mistake(
        "a slice `x[:n]` with a traced `n`",
        "Got slice(None, JitTracer",
        peer=lambda jax: jax.jit(lambda x, n: x[:n])(J, 2),
        program=lambda: fad.jit(lambda x, n: x[:n])(J, 2),
        words=("Tensor int32[]", "fad.lax.dynamic_slice"),
        page="namespaces.md#shapes-that-depend-on-values",
    ),
    Mistake(
        "a shape from a traced value",
        "Shapes must be 1D sequences of concrete values",
        peer=lambda jax: jax.jit(lambda n: jax.numpy.zeros(n))(3),
        program=lambda: fad.jit(lambda n: fnp.zeros(n))(3),
        words=("fad.numpy.zeros(Tensor int32[])", "make that argument static"),
        page="namespaces.md#shapes-that-depend-on-values",
    ),
    Mistake(
        "a mask as index in `jit`",
        "Array boolean indices must be concrete",
        peer=lambda jax: jax.jit(lambda x: x[x > 0])(J),
        program=lambda: fad.jit(lambda x: x[x > 0])(J),
        words=("a bool mask selects a number of elements", "fad.numpy.where(mask, x, y)", "size=n"),
        page="namespaces.md#shapes-that-depend-on-values",
    ),
    Mistake(
        "`float(x)` in `jit`",
        "concrete value",
        peer=lambda jax: jax.jit(lambda x: float(x.sum()))(J),
        program=lambda: fad.jit(lambda x: float(x.sum()))(J),
        words=("float() of a Tensor (Tensor float32[])", "read the number outside"),
        page="for-jax-users.md#control-flow-dtypes-devices",
    ),
    Mistake(
        "a function of NumPy in `jit`",
        "The numpy.ndarray conversion method __array__() was called on",
        peer=lambda jax: jax.jit(lambda x: np.asarray(x))(J),
        program=lambda: fad.jit(lambda x: np.asarray(x))(J),
        words=("numpy() of a Tensor (Tensor float32[3])", "fad.numpy.f(x) instead of numpy.f(x)"),
        page="checking-rules.md#8-code-that-leaves-jax",
    ),
    Mistake(
        "a traced value is stored, and used outside",
        "Encountered an unexpected tracer",
        peer=lambda jax: kept(jax.jit),
        program=lambda: kept(fad.jit),
        words=(
            "Tensor float32[3]",
            "after the trace, values[0] is a Tensor of it",
            "Return the Tensor from the function",
        ),
        page="for-jax-users.md#fadjit",
    ),
    Mistake(
        "a static argument that is a list",
        "Non-hashable static arguments",
        peer=lambda jax: jax.jit(lambda x, n: x, static_argnums=1)(J, [1]),
        program=lambda: fad.jit(lambda x, n: x, static_argnums=1)(J, [1]),
        words=("must be hashable, got list [1]", "as a tuple"),
        page="for-jax-users.md#fadjit",
    ),
    Mistake(
        "`grad` of an integer",
        "grad requires real- or complex-valued inputs",
        peer=lambda jax: jax.grad(lambda x: x * x)(3),
        program=lambda: fad.grad(lambda x: x * x)(3),
        words=("argument 0 must have a floating or complex dtype", "got int 3", "write 3.0"),
        page="introduction.md#a-transform-makes-a-function-from-a-function",
    ),
    Mistake(
        "`grad` of a function that is not scalar",
        "Gradient only defined for scalar-output functions",
        peer=lambda jax: jax.grad(lambda x: x * 2.0)(J),
        program=lambda: fad.grad(lambda x: x * 2.0)(J),
        words=("grad: the function must return a real scalar", "shape (3,)", "fad.jacrev"),
        page="introduction.md#a-transform-makes-a-function-from-a-function",
    ),
    Mistake(
        "`grad` of a function that returns a loss and something else",
        "Gradient only defined for scalar-output functions",
        peer=lambda jax: jax.grad(lambda x: (x.sum(), x))(J),
        program=lambda: fad.grad(lambda x: (x.sum(), x))(J),
        words=("grad: the function must return a real scalar, got tuple", "pass has_aux=True"),
        page="introduction.md#a-transform-makes-a-function-from-a-function",
    ),
    Mistake(
        "tangents without a tuple around them",
        "primal and tangent arguments to jax.jvp must be tuples or lists",
        peer=lambda jax: jax.jvp(jnp.sin, J, J),
        program=lambda: fad.jvp(fnp.sin, J, J),
        words=("got Array float32[3] and Array float32[3]", "Write jvp(f, (x,), (t,))"),
        page="introduction.md#a-transform-makes-a-function-from-a-function",
    ),
    Mistake(
        "a tangent of another dtype",
        "primal and tangent arguments to jax.jvp do not match",
        peer=lambda jax: jax.jvp(jnp.sin, (J,), (jnp.arange(3),)),
        program=lambda: fad.jvp(fnp.sin, (J,), (jnp.arange(3),)),
        words=("the tangent of argument 0", "float32[3], got int32[3]", "t.astype('float32')"),
        page="introduction.md#a-transform-makes-a-function-from-a-function",
    ),
    Mistake(
        "a JAX array is written to",
        "JAX arrays are immutable",
        peer=lambda jax: written(jax.numpy.zeros(3)),
        program=lambda: fad.grad(lambda x: (written(jnp.zeros(3)) * x).sum())(1.0),
        words=("JAX arrays are immutable", "make it by fad.numpy (fad.numpy.zeros(3))"),
        page="views.md#writing",
    ),
    Mistake(
        "`vmap` of arguments of other lengths",
        "vmap got inconsistent sizes for array axes to be mapped",
        peer=lambda jax: jax.vmap(lambda x, y: x + y)(J, J[:2]),
        program=lambda: fad.vmap(lambda x, y: x + y)(J, J[:2]),
        words=("argument 0: 3, argument 1: 2",),
        page="introduction.md#a-transform-makes-a-function-from-a-function",
    ),
    Mistake(
        "`vmap` over a number",
        "vmap was requested to map its argument along axis 0",
        peer=lambda jax: jax.vmap(lambda x, n: x * n)(J, 2),
        program=lambda: fad.vmap(lambda x, n: x * n)(J, 2),
        words=("argument 1 is mapped over dimension 0 but is int 2", "give it in_dims None"),
        page="introduction.md#a-transform-makes-a-function-from-a-function",
    ),
    Mistake(
        "`in_dims` with too few entries",
        "vmap in_axes must be an int, None, or a tuple of entries corresponding to",
        peer=lambda jax: jax.vmap(lambda x, y: x * y, in_axes=(0,))(J, J),
        program=lambda: fad.vmap(lambda x, y: x * y, in_dims=(0,))(J, J),
        words=("in_dims has 1 entries for 2 positional arguments", "one entry for each"),
        page="introduction.md#a-transform-makes-a-function-from-a-function",
    ),
    Mistake(
        "a carry of `scan` that changes its shape",
        "carry input and carry output must have equal types",
        peer=lambda jax: jax.lax.scan(lambda c, x: (jnp.append(c, x), x), jnp.zeros(1), J),
        program=lambda: fad.lax.scan(lambda c, x: (fnp.append(c, x), x), jnp.zeros(1), J),
        words=("has type float32[1]", "float32[2]", "Revise the function"),
        page="for-jax-users.md#control-flow-dtypes-devices",
    ),
    Mistake(
        "branches of `cond` with other dtypes",
        "branches must have equal output types but they differ",
        peer=lambda jax: jax.lax.cond(True, lambda: 1, lambda: J.sum()),
        program=lambda: fad.lax.cond(True, lambda: 1, lambda: J.sum()),
        words=("mistakes.py", "int32[]", "float32[]", "so that all output types match"),
        page="for-jax-users.md#control-flow-dtypes-devices",
    ),
    Mistake(
        "a key is used twice",
        "Previously-consumed key",
        peer=draw_twice_in_jax,
        program=draw_twice,
        words=("in fad.random.normal(PRNGKeyArray", "key, sub = fad.random.split(key)"),
        page="known-limitations.md#random-numbers",
    ),
    Mistake(
        "a collective of an axis that has no name",
        "unbound axis name",
        peer=lambda jax: jax.lax.psum(J, "i"),
        program=lambda: fad.lax.psum(J, "i"),
        words=("unbound axis name: i", "fad.vmap(f, axis_name='i')"),
        page="for-jax-users.md#other-names-of-jax",
    ),
    Mistake(
        "a `bwd` that does not return a tuple",
        "Custom VJP bwd rule must produce an output with the same container (pytree) structure",
        peer=lambda jax: jax.grad(rule_without_a_tuple(jax.custom_vjp))(1.0),
        program=lambda: fad.grad(rule_without_a_tuple(fad.custom_rules))(1.0),
        words=("square: bwd must return a tuple of 1, a gradient or None for each argument",),
        page="for-jax-users.md#rules-without-a-class",
    ),
)
