"""Reports: small JSON files of communication, and the vendor's advice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from profagent.ascend.families import families
from profagent.ascend.texts import encoded
from profagent.errors import ResultError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from profagent.ascend.draft import Draft

LARGEST_BYTES = 256 << 20
HEADER = ("step", "kind", "operator", "figures")


def import_report(draft: Draft, log: int, file: Path) -> None:
    """Bring it into the draft: a row for each operator of communication, else for each entry.

    Raises ResultError where it is no JSON.
    """
    if file.stat().st_size > LARGEST_BYTES:
        raise ResultError(file, 1, f"it has more than {LARGEST_BYTES >> 20} MiB, which no report has")
    text = file.read_bytes()
    try:
        content = json.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ResultError(file, text[: error.start].count(b"\n") + 1, "it is not UTF-8: save it as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ResultError(file, error.lineno, f"column {error.colno}: it is no JSON: {error.msg}") from error
    family = families().of_report(text)
    is_communication = family is not None and family.name.startswith("communication")
    rows: list[Any] = list(_operators(content)) if is_communication else list(_entries(content))
    if rows:
        draft.add_block(log, 1, len(rows), encoded(rows))
    draft.end_file(
        log, "report", None if family is None else family.name, HEADER if is_communication else (), len(rows)
    )


def _operators(content: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Of each step and kind (collective, p2p) the operators with their figures."""
    for step, kinds in content.items():
        for kind, operators in kinds.items():
            for name, figures in operators.items():
                yield step, kind, name, figures


def _entries(content: Any) -> Iterator[dict[str, Any]]:
    inner = content.get("data", content) if isinstance(content, dict) else content
    for entry in inner if isinstance(inner, list) else [inner]:
        yield entry if isinstance(entry, dict) else {"value": entry}
