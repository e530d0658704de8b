"""Which board this is: by the identity that is written there, by its machine, and by how SSH calls it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.deploy.machine import is_another_machine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from profagent.commands.boards_file import BoardEntry

__all__ = ["Recognised", "recognised"]


@dataclass(frozen=True, slots=True)
class Recognised:
    """A board's identity from now on, and what is known of the board."""

    identity: str
    entry: BoardEntry | None = None
    copied_from: BoardEntry | None = None
    """The board whose identity is written here, and which is another machine."""


def recognised(entries: Iterable[BoardEntry], written: str, target: str, marks: Collection[str]) -> Recognised:
    """The board with a written identity ("": none), that SSH calls `target` and whose machine has these marks.

    One that has none and is known by its SSH name was flashed anew, and gets its own again.
    """
    found = next((entry for entry in entries if (entry.uuid == written if written else entry.ssh == target)), None)
    if found is None:
        return Recognised(written or _new())
    # Who flashes a board anew changes what an image brings, and leaves the machine.
    if is_another_machine(found.machine.split(), marks, by_image=bool(written)):
        return Recognised(_new(), copied_from=found if written else None)
    return Recognised(written or found.uuid or _new(), found)


def _new() -> str:
    return str(uuid.uuid4())
