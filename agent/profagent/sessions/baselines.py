"""Baselines: sessions of a workspace that have a name, to compare others with.

Each is a file of its own that is replaced as a whole, so two processes may set them, also while one records.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import msgspec

from profagent.errors import StoreError, UsageError
from profagent.files import make_directory, write_atomically
from profagent.store.queries import find_session, open_reader

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.store.workspace import Workspace

__all__ = ["Baseline", "Baselines"]

FOLDER = "baselines"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Baseline(msgspec.Struct, frozen=True):
    """A name's session; its board and start tell it from one of the same number in a database that was made anew.

    Times are host microseconds.
    """

    session: int
    board: str
    started_us: int
    set_us: int


class Baselines:
    """The baselines of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._folder = workspace.root / FOLDER

    def put(self, name: str, session: int) -> Baseline:
        """Give a session a name, which another may have had before. Raises UsageError, StoreError."""
        file = self._file(name)
        with open_reader(self._workspace.readable_database()) as connection:
            found = find_session(connection, session)
        baseline = Baseline(session, found.board, found.started_us, time.time_ns() // 1000)
        make_directory(self._folder)
        write_atomically(file, [msgspec.json.encode(baseline), b"\n"], durably=True)
        return baseline

    def get(self, name: str) -> Baseline:
        """The baseline of that name; UsageError where there is none, or its session is not there any more."""
        try:
            baseline = _read(self._file(name))
        except FileNotFoundError as error:
            raise UsageError(
                f"there is no baseline {name!r} in {self._workspace.root}",
                hint=f"`profagent baseline set {name} SESSION` makes it, `profagent baseline list` tells others",
            ) from error
        with open_reader(self._workspace.readable_database()) as connection:
            found = find_session(connection, baseline.session)
        if (found.board, found.started_us) != (baseline.board, baseline.started_us):
            raise UsageError(
                f"session {baseline.session} is not the one that was named {name!r}: the database was made anew",
                hint=f"name another: `profagent baseline set {name} SESSION`",
            )
        return baseline

    def all(self) -> dict[str, Baseline]:
        """Every baseline by its name."""
        return {file.stem: _read(file) for file in sorted(self._folder.glob("*.json")) if _NAME.fullmatch(file.stem)}

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is no name of a baseline",
                hint="write 1 to 64 of A-Z a-z 0-9 . _ -, no . or - at the beginning",
            )
        return self._folder / f"{name}.json"


def _read(file: Path) -> Baseline:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Baseline)
    except FileNotFoundError:
        raise
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(
            f"cannot read the baseline {file}: {error}", hint="set it again, or delete the file"
        ) from error
