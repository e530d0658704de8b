"""The daemon's log on stderr: with times for people, with priorities for the journal (sd-daemon(3))."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def is_journal(descriptor: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a descriptor leads to the journal, as systemd has said: JOURNAL_STREAM is its device and inode."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def log_to_stderr(level: str) -> None:
    """Begin the log."""
    handler = logging.StreamHandler(sys.stderr)
    if is_journal(sys.stderr.fileno()):
        handler.setFormatter(JournalFormatter("%(name)s: %(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def complain(text: str) -> None:
    """Tell on stderr why the daemon cannot go on."""
    marked_text = marked(text, logging.ERROR) if is_journal(sys.stderr.fileno()) else text
    print(marked_text, file=sys.stderr)  # noqa: T201 - the command's own output


class JournalFormatter(logging.Formatter):
    """Each line with its priority; the journal knows the time."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines."""
        return marked(super().format(record), record.levelno)


def marked(text: str, level: int) -> str:
    """Each line of a text begun with the priority of its level: the journal takes a line for an entry."""
    priority = next((each for lowest, each in _PRIORITIES if level >= lowest), _DEBUG)
    return "\n".join(f"<{priority}>{line}" for line in text.splitlines())
