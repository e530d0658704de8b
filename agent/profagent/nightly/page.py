"""Files beside a night: JUnit XML, and a page with links to the sessions' reports and to earlier nights."""

from __future__ import annotations

from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING

import msgspec

from profagent.diff.report import junit_xml
from profagent.files import write_atomically
from profagent.limits import MOST_PREDECESSORS
from profagent.nightly.night import NightVerdict, junit_cases, report_lines
from profagent.report.html_page import plain_page
from profagent.tables.table import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagent.nightly.night import BoardOutcome, Night, Reports

# The style class, of the report's style sheet, for the colour of each verdict.
_TONES = {
    NightVerdict.EXCEEDED.word: "high",
    NightVerdict.SLOWER.word: "high",
    NightVerdict.FAILED.word: "high",
    NightVerdict.AWAY.word: "medium",
    NightVerdict.INCOMPLETE.word: "medium",
    NightVerdict.UNDECIDED.word: "low",
    NightVerdict.GOOD.word: "info",
}


class PastBoard(msgspec.Struct, frozen=True):
    """Result of a board in an earlier night."""

    board: str
    verdict: str
    session: int | None


class PastNight(msgspec.Struct, frozen=True):
    """Earlier night, as read from its file."""

    run: str
    verdict: str
    boards: list[PastBoard] = []


def past_nights(folder: Path) -> list[PastNight]:
    """Return the nights whose files are in the directory, the newest first; unreadable files are skipped."""
    found = []
    for file in sorted(folder.glob("*.json"), reverse=True):
        with suppress(OSError, msgspec.MsgspecError):
            found.append(msgspec.json.decode(file.read_bytes(), type=PastNight))
    return found


def report_name(run: str, outcome: BoardOutcome) -> str:
    """Return the file name of the report on a board's session; the page links to the file if it exists."""
    return f"{run}-session-{outcome.session}.html"


def junit_of(night: Night) -> bytes:
    """Return the night as JUnit XML."""
    plain = "\n".join(report_lines(night, as_markdown=False))
    return junit_xml("profagent nightly", junit_cases(night), plain)


def write_beside(folder: Path, night: Night, wanted: Sequence[Reports]) -> Path | None:
    """Write the requested files into the directory of nights, and return the page or None.

    Raises ProfagentError.
    """
    if "junit" in wanted:
        write_atomically(folder / f"{night.run}.xml", [junit_of(night)])
    if "page" not in wanted:
        return None
    earlier = [each for each in past_nights(folder) if each.run < night.run][:MOST_PREDECESSORS]
    page = folder / f"{night.run}.html"
    title, facts = f"profagent night {night.run}: {night.verdict.word}", counted(len(night.outcomes), "board")
    body = "\n".join(_body(folder, night, earlier))
    write_atomically(page, [plain_page("profagent nightly", title, f"Night of {night.run}", facts, body).encode()])
    return page


def _body(folder: Path, night: Night, earlier: Sequence[PastNight]) -> Iterator[str]:
    yield '<section>\n<h2>Verdict</h2>\n<div class="card">'
    yield from (f'<p class="sentence">{_text(line)}</p>' for line in night.headlines())
    yield from (f'<p class="quiet">{_text(remark)}</p>' for remark in night.remarks)
    yield '</div>\n</section>\n<section>\n<h2>Boards</h2>\n<div class="pair">'
    for outcome in night.outcomes:
        yield f'<div class="card">\n<h3>{_text(outcome.shown_board)} {_badge(outcome.verdict.word)}</h3>'
        yield '<ul class="caveats">'
        yield from (f"<li>{_text(line)}</li>" for line in outcome.lines())
        if (folder / report_name(night.run, outcome)).exists():
            yield f'<li><a href="{escape(report_name(night.run, outcome))}">report of its session</a></li>'
        yield "</ul>"
        charts = (chart for trend in outcome.trends for chart in trend.charts())
        yield from (f"<h4>{_text(title)}</h4>\n{chart}" for title, chart in charts)
        yield "</div>"
    yield "</div>\n</section>"
    if earlier:
        yield '<section>\n<h2>Nights before</h2>\n<div class="card scroll">\n<table>'
        yield "<thead><tr><th>Night</th><th>Verdict</th><th>Boards</th></tr></thead>\n<tbody>"
        yield from (_past_row(folder, past) for past in earlier)
        yield "</tbody>\n</table>\n</div>\n</section>"


def _past_row(folder: Path, past: PastNight) -> str:
    kind = "html" if (folder / f"{past.run}.html").exists() else "json"
    link = f'<a href="{escape(past.run)}.{kind}">{_text(past.run)}</a>'
    boards = ", ".join(f"{each.board}: {each.verdict}" for each in past.boards)
    return f'<tr><td>{link}</td><td>{_badge(past.verdict)}</td><td class="text">{_text(boards)}</td></tr>'


def _badge(verdict: str) -> str:
    return f'<span class="badge {_TONES.get(verdict, "")}">{_text(verdict)}</span>'


def _text(text: str) -> str:
    return escape(printable(text))
