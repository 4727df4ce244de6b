"""What is at the top of fad, and what is said of a name that is not."""

from __future__ import annotations

import builtins
import importlib
import re

import numpy as np
import pytest

import fad
import fad.numpy as fnp
import fad.testing
from fad.hints import names as hints


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
    assert not set(hints._INSTEAD) & set(dir(fad))
    for text in hints._INSTEAD.values():
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


# Of names that PyTorch and fad.numpy have with different meanings: what is to be written, and that it gives
# what PyTorch does. `x` has three dimensions, `t` is PyTorch's.
OF_OTHER_MEANING = [
    ("flatten", "x.flatten(start_dim)", "x.flatten(1)", "torch.flatten(t, 1)"),
    ("max", "x.max(dim=dim)", "x.max(dim=1).indices", "torch.max(t, 1).indices"),
    ("median", "x.median(dim=dim)", "x.median(dim=1).values", "torch.median(t, 1).values"),
    (
        "meshgrid",
        "fad.numpy.meshgrid(x, y, indexing='ij')",
        "fnp.meshgrid(x[0, 0], x[1, 1], indexing='ij')[0]",
        "torch.meshgrid(t[0, 0], t[1, 1], indexing='ij')[0]",
    ),
    ("nonzero", "fad.numpy.argwhere(x)", "fnp.argwhere(x > 0)", "torch.nonzero(t > 0)"),
    ("norm", "x.reshape(-1)", "fnp.linalg.norm(x[0].reshape(-1), 1)", "torch.norm(t[0], 1)"),
    ("sort", "x.sort(dim=dim)", "x.sort(dim=1).indices", "torch.sort(t, 1).indices"),
    (
        "split",
        "x.split(split_size=n)",
        "x.split(split_size=[1, 3], dim=1)[1]",
        "t.split([1, 3], 1)[1]",
    ),
    ("std", "x.std(unbiased=True)", "x.std(unbiased=True)", "torch.std(t)"),
    ("var", "x.var(dim=dim)", "x.var(dim=1)", "torch.var(t, 1)"),
    ("var_mean", "x.var(dim=dim)", "x.var(dim=1)", "torch.var_mean(t, 1)[0]"),
    (
        "svd",
        "fad.numpy.linalg.svd(x, full_matrices=False)",
        "abs(fnp.linalg.svd(x, full_matrices=False)[2])",
        "torch.svd(t)[2].mH.abs()",
    ),
    ("transpose", "x.swapaxes(dim0, dim1)", "x.swapaxes(0, 2)", "torch.transpose(t, 0, 2)"),
    ("hann_window", "fad.numpy.hanning(n + 1)[:-1]", "fnp.hanning(9)[:-1]", "torch.hann_window(8)"),
    (
        "kaiser_window",
        "fad.numpy.kaiser(n + 1, 12.0)[:-1]",
        "fnp.kaiser(9, 12.0)[:-1]",
        "torch.kaiser_window(8)",
    ),
    (
        "pad",
        "fad.numpy.pad(x, ((0, 0), (left, right)))",
        "fnp.pad(x[0], ((0, 0), (1, 2)))",
        "torch.nn.functional.pad(t[0], (1, 2))",
    ),
    (
        "pixel_shuffle",
        "x.reshape(b, c, r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(b, c, h * r, w * r)",
        "x.reshape(2, 1, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 4, 6)",
        "torch.nn.functional.pixel_shuffle(t.reshape(2, 4, 2, 3), 2)",
    ),
    (
        "pixel_unshuffle",
        "x.reshape(b, c, h, r, w, r).transpose(0, 1, 3, 5, 2, 4).reshape(b, c * r * r, h, w)",
        "x[:, None].reshape(2, 1, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 4, 2, 3)",
        "torch.nn.functional.pixel_unshuffle(t[:, None], 2)",
    ),
    ("softmin", "fad.nn.softmax(-x)", "fad.nn.softmax(-x)", "torch.nn.functional.softmin(t, -1)"),
    (
        "softshrink",
        "x - fad.numpy.clip(x, -lambd, lambd)",
        "x - fnp.clip(x, -0.5, 0.5)",
        "torch.nn.functional.softshrink(t, 0.5)",
    ),
    (
        "scaled_dot_product_attention",
        "fad.nn.dot_product_attention(q, k, v).swapaxes(1, 2), with x.swapaxes(1, 2) of each",
        "fad.nn.dot_product_attention(*[x[None].swapaxes(1, 2)] * 3).swapaxes(1, 2)",
        "torch.nn.functional.scaled_dot_product_attention(t[None], t[None], t[None])",
    ),
]


@pytest.mark.parametrize(
    ("name", "words", "ours", "theirs"), OF_OTHER_MEANING, ids=[row[0] for row in OF_OTHER_MEANING]
)
def test_what_is_to_be_written_for_a_name_of_pytorch_means_the_same(name, words, ours, theirs):
    with pytest.raises(AttributeError, match=re.escape(words)):
        getattr(fad, name)
    torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")
    x = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
    space = {"fad": fad, "fnp": fnp, "torch": torch, "x": fad.tensor(x), "t": torch.tensor(x)}
    np.testing.assert_allclose(eval(ours, space), eval(theirs, space), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "from fad import elementwise_grad",
            "fad has no 'elementwise_grad': write fad.vmap(fad.grad",
        ),
        ("from fad import optim", "optimizers of optax"),
        ("from fad.nn import relu, Linear", "no layers"),
        ("from fad.autograd import Variable", "a Tensor is one"),
        ("from fad.autograd import elementwise_grad", "write fad.vmap(fad.grad(f))"),
        ("from fad.autograd import make_jvp", "write fad.jvp(f, (x,), (v,))"),
        ("from fad.numpy import cat", "write fad.cat"),
        ("from fad import no_such_thing_at_all", "fad has no 'no_such_thing_at_all'"),
    ],
)
def test_an_import_of_a_name_that_is_not_there_says_what_to_write(statement, words):
    """Python says "cannot import name" in the place of an AttributeError."""
    with pytest.raises(ImportError, match=re.escape(words)):
        exec(statement, {})
    module, name = re.fullmatch(r"from (\S+) import .*?(\w+)", statement).groups()
    assert not hasattr(importlib.import_module(module), name)


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


@pytest.mark.parametrize("name", hints.WRITES)
def test_what_is_said_of_functions_that_write_is_true(name: str) -> None:
    """Each statement runs, and gives what NumPy's function of the name writes."""
    said, column = hints.WRITES[name], name == "put_along_axis"
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
