"""The example of a solver that works in place, run small: compiled, line by line, and as a program."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import fad

for needed in ("optax", "matplotlib", "rich"):
    pytest.importorskip(needed)

PROGRAM = Path(__file__).parent.parent / "examples" / "wave_inversion.py"


@pytest.fixture(scope="module")
def wave():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("wave_inversion", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_compiled_and_eager_code_have_one_gradient(wave, monkeypatch):
    """It is that of the misfit, by a difference along one direction."""
    monkeypatch.setattr(wave, "SEGMENT", 5)
    sources, pulses = wave.sources_and_pulses(10)
    # The pulse at its peak, from two sources near the part that is looked for.
    sources, pulses = 50.0 * np.roll(sources[:2], 12, axis=1), np.roll(pulses[::-1], 1)
    true = wave.true_velocity()
    heard = fad.jit(wave.survey)(true, sources, np.ones_like(pulses))
    inside = np.full_like(true, wave.BACKGROUND)
    arguments = (heard, sources, np.ones_like(pulses))

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
