"""The tests of a module stand under its name: tests/<room>/test_<module>.py, a theme behind the name."""

from __future__ import annotations

import ast
from pathlib import Path

from helpers import ROOT

# Modules that are wholly tested in another file: what they have is a few lines, or runs only as part of that.
ELSEWHERE = {
    "formulas/smooth_special": "formulas/test_smooth_functions.py",
    "formulas/torch_functions": "methods/test_names_vs_torch.py",
    "core/types": "project/test_annotations.py",
    "extend/types": "project/test_annotations.py",
    "hints/calls": "arrays/test_operations_call_notes.py",
    "hints/gradients": "transforms/test_backward.py",
    "hints/mistakes": "errors/test_advice.py",
    "hints/replay": "autograd/test_compiled.py",
    "random": "arrays/test_namespaces.py",
    "replay/policy": "replay/test_program.py",
    "testing/gradient_problems": "testing/test_gradient_checks.py",
    "viz/findings": "viz/test_causes.py",
    "viz/pictures": "methods/test_text.py",
}
# Files about what a room does as a whole.
OF_A_ROOM = """
    errors/test_exceptions extend/test_interval_arithmetic
    extend/test_own_transform replay/test_threads replay/test_untracked
    replay/test_untracked_in_random_programs tape/test_threads views/test_programs views/test_views_vs_torch
""".split()
NOT_OF_A_ROOM = ("laws", "project", "helpers", "fuzzing", "stubs")


def modules() -> list[str]:
    """`core/level` for fad/core/level.py, and so on."""
    paths = (ROOT / "fad").rglob("*.py")
    return sorted(
        path.relative_to(ROOT / "fad").with_suffix("").as_posix()
        for path in paths
        if path.name != "__init__.py"
    )


def files_of_tests() -> list[Path]:
    """Those of rooms, relative to tests/."""
    found = sorted(p.relative_to(ROOT / "tests") for p in (ROOT / "tests").rglob("test_*.py"))
    return [p for p in found if p.parts[0] not in NOT_OF_A_ROOM]


def test_a_module_has_its_tests() -> None:
    wrong = []
    for module in modules():
        room, _, name = module.rpartition("/")
        own = Path(room) / f"test_{name}.py"
        if module in ELSEWHERE:
            if (ROOT / "tests" / own).exists():
                wrong.append(f"tests/{own} is there, so {module!r} need not stand in ELSEWHERE")
            own = Path(ELSEWHERE[module])
        if not (ROOT / "tests" / own).exists():
            wrong.append(f"fad/{module}.py has no tests in tests/{own}")
    assert not wrong, "\n".join(wrong)


def test_what_is_tested_elsewhere_is_there() -> None:
    gone = set(ELSEWHERE) - set(modules())
    assert not gone, f"ELSEWHERE names modules that are gone: {sorted(gone)}"


def test_a_file_of_tests_begins_with_the_name_of_a_module() -> None:
    rooms: dict[str, list[str]] = {}
    for module in modules():
        room, _, name = module.rpartition("/")
        rooms.setdefault(room or ".", []).append(name)
    wrong = []
    for path in files_of_tests():
        place, name = path.with_suffix("").as_posix(), path.stem.removeprefix("test_")
        names = rooms.get(str(path.parent), [])
        of_module = any(name == n or name.startswith(f"{n}_") for n in names)
        if of_module == (place in OF_A_ROOM):
            wrong.append(f"tests/{path} has the name of {'a' if of_module else 'no'} module")
    assert not wrong, "\n".join(wrong)


def test_a_file_of_tests_has_tests_and_says_what_of() -> None:
    wrong = []
    for path in files_of_tests():
        tree = ast.parse((ROOT / "tests" / path).read_text())
        if not ast.get_docstring(tree):
            wrong.append(f"tests/{path} has no docstring")
        defined = [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        if not any(name.startswith("test_") for name in defined):
            wrong.append(f"tests/{path} has no tests")
    assert not wrong, "\n".join(wrong)
