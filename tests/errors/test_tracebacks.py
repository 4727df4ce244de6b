"""Which lines are the user's: those that a warning names."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings

import jax
import numpy as np
import pytest

import fad
from fad.errors.tracebacks import is_users, warn_at_users_line


def test_code_of_fad_and_of_the_libraries_below_it_is_not_the_users() -> None:
    for f in (fad.grad, fad.core.level.bind, np.tile, jax.numpy.pad):
        assert not is_users(inspect.unwrap(f).__code__)
    for f in (test_code_of_fad_and_of_the_libraries_below_it_is_not_the_users, pytest.raises):
        assert is_users(f.__code__)
    assert is_users(compile("1", "<string>", "exec"))


def test_a_warning_names_the_line_of_the_user_once() -> None:
    warn = functools.partial(warn_at_users_line, "words", UserWarning)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(2):
            np.apply_along_axis(lambda row: [warn(), row][1], 0, np.ones(2))
        np.fromfunction(functools.partial(lambda *_: warn()), (1,))
    first = inspect.getsourcelines(test_a_warning_names_the_line_of_the_user_once)[1]
    assert [(w.filename, w.lineno - first) for w in found] == [(__file__, 5), (__file__, 6)]


def test_an_error_is_shown_where_the_tool_cannot_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "fad.hints.tracebacks", None)
    shown = []
    hook = fad.errors.tracebacks._hook("of_program", lambda *error: shown.append(error))
    hook(ValueError, ValueError("of the user"), None)
    assert [str(error) for _, error, _ in shown] == ["of the user"]
