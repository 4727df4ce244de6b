"""Checks a built site: links inside of it lead somewhere, and reading a page needs no network.

python docs/_site/links.py build/site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches unasked to show a page; a link it only follows when it is clicked.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


class Page(HTMLParser):
    """What a page links to, what it fetches, and the names in it that links can end at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {name for key in ("id", "name") if (name := found.get(key))}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")
        if tag in FETCHED and found.get(FETCHED[tag]):
            self.fetched.append(found[FETCHED[tag]] or "")


def problems(site: Path) -> list[str]:
    """A line for each link that leads nowhere and each thing that is fetched from outside."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} has no pages"]
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        for target in dict.fromkeys(page.links + page.fetched):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.fetched and parts.scheme != "data":
                    found.append(f"{where} fetches {target}")
                continue
            other = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not other.exists():
                found.append(f"{where} links to {target}: there is no such file")
                continue
            anchors = pages[other].anchors if other in pages else {parts.fragment}
            if parts.fragment and unquote(parts.fragment) not in anchors:
                found.append(f"{where} links to {target}: there is no such place in the page")
    return found


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]))
    print("\n".join(lines) or "all links lead somewhere, and nothing is fetched from outside")
    sys.exit(bool(lines))
