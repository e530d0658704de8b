"""Check that each link and anchor of the built site leads somewhere, and that no page fetches from another host."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements by which a browser fetches what it shows, and the attribute that names it.
FETCHING = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("object", "data")}


class Page(HTMLParser):
    """The links, fetched addresses and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.anchors = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Gather what one element names."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in FETCHING and value:
                self.fetched.add(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.add(value)


def mistakes(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each address outside of the site that a page fetches."""
    pages = {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html") if "example-report" not in path.name}
    found = []
    for path, page in pages.items():
        for address in page.links | page.fetched:
            parts = urlsplit(address)
            target = path if not parts.path else Path(path.parent, unquote(parts.path)).resolve()
            if parts.scheme or parts.netloc:
                wrong = address in page.fetched and parts.scheme != "data"
            else:
                wrong = not target.exists() or (
                    target in pages and unquote(parts.fragment) not in pages[target].anchors
                )
            if wrong:
                found.append(f"{path.relative_to(site)}: {address}")
    return sorted(found)


if __name__ == "__main__":
    found = mistakes(Path(sys.argv[1]).resolve())
    sys.exit("\n".join(["these links lead nowhere, or out of the site:", *found]) if found else 0)
