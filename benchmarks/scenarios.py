"""What is measured: each Scenario is one piece of work that every library does in the same way.

A `Workload` is a scalar function written once against a NumPy-like namespace, with its inputs;
`derivatives` makes the five Scenarios of nested eager transforms from it. Work that is not a
transform of such a function (a tape's backward pass, a Function, traced code) is a Scenario with
a `build` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks import waves
from benchmarks.libraries import LIBRARIES, Library

__all__ = ["BATCH", "CHAIN", "SCENARIOS", "SMALL_NET", "Scenario", "Workload", "derivatives"]

BATCH = 32


@dataclass(frozen=True)
class Workload:
    """A scalar function of arrays: `function(namespace, x, *parameters)`, and its inputs."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]

    def on(self, library: Library) -> tuple[Callable[..., Any], list[Any]]:
        """The function and the inputs in one library's terms."""
        namespace, function = library.numpy, self.function
        return lambda *args: function(namespace, *args), [library.asarray(x) for x in self.inputs]


@dataclass(frozen=True)
class Scenario:
    """One row of the table.

    `build(library)` does what is not timed and returns the call that is; `bounds` are the largest
    ratios of fad's time to another library's that the project accepts.
    """

    work: str
    what: str
    build: Callable[[Library], Callable[[], Any]]
    libraries: tuple[str, ...] = tuple(LIBRARIES)
    bounds: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.work}: {self.what}"


def chain(xp: Any, x: Any) -> Any:
    """21 operations: sines, tanhs, products with a Python number, additions, and a sum."""
    for _ in range(5):
        x = xp.sin(x) * 1.1
        x = xp.tanh(x) + x
    return xp.sum(x)


def small_net(xp: Any, x: Any, *weights: Any) -> Any:
    """Six layers of matmul, tanh, scale and shift."""
    for weight in weights:
        x = xp.tanh(xp.matmul(weight, x)) * 1.1 + 0.1
    return xp.sum(x)


_draw = np.random.default_rng(0)
CHAIN = Workload("chain of 21 ops on 8 floats", chain, (_draw.normal(size=8).astype(np.float32),))
SMALL_NET = Workload(
    "small net, 6 layers of 16",
    small_net,
    (
        _draw.normal(size=16).astype(np.float32),
        *(_draw.normal(size=(6, 16, 16)) / 4.0).astype(np.float32),
    ),
)


def forward(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    return lambda: f(x, *rest)


def grad(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    gradient = library.grad(f)
    return lambda: gradient(x, *rest)


def grad_of_grad(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    gradient = library.grad(f)
    again = library.grad(lambda *args: library.numpy.sum(gradient(*args)))
    return lambda: again(x, *rest)


def vmap_of_grad(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    batched = library.vmap(library.grad(f), (0, *[None] * len(rest)))
    shifts = np.linspace(-1.0, 1.0, BATCH, dtype=np.float32)[:, None]
    batch = library.asarray(np.asarray(x)[None] + shifts)
    return lambda: batched(batch, *rest)


def jvp_of_grad(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    gradient = library.grad(f)
    tangent = library.asarray(np.ones(x.shape, np.float32))

    def of_x(x: Any) -> Any:
        return gradient(x, *rest)

    return lambda: library.jvp(of_x, (x,), (tangent,))[1]


def hessian(library: Library, f: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[], Any]:
    second = library.hessian(f)
    return lambda: second(x, *rest)


def grad_of_all(
    library: Library, f: Callable[..., Any], x: Any, rest: list[Any]
) -> Callable[[], Any]:
    gradient = library.grad(f, tuple(range(1 + len(rest))))
    return lambda: gradient(x, *rest)


# The largest ratio to eager JAX's time: five times faster is the least that eager work must be.
DERIVATIVES: dict[str, tuple[Callable[..., Callable[[], Any]], dict[str, float]]] = {
    "forward": (forward, {}),
    "grad": (grad, {"jax": 0.2}),
    "grad∘grad": (grad_of_grad, {"jax": 0.2}),
    "vmap∘grad": (vmap_of_grad, {"jax": 0.2}),
    "jvp∘grad": (jvp_of_grad, {"jax": 0.2}),
    "hessian": (hessian, {"jax": 0.2}),
}


def derivatives(workload: Workload) -> Iterator[Scenario]:
    """The function itself and its eager derivatives with respect to `x`, or to all arguments."""
    rows = dict(DERIVATIVES)
    if len(workload.inputs) > 1:
        rows[f"grad, {len(workload.inputs)} arguments"] = (grad_of_all, {"jax": 0.2})
    for what, (make, bounds) in rows.items():

        def build(
            library: Library, make: Callable[..., Callable[[], Any]] = make
        ) -> Callable[[], Any]:
            f, (x, *rest) = workload.on(library)
            return make(library, f, x, rest)

        yield Scenario(workload.name, what, build, bounds=bounds)


# Compiled code of the same program: what is asked is that writes in place cost nothing.
WAVES = "wave solver in place, .at[] in JAX"
COMPILED = {"libraries": ("fad", "jax"), "bounds": {"jax": 1.1}}
SCENARIOS: list[Scenario] = [
    *derivatives(CHAIN),
    *derivatives(SMALL_NET),
    Scenario(WAVES, "jit(grad), 400 steps", waves.running, **COMPILED),
    Scenario(WAVES, "trace and compile", waves.compiling, **COMPILED),
]
