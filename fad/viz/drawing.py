"""Pictures of graphs by Graphviz, and the libraries of the extra ``viz``."""

from __future__ import annotations

import importlib
import shutil
from typing import Any

from fad.errors import MissingLibrary

_WITHOUT = (
    'Without it there are print(graph), graph.dot() and graph.json(), and graph.save("graph.dot")'
)


def viz_library(name: str) -> Any:
    """A library of the extra ``viz``.

    Raises:
        MissingLibrary: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise MissingLibrary(
            f"fad.viz: a picture needs {library}, which is not installed: pip install {library}. {_WITHOUT}"
        ) from error


def can_draw() -> bool:
    """Whether Graphviz is there: its program, and its Python package."""
    try:
        viz_library("graphviz")
    except MissingLibrary:
        return False
    return shutil.which("dot") is not None


def draw(dot: str, format: str) -> bytes:
    """A picture of a DOT text by Graphviz's program ``dot``.

    Arguments:
        format: ``"svg"`` or ``"png"``, or another one that ``dot -T`` takes.

    Raises:
        MissingLibrary: Graphviz or its Python package is not installed.
    """
    graphviz = viz_library("graphviz")
    try:
        picture: bytes = graphviz.Source(dot).pipe(format=format)
    except graphviz.ExecutableNotFound as error:
        raise MissingLibrary(
            "fad.viz: a picture needs the program dot of Graphviz, which is not on the PATH: "
            "apt install graphviz, brew install graphviz, conda install graphviz, or "
            f"https://graphviz.org/download. {_WITHOUT}"
        ) from error
    return picture
