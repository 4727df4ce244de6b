"""What type checkers make of fad: expected types, a user's program in strict modes, misspelt names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.stubs.checkers import CHECKERS, MISSING, Findings, check, normal

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module", params=CHECKERS)
def findings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Findings]:
    """What one checker finds in all programs, in one run."""
    if request.param in MISSING:
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    for path in PROGRAMS.glob("*.py"):
        shutil.copy(path, folder)
    return check(request.param, folder)


def lines_of(program: str) -> list[tuple[int, str]]:
    return list(enumerate((PROGRAMS / program).read_text().splitlines(), 1))


def test_expressions_have_the_expected_types(findings: dict[str, Findings]) -> None:
    found = findings.get("expected_types.py", Findings())
    assert not found.errors
    for number, line in lines_of("expected_types.py"):
        expected = [normal(line.split("  # ")[1])] if "reveal_type(" in line else []
        assert found.types.get(number, []) == expected, line


def test_a_program_passes_the_strict_modes(findings: dict[str, Findings]) -> None:
    assert not findings.get("user_program.py", Findings()).errors


def test_mistakes_are_errors(findings: dict[str, Findings]) -> None:
    found = findings["misspelt.py"].errors
    marked = {number: line for number, line in lines_of("misspelt.py") if "# error" in line}
    assert not found.keys() - marked.keys()
    assert not [line for number, line in marked.items() if number not in found]


def test_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, object] = {"__name__": "__main__"}
    exec(compile((PROGRAMS / "user_program.py").read_text(), "user_program.py", "exec"), scope)
    assert capsys.readouterr().out.count(" ") == 3


def test_types_are_compared_in_one_form() -> None:
    assert normal("fad.core.tensor.Tensor | None") == normal("None | Tensor") == "None | Tensor"
    assert normal("Union[builtins.int, builtins.bool, float]") == normal("float | int")
    assert normal("tuple[jax.Array, ...]") == "tuple[Array, ...]"
