"""A file that a person named, read whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.errors import UsageError
from profagent.formats.names import display_text

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_named_file", "read_vendor_table"]


def read_vendor_table(path: Path, most_bytes: int) -> bytes:
    """A table op_summary; UsageError where it cannot be read, or is larger."""
    return read_named_file(path, most_bytes, "an op_summary", hint="name the vendor's table of one inference")


def read_named_file(path: Path, most_bytes: int, what: str, *, hint: str) -> bytes:
    """A file that is said to be `what`; UsageError where it cannot be read, or is larger."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise UsageError(f"cannot read {display_text(str(path))}: {error.strerror}", hint=hint) from error
    if len(data) > most_bytes:
        raise UsageError(f"{display_text(str(path))} is too large for {what}", hint=hint)
    return data
