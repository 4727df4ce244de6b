"""Programs as data: inputs and steps, which an interpreter runs with fad, with JAX or with PyTorch.

So a failure shrinks to the steps that matter, and prints as a listing and as code to paste.

NOTE [writes in place]

In fad and in PyTorch a write changes its operand, and with it every view that shares its memory. JAX has
no such thing; there, a value is a place: a buffer, and a chain of views into it. Reading goes down the
chain, writing goes back up it, one ``put`` for each view, and replaces the buffer. That is what the
writes mean, said without aliasing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.bridge.jax_functions import to_jax
from fad.compile.jit import jit
from fad.core import trees
from fad.core.level import state
from fad.core.tensor import Tensor
from fad.methods.functions import asarray
from fad.tape.saved import allow_mutation_on_saved_tensors
from fad.testing.comparison import difference
from fad.views.make_view import stop_gradient
from tests.fuzzing.operations import OPERATIONS
from tests.fuzzing.stacks import IN_FAD, IN_JAX, Library, apply_stack, leaves_of
from tests.fuzzing.steps import Op
from tests.fuzzing.writes import VIEWS_AND_WRITES

__all__ = ["MODES", "OPS", "Program", "check_program", "result_of"]

OPS: dict[str, Op] = {**OPERATIONS, **VIEWS_AND_WRITES}

Spec = tuple[tuple[int, ...], str]
Step = tuple[str, tuple[int, ...], int]


@dataclasses.dataclass(frozen=True)
class Program:
    """Inputs, steps ``(op, operands, option)``, and the values to return, in a pytree.

    ``floats`` are differentiated; ``others`` (integers and bools) are passed along. Values are
    numbered: the inputs, then the result of each step that has one. ``option`` is the number of the
    options of the op in `OPS`.
    """

    floats: tuple[Spec, ...]
    others: tuple[Spec, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    seed: int = 0

    def listing(self) -> str:
        """The program, one line for each step."""
        inputs = (*self.floats, *self.others)
        lines = [f"v{i} = input {dtype}{list(shape)}" for i, (shape, dtype) in enumerate(inputs)]
        number = len(lines)
        for name, operands, option in self.steps:
            given = [f"v{i}" for i in operands]
            given += [f"{key}={value!r}" for key, value in OPS[name].options[option].items()]
            call = f"{name}({', '.join(given)})"
            if OPS[name].kind == "write":
                lines.append(call)
                continue
            lines.append(f"v{number} = {call}")
            number += 1
        return "\n".join([*lines, f"return {', '.join([f'v{i}' for i in self.outputs])}"])

    @property
    def writes(self) -> bool:
        """Whether a step writes in place."""
        return any(OPS[name].kind == "write" for name, _, _ in self.steps)

    def run(self, lib: Library, x: Any, n: Any) -> Any:
        """The outputs for ``x``, a pytree of the floats, and ``n``, a list of the others."""
        inputs = [*leaves_of(x), *n]
        values = self._by_places(lib, inputs) if lib is IN_JAX else self._in_place(lib, inputs)
        first, *rest = [values[i] for i in self.outputs]
        return {"first": first, "rest": tuple(rest)} if rest else first

    def _in_place(self, lib: Library, inputs: list[Any]) -> list[Any]:
        values = list(inputs)
        if self.writes:  # neither what the caller has nor a leaf is written to
            values = [(asarray(v) if lib is IN_FAD else v).clone() for v in values]
        for name, operands, option in self.steps:
            step = OPS[name]
            out = step.run(lib, *[values[i] for i in operands], **step.options[option])
            if step.kind == "write":
                continue
            if step.aliases and self.writes:
                out = (asarray(out) if lib is IN_FAD else out).clone()
            values.append(out)
        return values

    def _by_places(self, lib: Library, inputs: list[Any]) -> list[Any]:
        """What the same steps mean without writes; see NOTE [writes in place]."""
        buffers = list(inputs)
        places: list[tuple[int, tuple[Any, ...]]] = [(k, ()) for k in range(len(inputs))]

        def read(place: tuple[int, tuple[Any, ...]]) -> Any:
            value = buffers[place[0]]
            for step, options in place[1]:
                value = step.run(lib, value, **options)
            return value

        def write(place: tuple[int, tuple[Any, ...]], new: Any) -> None:
            at, chain = place
            for k in range(len(chain) - 1, -1, -1):
                step, options = chain[k]
                new = step.put(read((at, chain[:k])), new, **options)
            buffers[at] = new

        for name, operands, option in self.steps:
            step, options = OPS[name], OPS[name].options[option]
            first = places[operands[0]]
            if step.kind == "view":
                places.append((first[0], (*first[1], (step, options))))
                continue
            given = [read(places[i]) for i in operands]
            if step.kind == "write":
                assert step.put is not None
                new = step.put(lib, *given, **options)
                write(first, jnp.broadcast_to(new, given[0].shape).astype(given[0].dtype))
            else:
                places.append((len(buffers), ()))
                buffers.append(step.run(lib, *given, **options))
        return [read(place) for place in places]

    def inputs(self) -> tuple[Any, Any]:
        """Random inputs, by the seed."""
        rng = np.random.default_rng(self.seed)

        def draw(shape: tuple[int, ...], dtype: str) -> np.ndarray:
            if dtype == "bool":
                return rng.random(shape) < 0.5
            if dtype.startswith("int"):
                return rng.integers(-1, 4, shape).astype(dtype)
            value = rng.uniform(-1.5, 1.5, shape)
            if dtype.startswith("complex"):
                value = value + 1j * rng.uniform(-1.5, 1.5, shape)
            return np.asarray(value).astype(dtype)

        leaves = [jnp.asarray(draw(*spec)) for spec in self.floats]
        x = leaves[0] if len(leaves) == 1 else {"a": leaves[0], "b": tuple(leaves[1:])}
        return x, [jnp.asarray(draw(*spec)) for spec in self.others]

    def dtypes(self) -> set[str]:
        """The dtypes that occur, and the numbers among the options."""
        steps = {name for name, _, _ in self.steps}
        kinds = {dtype for _, dtype in self.floats}
        kinds |= {str(v) for name, _, k in self.steps for v in OPS[name].options[k].values()}
        return kinds | ({"bfloat16"} if "half_precision" in steps else set())

    def tolerance(self) -> float:
        """What rounding may do, relative to the largest entry."""
        kinds = self.dtypes()
        if "bfloat16" in kinds:
            return 0.1
        return 2e-3 if kinds & {"float32", "complex64", "1.5"} else 1e-7

    @property
    def is_complex(self) -> bool:
        """Whether a complex number may occur."""
        steps = {name for name, _, _ in self.steps}
        return bool("complex128" in self.dtypes() or steps & {"complex", "fft"})


@functools.lru_cache(maxsize=100_000)
def result_of(name: str, option: int, avals: tuple[Any, ...]) -> Any:
    """Shape and dtype of a step's result, by JAX."""
    step = OPS[name]
    with jax.enable_x64(True):
        return jax.eval_shape(lambda *v: step.run(IN_JAX, *v, **step.options[option]), *avals)


HOLOMORPHIC = ("jacrev", "jacfwd")  # JAX wants real values there


def _in_fad(program: Program, names: Sequence[str]) -> Callable[[], Any]:
    return lambda: apply_stack(IN_FAD, functools.partial(program.run, IN_FAD), names)(
        *program.inputs()
    )


def _under_jit(program: Program, names: Sequence[str]) -> Callable[[], Any]:
    f = apply_stack(IN_FAD, functools.partial(program.run, IN_FAD), names)
    return lambda: jit(f)(*program.inputs())


def _in_jax_jit(program: Program, names: Sequence[str]) -> Callable[[], Any]:
    f = apply_stack(IN_FAD, functools.partial(program.run, IN_FAD), names)
    # What the eager tape returns may be differentiated again, which to_jax refuses to lose.
    return lambda: jax.jit(to_jax(lambda x, n: stop_gradient(f(x, n))))(*program.inputs())


def _under_jax(program: Program, names: Sequence[str]) -> Callable[[], Any]:
    f = to_jax(functools.partial(program.run, IN_FAD))
    return lambda: apply_stack(IN_JAX, f, names)(*program.inputs())


MODES: dict[str, Callable[[Program, Sequence[str]], Callable[[], Any]]] = {
    "eager": _in_fad,  # transforms of fad
    "jit": _under_jit,  # the same under fad.jit
    "jax.jit": _in_jax_jit,  # the same under jax.jit
    "native": _under_jax,  # the transforms of JAX, around a program in fad
}


def check_program(program: Program, names: Sequence[str] = (), mode: str = "eager") -> bool:
    """Check that a program gives in fad, under a stack of transforms, what JAX gives.

    Arguments:
        program: what to run.
        names: transforms of `tests.fuzzing.stacks.TRANSFORMS`, the innermost first.
        mode: one of `MODES`: whose transforms they are, and under whose jit.

    Returns:
        Whether there was something to compare: JAX refuses some, and some overflow.

    Raises:
        AssertionError: the results differ, or a level is left running.

    >>> check_program(Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,)), ("grad",))
    True
    """
    if program.is_complex and set(names) & set(HOLOMORPHIC):
        return False
    with jax.enable_x64(True):
        run = functools.partial(program.run, IN_JAX)
        expected = jax.jit(apply_stack(IN_JAX, run, names))(*program.inputs())
        largest = max([float(jnp.max(jnp.abs(v), initial=0.0)) for v in leaves_of(expected)])
        if not largest < 1e8:  # or not a number
            return False
        # A write after an operation that saved the value is an error, as in PyTorch, without this.
        if program.writes:
            with allow_mutation_on_saved_tensors():
                got = MODES[mode](program, names)()
        else:
            got = MODES[mode](program, names)()
        tolerance = program.tolerance()
        found = difference(got, expected, tolerance, tolerance)
    assert found is None, found
    assert state.levels == (), f"levels are left running: {state.levels}"
    assert all(isinstance(v, (Tensor, jax.Array, np.ndarray)) for v in trees.flatten(got)[0])
    return True
