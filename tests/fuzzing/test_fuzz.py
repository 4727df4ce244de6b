"""The fuzzer finds a fault, makes it small, and says how to see it again."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import fad.numpy as fnp
from tests.fuzzing import fuzz
from tests.fuzzing.programs import OPS, Program
from tests.fuzzing.stacks import IN_FAD, IN_JAX


def test_the_fuzzer_finds_shrinks_and_prints_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sine with a wrong cosine is found, shrunk to one step, and printed as code that fails."""

    def wrong(lib, x):
        return lib.np.sin(x) if lib is IN_JAX else lib.np.sin(x) + 1e-3 * lib.np.cos(x)

    monkeypatch.setitem(OPS, "sin", dataclasses.replace(OPS["sin"], run=wrong))
    for name in set(OPS) - {"sin", "add", "multiply", "sum", "scale"}:
        monkeypatch.delitem(OPS, name)
    said: list[str] = []
    failures, counts = fuzz.fuzz(
        0.0, seed=3, max_steps=3, max_stack=1, modes=("eager",), say=said.append
    )
    assert len(failures) == 1 and sum(counts.values()) > 0
    assert [name for name, _, _ in failures[0].program.steps] == ["sin"]
    assert failures[0].stack == ()
    with pytest.raises(AssertionError, match="expected"):
        exec(said[0], {})
    with pytest.raises(SystemExit):
        fuzz.main(["--modes", "nonsense"])


def test_a_difference_in_pytorch_is_reported(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(lib, x):
        return fnp.sin(2.0 * x) if lib is IN_FAD else lib.np.sin(x)

    monkeypatch.setitem(OPS, "sin", dataclasses.replace(OPS["sin"], run=wrong))
    with pytest.raises(AssertionError, match="PyTorch's gradient"):
        fuzz.check_torch(Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,)))


def test_the_fuzzer_compares_bits_and_says_how_to_do_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,))
    given = []

    def check(
        program: Program, stack: tuple[str, ...] = (), x64: bool = False, exact: bool = False
    ) -> bool:
        given.append(exact)
        raise AssertionError("call 3: a bit")

    monkeypatch.setattr(fuzz, "check_again", check)
    failures, _ = fuzz.fuzz(
        0.0, modes=("again",), max_steps=1, max_stack=0, say=lambda text: None, exact=True
    )
    assert given and all(given)
    assert "(), exact=True)" in str(failures[0])
    assert "exact" not in str(fuzz.Failure(program, (), "eager", ValueError(), True))
