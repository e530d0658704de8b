"""Reports: small JSON files about communication, and the vendor's advice."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from profagent import ledger
from profagent.ascend.families import families
from profagent.ascend.texts import encoded
from profagent.errors import ResultError
from profagent.limits import LARGEST_REPORT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from profagent.ascend.draft import Draft

# First character of a report; the excluded ones may stand between two joined reports.
_BEGIN = re.compile(r"[^\s,\0\ufeff]")
HEADER = ("step", "kind", "operator", "figures")


def import_report(draft: Draft, log: int, file: Path) -> None:
    """Add a report to the draft: a row for each operator of communication, or for each entry of another report.

    Raises ResultError where the text is no JSON, after the reports before that place were added.
    """
    if file.stat().st_size > LARGEST_REPORT_BYTES:
        raise ResultError(file, 1, f"it has more than {LARGEST_REPORT_BYTES >> 20} MiB, which no report has")
    data = file.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResultError(file, data[: error.start].count(b"\n") + 1, "it is not UTF-8: save it as UTF-8") from error
    family = families().of_report(data)
    is_communication = family is not None and family.name.startswith("communication")
    count = documents = 0
    repeated = Counter[str]()
    try:
        for content in _documents(file, text, repeated):
            documents += 1
            rows: list[Any] = list(_operators(content)) if is_communication else list(_entries(content))
            if rows:
                draft.add_block(log, count + 1, len(rows), encoded(rows))
            count += len(rows)
    finally:
        name = None if family is None else family.name
        draft.end_file(log, "report", name, HEADER if is_communication else (), count)
        if repeated:
            what = (
                f"names that stand in one object again: {', '.join(repeated)}: what stood under them first is not read"
            )
            draft.note(log, ledger.entry(ledger.DAMAGED_RESULT, what, count=repeated.total()))
    if documents > 1:
        what = f"{documents} reports stand one behind another: all are read"
        draft.note(log, ledger.entry(ledger.JOINED_RESULT, what, count=documents))


def _documents(file: Path, text: str, repeated: Counter[str]) -> Iterator[Any]:
    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # JSON allows a name twice, and `dict` keeps the last value only.
        made = dict(pairs)
        if len(made) < len(pairs):
            repeated.update(Counter(name for name, _ in pairs) - Counter(made.keys()))
        return made

    decoder, at = json.JSONDecoder(object_pairs_hook=as_object), 0
    while (begin := _BEGIN.search(text, at)) is not None:
        try:
            content, at = decoder.raw_decode(text, begin.start())
        except json.JSONDecodeError as error:
            size, offset = file.stat().st_size, len(text[: error.pos].encode())
            what = f"column {error.colno}: it is no JSON: {error.msg}: what stands from byte {offset:,} on is not read"
            raise ResultError(file, error.lineno, what, unread=(offset, size, max(size - offset, 1))) from error
        yield content


def _operators(content: Any) -> Iterator[tuple[str, str, str, Any]]:
    for step, kinds in content.items():
        for kind, operators in kinds.items():
            for name, figures in operators.items():
                yield step, kind, name, figures


def _entries(content: Any) -> Iterator[dict[str, Any]]:
    inner = content.get("data", content) if isinstance(content, dict) else content
    for entry in inner if isinstance(inner, list) else [inner]:
        yield entry if isinstance(entry, dict) else {"value": entry}
