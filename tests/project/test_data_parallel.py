"""The example of data-parallel training: many devices agree with one."""

from __future__ import annotations

import os
import subprocess
import sys

from helpers import ROOT


def run_example(*arguments):
    """The example in a process of its own, with no more devices than it asks for."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    env["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-W", "error", ROOT / "examples" / "data_parallel.py", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_data_parallel_training_agrees_with_one_device():
    out = run_example("--steps", "5")
    assert "8 devices in 1 process(es): loss" in out and "as on one device" in out


def test_data_parallel_training_in_two_processes():
    out = run_example("--processes", "2", "--steps", "5")
    assert "8 devices in 2 process(es): loss" in out and "as on one device" in out
    assert "Tensor(<Array float32[256,1], in part on other processes>, dtype=float32)" in out
