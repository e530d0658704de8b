"""Settings of the documentation site: Sphinx reads the pages where they stand, so that their links hold on a forge too.

`tools/make_site` runs Sphinx with this file. Nothing on the site is fetched from elsewhere: it opens without a network.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.search.en import SearchEnglish

ROOT = Path(__file__).resolve().parents[2]
HOME = "README"
ZH = ".zh"
# Caption of each part of the navigation, and its folder below docs.
PARTS = {"Tutorial": "tutorial", "How to": "howto", "Reference": "reference", "Internals": "internals"}
INDEXES = {"README", "index"}
REPORTS = {"": "example-report.html", ZH: "example-report.zh.html"}
REPORT_TEXTS = {"": "An example report, of a simulated board", ZH: "示例报告（模拟板）"}
LANGUAGES = {"": "English", ZH: "中文"}
# Pages above which the example report is linked.
WITH_REPORT = {HOME, "docs/howto/report"}

project = "profagent"
author = "The profagent developers"
release = version = re.findall(r'__version__ = "(.+)"', (ROOT / "agent/profagent/__init__.py").read_text("utf-8"))[0]
extensions = ["myst_parser"]
root_doc = HOME
source_suffix = {".md": "markdown"}
include_patterns = ["*.md", "docs/**/*.md"]
exclude_patterns = [path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "docs"]
nitpicky = True
myst_heading_anchors = 6

highlight_language = "none"
html_theme = "furo"
html_title = f"profagent {version}"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_extra_path = ["../../build/site-extra"]


class SearchBothLanguages(SearchEnglish):  # type: ignore[misc]
    """English words, and pairs of neighbouring Chinese characters: Chinese has no spaces between words."""

    js_splitter_code = r"""
function splitQuery(query) {
  const parts = query.match(/[\u4e00-\u9fff]+|(?:(?![\u4e00-\u9fff])[\p{Letter}\p{Number}_])+/gu) || [];
  return parts.flatMap((part) => /^[\u4e00-\u9fff]{2}/.test(part)
    ? Array.from({ length: part.length - 1 }, (_, place) => part.slice(place, place + 2))
    : [part]);
}
"""
    _part = re.compile(r"[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+")

    def split(self, text: str) -> list[str]:
        """Return the terms of a text, as `splitQuery` does of what a reader searches."""
        terms: list[str] = []
        for part in self._part.findall(text):
            is_chinese = len(part) > 1 and "\u4e00" <= part[0] <= "\u9fff"
            terms += [part[place : place + 2] for place in range(len(part) - 1)] if is_chinese else [part]
        return terms


def setup(app: Any) -> None:
    """Register the search, and what the site has beyond the pages."""
    app.add_search_language(SearchBothLanguages)
    app.connect("env-get-outdated", outdate_contents)
    app.connect("source-read", add_contents)
    app.connect("html-page-context", add_links)
    app.connect("build-finished", finish)


def outdate_contents(_app: Any, _env: Any, added: set[str], _changed: set[str], removed: set[str]) -> list[str]:
    """Return the first page, which has the navigation, when a page was added or removed."""
    return [HOME] if added or removed else []


def add_contents(app: Any, name: str, source: list[str]) -> None:
    """Append the navigation to the first page: on a forge its table and the folders lead to the other pages."""
    if name != HOME:
        return
    found = sorted(app.env.found_docs, key=lambda page: (Path(page).name not in INDEXES, page))
    originals = [page for page in found if not page.endswith(ZH)]
    parts = {
        caption: [page for page in originals if page.startswith(f"docs/{folder}/")] for caption, folder in PARTS.items()
    }
    parts["Project"] = [page for page in originals if "/" not in page and page != HOME]
    parts["中文"] = [page for page in found if page.endswith(ZH)]
    placed = {HOME, *(page for pages in parts.values() for page in pages)}
    assert placed == set(found), f"no part of the navigation has {set(found) - placed}"
    for caption, pages in parts.items():
        lines = ["", "", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]
        source[0] += "\n".join(lines) if pages else ""


def add_links(app: Any, name: str, _template: str, context: dict[str, Any], doctree: Any) -> None:
    """Put links to the other language and to the example report above a page."""
    if doctree is None:
        return
    language = ZH if name.endswith(ZH) else ""
    original = name.removesuffix(ZH)
    link = '<a href="{}">{}</a>'.format
    links = []
    for other, text in LANGUAGES.items():
        page = f"{original}{other}"
        # Most pages have such a link of their own, for readers on a forge.
        if (
            other != language
            and page in app.env.found_docs
            and f'href="{context["pathto"](page)}"' not in context["body"]
        ):
            links.append(link(context["pathto"](page), text))
    if original in WITH_REPORT:
        links.append(link(context["pathto"](REPORTS[language], 1), REPORT_TEXTS[language]))
    if links:
        context["body"] = f'<p class="languages">{" · ".join(links)}</p>{context["body"]}'


def finish(app: Any, error: Exception | None) -> None:
    """Give the first page the name that servers look for, and delete pages whose source is gone."""
    if error is not None:
        return
    site = Path(app.outdir)
    shutil.copyfile(site / f"{HOME}.html", site / "index.html")
    for page in (site / "docs").rglob("*.html"):
        if page.relative_to(site).with_suffix("").as_posix() not in app.env.found_docs:
            page.unlink()
