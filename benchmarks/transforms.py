"""Eager transforms of a `Workload`, nested: grad, grad∘grad, vmap∘grad, jvp∘grad, hessian."""

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


def vmap_of_grad(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    batched = library.vmap(library.grad(f), (0, *[None] * len(rest)))
    shifts = np.linspace(-1.0, 1.0, BATCH, dtype=np.float32)
    batch = library.asarray(np.asarray(x)[None] + shifts.reshape(-1, *[1] * x.ndim))
    return lambda: batched(batch, *rest)


def jvp_of_grad(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    gradient = library.grad(f)
    tangent = library.asarray(np.ones(tuple(x.shape), np.float32))

    def of_x(x: Any) -> Any:
        return gradient(x, *rest)

    return lambda: library.jvp(of_x, (x,), (tangent,))[1]


def hessian(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    second = library.hessian(f)
    return lambda: second(x, *rest)


MAKE: dict[str, Make] = {
    "forward": forward,
    "grad": grad,
    "grad, all arguments": grad_of_all,
    "grad∘grad": grad_of_grad,
    "vmap∘grad": vmap_of_grad,
    "jvp∘grad": jvp_of_grad,
    "hessian": hessian,
}
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


def derivatives(
    workload: Workload,
    whats: tuple[str, ...] = tuple(MAKE),
    bounds: Mapping[str, Mapping[str, float]] = BOUNDS,
) -> Iterator[Scenario]:
    """The function itself and its eager derivatives with respect to `x`, or to all arguments."""
    for what in whats:
        if what == "grad, all arguments" and len(workload.inputs) == 1:
            continue

        def build(library: Library, make: Make = MAKE[what]) -> Callable[[], Any]:
            f, (x, *rest) = workload.on(library)
            return make(library, f, x, rest)

        yield Scenario(workload.name, what, build, bounds=bounds.get(what, {}))


SCENARIOS: list[Scenario] = [*derivatives(SMALL_NET), *derivatives(CHAIN)]
