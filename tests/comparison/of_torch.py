"""The programs of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.comparison.features import Absent

VERSION = f"PyTorch {torch.__version__.partition('+')[0]}"
NAME = "torch"
F = torch.func
X = torch.tensor([1.0, 2.0, 3.0])
THREE = torch.tensor(3.0)
ONE = torch.tensor(1.0)


def compiled(f: Any) -> Any:
    """``f`` as one graph; this back end needs no compiler of C++."""
    return torch.compile(f, fullgraph=True, backend="aot_eager")


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x * x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2.0 * g * 3.0 * x * x


class PlainCube(Cube):
    generate_vmap_rule = False


class BatchedCube(PlainCube):
    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        return x * x * x, in_dims[0]


class ForwardCube(torch.autograd.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x * x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2.0 * t * 3.0 * x * x


def written(x: Any) -> Any:
    u = 1.0 * x
    u[1:] += x[:-1] ** 2
    return u.sum()


def row(v: Any) -> Any:
    out = torch.zeros(2)
    out[0] = v
    return out


def leaf() -> Any:
    x = X.clone().requires_grad_()
    written(x).backward()
    return x.grad


def hooked(x: Any) -> Any:
    y = 2.0 * x
    y.register_hook(lambda g: 3.0 * g)
    return y


def hooked_leaf() -> Any:
    x = torch.tensor(1.0, requires_grad=True)
    hooked(x).backward()
    return x.grad


def hooked_compiled() -> Any:
    x = torch.tensor(1.0, requires_grad=True)
    compiled(hooked)(x).backward()
    return x.grad


def saved() -> Any:
    x = torch.tensor(3.0, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy(), torch.tensor):
        y = x * x
    y.backward()
    return x.grad


def nan() -> bool:
    x = torch.tensor(0.0, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        try:
            (torch.sqrt(x) * 0.0).backward()
        except RuntimeError:
            return True
    return False


def jvp_of_jvp() -> Any:
    f = lambda x: F.jvp(ForwardCube.apply, (x,), (ONE,))[1]
    return F.jvp(f, (THREE,), (ONE,))[1]


def looped() -> Any:
    from torch._higher_order_ops.while_loop import while_loop

    def gradient(x: Any) -> Any:
        return while_loop(lambda x: x < 100.0, lambda x: (x * x,), (x,))[0]

    x = torch.tensor(3.0, requires_grad=True)
    compiled(gradient)(x).backward()
    return x.grad


def trained() -> float:
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.bias.item()
    layer(torch.ones(1)).sum().backward()
    optimizer.step()
    return round((before - layer.bias.item()) * 10.0, 4)


def checkpointed(x: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(Cube.apply, x, use_reentrant=False)


def rule_in_checkpoint() -> Any:
    x = torch.tensor(3.0, requires_grad=True)
    checkpointed(x).backward()
    return x.grad


def shared() -> Any:
    x = torch.tensor([1.0, 2.0])
    x.numpy()[0] = 5.0
    return x[0]


def refused() -> bool:
    try:
        X[torch.tensor([0, 7])]
    except IndexError:
        return True
    return False


CELLS: dict[str, Callable[[], Any]] = {
    "gradient through a Python branch on a value": lambda: F.grad(lambda x: x * x if x > 0 else -x)(
        THREE
    ),
    "parameters in a dict": lambda: F.grad(lambda p: p["w"] ** 2 + p["b"])({"w": THREE, "b": ONE}),
    "Hessian, forward over reverse": lambda: F.hessian(lambda x: (torch.sin(x) * x).sum())(
        torch.arange(2.0)
    ),
    "derivatives of order 5 in one pass": Absent("torch.func.jet", "torch.autograd.jet"),
    "derivatives of order 3 through a `scan`, in one pass": Absent(
        "torch.func.jet", "torch.autograd.jet"
    ),
    "sparse Jacobian, by its pattern": Absent(
        "torch.func.sparse_jacobian", "torch.autograd.sparse_jacobian"
    ),
    "derivative of what a solver finds": Absent(
        "torch.func.custom_root", "torch.autograd.custom_root"
    ),
    "a gradient rule is used": lambda: F.grad(Cube.apply)(THREE),
    "second derivative through a gradient rule": lambda: F.grad(F.grad(Cube.apply))(THREE),
    "forward mode of a gradient rule": lambda: F.jvp(Cube.apply, (THREE,), (ONE,))[1],
    "reverse mode of a tangent rule": lambda: F.grad(ForwardCube.apply)(THREE),
    "`jvp` of `jvp` through a tangent rule": jvp_of_jvp,
    "`vmap` of a gradient rule, no batch rule written": lambda: torch.vmap(PlainCube.apply)(X[::2]),
    "`grad` of `vmap` of a gradient rule with a batch rule": lambda: F.grad(
        lambda x: torch.vmap(BatchedCube.apply)(x).sum()
    )(X[::2]),
    "a gradient rule under `checkpoint`": rule_in_checkpoint,
    "slices written in place, gradient": lambda: F.grad(written)(X),
    "a mapped value written to an array made inside `vmap`": lambda: torch.vmap(row)(X[:2]),
    "slices written in place, gradient compiled": lambda: compiled(F.grad(written))(X),
    "`backward()`, and `.grad` of a leaf": leaf,
    "a hook changes the gradient of an intermediate value": hooked_leaf,
    "such a hook inside `grad`": lambda: F.grad(hooked)(ONE),
    "such a hook in compiled code": hooked_compiled,
    "hooks for saved values": saved,
    "a NaN in a gradient is an error": nan,
    "reverse mode of a compiled loop of unknown length": looped,
    "a write to `x.numpy()` changes `x`": shared,
    "an index out of range, in an array, is an error": refused,
    "float64 without a setting": lambda: str(torch.tensor([1.0]).double().dtype).removeprefix(
        "torch."
    ),
    "a layer and an optimizer": trained,
}
