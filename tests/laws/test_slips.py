"""Slips of the first hour, of users of PyTorch, NumPy and JAX: what is said, and what to write instead.

A slip is a program with words of its message: of the error as it is shown when nothing catches it, with its
notes and the errors that caused it; or of its warning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.hints.tracebacks import shown

J, N = jnp.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])


def plain() -> Any:
    return fad.tensor([1.0, 2.0, 3.0])


def leaf() -> Any:
    return fad.tensor([1.0, 2.0, 3.0], requires_grad=True)


def written(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


def square(**members: Any) -> Any:
    """A Function, x * x, with some of its members replaced."""
    body: dict[str, Any] = {
        "forward": lambda ctx, x: (ctx.save_for_backward(x), x * x)[1],
        "backward": lambda ctx, g: 2.0 * g * ctx.saved_tensors[0],
        **members,
    }
    return type("Square", (fad.Function,), {k: f and staticmethod(f) for k, f in body.items()})


def block(block: Any) -> None:
    with block:
        pass


def loop_over_numpy(x: Any) -> Any:
    out = np.zeros(3)
    for i in range(3):
        out[i] = x[i] * 2.0
    return x.sum() + out.sum()


def minimized() -> Any:
    optimize = pytest.importorskip("scipy.optimize")
    return optimize.minimize(lambda p: ((fad.tensor(p) - leaf()) ** 2).sum(), np.zeros(3))


AS_TORCH: dict[str, tuple[Callable[[Any], Any], str]] = {
    "x + torch_tensor": (lambda torch: plain() + torch.ones(3), "fad.tensor(t)"),
    "torch_tensor + x": (lambda torch: torch.ones(3) + plain(), "fad.from_dlpack(t)"),
    "torch.sin(x)": (lambda torch: torch.sin(plain()), "fad.numpy.sin"),
    "torch.cat([x])": (lambda torch: torch.cat([plain()]), "fad.cat"),
    "fnp.sin(torch_tensor)": (lambda torch: fnp.sin(torch.ones(3)), "fad.tensor(t)"),
}
OF_TORCH: dict[str, tuple[Callable[[], Any], str]] = {
    "fnp.cat": (lambda: fnp.cat([J, J]), "write fad.cat"),
    "fnp.unsqueeze": (
        lambda: fnp.unsqueeze(J, 0),
        "x.unsqueeze(...): it is a method of Tensor, which fad.asarray(x) is",
    ),
    "x.sum(0, True)": (lambda: plain().sum(0, True), "write keepdims=True (or keepdim=True)"),
    "x.to('cuda:1')": (lambda: plain().to("cuda:1"), "there is no 'cuda' here, but 'cpu'"),
    "x.cuda()": (lambda: plain().cuda(), "there is no 'cuda' here, but 'cpu'"),
    "x.numpy() of a leaf": (lambda: leaf().numpy(), "x.detach().numpy()"),
    "backward of a vector": (lambda: (leaf() * 2.0).backward(), "reduce it (y.sum())"),
    "backward twice": (
        lambda: (lambda y: (y.backward(), y.backward()))((leaf() ** 2).sum()),
        "retain_graph=True",
    ),
    "grad of a result": (
        lambda: (lambda y: (y.sum().backward(), y.grad))(leaf() * 2.0),
        "call .retain_grad() on it first",
    ),
    "x.zero_grad()": (lambda: leaf().zero_grad(), "x.grad = None"),
    "requires_grad = 1": (lambda: setattr(plain(), "requires_grad", 1), "must be a bool, got int"),
    "requires_grad of integers": (lambda: fad.tensor([1, 2]).requires_grad_(), "x.astype(float)"),
    "a name spelt wrong": (lambda: plain().requires_gard_(), "did you mean 'requires_grad"),
    "fad.nn.Linear": (lambda: fad.nn.Linear(2, 3), "no layers"),
    "fad.nn.Parameter": (lambda: fad.nn.Parameter(J), "fad.tensor(data, requires_grad=True)"),
    "fad.randn": (lambda: fad.randn(3), "fad.random.normal(key, shape)"),
    "fad.optim": (lambda: fad.optim.SGD([leaf()], 0.1), "optax"),
    "fad.manual_seed": (lambda: fad.manual_seed(0), "fad.random.key(0)"),
    "with fad.no_grad:": (lambda: block(fad.no_grad), "`with no_grad():`"),
    "with detect_anomaly:": (
        lambda: block(fad.autograd.detect_anomaly),
        "`with detect_anomaly():`",
    ),
    "with dual_level:": (lambda: block(fad.dual_level), "`with dual_level():`"),
    "F(x)": (lambda: square()(plain()), "call Square.apply(...)"),
    "forward(self, ctx, x)": (
        lambda: square(forward=lambda self, ctx, x: x * x).apply(leaf()),
        "static method, without self: forward(ctx, x)",
    ),
    "a rule spelt wrong": (lambda: square(bakcward=lambda ctx, g: g), "Did you mean backward?"),
    "a forward in NumPy": (
        lambda: fad.grad(
            lambda x: square(forward=lambda x: np.sin(np.asarray(x)), backward=None).apply(x).sum()
        )(J),
        "write a vjp or jvp rule",
    ),
    "too many gradients": (
        lambda: square(backward=lambda ctx, g: (g, g)).apply(leaf()).sum().backward(),
        "returned 2 gradients, expected 1",
    ),
    "x.add_ of a leaf": (lambda: leaf().add_(1.0), "x = x.clone()"),
    "x[i] = v of a leaf": (lambda: written(leaf(), 0, 1.0), "inside no_grad"),
    "loss.backward() in grad": (
        lambda: fad.grad(lambda x: (x * x).sum().backward())(J),
        "must return a real scalar, got None",
    ),
    "has_aux forgotten": (lambda: fad.grad(lambda x: (x.sum(), x))(J), "pass has_aux=True"),
}
OF_NUMPY: dict[str, tuple[Callable[[], Any], str]] = {
    "np.asarray(x) in grad": (
        lambda: fad.grad(lambda x: np.asarray(x).sum())(J),
        "x.detach().numpy()",
    ),
    "np.array([x]) in grad": (
        lambda: fad.grad(lambda x: np.array([x[0]]).sum())(J),
        "x.detach().numpy()",
    ),
    "np.linalg.inv(x) in grad": (
        lambda: fad.grad(lambda x: np.linalg.inv(x).sum())(jnp.eye(2)),
        "would lose its derivative",
    ),
    "ndarray[i] = x in grad": (lambda: fad.grad(loop_over_numpy)(J), "write to a Tensor"),
    "math.sin(x) in grad": (lambda: fad.grad(lambda x: x * math.sin(x))(1.0), "x.item()"),
    "float(x) in grad": (lambda: fad.grad(lambda x: x * float(x))(1.0), "x.detach()"),
    "np.sin(x, out=array)": (lambda: np.sin(plain(), out=np.zeros(3)), "x.detach().numpy()"),
    "scipy.optimize of what is tracked": (lambda: minimized(), "x.detach().numpy()"),
    "x.T @ y": (
        lambda: fnp.ones((2, 3)) @ fnp.ones((2, 3)),
        "in fad.numpy.matmul(Tensor float32[2,3], Tensor float32[2,3])",
    ),
    "x + y of other shapes": (
        lambda: fnp.ones((2, 3)) + fnp.ones((4, 3)),
        "in fad.numpy.add(Tensor float32[2,3], Tensor float32[4,3])",
    ),
    "fnp.concatenate(x, y)": (
        lambda: fnp.concatenate(plain(), plain()),
        "in fad.numpy.concatenate(Tensor float32[3], Tensor float32[3])",
    ),
    "reshape to another size": (lambda: plain().reshape(2, 2), "cannot reshape"),
    "an index beyond the end": (lambda: plain()[5], "index 5 is out of bounds for dimension 0"),
    "too many indices": (lambda: plain()[0, 0], "has 1 dimensions, but 2 were indexed"),
    "a float for an index": (lambda: plain()[0.5], "got float 0.5"),
    "x[0] = [1, 2]": (lambda: written(plain(), 0, [1.0, 2.0]), "shape (2,) into the shape ()"),
    "if x > 0 of a vector": (lambda: 1 if plain() > 0 else 2, "a.any() or a.all()"),
    "fnp.random.normal": (lambda: fnp.random.normal(3), "fad.random.normal(key, shape)"),
    "fnp.in1d": (lambda: fnp.in1d(J, J), "fad.numpy.isin"),
    "fnp.sinn": (lambda: fnp.sinn(J), "did you mean 'sin'"),
    "x.itemset": (lambda: plain().itemset(0, 1.0), "x[i] = value"),
    "x.fill": (lambda: plain().fill(1.0), "'fill_'"),
    "a list for an array": (lambda: fad.grad(lambda x: (x**2).sum())([1.0, 2.0]), "fad.tensor(["),
    "grad of an integer": (lambda: fad.grad(lambda x: x * x)(3), "write 3.0"),
    "grad of integers": (lambda: fad.grad(lambda x: (x * x).sum())(np.arange(3)), "astype(float)"),
    "a Tensor of text": (lambda: fad.tensor(["a"]), "Only arrays of numeric types"),
}
OF_JAX: dict[str, tuple[Callable[[], Any], str]] = {
    "fad.grad(f(x))": (lambda: fad.grad((J**2).sum()), "write grad(f)(x), not grad(f(x))"),
    "fad.grad(f, x)": (lambda: fad.grad(fnp.sum, J), "Write grad(f)(x), not grad(f, x)"),
    "fad.hessian(f, x)": (
        lambda: fad.hessian(fnp.sum, J),
        "Write hessian(f)(x), not hessian(f, x)",
    ),
    "fad.vmap(f(x))": (lambda: fad.vmap(plain()), "write vmap(f)(x)"),
    "grad of a vector": (lambda: fad.grad(lambda x: x * 2.0)(J), "fad.jacrev"),
    "grad by name": (lambda: fad.grad(lambda x: x * x)(x=1.0), "passed by position"),
    "argnums that is text": (lambda: fad.grad(lambda x: x, argnums="x")(1.0), "int or a tuple"),
    "jvp without tuples": (lambda: fad.jvp(fnp.sin, 1.0, 1.0), "jvp(f, (x,), (t,))"),
    "jnp.sin(tensor)": (lambda: jnp.sin(plain()), "fad.numpy.f(x)"),
    "jnp.sin(x) in grad": (lambda: fad.grad(lambda x: jnp.sin(x))(1.0), "fad.from_jax(f)(x)"),
    "a write to a JAX array": (lambda: written(jnp.zeros(3), 0, 1.0), "fad.tensor(array)"),
    "a write to a JAX array in grad": (
        lambda: fad.grad(lambda x: written(jnp.zeros(3), 0, x).sum())(1.0),
        "fad.numpy.zeros",
    ),
    "jax.jit of a function that writes": (
        lambda: jax.jit(lambda x: written(x, 0, 1.0))(J),
        "fad.to_jax(f)",
    ),
    "jax.grad of a function of Tensors": (
        lambda: jax.grad(lambda x: (x.requires_grad_() ** 2).sum())(J),
        "fad.to_jax(f)",
    ),
    "jax.grad at a Tensor": (lambda: jax.grad(lambda x: (x * x).sum())(plain()), "fad.grad(f)"),
    "a draw without a key": (lambda: fad.random.normal((3,)), "fad.random.key(0)"),
    "a draw with a number": (lambda: fad.random.normal(0, (3,)), "fad.random.key(0)"),
    "a key that lanes share": (
        lambda: fad.vmap(lambda x: x + fad.random.normal(fad.random.key(0)))(J),
        "randomness='different'",
    ),
    "if in vmap": (lambda: fad.vmap(lambda x: x if x > 0 else -x)(J), "fad.numpy.where"),
    "if in jit": (lambda: fad.jit(lambda x: x if x > 0 else -x)(1.0), "fad.lax.cond"),
    "a mask in jit": (lambda: fad.jit(lambda x: x[x > 0])(J), "size=n"),
    "a list that is static": (
        lambda: fad.jit(lambda x, n: x, static_argnums=1)(J, [1]),
        "must be hashable, got list",
    ),
    "a static name that is none": (
        lambda: fad.jit(lambda x, n: x, static_argnames="m")(J, 1),
        "has no argument 'm'",
    ),
    "vmap of other sizes": (
        lambda: fad.vmap(lambda x, y: x + y)(J, jnp.ones(2)),
        "argument 0: 3, argument 1: 2",
    ),
    "vmap of a number": (lambda: fad.vmap(fnp.sin)(1.0), "give it in_dims None"),
    "fad.lax.softmax": (lambda: fad.lax.softmax(J), "fad.nn.softmax"),
    "fad.custom_vjp": (lambda: fad.custom_vjp(fnp.sin), "@fad.custom_rules"),
    "fad.tree_map": (lambda: fad.tree_map(fnp.sin, [J]), "jax.tree.map"),
}
SLIPS = {
    f"{library}: {name}": slip
    for library, table in (("PyTorch", OF_TORCH), ("NumPy", OF_NUMPY), ("JAX", OF_JAX))
    for name, slip in table.items()
}


def said(program: Callable[[], Any]) -> str:
    """What a user reads: of the error, with notes and causes; else of the warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            program()
        except Exception as caught:
            error = caught
        else:
            return " ".join([str(w.message) for w in found])
    texts = []
    with shown(error):
        e: BaseException | None = error
        while e is not None:
            texts += [str(e), *getattr(e, "__notes__", ())]
            e = e.__cause__ or e.__context__
    return " ".join(texts)


@pytest.mark.parametrize("name", SLIPS)
def test_what_is_said_names_what_to_write(name: str) -> None:
    program, words = SLIPS[name]
    text = said(program)
    assert words in text, text


@pytest.mark.parametrize("name", AS_TORCH)
def test_tensors_of_the_two_libraries_are_told_apart(torch: Any, name: str) -> None:
    program, words = AS_TORCH[name]
    text = said(lambda: program(torch))
    assert words in text, text


def test_there_are_twenty_slips_of_each_library() -> None:
    assert min(map(len, (OF_TORCH, OF_NUMPY, OF_JAX))) >= 20


def test_what_is_written_instead_works(torch: Any) -> None:
    """Of the advice that is a program."""
    x = plain()
    assert x.to(jax.devices("cpu")[0]).tolist() == N.tolist()
    assert (x + fad.tensor(torch.ones(3))).tolist() == [2.0, 3.0, 4.0]
    assert (x + fad.from_dlpack(torch.ones(3))).tolist() == [2.0, 3.0, 4.0]
    assert torch.from_dlpack(leaf().detach()).tolist() == N.tolist()
    assert torch.tensor(x).tolist() == N.tolist()
    write = lambda x: written(x.clone(), 0, 1.0).sum()
    assert jax.grad(fad.to_jax(write))(J).tolist() == [0.0, 1.0, 1.0]
