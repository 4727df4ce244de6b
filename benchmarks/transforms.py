"""Eager transforms of a `Workload`, nested: reverse, forward and batched ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.libraries import Library
from benchmarks.scenarios import CHAIN, SMALL_NET, Scenario, Workload

__all__ = ["BATCH", "BOUNDS", "SCENARIOS", "derivatives", "nested"]

BATCH = 32

Make = Callable[[Library, Callable[..., Any], Any, list[Any]], Callable[[], Any]]


def forward(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    return lambda: f(x, *rest)


def nested(library: Library, f: Callable[..., Any], depth: int) -> Callable[..., Any]:
    """The gradient of the sum of the gradient of ... of f."""
    gradient = f
    for level in range(depth):

        def loss(*args: Any, inner: Callable[..., Any] = gradient, level: int = level) -> Any:
            return library.numpy.sum(inner(*args)) if level else inner(*args)

        gradient = library.grad(loss)
    return gradient


def grad(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    gradient = library.grad(f)
    return lambda: gradient(x, *rest)


def grad_of_all(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    gradient = library.grad(f, tuple(range(1 + len(rest))))
    return lambda: gradient(x, *rest)


def grad_of_grad(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    again = nested(library, f, 2)
    return lambda: again(x, *rest)


def lanes(library: Library, x: Any) -> Any:
    """``x`` with a different shift in each lane of a batch."""
    shifts = np.linspace(-1.0, 1.0, BATCH, dtype=np.float32)
    return library.asarray(np.asarray(x)[None] + shifts.reshape(-1, *[1] * x.ndim))


def ones(library: Library, x: Any) -> Any:
    return library.asarray(np.ones(tuple(x.shape), np.float32))


def vmap_of_grad(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    batched = library.vmap(library.grad(f), (0, *[None] * len(rest)))
    batch = lanes(library, x)
    return lambda: batched(batch, *rest)


def jvp_of_grad(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    gradient = library.grad(f)
    tangent = ones(library, x)

    def of_x(x: Any) -> Any:
        return gradient(x, *rest)

    return lambda: library.jvp(of_x, (x,), (tangent,))[1]


def hessian(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    second = library.hessian(f)
    return lambda: second(x, *rest)


def vmap(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    batched = library.vmap(f, (0, *[None] * len(rest)))
    batch = lanes(library, x)
    return lambda: batched(batch, *rest)


def along(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[..., Any]:
    """The value of ``f`` at a point, and its derivative along a vector of ones."""
    tangent = ones(library, x)

    def of_x(x: Any) -> Any:
        return f(x, *rest)

    return lambda x: library.jvp(of_x, (x,), (tangent,))


def jvp(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    derivative = along(library, f, x, rest)
    return lambda: derivative(x)


def vmap_of_jvp(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    batched = library.vmap(along(library, f, x, rest))
    batch = lanes(library, x)
    return lambda: batched(batch)


def jvp_of_jvp(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    derivative = along(library, f, x, rest)
    second = along(library, lambda x: derivative(x)[1], x, [])
    return lambda: second(x)


def jacfwd(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    derivative = library.jacfwd(f)
    return lambda: derivative(x, *rest)


def dual_level(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    """One dual level; PyTorch refuses nested ones."""
    forward_ad, tangent = library.forward_ad, ones(library, x)

    def call() -> Any:
        with forward_ad.dual_level():
            value = f(forward_ad.make_dual(x, tangent), *rest)
            return tuple(getattr(part, "array", part) for part in forward_ad.unpack_dual(value))

    return call


MAKE: dict[str, Make] = {
    "forward": forward,
    "grad": grad,
    "grad, all arguments": grad_of_all,
    "grad∘grad": grad_of_grad,
    "vmap∘grad": vmap_of_grad,
    "jvp∘grad": jvp_of_grad,
    "hessian": hessian,
    "jvp": jvp,
    "jvp∘jvp": jvp_of_jvp,
    "vmap": vmap,
    "vmap∘jvp": vmap_of_jvp,
    "jacfwd": jacfwd,
    "dual_level": dual_level,
}
REVERSE = (
    "forward",
    "grad",
    "grad, all arguments",
    "grad∘grad",
    "vmap∘grad",
    "jvp∘grad",
    "hessian",
)
# The largest ratios that the project accepts.
BOUNDS: dict[str, dict[str, float]] = {
    "forward": {"jax": 1.5},
    "grad": {"torch": 0.8, "jax": 0.05},
    "grad, all arguments": {"torch": 0.8, "jax": 0.05},
    "grad∘grad": {"torch": 0.33, "jax": 0.02},
    "vmap∘grad": {"torch": 0.67, "jax": 0.05},
    "jvp∘grad": {"torch": 0.1, "jax": 0.05},
    "hessian": {"torch": 0.1, "jax": 0.05},
}
# Those of the small net, where they are other ones.
SMALL_BOUNDS: dict[str, dict[str, float]] = {
    **BOUNDS,
    "grad": {"torch": 0.6, "jax": 0.05},
    "vmap∘grad": {"torch": 0.5, "jax": 0.05},
    "jvp": {"torch": 0.1},
    "jvp∘jvp": {"torch": 0.05},
    "vmap": {"torch": 1.0},
    "vmap∘jvp": {"torch": 0.1},
    "jacfwd": {"torch": 0.1},
    "dual_level": {"torch": 0.17},
}


def derivatives(
    workload: Workload,
    whats: tuple[str, ...] = REVERSE,
    bounds: Mapping[str, Mapping[str, float]] = BOUNDS,
) -> Iterator[Scenario]:
    """The function itself and its eager derivatives with respect to `x`, or to all arguments."""
    for what in whats:
        if what == "grad, all arguments" and len(workload.inputs) == 1:
            continue

        def build(library: Library, make: Make = MAKE[what]) -> Callable[[], Any]:
            f, (x, *rest) = workload.on(library)
            return make(library, f, x, rest)

        libraries = ("fad", "torch") if what == "dual_level" else ("fad", "torch", "jax")
        yield Scenario(workload.name, what, build, libraries, bounds.get(what, {}))


SCENARIOS: list[Scenario] = [
    *derivatives(SMALL_NET, tuple(MAKE), SMALL_BOUNDS),
    *derivatives(CHAIN),
]
