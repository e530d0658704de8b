"""A board that is logged in to and looked at, and what is to be so there; nothing is written until it is worked on."""

from __future__ import annotations

import asyncio
import secrets
import socket
import uuid
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from profagent.deploy.installing import Installation, Target
from profagent.deploy.lock import LOST_S, held
from profagent.deploy.plan import board_name, choose_init, fact_lines
from profagent.deploy.settings import BoardSettings, board_settings
from profagent.deploy.steps import named_roots
from profagent.deploy.survey import survey
from profagent.deploy.trial import taken_back
from profagent.deploy.units import Service, service
from profagent.errors import ProfagentError, UnreachableError
from profagent.link.boards_file import BoardEntry, BoardsFile, check_same
from profagent.link.credentials import own_consumer
from profagent.ssh.connection import connect
from profagent.ssh.passwords import Person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping

    from profagent.deploy.deploying import DeployOptions
    from profagent.deploy.layout import Layout
    from profagent.deploy.survey import BoardFacts
    from profagent.ssh.remote import Program, Remote


# Each board's own, the surest first.
_HARDWARE = ("mac", "serial")
# An image's, made anew at a first boot if its maker saw to that.
_IMAGE = ("machine-id", "host-key")


def is_another_machine(before: Collection[str], now: Collection[str], *, by_image: bool) -> bool:
    """Whether these are not the marks of one machine; False where nothing tells.

    `by_image`: where no hardware tells, all marks of the image being others does, too.
    """
    for kind in _HARDWARE:
        if (old := _of(before, (kind,))) and (new := _of(now, (kind,))):
            return not old & new
    shared = [kind for kind in _IMAGE if _of(before, (kind,)) and _of(now, (kind,))] if by_image else []
    return bool(shared) and not _of(before, shared) & _of(now, shared)


def _of(marks: Iterable[str], kinds: Collection[str]) -> set[str]:
    return {mark for mark in marks if mark.partition(":")[0] in kinds}


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


_BEAT_S = LOST_S / 12
_END_S = 15.0


@asynccontextmanager
async def locked(remote: Remote, lock: str) -> AsyncIterator[str]:
    """The lock at that place of a board, by the owner's name; it ends with the context, and on the board with the link.

    Raises ProfagentError where another host has it, UnreachableError.
    """
    owner = f"{socket.gethostname()} {secrets.token_hex(8)}"
    async with remote.stream(held(lock, owner)) as program:
        try:
            await _take(program, remote.host)
            beating = asyncio.create_task(_beat(program))
            try:
                yield owner
            finally:
                beating.cancel()
                await asyncio.wait([beating])
        finally:
            await _let_go(program)


async def _take(program: Program, host: str) -> None:
    answer = (await program.read_line()).decode("utf-8", "replace").strip()
    if answer == "held":
        return
    if answer.startswith("busy"):
        raise ProfagentError(
            f"{host} is being worked on from {answer.partition(' ')[2] or 'another host'}",
            hint=f"try again when that is done; a host that was not heard for {LOST_S} s does not count",
        )
    said = (await program.complaint()).strip().splitlines()
    raise ProfagentError(
        f"nothing can be changed on {host}: {said[-1] if said else 'its shell ended'}",
        hint="log in as root, and see that the file system can be written to and has room (`df`)",
    )


async def _beat(program: Program) -> None:
    while True:
        await asyncio.sleep(_BEAT_S)
        with suppress(OSError):
            program.stdin.write(b"\n")


async def _let_go(program: Program) -> None:
    """Close its input, and wait until the lock is gone; a link that is lost takes no farewell."""
    with suppress(OSError):
        program.stdin.write_eof()
    with suppress(TimeoutError, UnreachableError):
        async with asyncio.timeout(_END_S):
            await program.wait()


@dataclass(frozen=True, slots=True)
class Visit:
    """A board that is logged in to, what it is, and what was deployed there or is to be."""

    remote: Remote
    layout: Layout
    facts: BoardFacts
    settings: BoardSettings
    service: Service
    entry: BoardEntry
    copied_from: BoardEntry | None
    """Another machine, which has the identity that is written here."""

    def differing(self, files: Mapping[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
        """Those that are not on the board like that. A key is not read: it goes with its certificate."""
        texts = self.facts.files
        return {path: file for path, file in files.items() if texts.get(path) != file[0].decode("utf-8", "replace")}

    def service_files(self) -> dict[str, tuple[bytes, int]]:
        """What the service lacks, by path, with content and mode."""
        return self.differing({path: (text.encode(), mode) for path, (text, mode) in self.service.files.items()})

    def target(self, version: str, previous: str, files: Mapping[str, tuple[bytes, int]] | None = None) -> Target:
        """A version with its service and settings, and more files."""
        settings = {self.layout.config: (self.settings.text.encode(), 0o644)}
        return Target(version, previous, {**(files or {}), **self.service_files(), **settings}, self.service.unwanted)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Installation]:
        """The work on the board, which nobody else does meanwhile. Raises ProfagentError, UnreachableError."""
        async with locked(self.remote, self.layout.lock(self.service.init)) as owner:
            if not self.facts.is_deployed_like(await survey(self.remote, self.layout)):
                raise ProfagentError(
                    f"another deployment has changed {self.facts.hostname} meanwhile", hint="run this again"
                )
            yield Installation(self.remote, self.facts, self.layout, self.service, owner)


@asynccontextmanager
async def visited(options: DeployOptions, show: Callable[[str], None]) -> AsyncIterator[Visit]:
    """The board, logged in to and looked at; nothing is written. Raises as `deploy`."""
    options.asked.check()
    async with connect(options.target, Person()) as remote:
        facts = await _settled(remote, options, show)
        for line in fact_lines(facts, datetime.now(UTC)):
            show(line)
        yield _planned(remote, facts, options)


def _planned(remote: Remote, facts: BoardFacts, options: DeployOptions) -> Visit:
    layout, texts, entries = options.layout, facts.files, BoardsFile().entries()
    init = choose_init(facts, options.init, layout)
    marks = (*facts.marks, *([f"host-key:{remote.host_key}"] if remote.host_key else ()))
    board = recognised(entries.values(), texts.get(layout.board_id, "").strip(), options.target, marks)
    config = texts.get(layout.config, "")
    settings = board_settings(config, options.asked, layout, init, board.identity, own_consumer())
    entry = BoardEntry(
        options.name or (board.entry.name if board.entry else board_name(facts)),
        settings.address(remote.host),
        board.identity,
        board.entry.fingerprint if board.entry and settings.has_tls else "",
        options.target,
        " ".join(marks),
        "" if layout.is_usual else layout.prefix,
    ).check("--name")
    check_same(entry, entries)
    roots = (*settings.roots, *named_roots(texts, layout))
    own = service(init, layout, roots, deletes=settings.deletes)
    return Visit(remote, layout, facts, settings, own, entry, board.copied_from)


async def _settled(remote: Remote, options: DeployOptions, show: Callable[[str], None]) -> BoardFacts:
    """The board, on which no deployment is on trial any more; but for a dry run, which leaves it so."""
    facts = await survey(remote, options.layout)
    if not facts.is_on_trial:
        return facts
    show("change   what an interrupted deployment changed is taken back first")
    if options.is_dry:
        return facts
    async with locked(remote, options.layout.lock(choose_init(facts, options.init, options.layout))):
        await remote.must(taken_back(options.layout))
    return await survey(remote, options.layout)
