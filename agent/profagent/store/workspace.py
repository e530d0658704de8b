"""Workspace: the folder with the database, the mirrors and superseded files, and the locks of its writers."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sqlite3
import tomllib
import uuid
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from profagent.errors import StoreError, UsageError, WorkspaceBusyError
from profagent.files import PRIVATE_FILE, alone_in, has_room, make_private_folder, write_atomically
from profagent.ingest.mirror import JobMirror, SharedSync
from profagent.link.boards_file import LABEL_KEY
from profagent.store.database import FILE_NAME, fetched, reading, transaction, writing
from profagent.store.queries import find_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.ingest.memory_mirror import MemoryMirror
    from profagent.ingest.mirror_in_place import MirrorInPlace

VARIABLE = "PROFAGENT_WORKSPACE"
# File in a workspace's folder with the user's settings.
SETTINGS = "settings.toml"
# Forms of a session on a command line, for help and hints.
SESSION_FORMS = "1, last, -2 (the second newest) or LABEL=VALUE (the newest with this label)"
LAST = "last"
_NUMBER = re.compile(r"[0-9]+")
_FROM_NEWEST = re.compile(r"-([1-9][0-9]{0,17})")
_OLD_BASELINE = "baseline:"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def default_workspace() -> Path:
    """Return the folder that `PROFAGENT_WORKSPACE` names, else `profagent` in the user's data folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "profagent"


def is_workspace(folder: Path) -> bool:
    """Return True if a folder is a workspace or a copy of one: the database and something its writers create."""
    return (folder / FILE_NAME).is_file() and any((folder / name).exists() for name in ("mirror", "incoming", "lock"))


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """Content of SETTINGS: `lake` is the address of the lake into which sessions are pushed."""

    lake: str = ""


def located(address: str, folder: Path) -> str:
    """Return the address of a lake as named by a file in a folder: a path is relative to that folder."""
    return address if not address or "://" in address else str(folder / Path(address).expanduser())


class DurableWrites(Protocol):
    """Durability of the files that were written."""

    async def sync(self) -> None:
        """Return when everything that was written before is durable. Raises StoreError, DiskFullError."""


class NothingToSync:
    """Durability of a workspace that writes no mirror files."""

    async def sync(self) -> None:
        """Return at once: nothing was written."""


class Workspace:
    """Paths and locks of a workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / FILE_NAME
        # Makes mirror files durable, for all boards together: one call serves everybody who waits.
        self.synced: DurableWrites = SharedSync(root)

    @classmethod
    def at(cls, root: Path | None) -> Self:
        """Return the workspace in a folder, or the default one."""
        return cls(root or default_workspace())

    def board_mirror(self, identity: str) -> Path:
        """Return the folder of a board's mirrored JOBs.

        An identity that is no plain name is replaced by its digest: it comes from the board, and must not lead out of
        the workspace.
        """
        plain = _PLAIN_NAME.fullmatch(identity) is not None
        name = identity if plain else hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
        return self.root / "mirror" / name

    def superseded(self, identity: str) -> Path:
        """Return the folder of the superseded generations of a board's logs."""
        return self.root / "superseded" / self.board_mirror(identity).name

    def uuid(self) -> uuid.UUID:
        """Return the UUID of this workspace, drawn when it is first asked for. Raises StoreError."""
        file = self.root / "uuid"
        if not file.exists():
            with alone_in(self.root):
                if not file.exists():
                    write_atomically(file, [str(uuid.uuid4()).encode()])
        return uuid.UUID(file.read_text("ascii"))

    def lake(self) -> str:
        """Return the address of the lake that SETTINGS names; empty where it names none. Raises UsageError."""
        file = self.root / SETTINGS
        try:
            settings = msgspec.convert(tomllib.loads(file.read_text("utf-8")), Settings)
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{file}: {error}", hint='it may have: lake = "/mnt/lake"') from error
        return located(settings.lake, self.root)

    def has_room(self) -> bool:
        """Return True if the disk has room for a batch."""
        return has_room(self.root)

    def job_mirror(self, identity: str, job: str) -> JobMirror | MemoryMirror | MirrorInPlace:
        """Return the mirror of one JOB."""
        board = self.board_mirror(identity)
        incoming = self.root / "incoming" / board.name / job
        return JobMirror(board / job, incoming=incoming, superseded=self.superseded(identity) / job)

    def open_batch(self, identity: str) -> Path | None:
        """Return the path of the file that names what a board's current batch writes."""
        return self.root / "incoming" / f"{self.board_mirror(identity).name}.batch"

    def readable_database(self) -> Path:
        """Return the path of the database for a reader. Raises UsageError where there is none."""
        if not self.database.exists():
            raise UsageError(
                f"there is no workspace in {self.root}",
                hint="`profagent record` makes one; name another one with --workspace DIR",
            )
        return self.database

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the workspace exclusively, as its only writer. Raises WorkspaceBusyError, StoreError."""
        with self._locked(self.root / "lock", fcntl.LOCK_EX, f"the workspace {self.root}"):
            yield

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the workspace together with captures of other boards. Raises as `locked`."""
        with self._locked(self.root / "lock", fcntl.LOCK_SH, f"the workspace {self.root}"):
            yield

    @contextmanager
    def board_locked(self, identity: str) -> Iterator[None]:
        """Hold the mirror of a board exclusively; the workspace is shared meanwhile. Raises as `locked`."""
        file = self.root / "incoming" / f"{self.board_mirror(identity).name}.lock"
        # One lock for each board, so that captures of different boards never wait for each other.
        with self._locked(file, fcntl.LOCK_EX, f"the mirror of the board {identity} in {self.root}"):
            yield

    @contextmanager
    def _locked(self, file: Path, how: int, what: str) -> Iterator[None]:
        try:
            make_private_folder(file.parent)
            handle = os.open(file, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        except OSError as error:
            raise StoreError(
                f"cannot use the workspace {self.root}: {error.strerror}", hint="name another one with --workspace DIR"
            ) from error
        try:
            # The kernel releases the lock when the process ends, however it ends.
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise WorkspaceBusyError(
                f"another profagent writes to {what}",
                hint="wait for it, or name another workspace with --workspace DIR",
            ) from error
        try:
            yield
        finally:
            os.close(handle)


def session_query(word: str) -> tuple[str, tuple[str | int, ...]] | None:
    """Return the SQL and its values for the number of the session that a word names; None if it names none.

    The query gives no row, or NULL, where the database has no such session.
    """
    if _NUMBER.fullmatch(word):
        return "SELECT session FROM session WHERE session = ?", (word,)
    newest = _FROM_NEWEST.fullmatch("-1" if word == LAST else word)
    if newest is not None:
        return "SELECT session FROM session ORDER BY session DESC LIMIT 1 OFFSET ?", (int(newest[1]) - 1,)
    key, separator, value = word.partition("=")
    if separator and LABEL_KEY.fullmatch(key):
        return "SELECT max(session) FROM session_label WHERE key = ? AND value = ?", (key, value)
    return None


async def session_named(workspace: Workspace, word: str) -> int:
    """Return the number of the session that a word names: SESSION_FORMS. Raises UsageError, StoreError."""
    query = session_query(word)
    if query is None:
        hint = f"a session is {SESSION_FORMS}"
        if word.startswith(_OLD_BASELINE):
            hint = f"write {BASELINE}={word.removeprefix(_OLD_BASELINE)}"
        raise UsageError(f"{word!r} names neither a session nor a directory", hint=hint)
    async with reading(workspace.readable_database()) as connection:
        rows = await fetched(connection, *query)
    if rows and rows[0][0] is not None:
        return int(rows[0][0])
    what = f"no session with the label {word}" if "=" in word else f"no session {word}"
    raise UsageError(f"{workspace.root} has {what}", hint="`profagent sessions` lists sessions with their labels")


BASELINE = "baseline"
_BASELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


async def set_baseline(workspace: Workspace, name: str, session: int) -> None:
    """Give a session the name of a baseline, taking it from any other session. Raises UsageError, StoreError."""
    if not _BASELINE_NAME.fullmatch(name):
        hint = "write 1 to 64 of A-Z a-z 0-9 . _ -, no . or - at the beginning"
        raise UsageError(f"{name!r} is not a valid name of a baseline", hint=hint)
    async with writing(workspace.readable_database()) as connection:
        await find_session(connection, session)
        await connection.run(partial(_name_session, name=name, session=session))


def _name_session(connection: sqlite3.Connection, name: str, session: int) -> None:
    with transaction(connection):
        connection.execute("DELETE FROM session_label WHERE key = ? AND value = ?", (BASELINE, name))
        connection.execute("INSERT OR REPLACE INTO session_label VALUES (?, ?, ?)", (session, BASELINE, name))


async def baselines(workspace: Workspace) -> dict[str, int]:
    """Return the session of each baseline by name. Raises StoreError."""
    async with reading(workspace.readable_database()) as connection:
        query = "SELECT value, session FROM session_label WHERE key = ? ORDER BY session"
        return dict(await fetched(connection, query, (BASELINE,)))


async def baseline_session(workspace: Workspace, name: str) -> int:
    """Return the session of a baseline. Raises UsageError, StoreError."""
    try:
        return (await baselines(workspace))[name]
    except KeyError as error:
        raise UsageError(
            f"there is no baseline {name!r} in {workspace.root}",
            hint=f"`profagent baseline set {name} SESSION` makes it, `profagent baseline list` tells others",
        ) from error
