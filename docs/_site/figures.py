"""Draws the figures of the recipes again, by running the code of their pages.

    python docs/_site/figures.py                      # all of them
    python docs/_site/figures.py gaussian-process     # one

The figures go where the code saves them, in `docs/images`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]


def draw(page: Path) -> float:
    """Run the Python blocks of a page in `docs/images`; returns the seconds it took."""
    os.chdir(DOCS / "images")
    start = time.perf_counter()
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "__main__"})
    return time.perf_counter() - start


if __name__ == "__main__":
    pages = sorted((DOCS / "cookbook").glob("*.md"))
    names = sys.argv[1:] or [page.stem for page in pages if "savefig(" in page.read_text()]
    for name in names:
        print(f"{name}: {draw(DOCS / 'cookbook' / f'{name}.md'):.1f} s")
