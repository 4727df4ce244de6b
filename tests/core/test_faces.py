"""Tables of public names: each is where the table says, and tools are imported when they are asked for."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest
from helpers import ROOT

from fad.core.faces import Face


def module(name: str, **tables: dict[str, str]) -> types.ModuleType:
    made = types.ModuleType(name)
    sys.modules[name] = made
    made.face = Face(name, AttributeError, **tables)
    made.__getattr__ = made.face.find
    return made


@pytest.fixture
def face():
    yield module("face_of_a_test", now={"math": "pi root=sqrt"}, later={"cmath": "phase"})
    del sys.modules["face_of_a_test"]


def test_names_are_looked_up_at_once_or_when_they_are_asked_for(face):
    assert face.face.names == ["phase", "pi", "root"]
    assert vars(face)["root"](4.0) == 2.0 and "phase" not in vars(face)
    assert face.phase(1j) > 1.5 and "phase" in vars(face)
    with pytest.raises(AttributeError, match="sin"):
        face.sin


def test_a_name_may_be_a_module():
    made = module("jax_of_a_test", later={"": "numpy"})
    made.face.module = "jax"
    assert made.face.find("numpy") is sys.modules["jax.numpy"]
    del sys.modules["jax_of_a_test"]


def test_tools_are_imported_when_they_are_asked_for():
    tools = ("implicit", "profiling", "sparse", "testing", "viz")
    loaded = f"print([m for m in {tools} if f'fad.{{m}}' in sys.modules])"
    uses = ["fad.grad(fad.numpy.sin)(1.0)", "fad.autograd.backward", "fad.sparse_jacobian"]
    code = "import sys, fad; " + "; ".join([f"{use}; {loaded}" for use in uses])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.splitlines() == ["[]", "[]", "['sparse']"]


def test_what_is_imported_later_is_listed_before():
    code = "import fad; print([{*m.__all__} - {*dir(m)} for m in (fad, fad.autograd, fad.extend, fad.func)])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == f"{[set()] * 4}\n"
