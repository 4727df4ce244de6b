"""Writes the stubs of the derived modules, such as fad/numpy/__init__.pyi, from JAX's signatures.

A function that follows its arguments has an overload for JAX arrays and numbers, which gives JAX arrays, and
one for each argument that may be a Tensor or a NumPy array, which gives Tensors; in `fad.numpy` one for
lists, which gives Tensors too. One that makes arrays gives Tensors. What this cannot say is in ``by_hand``.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import types
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from fad.arrays import arguments, special_cases
from fad.arrays.arguments import aliases_of, role_of
from fad.arrays.torch_operations import FORMS
from tests.stubs.signatures import Kind, Parameter, Signature, annotation_of, signatures_of
from tests.stubs.translation import EITHER, JAX, LISTED, TENSOR, names_arrays, result, translated

__all__ = [
    "IMPORTS",
    "ROOT",
    "definitions",
    "modules",
    "overloads_of",
    "stub_of",
    "stub_path",
    "written",
]

ROOT = Path(__file__).parents[2]
BY_HAND = Path(__file__).parent / "by_hand"
# So many arguments may each be the one that is a Tensor; of more, only that there is one.
MOST_OVERLOADS = 3


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of fad whose names are those of one of JAX."""

    name: str
    jax_name: str
    children: tuple[str, ...]


def modules() -> list[Module]:
    """All derived modules."""
    found: list[Module] = []

    def walk(name: str) -> None:
        module = importlib.import_module(f"fad.{name}")
        children = tuple(n for n in dir(module) if isinstance(getattr(module, n), types.ModuleType))
        found.append(Module(f"fad.{name}", f"jax.{name}", children))
        for child in children:  # but what is written, with its own annotations
            if "__all__" not in vars(getattr(module, child)):
                walk(f"{name}.{child}")

    for name in ("lax", "nn", "numpy", "random", "scipy"):
        walk(name)
    return found


def stub_path(module: Module) -> Path:
    """Where its stub is; in a folder of its own if there is no file, which pyright takes for the source."""
    path = ROOT.joinpath(*module.name.split("."))
    source = path.with_suffix(".py")
    return source.with_suffix(".pyi") if source.exists() else path / "__init__.pyi"


def stub_of(module: Module) -> str:
    """The text of its stub."""
    source = importlib.import_module(module.name)
    names = [n for n in dir(source) if n not in module.children]
    by_hand = written(module.jax_name.removeprefix("jax.").replace(".", "_"))
    parts = [
        "\n".join(by_hand[name]) if name in by_hand else _entry(module, name, getattr(source, name))
        for name in names
    ]
    if "__extra__" in by_hand:
        parts.append("\n".join(by_hand["__extra__"]))
    records = _records(module, names)
    own = [p for p in parts if p.startswith("from jax")]
    body = "\n".join([*records, *[p for p in parts if p not in own]])
    body = with_builtins(body, names)
    return "\n".join(
        [
            f'"""The names of {module.jax_name}, for Tensors and arrays."""',
            MADE,
            '# mypy: disable-error-code="overload-overlap,assignment"',
            IMPORTS,
            *[f"from {module.name} import {c} as {c}" for c in module.children],
            *own,
            body,
            "",
        ]
    )


MADE = "# Made by `python -m tests.stubs`, from JAX's signatures."
_BUILTINS = frozenset("bool bytes complex float int list slice str tuple type".split())


def with_builtins(text: str, names: Iterable[str]) -> str:
    """The text of a module or class that has the names: `bool` in it means another thing than elsewhere."""
    for name in _BUILTINS.intersection(names):
        text = re.sub(rf"(?<!# )(?<=[ [(|,]){name}(?=[] |,):])(?!: \w+$)", f"builtins.{name}", text)
    return text


# Those that are not used are taken out by ruff.
IMPORTS = """import builtins
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypeAlias
from typing import TypeVar, TypeVarTuple, overload

import jax
import numpy as np

from fad.arrays.annotations import BinaryUfunc, DTypeLike, HasDType, IndexExpression, Indexer
from fad.arrays.annotations import JaxValue, ListedValue, NumpyArray, PrecisionArgument, ScalarType
from fad.arrays.annotations import TensorInitializer, TensorValue, UnaryUfunc, Value
from fad.core.tensor import Tensor
"""


def written(file: str) -> dict[str, list[str]]:
    """Definitions by name, of ``by_hand/<file>.pyi``; type variables are kept as "__extra__"."""
    path = BY_HAND / f"{file}.pyi"
    if not path.exists():
        return {}
    text = path.read_text()
    found: dict[str, list[str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):  # an overload is one more
            name = node.name
            first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, first = node.target.id, node.lineno
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, first = "__extra__", node.lineno
        else:
            continue
        lines = text.splitlines()[first - 1 : node.end_lineno]
        found.setdefault(name, []).append("\n".join(lines))
    return found


# One name


def _entry(module: Module, name: str, value: Any) -> str:
    """The definition of one public name."""
    jax_value = _jax_value(module, name)
    if isinstance(jax_value, (bool, int, float, complex, str)) or jax_value is None:
        return f"{name}: {type(jax_value).__name__ if jax_value is not None else 'None'}"
    listed = _lists(module.jax_name, name)
    if "CLASSES" in listed:
        return _class(name, jax_value)
    if type(jax_value).__name__ == "_ScalarMeta":
        return f"{name}: ScalarType"
    if value is jax_value and "INDEXERS" not in listed:  # JAX's own
        return _own(module, name, jax_value)
    if "INDEXERS" in listed:
        return f"{name}: Indexer"
    if isinstance(jax_value, jnp.ufunc):
        return f"{name}: {'BinaryUfunc' if jax_value.nin == 2 else 'UnaryUfunc'}"
    creates = "CREATION" in listed
    draws = module.jax_name == "jax.random" and name not in special_cases.NOT_DRAWING
    makes = creates or draws or "FACTORIES" in listed
    follows = not makes and "HOST" not in listed and "ON_VALUES" not in listed
    unsaid = ast.Name("Array") if makes else _unsaid(module, name)
    found = signatures_of(module.jax_name, name, jax_value, unsaid)
    overloads = [
        text
        for s in found
        for text in overloads_of(module.jax_name, s, jax_value, follows, alone=len(found) == 1)
    ]
    return definitions(name, overloads, _summary(jax_value))


def _jax_value(module: Module, name: str) -> Any:
    """What JAX has under the name, or what a function that fad adds is made of."""
    source = importlib.import_module(module.jax_name)
    added = inspect.unwrap(getattr(importlib.import_module(module.name), name))
    return getattr(source, name, added)


def _lists(module: str, name: str) -> set[str]:
    """The tables of `fad.arrays.special_cases` that have the name."""
    tables = "CLASSES CREATION FACTORIES HOST INDEXERS ON_VALUES".split()
    return {t for t in tables if name in getattr(special_cases, t).get(module, ())}


def _own(module: Module, name: str, value: Any) -> str:
    """A name that is JAX's: what JAX says of it."""
    if isinstance(value, type) and value.__module__ in ("numpy", "builtins"):
        kind = "np" if value.__module__ == "numpy" else "builtins"
        return f"{name} = {kind}.{value.__name__}"
    if isinstance(value, type):
        return "" if _is_record(value) else f"from {module.jax_name} import {name} as {name}"
    if type(value).__name__ == "IndexExpression":
        return f"{name}: IndexExpression"
    return f"{name}: Any"


def _class(name: str, jax_class: Any) -> str:
    """A class whose instances contain arrays: its methods follow what it was made of."""
    lines = [f"class {name}:"]
    for method, f in {"__init__": jax_class.__init__, **vars(jax_class)}.items():
        if not inspect.isfunction(f) or (method.startswith("_") and method not in _CLASS_METHODS):
            continue
        _, *options = inspect.signature(f).parameters.values()
        names = ["self", *[_untyped(p) for p in options]]
        outcome = "None" if method == "__init__" else "Tensor | jax.Array"
        lines.append(f"    def {method}({', '.join(names)}) -> {outcome}: ...")
    return "\n".join(lines)


_CLASS_METHODS = ("__init__", "__call__")


def _untyped(p: inspect.Parameter) -> str:
    """A parameter that may be anything."""
    bare = p.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
    return f"{bare}: Any" + ("" if p.default is inspect.Parameter.empty else " = ...")


def _summary(value: Any) -> str:
    """The first sentence of the docstring, where it stands in one line."""
    doc = (inspect.getdoc(value) or "").strip()
    line = doc.partition("\n")[0].strip()
    usual = line.endswith(".") and '"' not in line and "\\" not in line and len(line) < 88
    return line if usual else ""


def overloads_of(
    module: str,
    signature: Signature,
    jax_value: Any,
    follows: bool,
    of_a_tensor: bool = False,
    alone: bool = False,
) -> list[str]:
    """``(parameters) -> result`` of one signature, for each kind of argument that matters.

    With ``of_a_tensor``, the first argument is a Tensor: so are results where keywords are PyTorch's.
    With ``alone``, the function has no other signature, and such results follow its one array.
    """
    records = {name: _record_name(module, name) for name in _records_of(jax_value)}
    parameters = [_with_role(p) for p in signature.parameters]
    parameters = [p for p in parameters if not _is_refused(p)]
    outcome = signature.result or ast.Name("Any")
    takes = [p for p in parameters if names_arrays(p.annotation)]
    names = [p.name for p in parameters if p.kind is not Kind.POSITIONAL_ONLY]

    def text(kinds: dict[str, str], made: str) -> str:
        return f"{_listed(parameters, kinds)} -> {result(outcome, made, records)}"

    required = [p for p in takes if p.default is None and p.kind is not Kind.VAR_POSITIONAL]
    of_torch: list[str] = []
    for k, otherwise in _of_torch(module, jax_value, names).items():
        usual = result(outcome, TENSOR, records) if of_a_tensor else "Any"
        rest = f"*args: Any, {k}: Any, **kwargs: Any"
        if alone and follows and not otherwise and required == parameters[:1]:
            for kind in (TENSOR, JAX):  # it follows its one array
                first = f"{required[0].name}: {translated(required[0].annotation, kind)}"
                of_torch.append(f"({first}, {rest}) -> {result(outcome, kind, records)}")
        of_torch.append(f"({rest}) -> {'Any' if otherwise else usual}")
    lists = bool(takes) and module.startswith("jax.numpy") and not of_a_tensor
    either = {p.name: LISTED if lists else EITHER for p in takes}
    same = result(outcome, JAX, records) == result(outcome, TENSOR, records)
    if not follows or same:
        return [text(either, TENSOR), *of_torch]
    single = required if len(required) <= MOST_OVERLOADS else []
    several = any(["[" in translated(p.annotation, TENSOR) for p in single])  # one may be a Tensor
    # Those for Tensors stand first: of a function that is passed to `fad.vmap`, mypy takes the first.
    found = [text({**either, p.name: TENSOR}, TENSOR) for p in single]
    found.append(text({p.name: JAX for p in takes}, JAX))
    if len(single) != len(takes) or several or lists:
        found.append(text(either, TENSOR))
    return found + of_torch


def _of_torch(module: str, jax_value: Any, names: Container[str]) -> dict[str, bool]:
    """PyTorch's keywords that a function with the parameters ``names`` takes, see `fad.arrays.arguments`.

    True: with this keyword it returns something else.
    """
    name = getattr(jax_value, "__name__", "") if module == "jax.numpy" else ""
    keywords = {*aliases_of(names)} | (FORMS[name].keywords if name in FORMS else set())
    return dict.fromkeys(sorted(keywords), name in _RETURNS_OTHERWISE)


# Those of `FORMS` that return values and indices, other parts, or rows.
_RETURNS_OTHERWISE = "max median min nanmedian nonzero sort split".split()


def _with_role(p: Parameter) -> Parameter:
    """A parameter without annotation that takes arrays, by the rule of `fad.arrays`."""
    if p.annotation is not None or p.kind is Kind.VAR_KEYWORD:
        return p
    bare = inspect.Parameter(p.name, p.kind)
    if p.default is None and role_of(bare) != arguments.STATIC:
        return dataclasses.replace(p, annotation=ast.Name("ArrayLike"))
    return p


def _is_refused(p: Parameter) -> bool:
    """``out`` and the like: there for NumPy's signature, and only ever None."""
    text = "" if p.annotation is None else ast.unparse(p.annotation)
    return p.name == "out" or "Deprecated" in text


def _unsaid(module: Module, name: str) -> ast.expr:
    """The result of a function whose signature does not tell it."""
    key = f"{module.jax_name.removeprefix('jax.')}.{name}"
    if module.jax_name == "jax.scipy.stats.truncnorm":  # all of its functions
        key = "scipy.stats.truncnorm"
    text = next((text for text, keys in _RESULTS.items() if key in keys.split()), "Any")
    return ast.parse(text, mode="eval").body


_RESULTS = {
    "Array": """lax.empty lax.fft lax.linalg.symmetric_product lax.random_gamma_grad lax.rng_uniform
        lax.scaled_dot lax.shape_as_value nn.scaled_dot_general numpy.cross numpy.isneginf
        numpy.isposinf numpy.linalg.cond numpy.linalg.cross random.ball random.clone
        random.multinomial random.wrap_key_data scipy.ndimage.map_coordinates
        scipy.stats.truncnorm""",
    "None": "numpy.save numpy.savez numpy.set_printoptions",
    "bool": "numpy.can_cast numpy.iterable",
    "str": "numpy.array_repr numpy.array_str",
    "tuple[Array, Array]": "lax.rng_bit_generator",
    "tuple[Array, Array, Array, Array]": "lax.linalg.qdwh",
}


def _listed(parameters: list[Parameter], kinds: dict[str, str]) -> str:
    """The parameters in parentheses."""
    parts: list[str] = []
    last: Kind | None = None
    stars = {Kind.VAR_POSITIONAL: "*", Kind.VAR_KEYWORD: "**"}
    for p in parameters:
        if last is Kind.POSITIONAL_ONLY and p.kind is not last:
            parts.append("/")
        if p.kind is Kind.KEYWORD_ONLY and last not in (Kind.KEYWORD_ONLY, Kind.VAR_POSITIONAL):
            parts.append("*")
        kind = kinds.get(p.name, EITHER)
        annotation = translated(p.annotation, kind)
        if p.default == "None" and annotation not in ("Any", "None") and "None" not in annotation:
            annotation += " | None"
        default = "" if p.default is None else f" = {_kept(p.default)}"
        parts.append(f"{stars.get(p.kind, '')}{p.name}: {annotation}{default}")
        last = p.kind
    if last is Kind.POSITIONAL_ONLY:
        parts.append("/")
    return f"({', '.join(parts)})"


def _kept(default: str) -> str:
    """The text of a default that a stub may have."""
    try:
        ast.literal_eval(default)
    except (SyntaxError, ValueError):
        return "..."
    return re.sub(r"^'(.*)'$", r'"\1"', default)


def definitions(name: str, overloads: list[str], doc: str) -> str:
    """A function from ``(parameters) -> result`` of each overload."""
    texts = list(dict.fromkeys(overloads))
    lines = [f"def {name}{text}: ..." for text in texts]
    if doc:
        lines[0] = f'def {name}{texts[0]}:\n    """{doc}"""'
    return "\n".join([f"@overload\n{line}" for line in lines] if lines[1:] else lines)


# Named tuples


def _is_record(value: Any) -> bool:
    """Whether it is a named tuple with arrays."""
    if not (isinstance(value, type) and hasattr(value, "_fields")):
        return False
    return any(["Array" in str(a) for a in vars(value).get("__annotations__", {}).values()])


def _records_of(function: Any) -> dict[str, Any]:
    """The named tuples with arrays that the result of a function may be, by name."""
    f = inspect.unwrap(function)
    names = re.findall(r"\w+", str(getattr(f, "__annotations__", {}).get("return", "")))
    found = {n: getattr(f, "__globals__", {}).get(n) for n in names}
    return {n: c for n, c in found.items() if _is_record(c)}


def _record_name(module: str, name: str) -> str:
    """Its name in the stub: private where the module has it not."""
    public = hasattr(importlib.import_module(module), name)
    return name if public else f"_{name.lstrip('_')}"


def _records(module: Module, names: list[str]) -> list[str]:
    """Their definitions: with arrays of one kind as fields."""
    found: dict[str, Any] = {}
    for name in names:
        found |= _records_of(_jax_value(module, name))
    lines = ['_ArrayT = TypeVar("_ArrayT")', ""] if found else []
    for name, record in sorted(found.items()):
        own = _record_name(module.jax_name, name)
        lines.append(f"class {own}(NamedTuple, Generic[_ArrayT]):")
        for field in record._fields:
            annotation = annotation_of(record.__annotations__[field]) or ast.Name("Any")
            kind = result(annotation, TENSOR, {}).replace("Tensor", "_ArrayT")
            lines.append(f"    {field}: {kind}")
        lines.append("")
    return lines
