"""The log for people, and for the journal."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from profagentd.main import JournalFormatter, LineFormatter, is_journal


def record(level: int, message: str, error: BaseException | None = None) -> logging.LogRecord:
    given = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("profagentd.x", level, __file__, 1, message, (), given)


@pytest.mark.parametrize(
    ("level", "priority"),
    [("DEBUG", 7), ("INFO", 6), ("WARNING", 4), ("ERROR", 3), ("CRITICAL", 2)],
)
def test_a_line_begins_with_its_priority(level: str, priority: int) -> None:
    line = JournalFormatter("%(name)s: %(message)s").format(record(getattr(logging, level), "found"))
    assert line == f"<{priority}>profagentd.x: found"


def test_what_a_file_is_called_makes_no_line_and_steers_no_terminal() -> None:
    line = LineFormatter("%(message)s").format(record(logging.INFO, "found a\nWARNING b\x1b[31m\udcff ä"))
    assert line == "found a\\nWARNING b\\x1b[31m\\udcff ä"


def test_each_line_of_a_traceback_has_the_priority() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        text = JournalFormatter("%(message)s").format(record(logging.ERROR, "failed", error))
    assert len(text.splitlines()) > 2
    assert all(line.startswith("<3>") for line in text.splitlines())


def test_the_journal_is_known_by_device_and_inode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "stream").open("w") as file:
        found = os.fstat(file.fileno())
        for stream, is_right in ((f"{found.st_dev}:{found.st_ino}", True), (f"{found.st_dev}:1", False), ("", False)):
            monkeypatch.setenv("JOURNAL_STREAM", stream)
            assert is_journal(file.fileno()) is is_right
