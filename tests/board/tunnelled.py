"""Commands through tunnels: the board that they are told of, and what a temporary daemon leaves there."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.link.boards_file import BoardEntry, BoardsFile
from tests.integration.board import eventually

if TYPE_CHECKING:
    from tests.board.sshd import Sshd
    from tests.integration.host import Host

ENDED_S = 60.0
FOLDER = re.compile(rb"/tmp/profagentd-[0-9a-f]{16}")


def know(home: Path, sshd: Sshd, address: str, *, uuid: str = "", fingerprint: str = "", at: str = "") -> None:
    """Have a board called euler in boards.toml."""
    entry = BoardEntry("euler", address, uuid, fingerprint, at or sshd.target)
    BoardsFile(home / ".config" / "profagent" / "boards.toml").put(entry)


def record(workspace: Path, *more: str | Path) -> tuple[str | Path, ...]:
    chosen = ("--via", "ssh", "--backlog", "--until-finished", "--json", "--workspace", workspace)
    return ("record", "--board", "euler", *chosen, *more)


def commands() -> list[bytes]:
    """The command lines of what runs here."""
    found: list[bytes] = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(process.read_bytes())
    return found


def folders(root: Path) -> set[Path]:
    """The directories of temporary daemons, and of shells that keep them, that serve this root."""
    serving = (command for command in commands() if os.fsencode(root) in command and b"--stdin-timeout" in command)
    return {Path(os.fsdecode(folder)) for command in serving for folder in FOLDER.findall(command)}


def begun(host: Host, root: Path) -> Path:
    """The directory of the daemon that a command has started, once it is watched."""
    host.err.until("watching ")
    (folder,) = folders(root)
    return folder


def assert_gone(folder: Path, root: Path) -> None:
    """Neither the directory nor a process is left."""
    gone = eventually(lambda: not folder.exists() and folder not in folders(root), ENDED_S)
    assert gone, list(folder.rglob("*"))[:5]
