"""Labels of a JOB from the files of profagent's own Profiler beside it: its parameters, and a user's metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.ascend.recognise import FACTS
from profagent.ascend.texts import ODD_VALUES
from profagent.formats.names import display_text
from profagent.limits import LARGEST_METADATA_BYTES, LONGEST_LABEL, LONGEST_LABEL_KEY, MOST_LABELS

if TYPE_CHECKING:
    from pathlib import Path

_METADATA = "profiler_metadata.json"


class JobDescription(NamedTuple):
    """Labels of a JOB's session, and the files whose every entry is one of them."""

    labels: dict[str, str]
    files: frozenset[Path]


def description_of(folder: Path) -> JobDescription:
    """Return the labels `profiler.PARAMETER` and `metadata.KEY` from the files of a Profiler in a folder."""
    labels: dict[str, str] = {}
    files = set()
    for file in (*sorted(folder.glob(FACTS)), folder / _METADATA):
        found = {display_text(key): _text(value) for key, value in _entries(file).items()}
        known = dict([each for each in found.items() if _is_label(*each)][:MOST_LABELS])
        labels |= known
        # A file with an entry that is not a label is listed as skipped, so that the ledger notes it.
        if found and known == found:
            files.add(file)
    return JobDescription(labels, frozenset(files))


def _entries(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as data:
            # A larger file is cut, and so is no JSON: it is listed as skipped.
            document = json.loads(data.read(LARGEST_METADATA_BYTES))
        if file.name == _METADATA:
            return {f"metadata.{key}": value for key, value in document.items()}
        parameters = document.get("profiler_parameters", {}).items()
        return {f"profiler.{key}": value for key, value in parameters if value is not None and value is not False}
    except (OSError, *ODD_VALUES):
        return {}


def _text(value: Any) -> str:
    return display_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _is_label(key: str, value: str) -> bool:
    return len(key) <= LONGEST_LABEL_KEY and len(value) <= LONGEST_LABEL
