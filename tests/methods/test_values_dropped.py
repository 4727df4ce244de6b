"""What leaves a Tensor as a plain number in a transform warns: its derivative is dropped."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf

import fad
import fad.numpy as fnp
from fad.errors import DroppedDerivativeWarning


def put(x: Any) -> None:
    np.zeros(3)[1] = x


READS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "complex": complex,
    "math.sin": math.sin,
    "math.floor": math.floor,
    "math.hypot": lambda x: math.hypot(x, 1.0),
    "ndarray": put,
    "np.float64": np.float64,
}
MEANT: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x.item(),
    "detach": lambda x: float(x.detach()),
    "stop_gradient": lambda x: float(fad.stop_gradient(x)),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: bool(x > 1.0) or bool(x),
    "format": lambda x: f"{x:.2f} {x}",
    "comparison": lambda x: float(x > 1.0),
    "untracked": lambda x: float(fad.tensor(2.0)) + float(fnp.zeros(())),
    "integer": lambda x: [1, 2][fad.tensor(1)] + int(x.astype(int)),
}
AROUND: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: fad.grad(f)(2.0),
    "value_and_grad": lambda f: fad.value_and_grad(f)(2.0),
    "vjp": lambda f: fad.vjp(f, jnp.float32(2.0)),
    "jvp": lambda f: fad.jvp(f, (2.0,), (1.0,)),
    "hessian": lambda f: fad.hessian(f)(2.0),
    "grad of what is on the tape": lambda f: fad.grad(f)(leaf(2.0)),
    "tensors": lambda f: fad.grad(f)(fad.tensor(2.0)),
}


def caught(around: str, read: Callable[[Any], Any], result: bool = False) -> list[Any]:
    """The warnings of a read inside of a transform."""

    def f(x: Any) -> Any:
        y = x * 1.5
        read(y)
        return y

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        AROUND[around](f)
    return found


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("around", AROUND)
def test_a_number_without_its_derivative_warns(around: str, name: str) -> None:
    found = caught(around, READS[name])
    assert found and all(w.category is DroppedDerivativeWarning for w in found)
    text = str(found[0].message)
    assert all(words in text for words in ("x.item()", "x.detach()", "fad.numpy", "math"))
    assert found[0].filename == __file__


@pytest.mark.parametrize("name", MEANT)
@pytest.mark.parametrize("around", AROUND)
def test_what_is_meant_is_silent(around: str, name: str) -> None:
    assert not caught(around, MEANT[name])


def test_it_warns_once_for_each_place() -> None:
    def f(x: Any) -> Any:
        for _ in range(3):
            float(x)
        return x + float(x) * math.sin(x)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            fad.grad(f)(2.0)
    first = inspect.getsourcelines(f)[1]
    lines = [w.lineno - first for w in found]
    assert sorted(set(lines)) == [2, 3] and lines.count(2) == 1


def test_the_number_is_a_constant_as_it_was() -> None:
    with pytest.warns(DroppedDerivativeWarning, match="float"):
        assert fad.grad(lambda x: x * float(x))(3.0) == 3.0


def test_in_a_program_whose_warnings_are_errors_the_line_raises() -> None:
    with pytest.raises(DroppedDerivativeWarning):
        fad.grad(lambda x: x * math.sin(x))(3.0)
    assert fad.grad(lambda x: x * x)(3.0) == 6.0


def test_no_grad_means_it_and_keeps_tangents(torch: Any) -> None:
    def read(lib: Any) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            with lib.no_grad():
                float(x)
            return x * x

        return f

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.func.grad(read(torch))(torch.tensor(2.0))
        fad.grad(read(fad))(2.0)
    with pytest.warns(DroppedDerivativeWarning):
        fad.jvp(read(fad), (2.0,), (1.0,))


def test_the_tape_is_silent_because_its_graph_remains() -> None:
    loss = (leaf([1.0, 2.0]) ** 2).sum()
    assert float(loss) == 5.0
    loss.backward()
    with fad.dual_level():
        assert float(loss.detach()) == 5.0
        dual = fad.make_dual(fad.tensor(2.0), fad.tensor(1.0))
        with pytest.warns(DroppedDerivativeWarning):
            float(dual)
    assert float(dual) == 2.0  # its level is over
