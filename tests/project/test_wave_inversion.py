"""The example of a solver that works in place, run small: compiled, line by line, and as a program."""

from __future__ import annotations

import importlib.util
import re

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT

import fad

for needed in ("optax", "matplotlib", "rich"):
    pytest.importorskip(needed)

PROGRAM = ROOT / "examples" / "wave_inversion.py"


@pytest.fixture(scope="module")
def wave():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("wave_inversion", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_compiled_and_eager_code_have_one_gradient(wave, monkeypatch):
    """It is that of the misfit, by a difference along one direction."""
    monkeypatch.setattr(wave, "SEGMENT", 6)
    y, x = np.mgrid[: wave.SIZE, : wave.SIZE]
    sources = np.exp(-((y - 10) ** 2 + (x - [[[30]], [[45]]]) ** 2) / 20).astype(np.float32)
    pulses = np.ones((2, 6), np.float32)
    true = np.full_like(wave.true_velocity(), wave.BACKGROUND + 0.3)
    heard = fad.jit(wave.survey)(true, sources, pulses)
    inside = np.full_like(true, wave.BACKGROUND)
    arguments = (heard, sources, pulses)

    def f(inside, eager):
        return wave.misfit(inside, *arguments, eager)

    compiled = fad.jit(fad.value_and_grad(f), static_argnums=1)
    value, gradient = compiled(inside, False)
    eager_value, eager_gradient = fad.value_and_grad(f)(inside, True)
    assert 0 < value and jnp.abs(gradient).max() > 0
    np.testing.assert_allclose(value, eager_value, rtol=1e-4)
    np.testing.assert_allclose(gradient, eager_gradient, rtol=1e-3, atol=1e-3 * abs(gradient).max())
    step = 1e-2 * gradient / jnp.linalg.norm(gradient)
    ahead, behind = (compiled(inside + sign * step, False)[0] for sign in (1.0, -1.0))
    np.testing.assert_allclose(ahead - behind, 2e-2 * jnp.linalg.norm(gradient), rtol=2e-2)


def test_the_program_runs_and_finds_a_better_velocity(wave, tmp_path, capsys):
    figure = tmp_path / "figure.png"
    wave.main(["--iterations", "2", "--steps", "160", "--out", str(figure)])
    misfits = re.search(r"misfit: (\S+) at first, (\S+) at last", capsys.readouterr().out)
    assert float(misfits[2]) < float(misfits[1])
    assert figure.stat().st_size > 1000
