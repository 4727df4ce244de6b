"""Pictures of graphs by Graphviz, files of pictures, and the libraries of the extra ``viz``."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fad.errors import ArgumentError, MissingLibrary

_WITHOUT = (
    "Without it there is the text that print shows, and of a graph and of fad.why the picture in Graphviz's "
    'language: x.dot(), x.save("x.dot")'
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


def quoted(lines: list[str]) -> str:
    """Lines as a text in Graphviz's language."""
    return '"' + "\\n".join([x.replace("\\", "\\\\").replace('"', '\\"') for x in lines]) + '"'


def write(path: str | os.PathLike[str], picture: Any, **others: Callable[[], str]) -> None:
    """Write a file in the format that its name ends with: SVG, PNG, text, or one of the others.

    Raises:
        ArgumentError: there is no such format.
    """
    named = {"svg": picture.svg, "png": picture.png, "txt": picture.__str__, **others}
    formats = {f".{name}": make for name, make in named.items()}
    file = Path(path)
    if file.suffix.lower() not in formats:
        raise ArgumentError(
            f"save: the name must end with one of {', '.join(formats)}, got {str(path)!r}"
        )
    content = formats[file.suffix.lower()]()
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
