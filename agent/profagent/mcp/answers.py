"""Answers of the MCP server: caveats first, then provenance, then the figures of a command or a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from mcp.types import CallToolResult, TextContent

from profagent import __version__
from profagent.errors import UsageError
from profagent.limits import LARGEST_ANSWER_BYTES, SHOWN_CAVEATS
from profagent.tables.provenance import caveat_rank
from profagent.tables.table import counted, json_text, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from profagent.api.provenance import Provenance
    from profagent.api.table import Table
    from profagent.errors import Failure

# Beginning of the caveats that come before all others.
NOT_COMPARED = "COMPARABILITY: "
# Facts of each session where figures of several are together.
_OF_PART = ("session", "board", "complete", "simulated")


def result_of(answer: Mapping[str, Any], about: Provenance | None, caveats: Sequence[str] = ()) -> CallToolResult:
    """Return the result of a call: `caveats` and those of the provenance, the provenance, and the answer.

    Clients show a model the text or the object: both begin with the caveats. Raises UsageError if the answer is larger
    than LARGEST_ANSWER_BYTES.
    """
    lines = [printable(line) for line in dict.fromkeys([*caveats, *(about.caveats if about else ())])]
    lines.sort(key=lambda line: (not line.startswith(NOT_COMPARED), caveat_rank(line)))
    if more := lines[SHOWN_CAVEATS:]:
        lines[SHOWN_CAVEATS:] = [f"and {counted(len(more), 'further line')}: the tool `ledger` has each loss and note"]
    text = json_text({"caveats": lines, "provenance": _provenance(about), "answer": answer})
    if len(text) > LARGEST_ANSWER_BYTES:
        raise UsageError(
            f"the answer has {len(text):,} bytes, more than {LARGEST_ANSWER_BYTES:,}",
            hint="ask for fewer rows by `top`; in a query for fewer columns",
        )
    # The object is read from the text, so that both have the same values: NaN, for example, is null.
    return CallToolResult(
        content=[TextContent(type="text", text=text.decode())], structured_content=msgspec.json.decode(text)
    )


def failure_result(failure: Failure) -> CallToolResult:
    """Return the result of a call that failed: what a command prints with `--json`."""
    found = failure._asdict()
    text = json_text(found).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=found, is_error=True)


def _provenance(about: Provenance | None) -> dict[str, Any]:
    if about is None:
        return {"profagent": __version__}
    found: dict[str, Any] = msgspec.to_builtins(about, enc_hook=dict)
    del found["caveats"]
    return {**found, "parts": [{name: part[name] for name in _OF_PART} for part in found["parts"]]}


def table_result(
    table: Table, top: int, first: Mapping[str, Any] | None = None, caveats: Sequence[str] = ()
) -> CallToolResult:
    """Return the result of a call whose answer is the first rows of a table, with the unit of each column.

    Fields in `first` stand before them.
    """
    rows = table.to_dicts()
    units = {field.name: field.unit for field in table.fields if field.unit}
    answer = {**(first or {}), "units": units, "rows": rows[:top]}
    return result_of(answer, table.provenance, [*caveats, *cut_line(len(rows), top, "rows")])


def cut_line(count: int, top: int, what: str) -> list[str]:
    """Return a caveat if there are more rows than the `top` that are shown."""
    return [f"only the first {top:,} {what} are shown, and there are more: ask with a larger `top`"] * (count > top)


def comparability_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the caveats of a comparison: what was not compared and why, and the other differences of the sessions."""
    # That data is missing is a caveat of the sessions.
    found = [each for each in document["comparability"]["differences"] if each["code"] != "incomplete"]
    return [_difference_line(each, document["comparability"]["verdict"]) for each in found]


def _difference_line(difference: Mapping[str, Any], verdict: str) -> str:
    line = f"{difference['code']}: {difference['text']}"
    if difference["blocks"] and not difference["allowed"]:
        return f"{NOT_COMPARED}{verdict}: {line}; not compared: {', '.join(difference['blocks'])}"
    return f"{line} (compared nevertheless, as `allow` demands)" if difference["allowed"] else line


def largest_changes(layers: Iterable[Mapping[str, Any]], top: int) -> list[Mapping[str, Any]]:
    """Return the layers of a comparison that only one run has, then the others by their change in µs."""

    def rank(layer: Mapping[str, Any]) -> tuple[bool, bool, float]:
        change = layer["change"]
        return (False, False, 0.0) if change is None else (True, not change["significant"], -abs(change["difference"]))

    return sorted(layers, key=rank)[:top]


def sessions_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the caveats of a query, which may read the rows of every session: those incomplete, those simulated."""
    incomplete = ", ".join(str(each["session"]) for each in rows if not each["complete"])
    simulated = ", ".join(str(each["session"]) for each in rows if each["simulated"])
    kinds = {"INCOMPLETE": incomplete, "simulated, and so invented": simulated}
    return [f"views have the rows of every session; {what}: {numbers}" for what, numbers in kinds.items() if numbers]
