"""What nights came to, kept as a file each in the workspace."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from profagent.files import make_directory, write_atomically
from profagent.sessions.baselines import Baselines
from profagent.sessions.clearing import chosen_sessions, clear, fitting_sessions
from profagent.sessions.clearing_choice import Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from profagent.nightly.settings import Tell
    from profagent.nightly.verdict import Night
    from profagent.store.sessions import Condition
    from profagent.store.workspace import Workspace

__all__ = ["PastBoard", "cleared_after_night", "keep_night", "past_boards", "tell_night", "this_night"]


def cleared_after_night(
    workspace: Workspace,
    rules: Rules,
    conditions: Sequence[Condition],
    measures: Collection[int],
    *,
    now_us: int,
    tell: Callable[[str], None],
) -> list[int]:
    """Let go of what rules and conditions name, but for baselines and `measures`: what the next night is compared with.

    The sessions that went; without rules and conditions none. Raises StoreError.
    """
    if (rules == Rules() and not conditions) or not workspace.database.exists():
        return []
    with workspace.locked():
        asked = fitting_sessions(workspace, conditions)
        baselines = {each.session: name for name, each in Baselines(workspace).all().items()}
        staying = {**dict.fromkeys(measures, "of the next night"), **baselines}
        chosen = chosen_sessions(workspace, rules, asked=asked, baselines=staying)
        asyncio.run(clear(workspace, chosen, now_us=now_us, tell=tell))
    return sorted(each.session for group in chosen.groups for each in group)


WEBHOOK_S = 30.0
COMMAND_S = 120.0


def tell_night(night: Night, to: Tell) -> list[str]:
    """Tell whom the settings name; why it could not be told, a line each."""
    return [*_posted(night, to.webhook), *_run(night, to.command)]


def _posted(night: Night, address: str) -> Iterator[str]:
    if not address:
        return
    request = urllib.request.Request(  # noqa: S310 - settings take http:// and https:// only
        address, msgspec.json.encode(night.document()), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=WEBHOOK_S):  # noqa: S310 - as above
            pass
    except (OSError, ValueError, http.client.HTTPException) as error:
        yield f"the webhook was not told: {error}"


def _run(night: Night, command: list[str]) -> Iterator[str]:
    if not command:
        return
    try:
        ended = subprocess.run(  # noqa: S603 - the user's own, from the settings
            command,
            input=msgspec.json.encode(night.document()),
            timeout=COMMAND_S,
            check=False,
            stdout=subprocess.DEVNULL,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        yield f"{command[0]} was not told: {error}"
        return
    if ended.returncode:
        yield f"{command[0]} was told, and ended with exit code {ended.returncode}"


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
