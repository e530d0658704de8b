"""The HTML page of a report: one file that loads nothing else."""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from profagent import __version__
from profagent.report.texts import Texts
from profagent.store.sessions import NO_BOARD
from profagent.tables.provenance import session_title
from profagent.tables.table import printable

if TYPE_CHECKING:
    from collections.abc import Mapping


_STYLES = ("page.css",)
_SCRIPTS = ("page.js", "charts.js")
_LIBRARY = "echarts.min.js"
# Within a script element nothing may look like its end; JSON reads these as the same characters.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})

_PLAIN = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<header><div class="wide">
<p class="product">{product}</p>
<h1>{heading}</h1>
<p class="facts">{facts}</p>
</div></header>
<main class="wide">
{body}
</main>
<footer class="wide">profagent {version}</footer>
</body>
</html>
"""


def page(shown: Mapping[str, Any]) -> str:
    """Return the HTML of a report's document, with styles, scripts, the chart library and the data inside."""
    texts = Texts.of_language(shown["language"])
    data = msgspec.json.encode({**shown, "texts": texts.page}).decode().translate(_ESCAPES)
    parts = {
        "title": escape(_title(shown, texts)),
        "language": texts.html_language,
        "verdict": escape(shown["verdict"]),
        "styles": style(),
        "library": resources.files("profagent.report").joinpath("echarts", _LIBRARY).read_text("utf-8"),
        "scripts": "".join(map(_text, _SCRIPTS)),
        "data": data,
    }
    # The template is split before any part is inserted, so a `@@` inside a part is never taken for a placeholder.
    pieces = _text("page.html").split("@@")
    # A placeholder that is not a part is an English text of the page.
    named = {piece: escape(texts.text(piece)) for piece in pieces[1::2]} | parts
    return "".join(named[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def plain_page(product: str, title: str, heading: str, facts: str, body: str) -> str:
    """Return a page in the form of a report that has no scripts; `body` is HTML, the others are text."""
    named = {"product": product, "title": title, "heading": heading, "facts": facts, "version": __version__}
    texts = {name: escape(printable(text)) for name, text in named.items()}
    return _PLAIN.format(style=style(), body=body, **texts)


def style() -> str:
    """Return the style sheet of a report, which pages that lead to reports share."""
    return "".join(map(_text, _STYLES))


def _title(shown: Mapping[str, Any], texts: Texts) -> str:
    about, jobs = shown["session"], [each["job"] for each in shown["jobs"]]
    # An imported JOB has no board, so its own name is the title.
    named = ", ".join(jobs) if jobs and about["board"] == NO_BOARD else texts.line(session_title(about))
    return named + (f" [{texts.text('simulated')}]" if shown["simulated"] else "")


def _text(name: str) -> str:
    return resources.files("profagent.report").joinpath("page", name).read_text("utf-8")
