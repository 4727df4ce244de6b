"""The site: all pages are in its navigation, each public name has an entry, and its links are checked."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

import fad

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_site"))
import links  # noqa: E402
import reference  # noqa: E402
import subjects  # noqa: E402
import tensor  # noqa: E402

sys.path.remove(str(DOCS / "_site"))


def test_every_page_is_in_the_navigation() -> None:
    listed: list[str] = []
    for index in (DOCS / "index.md", DOCS / "cookbook" / "index.md"):
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", index.read_text(), re.M | re.S):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed += [os.path.relpath(index.parent / name, DOCS) for name in names]
    pages = {p.relative_to(DOCS).with_suffix("").as_posix() for p in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted((pages - {"index"}) | {"reference/index"})


# Pages that are made from others, or list others.
OF_OTHERS = ("index", "changelog", "contributing")


@pytest.mark.parametrize(
    "page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.relative_to(DOCS).as_posix()
)
def test_the_first_sentence_of_a_page_says_what_one_can_do_with_it(page: Path) -> None:
    if page.parent != DOCS or page.stem not in OF_OTHERS:
        first = page.read_text().split("\n\n")[1]
        assert first.startswith(("With this page you can ", "After this page you can ")), first


def test_the_index_groups_the_pages_by_kind() -> None:
    text = (DOCS / "index.md").read_text()
    kinds = ("Tutorials", "How-to guides", "Reference", "Explanation")
    for kind in kinds:
        section = text.partition(f"\n## {kind}\n")[2].partition("\n## ")[0].partition("```")[0]
        tree = text.partition(f":caption: {kind}\n\n")[2].partition("```")[0].split()
        linked = re.findall(r"\]\(([\w/-]+)\.(?:md|rst)\)", section)
        assert sorted(set(linked) - {"cookbook/index"}) == sorted(tree), kind


@pytest.mark.parametrize("page", sorted((DOCS / "cookbook").glob("*.md")), ids=lambda p: p.stem)
def test_a_recipe_draws_the_figure_that_it_shows_or_prints_a_table(page: Path) -> None:
    text = page.read_text()
    drawn = re.findall(r'savefig\("([\w-]+\.png)"', text)
    shown = re.findall(r"!\[[^\]]+\]\(\.\./images/([\w-]+\.png)\)", text)
    assert drawn == shown and drawn in ([], [f"{page.stem}.png"])
    assert drawn or page.stem == "index" or re.search(r"^# -> .*\n#    ", text, re.MULTILINE)
    assert all((DOCS / "images" / name).exists() for name in shown)


def test_guides_are_found_by_their_subjects() -> None:
    for page, words in subjects.SUBJECTS.items():
        path = DOCS / f"{page}.md"
        source = [path.read_text()]
        subjects.add(None, page, source)
        title, _, entries = source[0].partition("\n\n```{index} ")
        assert title == path.read_text().partition("\n")[0]
        assert entries.startswith("! " + words.replace(", ", ", ! ") + "\n```\n")
    assert "nan" in subjects.SUBJECTS["singular-points"].split(", ")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages of the reference, as Sphinx is given them."""
    folder = tmp_path_factory.mktemp("reference")
    reference.write(folder)
    return {path.stem: path.read_text() for path in folder.iterdir()}


def test_every_public_module_is_in_the_reference() -> None:
    public = {name for name in fad.__all__ if inspect.ismodule(getattr(fad, name))}
    public |= {
        f"autograd.{n}" for n, v in vars(fad.autograd).items() if is_module_of(v, "autograd")
    }
    listed = {name.removeprefix("fad.") for name in [*reference.WRITTEN, *reference.DERIVED]}
    tools = {"autograd.builtin_nodes", "autograd.host_memory", "autograd.nested"}
    assert public - tools <= listed


def is_module_of(value: object, room: str) -> bool:
    return inspect.ismodule(value) and value.__name__.startswith(f"fad.{room}.")


def test_every_public_name_has_its_entry(pages: dict[str, str]) -> None:
    for full, home in reference.homes().items():
        module = full.rpartition(".")[0]
        name = reference.page_name(home)
        assert re.search(rf"^\.\. (autoclass|autofunction|py:data):: {home}$", pages[name], re.M), (
            full
        )
        assert f"<{name}>`" in pages[module], full
    for module, _ in reference.derived_modules():
        for name in reference.names(module):
            assert re.search(rf"^\.\. py:\w+:: {name}$", pages[module], re.M), name
        assert f".. py:module:: {module}\n" in pages[module]
    for name in [name for names in tensor.groups().values() for name in names]:
        assert f":: fad.Tensor.{name}\n" in pages["fad.Tensor-class"], name
        assert reference.summary(getattr(fad.Tensor, name)), f"Tensor.{name} has no docstring"
    assert all(f"   {name}\n" in pages["index"] for name in reference.WRITTEN)


@pytest.mark.parametrize("full", [a for a, b in reference.homes().items() if a == b])
def test_every_public_name_is_described_and_shown(full: str) -> None:
    """Its docstring has an example, which test_docs.py runs."""
    found = reference.resolve(full)
    if callable(found):
        text = inspect.getdoc(found) or ""
        assert ">>> " in text and reference.summary(found), (
            f"{full} has no example in its docstring"
        )


@pytest.mark.parametrize("title", tensor.GROUPS)
def test_each_kind_of_members_of_a_tensor_is_shown(title: str) -> None:
    assert title in tensor.groups()
    test = doctest.DocTestParser().get_doctest(tensor.example(title), {"fad": fad}, title, None, 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    assert not report, "".join(report)


def test_summaries_are_plain_text() -> None:
    def of_jax():
        """Like :func:`numpy.sin`, of `x` :class:`~jax.Array`. See below.

        More.
        """

    assert reference.summary(of_jax) == "Like numpy.sin, of x Array."


def test_what_is_wrong_in_a_built_site_is_found(tmp_path: Path) -> None:
    page = '<h1 id="top">x</h1><a href="b.html#here">b</a><a href="https://example.org">away</a>'
    (tmp_path / "a.html").write_text(
        f'{page}<a href="#top">t</a><img src="data:image/png;base64,">'
    )
    (tmp_path / "b.html").write_text('<p id="here">y</p>')
    assert links.problems(tmp_path) == []
    (tmp_path / "c.html").write_text(
        '<a href="none.html">n</a><a href="b.html#there">b</a><script src="//example.org/x.js">'
    )
    wrong = [line.split(":")[0] for line in links.problems(tmp_path)]
    assert wrong == [
        "c.html links to none.html",
        "c.html links to b.html#there",
        "c.html fetches //example.org/x.js",
    ]
    program = [sys.executable, DOCS / "_site" / "links.py", tmp_path]
    assert subprocess.run(program, capture_output=True).returncode == 1
    assert links.problems(tmp_path / "none") == [f"{tmp_path / 'none'} has no pages"]


@pytest.mark.parametrize("module", [*reference.WRITTEN, *reference.DERIVED])
def test_each_public_module_says_which_of_its_names_was_meant(module: str) -> None:
    found = importlib.import_module(module)
    name = max(dir(found) if module in reference.DERIVED else found.__all__, key=len)
    with pytest.raises(
        AttributeError, match=f"^{re.escape(module)} has no .*(mean|write) .*{name}"
    ):
        getattr(found, name[:-1])
