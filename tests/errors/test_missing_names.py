"""What is at the top of fad, and what is said of a name that is not."""

from __future__ import annotations

import builtins
import re

import numpy as np
import pytest

import fad
import fad.numpy as fnp
import fad.testing
from fad.errors import missing_names


def test_dir_and_the_star_import_have_public_names_alone():
    space: dict[str, object] = {}
    exec("from fad import *", space)
    taken = set(space) - {"__builtins__", "__version__"}
    assert taken == set(fad.__all__) - {"__version__"}
    assert not taken & set(dir(builtins)), "a star import takes names of Python away"
    assert set(dir(fad)) - set(fad.__all__) == {"bool", "float", "int"}
    assert all(hasattr(fad, name) for name in dir(fad))
    assert not [name for name in dir(fad) if name.startswith("_") and name != "__version__"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sin", "fad has no 'sin': write fad.numpy.sin"),
        ("norm", "write fad.numpy.linalg.norm"),
        ("softmax", "write fad.nn.softmax"),
        ("erf", "write fad.scipy.special.erf"),
        ("rev", "write fad.lax.rev"),
        ("backward", "write fad.autograd.backward"),
        ("functional_call", "write fad.func.functional_call"),
        ("compile", "write fad.jit(f)"),
        ("linalg", "write fad.numpy.linalg"),
        ("special", "write fad.scipy.special"),
        ("gard", "did you mean 'grad'"),
        ("chekpoint", "did you mean 'checkpoint'"),
        ("zeros_liek", "did you mean 'zeros_like'"),
        ("randn", "fad.random.normal(key, shape)"),
        ("rand", "fad.random.uniform(key, shape)"),
        ("manual_seed", "fad.random.key(0)"),
        ("custom_vjp", "@fad.custom_rules"),
        ("custom_vmap", "defvmap(rule)"),
        ("clamp", "write x.clamp(...)"),
        ("concatenate", "write fad.numpy.concatenate"),
        ("save", "x.detach().numpy()"),
        ("pmap", "fad.jit with shardings"),
        ("loadtxt", "fad.tensor(numpy.loadtxt(path))"),
        ("array", "fad.tensor(data)"),
        ("unsqueeze", "write x.unsqueeze(...)"),
        ("masked_fill", "write x.masked_fill(...)"),
        ("no_such_thing_at_all", "fad has no 'no_such_thing_at_all'"),
    ],
)
def test_a_name_that_is_not_there(name, words):
    with pytest.raises(AttributeError, match=re.escape(words)) as caught:
        getattr(fad, name)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (fad.autograd, "backwrad", "fad.autograd has no 'backwrad': did you mean 'backward'"),
        (fad.testing, "gradchek", "fad.testing has no 'gradchek': did you mean 'gradcheck'"),
        (fad.viz, "grahp", "fad.viz has no 'grahp': did you mean 'graph'"),
        (fad.viz, "profile", "write fad.autograd.profile"),
    ],
)
def test_a_name_that_is_not_in_a_module(module, name, words):
    with pytest.raises(AttributeError, match=re.escape(words)) as caught:
        getattr(module, name)
    assert caught.value.name == name


def test_private_names_are_plainly_not_there():
    assert not hasattr(fad, "__wrapped__") and not hasattr(fad, "_no_such_name")


def test_what_is_said_is_not_about_names_that_are_there():
    assert not set(missing_names._INSTEAD) & set(dir(fad))
    for text in missing_names._INSTEAD.values():
        for found in re.findall(r"\bfad((?:\.\w+)+)", text):
            value = fad
            for part in found[1:].split("."):
                value = getattr(value, part)


def test_names_of_pytorch_say_what_to_write() -> None:
    """Names that its users type: a method of Tensor, a function of another module, or what stands for it."""
    for name, words in {
        "addcmul": r"write x\.addcmul\(...\)",
        "as_strided": "unfold",
        "block_diag": r"write fad\.scipy\.linalg\.block_diag",
        "bucketize": r"searchsorted\(boundaries, x\)",
        "clamp_": r"write x\.clamp_\(...\)",
        "conv2d": r"fad\.lax\.conv_general_dilated",
        "detach": r"write x\.detach",
        "distributions": r"fad\.random",
        "get_default_dtype": r"fad\.zeros\(\(\)\)\.dtype",
        "layer_norm": r"fad\.nn\.standardize",
        "permute_copy": r"write x\.permute\(...\)\.clone\(\)",
        "polar": r"fad\.numpy\.exp\(1j \* angle\)",
        "stft": r"fad\.scipy\.signal\.stft",
    }.items():
        with pytest.raises(AttributeError, match=words):
            getattr(fad, name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "Variable",
            "fad.autograd has no 'Variable': a Tensor is one: write fad.tensor(data, requires_grad",
        ),
        ("variable", "fad.autograd.queue_callback"),
        ("anomaly_mode", "write fad.autograd.detect_anomaly"),
        ("set_multithreading_enabled", "several threads"),
        ("bakward", "did you mean 'backward'"),
    ],
)
def test_names_of_pytorch_in_autograd(name: str, words: str) -> None:
    assert not hasattr(fad.autograd, name)
    with pytest.raises(AttributeError, match=re.escape(words)):
        getattr(fad.autograd, name)


WRITERS: dict[str, tuple[str, ...]] = {
    "fill_diagonal": ("value",),
    "place": ("mask", "values"),
    "put": ("indices", "values"),
    "put_along_axis": ("indices", "values", "axis"),
}


@pytest.mark.parametrize("name", missing_names.WRITES)
def test_what_is_said_of_functions_that_write_is_true(name: str) -> None:
    """Each statement runs, and gives what NumPy's function of the name writes."""
    said, column = missing_names.WRITES[name], name == "put_along_axis"
    values = {
        "value": 7.0,
        "mask": np.array([[True, False], [True, False]]),
        "indices": np.array([[1], [0]] if column else [3, 0]),
        "values": np.array([[5.0], [6.0]] if column else [5.0, 6.0], np.float32),
        "axis": 1,
    }
    arguments = [values[a] for a in WRITERS[name]]
    x, expected = fad.tensor([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    getattr(np, name)(expected, *arguments)
    for where in (x, fad):
        with pytest.raises(AttributeError, match=re.escape(f"write {said}")):
            getattr(where, name)
    with pytest.raises((ValueError, NotImplementedError), match=re.escape(said)):
        getattr(fnp, name)(x, *arguments)
    for statement in said.removesuffix(" for a new Tensor").split(", or "):
        space = {"x": x.clone(), **values}
        if "clone" in statement:
            statement = f"x = {statement}"
        exec(statement, space)
        np.testing.assert_array_equal(space["x"], expected)
