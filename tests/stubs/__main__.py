"""Write the stubs of Tensor, of public modules and of the derived ones: ``python -m tests.stubs``."""

from __future__ import annotations

import subprocess
import sys

from tests.stubs.faces import FACES, face_path, face_stub
from tests.stubs.members import PATH, members_stub
from tests.stubs.stubs import modules, stub_of, stub_path

if __name__ == "__main__":
    written = [str(PATH)]
    PATH.write_text(members_stub())
    for module in modules():
        path = stub_path(module)
        path.parent.mkdir(exist_ok=True)
        path.write_text(stub_of(module))
        written.append(str(path))
    for face in FACES:
        face_path(face).write_text(face_stub(face))
        written.append(str(face_path(face)))
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "-q", "--fix", "--select", "I,F401", *written], check=True)
    subprocess.run([*ruff, "format", "-q", *written], check=True)
