"""The recipe of checkpoints, over two processes: what one saves, the other goes on with, to the same bits."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from helpers import ROOT

PAGE = (ROOT / "docs" / "cookbook" / "train-and-resume.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# The program of the page, up to the training; and what prints a digest of all bits of a state.
PROGRAM = (
    "\n".join(BLOCKS[:2])
    + """
import hashlib, pathlib, pickle

def digest(state):
    arrays = jax.tree.leaves({**state, "key": jax.random.key_data(state["key"].array)})
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in arrays)).hexdigest()
"""
)
SAVE = {
    "pickle": "pathlib.Path('state.pickle').write_bytes(pickle.dumps(state))",
    "orbax": """
import orbax.checkpoint as ocp
with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(pathlib.Path('state').resolve(), state)
""",
}
LOAD = {
    "pickle": "state = pickle.loads(pathlib.Path('state.pickle').read_bytes())",
    "orbax": """
import orbax.checkpoint as ocp
with ocp.StandardCheckpointer() as checkpointer:
    state = checkpointer.restore(pathlib.Path('state').resolve(), start())
""",
}


@pytest.mark.parametrize("means", ["pickle", pytest.param("orbax", marks=pytest.mark.extra)])
def test_another_process_goes_on_with_the_same_bits(means, tmp_path):
    pytest.importorskip("optax", reason="the recipe trains with optax (extra: test)")
    if means == "orbax":
        pytest.importorskip("orbax.checkpoint", reason="the recipe saves with it (extra: recipes)")

    def run(program):
        return subprocess.check_output(
            [sys.executable, "-W", "error", "-c", PROGRAM + program],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            text=True,
        )

    expected = run(
        f"state, _ = train(start(), 12)\n{SAVE[means]}\n"
        "state, values = train(state, 20)\nprint(values, digest(state))"
    )
    assert (
        run(f"{LOAD[means]}\nstate, values = train(state, 20)\nprint(values, digest(state))")
        == expected
    )
