"""What a JOB's program was told to record: from an acl.json of this machine, and what that means for rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.errors import UsageError
from profagent.formats.board_files import parse_acl_json
from profagent.formats.names import display_text
from profagent.formats.sampling import interval_of
from profagent.ingest.changes import ProfilingKnown
from profagent.link.messages import Profiling

if TYPE_CHECKING:
    from pathlib import Path


def read_acl_json(file: Path) -> Profiling:
    """The interval that a file tells. Raises UsageError, FormatError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror}", hint="name the acl.json that the JOB's program was given"
        ) from error
    return Profiling(str(file), str(parse_acl_json(data, str(file))))


def profiling_known(told: Profiling) -> ProfilingKnown:
    """What it means for the JOB's rows."""
    return ProfilingKnown(interval_of(told.interval), display_text(told.path))
