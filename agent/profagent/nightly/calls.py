"""The commands that a night runs for a board: those that anybody could type."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from profagent.nightly.settings import Board

__all__ = ["COLLECTED", "Captured", "capture_call", "captured", "export_call"]

# Below the workspace: JOBs as `collect` leaves them, until `gc` lets go of them.
COLLECTED = PurePath("nightly", "jobs")
# What `record` and `collect` say of a board that cannot be reached, and of data that is missing.
UNREACHABLE, INCOMPLETE = 3, 4


class Captured(NamedTuple):
    """What came of one attempt. `session` is None where there is none; `problem` is empty where all is well.

    `is_away`: the board could not be reached, and may be later. `is_incomplete`: data that existed is missing.
    `is_lost`: the board was restarted while its program ran.
    """

    session: int | None
    problem: str = ""
    is_away: bool = False
    is_incomplete: bool = False
    is_lost: bool = False


def capture_call(board: Board, folder: Path, workspace: Path, run: str, counter_map: str = "") -> list[str]:
    """The arguments of `profagent` that capture a board; paths are relative to `folder`, where the settings are.

    `counter_map` is empty where none is named.
    """
    labels = {**board.labels, "nightly": run}
    common = ["--board", board.name, "--workspace", str(workspace), "--json"]
    common += [part for key, value in labels.items() for part in ("--label", f"{key}={value}")]
    common += ["--counter-map", str(folder / counter_map)] if counter_map else []
    if board.record is not None:
        ends = [] if board.record.for_ is None else ["--for", board.record.for_]
        ends += ["--until-finished"] if board.record.until_finished else []
        return ["record", "--new", *common, *ends, *board.record.more]
    assert board.collect is not None, "settings have either"
    collect = board.collect
    options = ["--output", str(workspace / COLLECTED)]
    options += [] if collect.project is None else ["--project", str(folder / collect.project)]
    options += [] if collect.acl_json is None else ["--acl-json", collect.acl_json]
    options += [] if collect.interval is None else ["--interval", str(collect.interval)]
    arguments = ["--", *collect.arguments] if collect.arguments else []
    return ["collect", "-m", collect.main, *common, *options, *collect.more, *arguments]


def export_call(kind: str, session: int, workspace: Path) -> list[str]:
    """The arguments of `profagent` that export a session."""
    return ["export", kind, "--session", str(session), "--workspace", str(workspace)]


def captured(code: int, document: Mapping[str, Any] | None, said: str) -> Captured:
    """Read what a capture ended with: its exit code, its JSON (None: none), and the last that it said."""
    if code == UNREACHABLE and document is None:
        return Captured(None, said or "the board cannot be reached", is_away=True)
    session = _session(document)
    if document is None or session is None:
        return Captured(None, said or f"the capture ended with exit code {code} and no session")
    causes = [str(cause["text"]) for cause in document.get("causes", [])]
    # A program's own exit code may be any number.
    if code == INCOMPLETE and not document.get("status"):
        return Captured(session, said or "data is missing", is_incomplete=True)
    if code:
        problem = "; ".join(causes) or f"the program ended with exit code {code}"
        return Captured(session, problem, is_lost=document.get("status", code) is None)
    return Captured(session)


def _session(document: Mapping[str, Any] | None) -> int | None:
    """`record` prints a session's summary, `collect` has one in its document."""
    if document is None:
        return None
    found = document["session"]
    number = found["session"] if isinstance(found, dict) else found
    return None if number is None else int(number)
