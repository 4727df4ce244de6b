"""The shape of the code: imports run one way, and JAX is used through its public names.

Every check is a function of a source text, and is itself shown a text that it must refuse.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from helpers import ROOT

PACKAGE = ROOT / "fad"

# The rooms of fad, and the files inside of each: what is imported stands above, in the room or in an earlier
# one. `*` stands for files that may import each other, though not in a circle.
ROOMS = {
    "errors": "advice tracebacks missing_names",
    "core": """types faces caches threads dtypes observation jaxapi avals jaxprs
        overlapping_writes borrowed equal_programs dataflow tensor trees level primitive
        rolling_protocol replay_protocol""",
    "tape": "graph grad_mode anomaly saved recorder hooks engine vmap staged",
    "views": "pytree chains aliases make_view indexing inplace copying",
    "arrays": """arguments special_cases operations torch_operations control_flow
        namespaces""",
    "numpy": "",
    "lax": "",
    "nn": "",
    "random": "",
    "scipy": "",
    "functions": """context rules derived_rules native user_rules compiled_rules calls
        function""",
    "transforms": "backward boundary jvp vmap grad checkpoint functionalize",
    "compile": "signatures explanations places surroundings outer_tensors state fast_path jit",
    "methods": "names in_place history operators values views",
    "bridge": "jax_functions",
    "extend": "types observing jax_programs",
    "autograd": "compiled",
    "func": "transforms",
    "rolling": "repeats scans",
    "replay": "background exact_programs policy inputs program states segment trace",
}
# Tools, which stand on the public names of all of these: see `test_tools.py`.
TOOLS = {
    "hints": "names calls mistakes gradients functions tracebacks anomalies replay",
    "formulas": """array_classes numpy_keywords unrolled_loops smooth_functions smooth_special smooth_norms
        numpy_functions safe_where scatter_mul torch_dimensions torch_functions while_loops""",
    "nn": "losses utils",
    "bridge": "custom_rules numpy_calls protocols",
    "extend": "interpretation derivatives operations",
    "autograd": "nested builtin_nodes functional host_memory",
    "compile": "hooks shardings",
    "func": "module_state",
    "methods": "functions placement shapes text",
    "taylor": "series level transforms",
    "laplacians": "jacobian_rows row_rules level transforms",
    "sparse": """entries coloring matrix_entries convolutions rules patterns sparse_pattern formats plans
        derivatives""",
    "implicit": "systems equations decorators solvers",
    "transforms": "transposition",
    "views": "masked_parts",
    "torch": "memory checks flat_operations from_torch to_torch",
    "profiling": "events collector reports profiler",
    "testing": "*",
    "viz": "drawing nodes groups text pictures matrices graphs findings causes",
}
IN_FRONT = {
    "errors",
    "autograd",
    "extend",
    "formulas",
    "func",
    "implicit",
    "testing",
    "viz",
    "replay",
    "rolling",
    "taylor",
    "laplacians",
    "methods",
}  # whose `__init__` imports the files, not the other way about


def rows() -> list[str]:
    """The modules in import order; "" is fad's own `__init__`, behind which tools stand."""
    found = []
    for room, files in [*ROOMS.items(), ("", ""), *TOOLS.items()]:
        inside = [f"{room}.{name}" for name in files.split()]
        found += [*inside, room] if room in IN_FRONT else [room, *inside]
    return found


LAYERS = rows()
RUNTIME = {"jax", "numpy"}
# What modules need that only tests import.
IN_TESTS = {
    "testing.strategies": {"hypothesis"},
    "testing.plugin": {"pytest"},
}
# The only module that may reach for what JAX does not publish.
DOOR = "core.jaxapi"
NOT_PUBLIC = (
    "jax._src",
    "jax.core",
    "jax.experimental",
    "jax.extend",
    "jax.interpreters",
    "jaxlib",
)
PUBLIC_AFTER_ALL = (
    "jax.core.Tracer",
    "jax.core.eval_jaxpr",
    "jax.experimental.layout",
    "jax.experimental.io_callback",
)
# Written in two parts, so that this file does not contain them.
PATHS_OF_ONE_MACHINE = ["/wo" + "rk/", "/tm" + "p/"]
LEFT_OPEN = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]
TEXT = {".cfg", ".md", ".py", ".sh", ".toml", ".txt", ".typed", ".yml", ""}


def module_name(path: Path) -> str:
    """`autograd.engine` for fad/autograd/engine.py; an `__init__` has its package's name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def row(module: str) -> int:
    """The module's place in LAYERS."""
    for candidate in (module, f"{module.rpartition('.')[0]}.*"):
        if candidate in LAYERS:
            return LAYERS.index(candidate)
    raise LookupError(f"fad/{module.replace('.', '/')}.py has no place in LAYERS")


def is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def for_types(tree: ast.AST, module: str, is_package: bool = False) -> list[tuple[int, str]]:
    """(line, dotted name) of what the module imports for type checkers alone."""
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and is_type_checking(n.test)]
    inside = ast.Module([node for block in blocks for node in block.body], [])
    return imported(inside, module, is_package)


def walk_runtime(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of the tree, function bodies included, but not what only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and is_type_checking(node.test):
            for other in node.orelse:
                yield other
                yield from walk_runtime(other)
            continue
        yield node
        yield from walk_runtime(node)


def imported(tree: ast.AST, module: str, is_package: bool) -> list[tuple[int, str]]:
    """(line, dotted name) of all that the module imports, names of `from` imports included."""
    found = []
    for node in walk_runtime(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = ["fad", *module.split(".")] if module else ["fad"]
                package = package[: len(package) - node.level + is_package]
                base = ".".join([*package, base]).rstrip(".")
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def fad_module(name: str, known: set[str]) -> str | None:
    """Which module of fad a dotted name comes from; None for another name."""
    first, _, rest = name.partition(".")
    if first != "fad":
        return None
    while rest and rest not in known:
        rest = rest.rpartition(".")[0]
    return rest


def edges(module: str, source: str, is_package: bool = False) -> list[tuple[int, str]]:
    """(line, module of fad) that the source of `module` imports."""
    names = imported(ast.parse(source), module, is_package)
    found = [(line, fad_module(name, {*MODULES, *LAYERS, module})) for line, name in names]
    return [(line, target) for line, target in found if target is not None and target != module]


def layer_errors(module: str, source: str, is_package: bool = False) -> list[str]:
    """Imports of modules that are not above; inside one row they may stand in either order."""
    here = row(module)
    return [
        f"fad.{module}:{line} imports fad.{target}, which is below it in LAYERS"
        for line, target in edges(module, source, is_package)
        if row(target) > here or (row(target) == here and not LAYERS[here].endswith(".*"))
    ]


def type_errors(module: str, source: str) -> list[str]:
    """Imports for types of modules in rooms that are not above; in one room the order is free.

    The `__init__` of a public face may import for type checkers what it imports when it is asked for.
    """
    if module in IN_FRONT:
        return []
    rooms = [*ROOMS, "", *TOOLS]
    here = rooms.index(module.partition(".")[0])
    found = [
        (line, fad_module(name, {*MODULES, *LAYERS, module}))
        for line, name in for_types(ast.parse(source), module)
    ]
    return [
        f"fad.{module}:{line} imports fad.{target} for its types, a room that is below it in ROOMS"
        for line, target in found
        if target is not None and rooms.index(target.partition(".")[0]) > here
    ]


def third_party_errors(module: str, source: str) -> list[str]:
    allowed = (
        RUNTIME | IN_TESTS.get(module, set()) | {"fad", "__future__"} | set(sys.stdlib_module_names)
    )
    return [
        f"fad.{module}:{line} imports {name}; at run time fad needs only {sorted(RUNTIME)}"
        for line, name in imported(ast.parse(source), module, False)
        if name.partition(".")[0] not in allowed
    ]


def jax_names(source: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every JAX name that the source imports or reaches by attributes."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for line, name in imported(tree, "", True):
        if name.partition(".")[0] in ("jax", "jaxlib"):
            yield line, name
    # A chain a.b.c is three nodes; only the whole of it says which name is meant.
    inner_parts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in walk_runtime(tree):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute) and id(node) not in inner_parts:
            parts.append(inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name):
            base = aliases.get(inner.id, "")
            if base.partition(".")[0] in ("jax", "jaxlib"):
                yield node.lineno, ".".join([base, *reversed(parts)])  # type: ignore[attr-defined]


def door_errors(module: str, source: str) -> list[str]:
    def is_private(name: str) -> bool:
        if any(f"{name}.".startswith(f"{public}.") for public in PUBLIC_AFTER_ALL):
            return False
        parts = name.split(".")
        hidden = any(part.startswith("_") and not part.endswith("__") for part in parts)
        return hidden or any(f"{name}.".startswith(f"{door}.") for door in NOT_PUBLIC)

    if module == DOOR and "jax._src" not in source.replace('private("jax._src.', ""):
        return []
    names = {(line, name) for line, name in jax_names(source) if is_private(name)}
    return [
        f"fad.{module}:{line} uses {name}; go through fad.{DOOR}" for line, name in sorted(names)
    ]


TABLES_OF_JAX = {
    "axis_primitive_batchers",
    "fancy_primitive_batchers",
    "primitive_batchers",
    "primitive_jvps",
    "primitive_transposes",
}
OWN_PARAMETERS = {"loop", "name", "rules", "stored"}  # of the primitives that fad has made


def takes_all_parameters(node: ast.AST) -> bool:
    """Whether it is ``id(x)`` or ``x.items()``: what compares or maps all parameters, and names none."""
    if not isinstance(node, ast.Call):
        return False
    of = node.func
    return getattr(of, "id", "") == "id" or (not node.args and getattr(of, "attr", "") == "items")


def equation_errors(module: str, source: str) -> list[str]:
    """Where parameters of JAX's primitives, or its tables of rules, are named outside of the door."""
    if module == DOOR:
        return []
    tree = ast.parse(source)
    allowed = set()
    for node in ast.walk(tree):
        if module == "core.jaxprs" and takes_all_parameters(node):
            allowed.add(id(node.args[0] if node.args else node.func.value))  # type: ignore[attr-defined]
        if isinstance(node, ast.Subscript):
            own = getattr(node.slice, "value", "") in OWN_PARAMETERS
        else:
            own = isinstance(node, ast.keyword) and node.arg is None
        if own:
            allowed.add(id(node.value))  # type: ignore[attr-defined]
    return [
        f"fad.{module}:{node.lineno} reads {node.attr}; go through a function of fad.{DOOR}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (node.attr in TABLES_OF_JAX or (node.attr == "params" and id(node) not in allowed))
    ]


def docstring_errors(module: str, source: str) -> list[str]:
    first = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    if first.endswith((".", ":", "?")):
        return []
    return [f"fad.{module}: its first line must be a sentence that says what it does: {first!r}"]


def word_errors(path: Path, text: str, words: list[str]) -> list[str]:
    return [
        f"{path}:{number} contains {word!r}"
        for number, line in enumerate(text.splitlines(), 1)
        for word in words
        if word in line
    ]


def project_files() -> list[Path]:
    """Every text file of the project; nothing that a tool or a run wrote."""
    folders = ["fad", "tests", "docs", "examples", "benchmarks", ".ci"]
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    on_top = [path for path in ROOT.iterdir() if path.is_file()]
    return sorted(
        path
        for path in inside + on_top
        if path.suffix in TEXT
        and not {"__pycache__", "out", ".venv"} & set(path.parts)
        # In a git worktree .git is a file.
        and path.name not in {".coverage", ".git"}
    )


def assert_none(errors: list[str]) -> None:
    assert not errors, "\n".join(errors)


def test_imports_run_one_way() -> None:
    errors = []
    for module, path in MODULES.items():
        errors += layer_errors(module, path.read_text(), path.name == "__init__.py")
    assert_none(errors)


def test_types_come_from_rooms_above() -> None:
    """What a room above has to read of the classes of one below is a Protocol, see `fad.core.types`."""
    assert_none(
        [e for module, path in MODULES.items() for e in type_errors(module, path.read_text())]
    )


def test_the_root_has_rooms_and_nothing_else() -> None:
    """`random` is a public module; all others are packages."""
    found = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert found == {*ROOMS, *TOOLS, "__init__"}


def test_inner_rooms_say_what_comes_in_and_what_goes_out() -> None:
    for room in "errors core tape arrays functions transforms compile bridge torch".split():
        text = ast.get_docstring(ast.parse(MODULES[room].read_text()))
        assert re.search(r"comes? in", text) and re.search(r"goe?s? out", text), room


def test_only_public_names_are_listed() -> None:
    import fad

    rooms = {room for room in [*ROOMS, *TOOLS] if not hasattr(fad, room) or room not in fad.__all__}
    assert sorted([*fad.__all__, "bool", "float", "int"]) == dir(fad)
    assert {
        "core",
        "tape",
        "views",
        "arrays",
        "functions",
        "transforms",
        "compile",
        "replay",
        "rolling",
    } <= rooms
    assert all(hasattr(fad, name) for name in fad.__all__)
    names: dict[str, object] = {}
    exec("from fad import *", names)
    assert {*names} - {"__builtins__"} == {*fad.__all__}


def test_no_cycles() -> None:
    """Inside a row too, which the order of the rows does not rule out."""
    graph = {
        module: {target for _, target in edges(module, path.read_text(), path.stem == "__init__")}
        for module, path in MODULES.items()
    }
    seen: set[str] = set()
    while len(seen) < len(graph):
        free = {module for module in graph if module not in seen and graph[module] <= seen}
        assert free, f"these modules import each other in a circle: {sorted(set(graph) - seen)}"
        seen |= free


@pytest.mark.parametrize(
    "errors_in",
    [
        pytest.param(third_party_errors, id="at run time fad needs JAX and NumPy alone"),
        pytest.param(door_errors, id="private names of JAX stay behind the door"),
        pytest.param(equation_errors, id="parameters of primitives are read by the door"),
        pytest.param(docstring_errors, id="the first line says what the module does"),
    ],
)
def test_modules(errors_in: Callable[[str, str], list[str]]) -> None:
    assert_none([e for m, path in MODULES.items() for e in errors_in(m, path.read_text())])


@pytest.mark.parametrize(
    "paths, words",
    [
        pytest.param(project_files(), PATHS_OF_ONE_MACHINE, id="no paths of one machine"),
        pytest.param(MODULES.values(), LEFT_OPEN, id="nothing left open"),
    ],
)
def test_words(paths: Iterable[Path], words: list[str]) -> None:
    texts = [(path.relative_to(ROOT), path.read_text()) for path in paths]
    assert_none([e for path, text in texts for e in word_errors(path, text, words)])


def test_every_module_imports() -> None:
    for module in MODULES:
        importlib.import_module(f"fad.{module}".rstrip("."))


def test_public_core_names_exist() -> None:
    """What the door lets through is published by this version of JAX."""
    for name in PUBLIC_AFTER_ALL:
        assert pkgutil.resolve_name(name)


def test_the_checks_catch_what_they_should() -> None:
    below = "def late():\n    from fad.bridge import from_jax\n    return from_jax\n"
    assert layer_errors("core.tensor", below) == [
        "fad.core.tensor:2 imports fad.bridge, which is below it in LAYERS"
    ]
    assert layer_errors("core.tensor", "from .level import bind\n")
    assert layer_errors("core.tensor", "import fad\n")
    assert not layer_errors(
        "core.level", "from fad.core.tensor import Tensor\nfrom fad import errors\n"
    )
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fad.bridge import f\n"
    assert not layer_errors("core.tensor", typed)
    assert type_errors("core.tensor", typed) == [
        "fad.core.tensor:3 imports fad.bridge for its types, a room that is below it in ROOMS"
    ]
    assert not type_errors("core.tensor", typed.replace("fad.bridge", "fad.core.level"))
    assert not type_errors("bridge.jax_functions", typed.replace("fad.bridge", "fad.core.level"))
    with pytest.raises(LookupError, match=r"fad/unplaced\.py has no place in LAYERS"):
        layer_errors("unplaced", "import fad\n")

    assert third_party_errors("tensor", "import os, scipy.sparse\n") == [
        "fad.tensor:1 imports scipy.sparse; at run time fad needs only ['jax', 'numpy']"
    ]
    for private in (
        "from jax._src import core\n",
        "import jax.interpreters.ad as ad\n",
        "from jax import extend\n",
        "import jax\njax.core.ShapedArray\n",
        "from jax import core\ncore.Trace\n",
        "import jax.numpy as jnp\njnp._private\n",
    ):
        assert door_errors("tensor", private), private
        assert bool(door_errors(DOOR, private)) == ("_src" in private)
    assert not door_errors(
        "tensor", "import jax\njax.core.Tracer\njax.numpy.sin\njax.__version__\n"
    )

    for reads in (
        "eqn.params['num_carry']\n",
        "eqn.params.get('jaxpr')\n",
        "p = eqn.params\n",
        "from fad.core.jaxapi import batching\nbatching.fancy_primitive_batchers[p] = f\n",
    ):
        assert equation_errors("tensor", reads), reads
        assert not equation_errors(DOOR, reads)
    assert equation_errors("core.jaxprs", "eqn.params.get('jaxpr')\n")
    assert not equation_errors("core.jaxprs", "sorted(eqn.params.items())\nid(eqn.params)\n")
    assert not equation_errors("tensor", "eqn.params['rules']\np.impl(*x, **eqn.params)\n")

    assert docstring_errors("tensor", '"""No end"""\n') and docstring_errors("tensor", "x = 1\n")
    assert word_errors(Path("a"), f"one\nat {PATHS_OF_ONE_MACHINE[0]}x\n", PATHS_OF_ONE_MACHINE)


def test_fad_alone_imports_nothing_for_tests() -> None:
    late = ("hypothesis", "pytest", "matplotlib", "fad.testing", "fad.viz")
    code = f"import sys, fad; print([m for m in sys.modules if m in {late}])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_name_of_a_class_is_taken_once() -> None:
    """A reader who meets the name of a class knows which one it is."""
    taken: dict[str, list[str]] = {}
    for path in (ROOT / "fad").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                taken.setdefault(node.name.strip("_"), []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in taken.items() if len(paths) > 1} == {}
