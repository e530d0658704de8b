"""Check of every document that a command prints in a test's process against its type, and so against its schema."""

from __future__ import annotations

from typing import Any

import msgspec

from profagent.cli import documents
from profagent.tables.table import json_text


def checked(name: str, printed: Any) -> Any:
    """Return a document as a program reads it; raise unless it has all keys of its type, and no other."""
    read = msgspec.json.decode(json_text(printed))
    known = msgspec.json.decode(msgspec.json.encode(msgspec.convert(read, documents.DOCUMENTS[name].type)))
    assert known == read, f"the document {name} has keys that its type has not: {_more(read, known)}"
    return read


def _more(read: Any, known: Any, path: str = "$") -> list[str]:
    """Return the places of what only the document has."""
    if isinstance(read, dict):
        found = [f"{path}.{key}" for key in read.keys() - known.keys()]
        return found + [each for key in known for each in _more(read[key], known[key], f"{path}.{key}")]
    if isinstance(read, list):
        pairs = enumerate(zip(read, known, strict=True))
        return [each for place, (one, other) in pairs for each in _more(one, other, f"{path}[{place}]")]
    return []


def check_printed() -> None:
    """Have each command check what it prints; to be called before the modules of commands are imported."""
    printing = documents.print_document

    def print_checked(name: str, document: Any) -> None:
        checked(name, document)
        printing(name, document)

    documents.print_document = print_checked
