"""What users install: the wheel holds the package and nothing else, under the distribution's own name."""

from __future__ import annotations

import email
import re
import tomllib
import zipfile

import pytest
from helpers import ROOT

import fad

wheels = pytest.importorskip("hatchling.builders.wheel", reason="builds the wheel (extra: test)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = str(tmp_path_factory.mktemp("wheel"))
    (path,) = wheels.WheelBuilder(str(ROOT)).build(directory=folder, versions=["standard"])
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    about = f"fad_jax-{fad.__version__}.dist-info"
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "fad").rglob("*")
        if path.suffix in {".py", ".pyi", ".typed", ".html", ".js"}
    }
    of_it = {f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")}
    assert set(wheel.namelist()) == package | of_it
    assert "fad/py.typed" in package


def test_the_distribution_has_a_name_of_its_own(wheel: zipfile.ZipFile) -> None:
    name = f"fad_jax-{fad.__version__}.dist-info/METADATA"
    metadata = email.message_from_string(wheel.read(name).decode())
    assert (metadata["Name"], metadata["Version"]) == ("fad-jax", fad.__version__)
    # `fad` on the package index is another project: no page tells anyone to install that.
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"pip install (-\S+ )*'?fad(?!-jax)", page.read_text()), page.name


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert project["version"] == fad.__version__ == citation[1]


def test_the_changelog_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[(.+?)\](.*)$", text, re.MULTILINE)
    assert released[0] == ("Unreleased", "")
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", date) for _, date in released[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds


def test_each_extra_is_tried_alone_in_ci() -> None:
    """In an environment of its own, by the command of a page; README's commands are for two of them."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    alone = re.findall(r"\(alone (\w+) ", (ROOT / ".ci" / "run").read_text())
    assert sorted([*alone, "examples", "test"]) == sorted(extras)
