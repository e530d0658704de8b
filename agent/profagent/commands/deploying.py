"""Deploying the daemon to a board over SSH: look, plan, bring, switch, and ask who answers."""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.commands.answering import answered
from profagent.commands.board_keys import BoardKeys, board_keys
from profagent.commands.board_survey import survey
from profagent.commands.board_version import chosen_version
from profagent.commands.boards_file import BoardEntry, BoardsFile
from profagent.commands.installing import Installation
from profagent.commands.keys import BOARD_CERT
from profagent.commands.recording_options import own_consumer
from profagent.deploy.layout import Layout
from profagent.deploy.plan import board_name, check_drop_in, check_room, check_version, choose_init, fact_lines
from profagent.deploy.settings import Asked, BoardSettings, board_settings, named_roots
from profagent.deploy.units import Service, service
from profagent.errors import UsageError
from profagent.link.credentials import default_keys
from profagent.ssh.connection import connect
from profagent.ssh.passwords import Person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from profagent.deploy.daemon_tree import DaemonTree
    from profagent.deploy.survey import BoardFacts
    from profagent.link.messages import Board
    from profagent.ssh.remote import Remote

__all__ = ["DeployOptions", "Deployed", "deploy", "roll_back", "visited"]

_KEY_MODES = {"board.key": 0o600}


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """What was asked for; `name` may be empty, and is then the board's host name."""

    target: str
    layout: Layout = field(default_factory=Layout.of)
    asked: Asked = field(default_factory=Asked)
    init: str = "auto"
    name: str = ""
    python: str = "auto"
    bundle: Path | None = None
    wheelhouse: Path | None = None
    keys: Path = field(default_factory=default_keys)
    is_upgrade: bool = False
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class Deployed:
    """What came of it. Without a board: nothing was done, the changes are what would be."""

    entry: BoardEntry
    version: str
    changes: tuple[str, ...]
    board: Board | None
    at_boot: str


@dataclass(frozen=True, slots=True)
class Visit:
    """A board that is logged in to, what it is, and what was deployed there or is to be."""

    remote: Remote
    facts: BoardFacts
    settings: BoardSettings
    service: Service
    entry: BoardEntry


async def deploy(options: DeployOptions, show: Callable[[str], None], tell: Callable[[str], None]) -> Deployed:
    """Have the board run this host's version, and be known by its name from now on. `show` is given the plan's lines.

    What is so already is left alone. Raises UsageError, UnreachableError, RefusedError, ProfagentError; unless the
    board says otherwise, what ran there before runs on.
    """
    async with visited(options, show) as visit:
        facts = visit.facts
        version = await chosen_version(facts, options.python, options.bundle, options.wheelhouse)
        check_version(facts, version.name, is_upgrade=options.is_upgrade)
        check_drop_in(facts, visit.service)
        check_room(facts, options.layout, 0 if version.name in facts.versions else version.size_bytes)
        keys = None if options.is_dry or not visit.settings.has_tls else _keys(options, visit, tell)
        work = _Work(options, visit, version, keys)
        for change in work.changes:
            show(f"change   {change}")
        if options.is_dry:
            return Deployed(visit.entry, version.name, work.changes, None, visit.service.starts_at_boot)
        return await work.done(tell)


async def roll_back(options: DeployOptions, show: Callable[[str], None], tell: Callable[[str], None]) -> Deployed:
    """Have the version before run again; a second time leads back. Raises as `deploy`."""
    async with visited(options, show) as visit:
        facts = visit.facts
        if not facts.previous or facts.previous not in facts.versions:
            raise UsageError(f"{facts.hostname} has no version before {facts.current or 'any'}", hint="deploy one")
        check_drop_in(facts, visit.service)
        changes = (f"{facts.previous} in place of {facts.current}",)
        show(f"change   {changes[0]}")
        board = None
        if not options.is_dry:
            installation = Installation(visit.remote, facts, options.layout, visit.service, tell)
            await installation.check(facts.previous, visit.settings)
            board = await installation.run(facts.previous, facts.current, visit.settings, visit.entry, options.keys)
        return Deployed(visit.entry, facts.previous, changes, board, visit.service.starts_at_boot)


@asynccontextmanager
async def visited(options: DeployOptions, show: Callable[[str], None]) -> AsyncIterator[Visit]:
    """The board, logged in to and looked at; nothing is written. Raises as `deploy`."""
    options.asked.check()
    known = list(BoardsFile().entries().values())
    async with connect(options.target, Person()) as remote:
        facts = await survey(remote, options.layout)
        for line in fact_lines(facts, datetime.now(UTC)):
            show(line)
        init = choose_init(facts, options.init, options.layout)
        before = _known(known, facts.files.get(options.layout.board_id, "").strip(), options.target)
        identity = _identity(options, facts, before)
        settings = board_settings(
            facts.files.get(options.layout.config, ""), options.asked, options.layout, init, identity, own_consumer()
        )
        name = options.name or (before.name if before else board_name(facts))
        _check_name(name, identity, known)
        entry = BoardEntry(
            name, settings.address(remote.host), identity, before.fingerprint if before else "", options.target
        )
        roots = (*settings.roots, *named_roots(facts.files, options.layout))
        own = service(init, options.layout, roots, deletes=settings.deletes)
        yield Visit(remote, facts, settings, own, entry)


class _Work:
    """What is to change on a board, and the doing."""

    def __init__(self, options: DeployOptions, visit: Visit, version: DaemonTree, keys: BoardKeys | None) -> None:
        self._options = options
        self._visit = visit
        self._version = version
        self._fingerprint = keys.fingerprint if keys else ""
        files = self._wanted(keys)
        texts = visit.facts.files
        # A key is not read: it goes with its certificate.
        self._files = {
            path: (content, mode)
            for path, (content, mode) in files.items()
            if texts.get(path) != content.decode("utf-8", "replace")
        }
        self.changes = tuple(self._changes())

    async def done(self, tell: Callable[[str], None]) -> Deployed:
        """Do it."""
        visit, name, facts = self._visit, self._version.name, self._visit.facts
        entry = BoardEntry(
            visit.entry.name, visit.entry.address, visit.entry.uuid, self._fingerprint, self._options.target
        )
        own = Installation(visit.remote, facts, self._options.layout, visit.service, tell)
        previous = facts.current if facts.current not in ("", name) else facts.previous
        if self.changes or not await own.is_active():
            await own.bring(self._version)
            service_files = visit.service.files
            await own.write({path: file for path, file in self._files.items() if path not in service_files})
            await own.check(name, visit.settings)
            board = await own.run(name, previous, visit.settings, entry, self._options.keys)
            await own.tidy(name, previous)
        else:
            board = await answered(visit.remote, visit.settings, entry, self._options.keys, own.is_active)
        BoardsFile().put(entry)
        return Deployed(entry, name, self.changes, board, visit.service.starts_at_boot)

    def _wanted(self, keys: BoardKeys | None) -> dict[str, tuple[bytes, int]]:
        """All files but the settings, which come last."""
        layout, service_files = self._options.layout, self._visit.service.files
        return {
            layout.board_id: (f"{self._visit.entry.uuid}\n".encode(), 0o644),
            **{path: (text.encode(), mode) for path, (text, mode) in service_files.items()},
            **{
                f"{layout.keys}/{name}": (content, _KEY_MODES.get(name, 0o644))
                for name, content in (keys.files if keys else {}).items()
            },
        }

    def _changes(self) -> list[str]:
        facts, layout = self._visit.facts, self._options.layout
        changes: list[str] = []
        if facts.current != self._version.name:
            instead = f", in place of {facts.current}" if facts.current else ""
            changes.append(f"{self._version.name} below {layout.versions}{instead}")
        changes += [f"write {path}" for path in self._files]
        if self._visit.settings.has_tls and self._options.is_dry and f"{layout.keys}/{BOARD_CERT}" not in facts.files:
            changes.append(f"a certificate of {self._options.keys}")
        if facts.files.get(layout.config) != self._visit.settings.text:
            changes.append(f"write {layout.config}")
        changes += [f"remove {path}" for path in self._visit.service.unwanted if path in facts.files]
        return changes


def _keys(options: DeployOptions, visit: Visit, tell: Callable[[str], None]) -> BoardKeys:
    installed = visit.facts.files.get(f"{options.layout.keys}/{BOARD_CERT}") if visit.facts.has_key else None
    return board_keys(options.keys, visit.entry.name, visit.settings.host(visit.remote.host), installed, tell)


def _known(entries: list[BoardEntry], identity: str, target: str) -> BoardEntry | None:
    """The entry of the board with that identity, else of the one that SSH calls so."""
    by_identity = (entry for entry in entries if identity and entry.uuid == identity)
    by_target = (entry for entry in entries if not identity and entry.ssh == target)
    return next(by_identity, None) or next(by_target, None)


def _identity(options: DeployOptions, facts: BoardFacts, before: BoardEntry | None) -> str:
    """The board's own, else the one by which it was known, else a new one."""
    own = facts.files.get(options.layout.board_id, "").strip()
    return own or (before.uuid if before else "") or str(uuid.uuid4())


def _check_name(name: str, identity: str, known: list[BoardEntry]) -> None:
    BoardEntry(name, "-").check("--name")
    if any(entry.name == name and entry.uuid not in ("", identity) for entry in known):
        raise UsageError(
            f"{name} is another board",
            hint=f"take another --name; or, if that one is no more, `profagent boards remove {name}`",
        )
