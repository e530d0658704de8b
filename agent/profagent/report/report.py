"""`report`: one HTML file that needs nothing else."""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from profagent.advise.cli import all_rules
from profagent.files import write_atomically
from profagent.report.gather import gather

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from profagent.advise.rules import Language, Rule
    from profagent.diff.diff import Operand

_STYLES = ("page.css",)
_SCRIPTS = ("page.js", "charts.js")
_LIBRARY = "echarts.min.js"
# Within a script element nothing may look like its end; JSON reads these as the same characters.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


async def write_report(
    operand: Operand,
    file: Path,
    *,
    against: Operand | None = None,
    rules: list[Rule] | None = None,
    language: Language = "en",
) -> dict[str, Any]:
    """Write the report of a session or a JOB; what it shows is returned.

    Raises UsageError, StoreError, and ProfagentError where the file cannot be written.
    """
    assert operand.database is not None, "a report is of records, not of tables"
    chosen = all_rules(operand.database, operand.session) if rules is None else rules
    shown = await gather(operand, chosen, language, against)
    write_atomically(file, [page(shown).encode()])
    return shown


def page(shown: Mapping[str, Any]) -> str:
    """The whole page; styles, scripts, the library and the data are in it."""
    data = msgspec.json.encode(shown).decode().translate(_ESCAPES)
    parts = {
        "title": escape(_title(shown)),
        "language": shown["language"],
        "verdict": escape(shown["verdict"]),
        "styles": "".join(map(_text, _STYLES)),
        "library": resources.files("profagent.report").joinpath("echarts", _LIBRARY).read_text("utf-8"),
        "scripts": "".join(map(_text, _SCRIPTS)),
        "data": data,
    }
    # The parts are put in from the first to the last: nothing that one of them holds is taken for a place.
    pieces = _text("page.html").split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def _title(shown: Mapping[str, Any]) -> str:
    about, jobs = shown["session"], [each["job"] for each in shown["jobs"]]
    # An imported JOB has no board of its own.
    named = f"session {about['session']} of {about['hostname']}" if about["hostname"] or not jobs else ", ".join(jobs)
    return named + (" [simulated]" if shown["simulated"] else "")


def _text(name: str) -> str:
    return resources.files("profagent.report").joinpath("page", name).read_text("utf-8")
