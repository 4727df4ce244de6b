"""What an error says of a name that is not there: in the modules of arrays, and of Tensors."""

from __future__ import annotations

import importlib
import pickle
import re
from typing import Any

import pytest
from helpers import leaf

import fad
import fad.numpy as fnp
from fad.hints import names as hints

TABLES = [
    hints._FUNCTIONS,
    hints._ATTRIBUTES,
    *hints._IN_MODULE.values(),
    *hints._ADVICE.values(),
]


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (fnp, "cat", "write fad.cat"),
        (fnp, "unsqueeze", "write x.unsqueeze(...): it is a method of Tensor"),
        (fnp, "scatter", "write x.scatter(...): it is a method of Tensor"),
        (fnp, "permute_copy", "write x.permute(...).clone()"),
        (fnp, "relu", "write fad.nn.relu"),
        (fnp, "sinn", "fad.numpy has no 'sinn': did you mean 'sin'"),
        (fnp, "in1d", "fad.numpy.isin"),
        (fnp, "norm", "fad.numpy.linalg.norm"),
        (fad.lax, "erfinv", "fad.scipy.special.erfinv"),
        (fnp, "rev", "write fad.lax.rev"),
        (fad.lax, "softmax", "fad.nn.softmax"),
        (fad.nn, "Linear", "no layers"),
        (fad.nn, "GroupNorm", "no layers"),
        (fad.nn, "conv2d", "fad.lax.conv_general_dilated"),
        (fnp.linalg, "solve_triangular", "fad.scipy.linalg.solve_triangular"),
        (fad.nn, "Parameter", "requires_grad=True"),
        (fad.nn, "sigmod", "did you mean 'sigmoid'"),
        (fad.random, "randn", "fad.random.normal(key, shape)"),
        (fad.random, "seed", "key = fad.random.key(0)"),
        (fad.random, "norml", "did you mean 'normal'"),
        (fad.scipy, "erf", "write fad.scipy.special.erf"),
        (fad.scipy.special, "gamaln", "did you mean 'gammaln'"),
        (fnp.linalg, "invers", "did you mean"),
        (fad.nn.utils, "clip_grad_norm", "did you mean 'clip_grad_norm_'"),
        (fad.nn, "clip_grad_norm_", "write fad.nn.utils.clip_grad_norm_"),
        (fad.func, "checkpoint", "write fad.checkpoint"),
        (fad.autograd.graph, "Nod", "did you mean 'Node'"),
        (fad.autograd.forward_ad, "make_duel", "did you mean 'make_dual'"),
        (fad.autograd.functional, "jacrev", "write fad.jacrev"),
        (fad.implicit, "fixedpoint", "did you mean 'fixed_point'"),
        (fad.extend, "Levle", "did you mean 'Level'"),
        (fnp.linalg, "quite_another_thing", "fad.numpy.linalg has no 'quite_another_thing'"),
        (fad.autograd.function, "FunctionMeta", "write a subclass of fad.Function"),
        (fad.autograd.function, "onec_differentiable", "did you mean 'once_differentiable'"),
        (fad.autograd.grad_mode, "set_multithreading_enabled", "several threads may each run one"),
        (fad.autograd.grad_mode, "nograd", "did you mean 'no_grad'"),
        (fad.autograd.profiler, "emit_nvtx", "write fad.autograd.emit_trace()"),
        (fad.autograd.profiler, "ProfilerActivity", "write with fad.autograd.profile() as p"),
        (fad.autograd, "ProfilerActivity", "write with fad.autograd.profile() as p"),
        (fad.autograd.profiler, "detect_anomaly", "write fad.autograd.detect_anomaly"),
        (fad.autograd, "vmap", "write fad.vmap"),
        (fad.errors, "TracerBoolConversionError", "write fad.errors.HostValueError"),
        (fad.errors, "UnexpectedTracerError", "write fad.errors.LevelError"),
        (fad.errors, "GradientEror", "did you mean 'GradientError'"),
        (fad.errors, "GradcheckError", "write fad.testing.GradcheckError"),
        (fad.viz, "profiler", "write fad.autograd.profiler"),
    ],
)
def test_a_name_of_a_module(module: Any, name: str, words: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert words in str(caught.value) and caught.value.name == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("requires_gard", "did you mean 'requires_grad'"),
        ("stride", "x.shape: JAX arrays have no strides"),
        ("ctypes", "x.detach().numpy()"),  # what safetensors asks for
        ("to_sparse", "BCOO.fromdense(x.array)"),
        ("soft_sign", "write fad.nn.soft_sign(x)"),
        ("bessel_i1e", "write fad.lax.bessel_i1e(x)"),
        ("multinomial", "write fad.random.categorical(key, fad.numpy.log(x), shape=(n,))"),
        ("rademacher", "write fad.random.rademacher(key, ...)"),
        ("normal_", "x[...] = fad.random.normal(key, x.shape)"),
        ("quite_another_thing", "Tensor has no 'quite_another_thing'"),
    ],
)
def test_an_attribute_of_a_tensor(name: str, words: str) -> None:
    seen = []

    def f(x: Any) -> Any:
        with pytest.raises(AttributeError) as caught:
            getattr(x, name)
        seen.append(caught.value)
        return x * 2.0

    f(leaf(1.0)), fad.grad(f)(1.0), fad.jit(f)(1.0), fad.vmap(f)(fnp.ones(2))
    assert len(seen) == 4
    for error in seen:
        assert words in str(error) and words in repr(error).replace('\\"', '"')
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_asking_whether_there_is_a_name_makes_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fad.errors.missing_names.no_name", None)
    for thing in (fad.tensor(1.0), fnp):
        assert not hasattr(thing, "quite_another_thing")
        assert getattr(thing, "quite_another_thing", 3) == 3


def test_an_error_of_a_property_is_raised_as_it_is() -> None:
    kept: list[Any] = []
    fad.vmap(lambda x: kept.append(x) or x)(fnp.ones(2))
    with pytest.raises(AttributeError, match="used after its vmap"):
        kept[0].array


def test_what_is_named_is_there() -> None:
    x = fad.tensor(1.0)
    for table in TABLES:
        for text in table.values():
            for found in re.findall(r"\bfad((?:\.\w+)+)", text):
                value: Any = fad
                for part in found[1:].split("."):
                    value = getattr(value, part)
            for name in re.findall(r"\bx\.(\w+)", text):
                assert hasattr(x, name), text


def test_what_is_said_of_modules_is_not_about_names_that_are_there() -> None:
    written = set(hints.WRITES)  # NumPy has these in place, and no array of JAX can be written to
    assert not set(hints._FUNCTIONS) & set(dir(fnp)) - {"grad", "vmap"} - written
    for module, table in hints._IN_MODULE.items():
        of_module = importlib.import_module(module)
        assert not set(table) & set(dir(of_module))
