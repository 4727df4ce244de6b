"""Which versions of JAX are accepted."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import pytest
from helpers import ROOT

from fad.core import jaxapi


@pytest.mark.parametrize("version", ["0.10.1", "0.9.2", "0.13.0", "1.0"])
def test_versions_of_jax_out_of_the_range_are_refused(version: str) -> None:
    with pytest.raises(ImportError, match=rf"jax>=0\.10\.2,<0\.13, found jax {version}: pip inst"):
        jaxapi.check_version(version)


@pytest.mark.parametrize(
    "version", ["0.10.2", "0.11.0", "0.12.0.1", "0.12.5.dev20261101", jax.__version__]
)
def test_versions_of_jax_in_the_range_are_accepted(version: str) -> None:
    jaxapi.check_version(version)


def test_the_range_of_jax_is_checked_at_import_and_is_the_packages() -> None:
    required = re.search(r'"jax(>=\S+)"', (ROOT / "pyproject.toml").read_text())
    least, below = (".".join(map(str, v)) for v in (jaxapi.MINIMUM_JAX, jaxapi.BELOW_JAX))
    assert required is not None and required[1] == f">={least},<{below}"
    source = Path(jaxapi.__file__).read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "__version__", "0.13.1")
        with pytest.raises(ImportError, match=r"found jax 0\.13\.1"):
            exec(compile(source, jaxapi.__file__, "exec"), {"__name__": "jaxapi"})
