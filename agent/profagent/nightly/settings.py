"""`nightly.toml`: boards, what to run on them, what to compare with, and where the verdict is told."""

from __future__ import annotations

import json
import tomllib
from typing import Literal

import msgspec

from profagent.errors import UsageError

__all__ = ["EXAMPLE", "Board", "Collect", "Nightly", "Record", "Retention", "Tell", "example", "read_settings"]

SCHEDULE = "*-*-* 02:00"
EXAMPLE = """\
# What `profagent nightly run` does. Every key that is commented out has the value that it has without it.

# schedule = "*-*-* 02:00"    # as systemd's OnCalendar takes it; `profagent nightly init` sets the timer to it
# workspace = "~/.local/share/profagent"  # where captures are kept; relative to this file
# time_limit = "1h"           # for each board, with all its attempts
# attempts = 3                # a board that is away, or reboots, is tried so often
# wait = "1m"                 # before the second attempt; twice as long before each later one
# exports = []                # of each session: "timeline", "summary"
# baseline = ""               # a name of `profagent baseline`, for boards that do not name their own
# counter_map = ""            # a TOML file that `profagent calibrate` wrote; relative to this file
fail_if = ["total.median>+3%", "layer.median>+5%"]   # conditions of `profagent diff`

# [retention]                 # rules of `profagent gc`, all of which must allow it; without any, nothing goes
# older_than = "60d"
# keep_last = 14
# max_size = "50G"
# where = []                  # conditions of `profagent sessions`, such as "label=place=lab"

# [tell]                      # beside the exit code
# webhook = ""                # the verdict is posted there as JSON
# command = []                # and is on the standard input of this, as JSON

[[boards]]
name = "lab1"                 # of `profagent boards`, or an address
# baseline = ""
# labels = {}
record = { for = "10m" }      # or until_finished = true; more = ["--backlog"] adds options of `profagent record`

# [[boards]]
# name = "lab2"
# collect = { main = "out/main", project = ".", arguments = ["input.bin"], interval = 1, more = [] }
"""

Export = Literal["timeline", "summary"]


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """Record what a board's own programs do."""

    for_: str | None = msgspec.field(name="for", default=None)
    until_finished: bool = False
    more: list[str] = []


class Collect(msgspec.Struct, forbid_unknown_fields=True):
    """Run a program on the board."""

    main: str
    project: str | None = None
    acl_json: str | None = None
    interval: int | None = None
    arguments: list[str] = []
    more: list[str] = []


class Board(msgspec.Struct, forbid_unknown_fields=True):
    """A board, and either of the two."""

    name: str
    record: Record | None = None
    collect: Collect | None = None
    baseline: str = ""
    labels: dict[str, str] = {}


class Retention(msgspec.Struct, forbid_unknown_fields=True):
    """Rules of `gc`."""

    older_than: str | None = None
    keep_last: int | None = None
    max_size: str | None = None
    where: list[str] = []


class Tell(msgspec.Struct, forbid_unknown_fields=True):
    """Who is told the verdict."""

    webhook: str = ""
    command: list[str] = []


class Nightly(msgspec.Struct, forbid_unknown_fields=True):
    """All of it; durations, ages and sizes are texts as commands take them."""

    boards: list[Board]
    schedule: str = SCHEDULE
    workspace: str | None = None
    time_limit: str = "1h"
    attempts: int = 3
    wait: str = "1m"
    exports: list[Export] = []
    baseline: str = ""
    counter_map: str = ""
    fail_if: list[str] = []
    retention: Retention = msgspec.field(default_factory=Retention)
    tell: Tell = msgspec.field(default_factory=Tell)


def example(schedule: str | None) -> str:
    """EXAMPLE, with this schedule where one is named."""
    if schedule is None:
        return EXAMPLE
    return EXAMPLE.replace(f'# schedule = "{SCHEDULE}"', f"schedule = {json.dumps(schedule, ensure_ascii=False)}")


def read_settings(text: str, file: str) -> Nightly:
    """Read the file; UsageError names the key that cannot be."""
    hint = "`profagent nightly init` writes one with every key"
    try:
        settings = msgspec.convert(tomllib.loads(text), Nightly)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{file}: {error}", hint=hint) from error
    for fault in _faults(settings):
        raise UsageError(f"{file}: {fault}", hint=hint)
    return settings


def _faults(settings: Nightly) -> list[str]:
    names = [board.name for board in settings.boards]
    faults = [f"board {name} is there twice" for name in sorted({*names}) if names.count(name) > 1]
    if not names:
        faults.append("there are no boards")
    if settings.attempts < 1:
        faults.append("attempts is less than 1")
    if settings.tell.webhook and not settings.tell.webhook.startswith(("http://", "https://")):
        faults.append("webhook is no http:// or https:// address")
    for board in settings.boards:
        if (board.record is None) == (board.collect is None):
            faults.append(f"board {board.name} needs either record or collect")
        if board.record is not None and board.record.for_ is None and not board.record.until_finished:
            faults.append(f"record of board {board.name} has no end: for or until_finished")
    return faults
