"""The pictures of a page: each is what a variable of the page's code shows.

A page shows ``images/NAME.svg`` below the code that makes ``NAME``, which has a method ``svg()``. From the
root of the repository, `python docs/_site/pictures.py` runs the code of all pages and writes their pictures;
graphs are drawn by Graphviz.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
PAGES = ["seeing-graphs.md"]


def pictures(page: Path) -> dict[Path, Any]:
    """The files of pictures that a page shows, each with what it is a picture of."""
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for code in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
        exec(compile(code, page.name, "exec"), namespace)
    found = re.findall(r"^!\[[^\]]*\]\((images/(\w+)\.svg)\)$", text, re.M)
    return {page.parent / file: namespace[name] for file, name in found}


if __name__ == "__main__":
    for name in PAGES:
        for file, shown in pictures(DOCS / name).items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(shown.svg(), encoding="utf-8")
            print(file.relative_to(DOCS))
