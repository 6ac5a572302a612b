"""Look up every relative link, image and anchor of the built pages; part of ``make docs``.

    python docs/check_links.py docs/_build/html

Links to other hosts are not followed: the documentation is built without a network.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Targets that a page refers to, and anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a tag."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.add(value)
            elif (name == "id" or (tag == "a" and name == "name")) and value:
                self.anchors.add(value)


def html_files(folder: Path) -> list[Path]:
    """List the pages; those among the static files are templates of the theme."""
    return [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]


def broken_links(folder: Path) -> list[str]:
    """List links of all pages that lead nowhere."""
    pages = {path.resolve(): Page(path.read_text()) for path in html_files(folder)}
    broken = []
    for path, page in pages.items():
        for target in sorted(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if aim.is_dir():
                aim /= "index.html"
            known = aim not in pages or unquote(parts.fragment) in pages[aim].anchors
            if not aim.exists() or (parts.fragment and not known):
                broken.append(f"{path.relative_to(folder.resolve())}: {target}")
    print(f"{len(pages)} pages, {len(broken)} broken links")
    return broken


if __name__ == "__main__":
    sys.exit("\n".join(broken_links(Path(sys.argv[1]))) or 0)
