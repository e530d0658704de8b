"""What nights came to, kept as a file each in the workspace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from profagent.commands.atomic import make_directory, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from profagent.commands.workspace import Workspace
    from profagent.nightly.verdict import Night

__all__ = ["PastBoard", "keep_night", "past_boards", "this_night"]

FOLDER = "nightly"
# Verdicts are short; what is larger is no night of ours.
LARGEST_BYTES = 16 << 20


class PastBoard(NamedTuple):
    """A board in an earlier night."""

    run: str
    board: str
    verdict: str
    session: int | None


def this_night(night: Night) -> list[PastBoard]:
    """The boards of a night as later ones know them."""
    return [PastBoard(night.run, each.board, each.verdict.word, each.session) for each in night.outcomes]


def keep_night(workspace: Workspace, night: Night) -> Path:
    """Write a night's document. Raises ProfagentError."""
    folder = workspace.root / FOLDER
    make_directory(folder)
    file = folder / f"{night.run}.json"
    write_atomically(file, [msgspec.json.encode(night.document()), b"\n"], durably=True)
    return file


def past_boards(workspace: Workspace) -> list[PastBoard]:
    """Every board of every night that was kept, the newest night first; files that are none of ours are passed over."""
    files = sorted((workspace.root / FOLDER).glob("*.json"), reverse=True)
    return [board for file in files for board in _boards(file)]


def _boards(file: Path) -> Iterator[PastBoard]:
    try:
        document: dict[str, Any] = json.loads(file.read_bytes()[:LARGEST_BYTES])
        found = [
            PastBoard(document["run"], each["board"], each["verdict"], each["session"]) for each in document["boards"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return
    yield from found
