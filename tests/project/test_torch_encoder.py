"""The example that trains a network of PyTorch through a simulation in fad."""

from __future__ import annotations

import re
import subprocess
import sys

from helpers import ROOT


def test_the_network_learns_through_the_simulation(torch):
    """The example compares its gradient with a finite difference, and fails if they differ."""
    command = [
        sys.executable,
        "-W",
        "error",
        ROOT / "examples" / "torch_encoder.py",
        "--steps",
        "60",
    ]
    environment = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, last = map(float, re.search(r"loss (\S+) -> (\S+)", done.stdout).groups())
    assert last < first / 3
