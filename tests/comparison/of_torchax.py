"""The programs of torchax: PyTorch's functions and Tensors on arrays of JAX, and JAX's transforms of these.

torchax 0.0.13 does not import beside PyTorch 2.13: it names overloads of PyTorch that are gone. They are put
back as names while it is imported; no program calls them.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch._ops import OpOverloadPacket

from tests.comparison.features import Absent


@contextlib.contextmanager
def gone_names() -> Iterator[None]:
    """Overloads of PyTorch that are not there are objects, in a block."""
    found = OpOverloadPacket.__getattr__

    def get(self: Any, key: str) -> Any:
        try:
            return found(self, key)
        except AttributeError:
            if key.startswith("__"):
                raise
            return object()

    OpOverloadPacket.__getattr__ = get  # type: ignore[method-assign]
    try:
        yield
    finally:
        OpOverloadPacket.__getattr__ = found  # type: ignore[method-assign]


with gone_names():
    import torchax
    from torchax.interop import jax_view

    torchax.default_env()
torchax.enable_globally()

VERSION = f"torchax {importlib.metadata.version('torchax')}"
NAME = "torchax"
X = jnp.array([1.0, 2.0, 3.0])


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2.0 * g * 3.0 * x * x


class ForwardCube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_forward(x)
        return x * x * x

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2.0 * t * 3.0 * x * x


cube, forward_cube = jax_view(Cube.apply), jax_view(ForwardCube.apply)


def tensor(data: Any, **settings: Any) -> Any:
    return torch.tensor(data, device="jax", **settings)


def written(x: Any) -> Any:
    u = 1.0 * x
    u[1:] += x[:-1] ** 2
    return u.sum()


def row(v: Any) -> Any:
    out = torch.zeros(2, device="jax")
    out[0] = v
    return out


def leaf() -> Any:
    x = tensor([1.0, 2.0, 3.0]).requires_grad_()
    written(x).backward()
    return x.grad.cpu()


def rule() -> Any:
    x = tensor(3.0).requires_grad_()
    Cube.apply(x).backward()
    return x.grad.cpu()


def hooked(x: Any) -> Any:
    y = 2.0 * x
    y.register_hook(lambda g: 3.0 * g)
    return y


def hooked_leaf() -> Any:
    x = tensor(1.0).requires_grad_()
    hooked(x).backward()
    return x.grad.cpu()


def saved() -> Any:
    x = tensor(3.0).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: 1.0 * t, lambda t: t):
        y = x * x
    y.backward()
    return x.grad.cpu()


def nan() -> bool:
    x = tensor(0.0).requires_grad_()
    with torch.autograd.detect_anomaly(check_nan=True):
        try:
            (torch.sqrt(x) * 0.0).backward()
        except RuntimeError:
            return True
    return False


def looped(x: Any) -> Any:
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda x: x < 100.0, lambda x: (x * x,), (x,))[0]


def second() -> Any:
    x = tensor(3.0).requires_grad_()
    (g,) = torch.autograd.grad(Cube.apply(x), x, create_graph=True)
    g.backward()
    return x.grad.cpu()


def trained() -> float:
    layer = torch.nn.Linear(1, 1).to("jax")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.bias.cpu().item()
    layer(torch.ones(1, device="jax")).sum().backward()
    optimizer.step()
    return round((before - layer.bias.cpu().item()) * 10.0, 4)


def rule_in_checkpoint() -> Any:
    x = tensor(3.0).requires_grad_()
    torch.utils.checkpoint.checkpoint(Cube.apply, x, use_reentrant=False).backward()
    return x.grad.cpu()


def jvp(f: Any, x: Any) -> Any:
    return jax.jvp(f, (x,), (1.0,))[1]


def shared() -> Any:
    x = tensor([1.0, 2.0])
    x.numpy()[0] = 5.0
    return x[0].cpu()


def refused() -> bool:
    try:
        tensor([1.0, 2.0, 3.0])[tensor([0, 7])].cpu()
    except IndexError:
        return True
    return False


CELLS: dict[str, Callable[[], Any]] = {
    "gradient through a Python branch on a value": lambda: jax.grad(
        jax_view(lambda x: x * x if x > 0 else -x)
    )(3.0),
    "parameters in a dict": lambda: jax.grad(jax_view(lambda p: p["w"] ** 2 + p["b"]))(
        {"w": jnp.array(3.0), "b": jnp.array(1.0)}
    ),
    "Hessian, forward over reverse": lambda: jax.hessian(
        jax_view(lambda x: (torch.sin(x) * x).sum())
    )(jnp.arange(2.0)),
    "derivatives of order 5 in one pass": Absent("torchax.jet", "torchax.interop.jet"),
    "derivatives of order 3 through a `scan`, in one pass": Absent(
        "torchax.jet", "torchax.interop.jet"
    ),
    "sparse Jacobian, by its pattern": Absent("torchax.sparse_jacobian"),
    "derivative of what a solver finds": Absent(
        "torchax.custom_root", "torchax.interop.custom_root"
    ),
    "a gradient rule is used": rule,
    "second derivative through a gradient rule": second,
    "forward mode of a gradient rule": lambda: jvp(cube, 3.0),
    "reverse mode of a tangent rule": lambda: jax.grad(forward_cube)(3.0),
    "`jvp` of `jvp` through a tangent rule": lambda: jvp(lambda x: jvp(forward_cube, x), 3.0),
    "`vmap` of a gradient rule, no batch rule written": lambda: jax.vmap(cube)(X[::2]),
    "`grad` of `vmap` of a gradient rule with a batch rule": lambda: jax.grad(
        lambda x: jax.vmap(cube)(x).sum()
    )(X[::2]),
    "a gradient rule under `checkpoint`": rule_in_checkpoint,
    "slices written in place, gradient": lambda: jax.grad(jax_view(written))(X),
    "a mapped value written to an array made inside `vmap`": lambda: jax.vmap(jax_view(row))(X[:2]),
    "slices written in place, gradient compiled": lambda: jax.jit(jax.grad(jax_view(written)))(X),
    "`backward()`, and `.grad` of a leaf": leaf,
    "a hook changes the gradient of an intermediate value": hooked_leaf,
    "such a hook inside `grad`": lambda: jax.grad(jax_view(hooked))(1.0),
    "such a hook in compiled code": lambda: jax.jit(jax.grad(jax_view(hooked)))(1.0),
    "hooks for saved values": saved,
    "a NaN in a gradient is an error": nan,
    "reverse mode of a compiled loop of unknown length": lambda: jax.jit(
        jax.grad(jax_view(looped))
    )(3.0),
    "a write to `x.numpy()` changes `x`": shared,
    "an index out of range, in an array, is an error": refused,
    "float64 without a setting": lambda: str(tensor([1.0]).double().cpu().dtype).removeprefix(
        "torch."
    ),
    "a layer and an optimizer": trained,
}
