"""The stubs are those that `python -m tests.stubs` writes, and say what is there."""

from __future__ import annotations

import ast
import importlib
import inspect
import warnings
from typing import Any

import jax
import pytest

import fad
from tests.stubs.faces import FACES, face_path, face_stub
from tests.stubs.members import PATH, members_stub
from tests.stubs.signatures import annotation_of
from tests.stubs.stubs import BY_HAND, ROOT, Module, modules, stub_of, stub_path
from tests.stubs.translation import EITHER, JAX, TENSOR, result, translated

# The version of JAX whose signatures the stubs have. With another one there may be more names.
MADE_OF = "0.10.2"
MODULES = modules()


def exact(test: Any) -> Any:
    """A test that compares with JAX's signatures: there is none where JAX is another one."""
    return test if jax.__version__ == MADE_OF else None


def definitions(text: str) -> list[str]:
    """A stub without its imports, of which ruff leaves out some, and in one form."""
    body = ast.parse(text).body
    return [
        ast.unparse(node) for node in body if not isinstance(node, (ast.Import, ast.ImportFrom))
    ]


def names_in(text: str) -> set[str]:
    """The public names of a stub."""
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.add(node.targets[0].id)
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname for a in node.names if a.asname is not None}
    return {name for name in found if not name.startswith("_")}


@exact
@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.name)
def test_the_stub_of_a_module_is_current(module: Module) -> None:
    assert definitions(stub_path(module).read_text()) == definitions(stub_of(module)), HINT


@exact
def test_the_stub_of_tensor_is_current() -> None:
    assert definitions(PATH.read_text()) == definitions(members_stub()), HINT


HINT = "write it again: python -m tests.stubs"


@exact
def test_there_are_no_other_stubs() -> None:
    by_hand = "arrays/annotations functions/signatures".split()
    expected = {stub_path(m) for m in MODULES} | {face_path(m) for m in FACES} | {PATH}
    expected |= {ROOT / "fad" / f"{path}.pyi" for path in by_hand}
    assert expected == {*(ROOT / "fad").rglob("*.pyi")}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.name)
def test_a_stub_has_the_names_that_are_there(module: Module) -> None:
    """Of another version of JAX a stub may lack names, and have some that JAX has no more."""
    path = stub_path(module)
    found = names_in(path.read_text()) if path.exists() else set()
    source = importlib.import_module(module.name)
    jax_source = importlib.import_module(module.jax_name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        there = {name for name in found if hasattr(jax_source, name)}
        assert not [name for name in there if not hasattr(source, name)]
    if jax.__version__ == MADE_OF:
        assert found == {*dir(source)}


@pytest.mark.parametrize("module", FACES)
def test_the_stub_of_a_table_is_current(module: str) -> None:
    written, expected = face_path(module).read_text(), face_stub(module)
    assert definitions(written) == definitions(expected), HINT
    assert names_in(written) == names_in(expected), HINT
    assert homes_in(written) == homes_in(expected), HINT


@pytest.mark.parametrize("module", FACES)
def test_the_stub_of_a_table_has_the_names_that_are_there(module: str) -> None:
    source = importlib.import_module(module)
    text = face_path(module).read_text()
    dtypes = {"bool", "float", "int"} if source is fad else set()
    assert names_in(text) == {n for n in source.__all__ if not n.startswith("_")} | dtypes


@pytest.mark.parametrize("module", FACES)
def test_types_by_hand_have_the_parameters_that_are_there(module: str) -> None:
    source = importlib.import_module(module)
    found = parameters_in(face_path(module).read_text())
    assert found == parameters_of(source, found)


@exact
@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.name)
def test_definitions_by_hand_have_the_parameters_of_jax(module: Module) -> None:
    path = BY_HAND / f"{module.jax_name.removeprefix('jax.').replace('.', '_')}.pyi"
    found = parameters_in(path.read_text()) if path.exists() else {}
    expected = parameters_of(importlib.import_module(module.name), found)
    deprecated = {"cond": {"operand"}, "switch": {"operand"}}
    assert found == {name: x - deprecated.get(name, set()) for name, x in expected.items()}


def homes_in(text: str) -> set[tuple[str | None, str]]:
    """What a stub imports, and from where."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return {(node.module, alias.name) for node in imports for alias in node.names}


def parameters_in(text: str) -> dict[str, set[str]]:
    """The names of the parameters of each function of a stub, of all its overloads."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            a = node.args
            several = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
            found.setdefault(node.name, set()).update([x.arg for x in several if x is not None])
    return found


def parameters_of(module: Any, stub: dict[str, set[str]]) -> dict[str, set[str]]:
    """Those that the functions of the stub have; it may leave out `*args` that are there to be refused."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: {
            p.name
            for p in inspect.signature(getattr(module, name)).parameters.values()
            if p.kind not in variadic or p.name in listed
        }
        for name, listed in stub.items()
    }


def test_arrays_of_each_kind() -> None:
    several = annotation_of("Array | np.ndarray | Sequence[ArrayLike] | None")
    assert several is not None
    assert translated(several, JAX) == "jax.Array | Sequence[JaxValue] | None"
    assert translated(several, TENSOR) == "Tensor | NumpyArray | Sequence[TensorValue]"
    assert translated(several, EITHER) == "Tensor | jax.Array | NumpyArray | Sequence[Value] | None"


def test_results_of_each_kind() -> None:
    several = annotation_of("Array | tuple[Array, ...] | int")
    assert several is not None
    assert result(several, JAX, {}) == "jax.Array | tuple[jax.Array, ...] | int"
    assert result(several, TENSOR, {}) == "Tensor | tuple[Tensor, ...] | int"


def test_what_is_not_known_is_any() -> None:
    for text in ("Tracer", "Callable[[Tracer], int] | Tracer"):
        annotation = annotation_of(text)
        assert annotation is not None
        assert translated(annotation, JAX) == "Any"
