"""Levels of one's own: `Level.settings` says whether operations may be compiled for later levels."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad import extend

X = jnp.array([0.1, 0.2])


def f(x: Any) -> Any:
    return fnp.sin(fnp.cos(fnp.exp(x)) * x) + x


class Scaled(extend.RecordingLevel):
    """Each result is multiplied by a factor."""

    kind = "scaled"
    factor = 1.0

    def evaluate(self, op: extend.Operation, args: Any) -> Any:
        values = [a.value if isinstance(a, extend.Tensor) and a.level is self else a for a in args]
        outs = extend.bind(op, values)
        return extend.map_outputs(lambda o: extend.new_tensor(o * self.factor, self), outs)


class ScaledBy(Scaled):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = factor


class Declared(ScaledBy):
    @property
    def settings(self) -> Any:
        return (self.factor,)


class Twice(Scaled):
    factor = 2.0
    settings = ()


class Thrice(Scaled):
    factor = 3.0
    settings = ()


class Pushed(extend.RecordingLevel):
    """Forward mode, without a word on how its Tensors are taken apart."""

    kind = "pushed"

    def evaluate(self, op: extend.Operation, args: Any) -> Any:
        values, tangents, some = self.unwrapped(args)
        if not some:
            return extend.map_outputs(self.lift, extend.bind(op, values))
        out, tangent = op.jvp(values, tangents)
        return extend.new_tensor(out, self, tangent)


def run(level: Any, function: Any = f, aux: Any = None) -> Any:
    call = extend.Call("scaled", (X,))
    with level:
        inputs = [extend.new_argument(v, level, aux) for v in call.values]
        outs = call.outputs(call.run(function, level, inputs))
        pairs = [level.value_and_aux(o) for o in outs]
    return call.result([value for value, _ in pairs]), pairs[0][1]


def gradient(x: Any) -> Any:
    return fad.grad(lambda x: fnp.sum(f(x)))(x)


@pytest.mark.parametrize("function", [f, gradient])
@pytest.mark.parametrize(
    "makers",
    [(Twice, Thrice), (lambda: ScaledBy(2.0), lambda: ScaledBy(3.0)), (Scaled, ScaledBy)],
    ids=["classes", "arguments", "defaults"],
)
def test_a_level_does_not_run_what_was_compiled_for_another(makers: Any, function: Any) -> None:
    with fad.autograd.compiled(False):
        expected = [run(make(), function)[0] for make in makers]
    with fad.autograd.compiled(wait=True):
        for make, value in zip(makers, expected, strict=True):
            for _ in range(6):
                np.testing.assert_allclose(run(make(), function)[0], value, rtol=1e-5)


def test_levels_with_settings_are_replayed() -> None:
    with fad.autograd.compiled(False):
        expected = [run(Declared(k))[0] for k in (2.0, 3.0)]
    with fad.autograd.compiled(wait=True):
        for _ in range(6):
            for k, value in zip((2.0, 3.0), expected, strict=True):
                np.testing.assert_allclose(run(Declared(k))[0], value, rtol=1e-5)


def test_what_flatten_does_not_know_is_not_lost() -> None:
    expected = fad.jvp(f, (X,), (jnp.ones(2),))[1]
    for _ in range(6):
        np.testing.assert_allclose(run(Pushed(), aux=jnp.ones(2))[1], expected, rtol=1e-5)


def test_a_level_that_runs_nothing_says_what_to_write() -> None:
    with extend.RecordingLevel() as level, pytest.raises(fad.errors.LevelError, match="evaluate"):
        fnp.sin(level.lift(fad.tensor(1.0)))
    with extend.Level() as level, pytest.raises(fad.errors.LevelError, match="process"):
        fnp.sin(level.lift(fad.tensor(1.0)))
    with pytest.raises(fad.errors.GradientError, match="Operation: this operation has no execute"):
        extend.bind(extend.Operation(), [fad.tensor(1.0)])


def test_without_settings_each_operation_comes_at_each_call() -> None:
    names: list[str] = []

    class Noting(Scaled):
        def evaluate(self, op: extend.Operation, args: Any) -> Any:
            names.append(op.name)
            return super().evaluate(op, args)

    for _ in range(5):
        run(Noting())
    assert names == ["exp", "cos", "multiply", "sin", "add"] * 5
