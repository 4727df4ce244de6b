"""What is shown of an error that nothing caught."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from helpers import ROOT

import fad
from fad.errors import tracebacks
from fad.errors.tracebacks import install
from fad.hints.tracebacks import shown, users_frames


def shape_error(x: Any) -> Any:
    return x @ fad.tensor([[1.0, 2.0, 3.0]])  # the line of the user


def lines_of(error: BaseException) -> list[str]:
    return [step.name for step in traceback.extract_tb(error.__traceback__)]


PROGRAMS: dict[str, Any] = {
    "plain": lambda: shape_error(fad.tensor([1.0, 2.0])),
    "grad": lambda: fad.grad(shape_error)(jnp.ones(2)),
    "vmap of jvp": lambda: fad.vmap(lambda x: fad.jvp(shape_error, (x,), (x,)))(jnp.ones((4, 2))),
    "jit": lambda: fad.jit(shape_error)(jnp.ones(2)),
    "index": lambda: fad.grad(lambda x: x[0, 0])(jnp.ones(2)),
}


def raised(program: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:
        program()
    return caught.value


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_shown_ends_with_the_line_of_the_user(name: str) -> None:
    error = raised(PROGRAMS[name])
    whole, notes = lines_of(error), getattr(error, "__notes__", [])[:]
    with shown(error):
        steps = traceback.extract_tb(error.__traceback__)
        assert not [s for s in steps if "/fad/" in s.filename and "/tests/" not in s.filename]
        assert not [s for s in steps if "/jax/" in s.filename]
        assert steps[-1].name == ("shape_error" if name != "index" else "<lambda>")
        assert "FAD_TRACEBACK_FILTERING=off" in error.__notes__[-1]
    assert lines_of(error) == whole and getattr(error, "__notes__", []) == notes


def test_filtering_can_be_switched_off() -> None:
    error = raised(PROGRAMS["grad"])
    whole = lines_of(error)
    before = fad.errors.traceback_filtering("off")
    try:
        with shown(error):
            assert lines_of(error) == whole
    finally:
        assert fad.errors.traceback_filtering(before) == "off"
    assert fad.errors.traceback_filtering() == before == "remove_frames"
    with pytest.raises(ValueError, match="one of 'remove_frames', 'off', got 'some'"):
        fad.errors.traceback_filtering("some")


def test_errors_around_an_error_are_filtered_too() -> None:
    def program() -> None:
        try:
            PROGRAMS["grad"]()
        except Exception as error:
            raise ValueError("another") from error

    error = raised(program)
    assert isinstance(error.__cause__, Exception)
    with shown(error):
        assert lines_of(error.__cause__)[-1] == "shape_error"
    assert lines_of(error.__cause__)[-1] != "shape_error"


def test_an_error_of_others_is_shown_as_it_is() -> None:
    error = raised(lambda: jnp.ones(2) @ jnp.ones(3))
    whole = lines_of(error)
    with shown(error):
        assert lines_of(error) == whole and len(whole) > 2
    with shown(None):
        pass


PROGRAM = """
import sys, threading, warnings
import fad
def f(x):
    return x @ fad.tensor([[1.0, 2.0, 3.0]])
t = threading.Thread(target=fad.grad(f), args=(fad.tensor([1.0, 2.0]),))
t.start()
t.join()
print("then", file=sys.stderr)
fad.grad(f)(fad.tensor([1.0, 2.0]))
"""


@pytest.mark.parametrize("mode", ["remove_frames", "off"])
def test_a_program_that_fails(mode: str) -> None:
    environment = {**os.environ, "FAD_TRACEBACK_FILTERING": mode, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    of_thread, of_program = done.stderr.split("then\n")
    for text in (of_thread, of_program):
        assert ("/fad/transforms/grad.py" in text) == (mode == "off")
        assert ("not shown;" in text) == (mode != "off")
        assert ("JAX has removed its internal frames" in text) == (mode == "off")
        assert 'File "<string>", line 5, in f' in text and "TypeError" in text


def test_the_shell_of_ipython_has_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Shell:
        custom_exceptions = ()

        def set_custom_exc(self, kinds: Any, handler: Any) -> None:
            calls.append((kinds, handler))

        def showtraceback(self, of: Any, tb_offset: Any) -> None:
            calls.append([step.name for step in traceback.extract_tb(of[2])])

    shell = Shell()
    module = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    install()
    ((kinds, handler),) = calls
    error = raised(PROGRAMS["grad"])
    handler(shell, type(error), error, error.__traceback__, tb_offset=1)
    assert kinds == (Exception,) and calls[-1][-1] == "shape_error"
    filtered = len(calls[-1])
    monkeypatch.setitem(sys.modules, "fad.hints.tracebacks", None)  # type: ignore[arg-type]
    handler(shell, type(error), error, error.__traceback__)  # where the tool cannot be imported
    assert len(calls[-1]) > filtered


def test_frames_of_a_text_are_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised(PROGRAMS["grad"])
    frames = traceback.format_tb(error.__traceback__)
    short = users_frames(frames)
    assert "in shape_error" in short[-1] and not any("jax/_src" in frame for frame in short)
    assert len(short) < len(frames)
    monkeypatch.setattr(tracebacks, "filtering", "off")
    assert users_frames(frames) == frames
