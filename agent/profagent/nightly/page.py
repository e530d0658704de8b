"""What stands beside a night: JUnit XML, and a page with links to the sessions' reports and to the nights before."""

from __future__ import annotations

from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING

import msgspec

from profagent.cli.table import printable
from profagent.diff.report import junit_xml
from profagent.files import write_atomically
from profagent.nightly.night import junit_cases, report_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagent.nightly.night import Night, Outcome, Reports

# Nights before that a page names.
MOST_PREDECESSORS = 60
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 .verdict, li .verdict { font-size: .8em; padding: .1em .5em; border-radius: .3em; background: #8884; }
.slower, .failed { color: light-dark(#a00, #f88); }
.away, .incomplete { color: light-dark(#850, #fc6); }
.good { color: light-dark(#060, #8d8); }
"""


class PastBoard(msgspec.Struct, frozen=True):
    """A board in an earlier night."""

    board: str
    verdict: str
    session: int | None


class PastNight(msgspec.Struct, frozen=True):
    """An earlier night, and its verdict."""

    run: str
    verdict: str
    boards: list[PastBoard] = []


def past_nights(folder: Path) -> list[PastNight]:
    """The nights that were kept, the newest first; files that are none of ours are passed over."""
    found = []
    for file in sorted(folder.glob("*.json"), reverse=True):
        with suppress(OSError, msgspec.MsgspecError):
            found.append(msgspec.json.decode(file.read_bytes(), type=PastNight))
    return found


def report_name(run: str, outcome: Outcome) -> str:
    """The file, beside a night, of the report on a board's session: the page links to one that is there."""
    return f"{run}-session-{outcome.session}.html"


def junit_of(night: Night) -> bytes:
    """The night as JUnit XML."""
    plain = "\n".join(report_lines(night, as_markdown=False))
    return junit_xml("profagent nightly", junit_cases(night), plain)


def write_beside(folder: Path, night: Night, wanted: Sequence[Reports]) -> Path | None:
    """Write what is wanted into the folder of nights; the page, if it is. Raises ProfagentError."""
    if "junit" in wanted:
        write_atomically(folder / f"{night.run}.xml", [junit_of(night)])
    if "page" not in wanted:
        return None
    earlier = [each for each in past_nights(folder) if each.run < night.run][:MOST_PREDECESSORS]
    page = folder / f"{night.run}.html"
    write_atomically(page, ["\n".join(_page(folder, night, earlier)).encode()])
    return page


def _page(folder: Path, night: Night, earlier: Sequence[PastNight]) -> Iterator[str]:
    title = f"profagent night {night.run}: {night.verdict.word}"
    yield f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_text(title)}</title>'
    yield f'<meta name="viewport" content="width=device-width">\n<style>{_STYLE}</style>\n</head>\n<body>'
    yield f"<h1>Night of {_text(night.run)}</h1>"
    yield from (f'<p class="{night.verdict.word}"><strong>{_text(line)}</strong></p>' for line in night.headlines())
    for outcome in night.outcomes:
        word = outcome.verdict.word
        yield f'<h2>{_text(outcome.shown_board)} <span class="verdict {word}">{word}</span></h2>\n<ul>'
        yield from (f"<li>{_text(line)}</li>" for line in outcome.lines())
        if (folder / report_name(night.run, outcome)).exists():
            yield f'<li><a href="{escape(report_name(night.run, outcome))}">report of its session</a></li>'
        yield "</ul>"
    yield from (f"<p>{_text(remark)}</p>" for remark in night.remarks)
    if earlier:
        yield "<h2>Nights before</h2>\n<ul>"
        for past in earlier:
            kind = "html" if (folder / f"{past.run}.html").exists() else "json"
            link = f'<a href="{escape(past.run)}.{kind}">{_text(past.run)}</a>'
            yield f'<li>{link} <span class="verdict {escape(past.verdict)}">{_text(past.verdict)}</span></li>'
        yield "</ul>"
    yield "</body>\n</html>\n"


def _text(text: str) -> str:
    return escape(printable(text))
