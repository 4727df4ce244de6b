"""Modules as functions of their Tensors, next to ``torch.func`` on the same modules."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from helpers import assert_close

import fad
import fad.func
from fad.errors import GradientError


class Affine:
    def __init__(self, slope: float) -> None:
        self.slope = fad.tensor([slope, 1.0], requires_grad=True)
        self.again = self.slope
        self.shift = fad.tensor([1.0, 2.0])

    def __call__(self, x: Any) -> Any:
        return self.slope * x + self.again + self.shift


class Net:
    """A module of modules, with what else objects have."""

    def __init__(self, slope: float) -> None:
        self.layers = [Affine(slope), Affine(2.0)]
        self.named = {"scale": fad.tensor(3.0, requires_grad=True)}
        self.activation = lambda x: x
        self.name, self.kind, self.nothing, self.parent = "net", Net, None, self

    def __call__(self, x: Any, factor: float = 1.0) -> Any:
        for layer in self.layers:
            x = self.activation(layer(x))
        return x * self.named["scale"] * factor


@functools.cache
def counterpart(torch: Any) -> Any:
    """`Affine`, as a module of PyTorch."""

    class Module(torch.nn.Module):
        def __init__(self, slope: float) -> None:
            super().__init__()
            self.slope = torch.nn.Parameter(torch.tensor([slope, 1.0]))
            self.again = self.slope
            self.register_buffer("shift", torch.tensor([1.0, 2.0]))

        def forward(self, x: Any) -> Any:
            return self.slope * x + self.again + self.shift

    return Module


def test_tied_tensors_as_in_torch(torch: Any) -> None:
    for library, module in ((torch, counterpart(torch)(5.0)), (fad, Affine(5.0))):
        call = library.func.functional_call
        before = module.slope
        value = {"slope": library.tensor([0.0, 0.0])}
        x = library.tensor([1.0, 1.0])
        assert call(module, value, (x,)).tolist() == [1.0, 2.0]
        assert call(module, value, x).tolist() == [1.0, 2.0]
        assert call(module, value, None, {"x": x}).tolist() == [1.0, 2.0]
        assert call(module, [value], (x,), tie_weights=False).tolist() == [6.0, 3.0]
        assert module.slope is before and module.again is before


def test_refusals_as_in_torch(torch: Any) -> None:
    for library, module in ((torch, counterpart(torch)(5.0)), (fad, Affine(5.0))):
        call = library.func.functional_call
        x, y = library.tensor([1.0, 1.0]), library.tensor([2.0, 2.0])
        with pytest.raises(ValueError, match="multiple dictionaries"):
            call(module, [{"slope": x}, {"slope": y}], (x,))
        with pytest.raises(ValueError, match="which are tied"):
            call(module, {"slope": x, "again": y}, (x,))
        with pytest.raises(RuntimeError, match="Missing key.*shift"):
            call(module, {"slope": x}, (x,), strict=True)
        assert call(module, {"slope": x, "shift": y}, (x,), strict=True).tolist() == [4.0, 4.0]
        with pytest.raises(RuntimeError, match="at least one model"):
            library.func.stack_module_state([])
        with pytest.raises(RuntimeError, match="same class"):
            library.func.stack_module_state([module, type("Other", (type(module),), {})(1.0)])
    with pytest.raises(GradientError, match="Unexpected key.*'slop'.*'slope', 'again', 'shift'"):
        fad.func.functional_call(Affine(5.0), {"slop": x}, (x,))


def test_an_error_in_the_call_leaves_the_module_as_it_was() -> None:
    module = Net(5.0)
    before = module.named["scale"]
    with pytest.raises(TypeError):
        fad.func.functional_call(module, {"named.scale": fad.tensor(1.0)}, (1.0, 2.0, 3.0))
    assert module.named["scale"] is before


def test_nested_modules_have_names_with_dots() -> None:
    module = Net(5.0)
    x = fad.tensor([1.0, 2.0])
    assert_close(
        fad.func.functional_call(module, {"named.scale": fad.tensor(6.0)}, x, {"factor": 0.5}),
        module(x),
    )
    values = {"layers.0.slope": fad.tensor([1.0, 1.0]), "named.scale": fad.tensor(2.0)}
    gradients = fad.grad(lambda v: fad.func.functional_call(module, v, (x,)).sum())(values)
    # layers: s x + s + shift; 2 h + 2 + shift in the first lane, h + 1 + shift in the second; scaled
    assert gradients["layers.0.slope"].tolist() == [2.0 * 2.0 * 2.0, 2.0 * 3.0]
    assert gradients["named.scale"].item() == 9.0 + 8.0


def test_an_ensemble_as_in_torch(torch: Any) -> None:
    results = []
    for library, make in ((torch, counterpart(torch)), (fad, Affine)):
        models = [make(s) for s in (1.0, 2.0, 3.0)]
        parameters, buffers = library.func.stack_module_state(models)
        assert list(parameters) == ["slope"] and list(buffers) == ["shift"]
        assert parameters["slope"].requires_grad and parameters["slope"].is_leaf
        assert not buffers["shift"].requires_grad

        def call(p: Any, b: Any, x: Any, models: Any = models, library: Any = library) -> Any:
            return library.func.functional_call(models[0], (p, b), (x,))

        out = library.func.vmap(call, in_dims=(0, 0, None))(
            parameters, buffers, library.tensor([1.0, 2.0])
        )
        out.sum().backward()
        results.append([out.tolist(), parameters["slope"].grad.tolist()])
    assert results[0] == results[1]


def test_modules_that_differ_cannot_be_stacked() -> None:
    one, two = Affine(1.0), Affine(2.0)
    two.extra = fad.tensor(1.0)  # type: ignore[attr-defined]
    with pytest.raises(GradientError, match="model 1 has the Tensors"):
        fad.func.stack_module_state([one, two])
    two = Affine(2.0)
    two.shift.requires_grad_()
    with pytest.raises(GradientError, match=r"shift.*same .requires_grad"):
        fad.func.stack_module_state([one, two])
