"""Deployment of the daemon over SSH: survey, plan, upload, trial, rollback and removal."""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import tomllib
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent.boards.daemon_tree import chosen_version
from profagent.boards.layout import Layout
from profagent.boards.survey import check_room
from profagent.cli.progress import BYTES, progress
from profagent.deploy.board import RequestedSettings, board_keys, check_version, is_deployed, planned
from profagent.deploy.installed import fact_lines
from profagent.deploy.units import install_request, installed_init, named_roots, removal_request, setup_request
from profagent.errors import ProfagentError, RefusedError, UnreachableError, UsageError
from profagent.files import finished
from profagent.keys.keys import BOARD_CERT, BOARD_KEY, Keys, content
from profagent.limits import DAEMON_ANSWER_S, HOST_SILENCE_S, MOST_DEATHS
from profagent.link.addresses import KnownBoard, default_keys
from profagent.link.boards_file import BoardsFile
from profagent.link.channel import connected
from profagent.link.credentials import CA, Access
from profagent.ssh.connection import Person, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from profagent.boards.daemon_tree import DaemonTree
    from profagent.deploy.board import DeployBoard
    from profagent.link.boards_file import BoardEntry
    from profagent.link.messages import Board
    from profagent.ssh.remote import Program, Remote


# Pause between attempts to reach a daemon that has just been started.
_BETWEEN_S = 1.0
# Content and mode of files, by path on the board.
Files = dict[str, tuple[bytes, int]]


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """Options of one deployment; an empty `name` means the board's host name."""

    target: str
    layout: Layout = field(default_factory=Layout)
    asked: RequestedSettings = field(default_factory=RequestedSettings)
    init: str = "auto"
    name: str = ""
    python: str = "auto"
    bundle: Path | None = None
    wheelhouse: Path | None = None
    keys: Path = field(default_factory=default_keys)
    is_upgrade: bool = False
    may_replace: bool = False
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class Deployed:
    """Result of a deployment; `board` is None for a dry run, whose `changes` were not made."""

    entry: BoardEntry
    version: str
    changes: tuple[str, ...]
    replaced: tuple[str, ...]
    board: Board | None
    at_boot: str


@asynccontextmanager
async def opened(
    options: DeployOptions, show: Callable[[str], None], tell: Callable[[str], None]
) -> AsyncIterator[Deployment]:
    """Log in to the board, survey it, and yield its Deployment.

    Changes of an interrupted deployment are undone first. `show` receives lines about the board and its changes, `tell`
    remarks about progress. Raises UsageError, UnreachableError, RefusedError, ProfagentError.
    """
    async with connect(options.target, Person()) as remote:
        found = Deployment(remote, options, await planned(remote, options), show, tell)
        if found.board.facts.is_on_trial:
            show("change   what an interrupted deployment changed is taken back first")
            if not options.is_dry:
                await found.change(setup_request("back", options.layout, found.board.service))
                found.board = await planned(remote, options)
        for line in fact_lines(found.board.facts, datetime.now(UTC)):
            show(line)
        yield found


@dataclass(slots=True)
class Deployment:
    """Actions on a board. All raise UsageError, UnreachableError, RefusedError, ProfagentError.

    After an error the version that ran before continues to run, unless the message says otherwise.
    """

    remote: Remote
    options: DeployOptions
    # The survey and its plan; replaced when an interrupted deployment was undone.
    board: DeployBoard
    show: Callable[[str], None]
    tell: Callable[[str], None]

    async def deploy(self) -> Deployed:
        """Run this host's version on the board, and enter the board in boards.toml; equal parts are left alone."""
        options, board, facts = self.options, self.board, self.board.facts
        version = await chosen_version(facts, options.python, options.bundle, options.wheelhouse)
        check_version(facts, version.name, is_upgrade=options.is_upgrade)
        is_there = facts.current == version.name and await self._is_active()
        check_room(facts, 0 if is_there else version.size_bytes)
        replaced = tuple(self._replaced())
        # Keys are made after the agreement: making them writes to this host's folder of keys.
        await self._agreed(replaced)
        keys = {} if options.is_dry else self._keys()
        wanted = board.differing(keys)
        changes = tuple(self._changes(version.name, wanted, is_there=is_there))
        for change in changes:
            self.show(f"change   {change}")
        found = None
        if not options.is_dry:
            if changes:
                part = "" if is_there else await self._brought(version)
                found = await self._tried(version.name, part, wanted)
            else:
                found = await self._answered()
            # Only now: a deployment that failed must not change how this host reaches the board.
            BoardsFile().put(self.board.entry, is_same=True)
        return Deployed(self.board.entry, version.name, changes, replaced, found, board.service.starts_at_boot)

    async def roll_back(self) -> Deployed:
        """Run the previous version again; a second call returns to the present one."""
        board, facts = self.board, self.board.facts
        if not facts.previous or facts.previous not in facts.versions:
            raise UsageError(f"{facts.hostname} has no version before {facts.current or 'any'}", hint="deploy one")
        if board.copied_from is not None:
            raise UsageError(
                f"{facts.hostname} has the identity of {board.copied_from.name}, another machine",
                hint="deploy to it, which gives it one of its own",
            )
        change = f"{facts.previous} in place of {facts.current}"
        self.show(f"change   {change}")
        found = None if self.options.is_dry else await self._tried(facts.previous, "", board.differing({}))
        return Deployed(board.entry, facts.previous, (change,), (), found, board.service.starts_at_boot)

    async def remove(self) -> bool:
        """Stop the service and remove its files from the board, and the board from boards.toml.

        Return False if nothing was deployed. Raises UsageError if JOBs lie in a directory that would be removed.
        """
        layout, facts = self.options.layout, self.board.facts
        if not is_deployed(facts, layout):
            return False
        roots = tomllib.loads(facts.files.get(layout.config, "")).get("roots", ())
        request = removal_request(layout, self.board.service, (*roots, *named_roots(facts.files, layout)))
        self.show(f"change   remove what was deployed below {layout.prefix}, its service and {layout.settings}")
        if not self.options.is_dry:
            await self.change(request)
            _forget(self.board.entry.uuid, Keys(self.options.keys))
        return True

    async def change(self, request: Mapping[str, Any]) -> None:
        """Send `setup` a request that needs no confirmation, and wait for its answer."""
        async with self._running_setup(request) as program:
            await self._answer(program)

    async def _tried(self, version: str, part: str, wanted: Files) -> Board:
        """Start a version on trial, and return the description of its daemon.

        If it does not start or answer, or this task is cancelled, the board restores the previous version; if the link
        is lost, it does so by itself.
        """
        layout, facts = self.options.layout, self.board.facts
        had_service = installed_init(layout, facts.files) is not None
        request = install_request(layout, self.board.service, version, part, wanted, had_service=had_service)
        before = f"{facts.current} runs again" if facts.current else "nothing runs there"
        async with self._running_setup(request) as program:
            try:
                answer = await self._answer(program)
                if answer["is"] == "back":
                    raise _not_usable(version, before, ProfagentError(answer["why"], hint="see its log there"), answer)
                board = await self._answered()
                program.stdin.write(b"keep\n")
                # The board has been told to keep the version: a cancellation must not end the wait for its answer, or
                # both sides would disagree about what runs.
                await finished(asyncio.create_task(self._answer(program)))
            except asyncio.CancelledError:
                # Shielded: the board must have restored its version before the link is closed.
                await finished(asyncio.create_task(_taken_back(program)))
                raise
            # A failed answer is not the end: the board still runs the version, and has to be told.
            except (UnreachableError, RefusedError) as error:
                try:
                    answer = await _taken_back(program)
                except UnreachableError as lost:
                    why = f"{lost}; {facts.hostname} leads back by itself within {HOST_SILENCE_S} s: {before} then"
                    raise UnreachableError(why, hint=lost.hint) from error
                raise _not_usable(version, before, error, answer) from error
        return board

    @asynccontextmanager
    async def _running_setup(self, request: Mapping[str, Any]) -> AsyncIterator[Program]:
        layout, python = self.options.layout, self.board.facts.python
        await self.remote.must(f"mkdir -p {layout.prefix}")
        await self.remote.put(files("profagent.deploy").joinpath("setup.py").read_bytes(), layout.setup)
        # A bundle brings its own Python, which is preferred: the board may have none.
        tree = request.get("part") or layout.current
        system = shlex.quote(python.path) if python else "python3"
        setup = f"$python -I -B {layout.setup} {HOST_SILENCE_S}"
        command = f"python={tree}/bin/python; [ -x $python ] || python={system}; exec {setup}"
        async with self.remote.attended(command) as program:
            program.stdin.write(json.dumps(request).encode() + b"\n")
            yield program

    async def _answer(self, program: Program) -> Mapping[str, Any]:
        """Return the next answer of `setup`.

        Raises ProfagentError for a failure that it reports, UnreachableError for a lost link.
        """
        line = await program.read_line()
        hostname = self.board.facts.hostname
        if not line:
            complaint = (await program.complaint()).strip().splitlines() or ["it ended without a word"]
            await program.wait()
            raise ProfagentError(
                f"nothing can be changed on {hostname}: {complaint[-1]}",
                hint="see that the file system can be written to, and that the board's Python runs",
            )
        answer: Mapping[str, Any] = json.loads(line)
        if answer["is"] == "failed":
            raise ProfagentError(f"{hostname}: {answer['why']}", hint=answer["hint"])
        return answer

    async def _is_active(self) -> bool:
        return (await self.remote.run(self.board.service.is_active)).status == 0

    async def _answered(self) -> Board:
        """Return the description of the daemon, over mutual TLS, or through a tunnel where it listens on loopback.

        The attempts go on until DAEMON_ANSWER_S seconds have passed, or the board says MOST_DEATHS times in a row that
        the service does not run.
        """
        settings, entry = self.board.settings, self.board.entry
        async with AsyncExitStack() as stack:
            if settings.has_tls:
                access = Access(self.options.keys, known={entry.name: entry.known})
            else:
                local = await stack.enter_async_context(self.remote.forward(settings.own_address))
                access = Access(known={entry.name: KnownBoard(entry.name, local, entry.uuid)})
            until = asyncio.get_running_loop().time() + DAEMON_ANSWER_S
            found_dead = 0
            while True:
                try:
                    async with connected(entry.name, access) as channel:
                        return await channel.describe()
                except RefusedError:
                    # A daemon that refuses the certificate has started: waiting would not change its answer.
                    raise
                except UnreachableError:
                    # One look may fall between two restarts by the init system: only a series of them ends the wait.
                    found_dead = 0 if await self._is_active() else found_dead + 1
                    if found_dead == MOST_DEATHS or asyncio.get_running_loop().time() > until:
                        raise
                await asyncio.sleep(_BETWEEN_S)

    async def _brought(self, version: DaemonTree) -> str:
        self.tell(f"bringing {version.name}: {version.size_bytes / 1e6:.0f} MB")
        part = f"{self.options.layout.versions}/{version.name}.{secrets.token_hex(4)}.part"
        tar = version.tar()
        size = tar.getbuffer().nbytes
        with progress("upload", BYTES) as shown:
            await self.remote.unpack(tar, part, lambda sent: shown(sent, size))
        return part

    def _changes(self, version: str, wanted: Files, *, is_there: bool) -> Iterator[str]:
        board, layout = self.board, self.options.layout
        current, there = board.facts.current, board.facts.files
        if current != version:
            yield f"{version} below {layout.versions}" + (f", in place of {current}" if current else "")
        elif not is_there:
            yield f"{version} anew: its service does not run"
        yield from (f"write {path}" for path in wanted)
        if board.settings.has_tls and self.options.is_dry and f"{layout.keys}/{BOARD_CERT}" not in there:
            yield f"a certificate of {self.options.keys}"
        yield from (f"remove {path}" for path in board.service.unwanted if path in there)

    def _replaced(self) -> Iterator[str]:
        there = self.board.facts.files.get(f"{self.options.layout.keys}/{CA}")
        own = self.options.keys / CA
        if self.board.settings.has_tls and there is not None and not (own.exists() and there.encode() == content(own)):
            yield "the keys of another CA: hosts that have keys of it will be refused"
        other = self.board.copied_from
        if other is not None:
            yield f"the identity {other.uuid}: it is that of {other.name}, another machine; keys are made anew, too"

    async def _agreed(self, replaced: tuple[str, ...]) -> None:
        """Ask the person whether these may be replaced. Raises UsageError without an agreement."""
        for line in replaced:
            self.show(f"replace  {line}")
        if not replaced or self.options.is_dry or self.options.may_replace:
            return
        if not await Person().confirm(f"Replace {'these' if len(replaced) > 1 else 'this'}? (yes/no) "):
            raise UsageError(
                f"nothing was changed on {self.board.facts.hostname}, and it would have lost {replaced[0]}",
                hint="confirm at a terminal, or add --replace, once nobody needs it",
            )

    def _keys(self) -> Files:
        """Return the key files by path on the board, and enter the certificate's fingerprint in the board's entry."""
        board, folder = self.board, self.options.layout.keys
        if not board.settings.has_tls:
            return {}
        # The key of a copied image belongs to the other board, so this board gets a new one.
        has_own = board.facts.has_key and board.copied_from is None
        installed = board.facts.files.get(f"{folder}/{BOARD_CERT}") if has_own else None
        host, entry = board.settings.host(board.reached_by), board.entry
        fingerprint, found = board_keys(self.options.keys, entry.name, host, entry.uuid, installed, self.tell)
        board.entry = replace(entry, fingerprint=fingerprint)
        return {f"{folder}/{name}": (data, 0o600 if name == BOARD_KEY else 0o644) for name, data in found.items()}


def _not_usable(version: str, before: str, error: ProfagentError, answer: Mapping[str, Any]) -> ProfagentError:
    log = _last_message(answer.get("log", ""))
    return type(error)(
        f"{version} was started and cannot be used: {error}; {before}" + (f"; its log ends with: {log}" if log else ""),
        hint=f"{error.hint}; where only SSH gets through, take --listen 127.0.0.1:50151; a host that is on no private"
        " network has the unit allow it (IPAddressAllow=, docs/reference/service.md)",
    )


async def _taken_back(program: Program) -> Mapping[str, Any]:
    """Make the board restore what its trial replaced, and return its answer. Raises UnreachableError."""
    # The pipe may be closed already; the board then restores by itself, and its answer is still read.
    with suppress(OSError):
        program.stdin.write(b"back\n")
    answer: Mapping[str, Any] = json.loads(await program.read_line() or b"{}")
    await program.wait()
    return answer


def _last_message(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if not line[0].isspace()]
    return ": ".join(line.strip() for line in lines[begins[-1] :]) if begins else ""


def _forget(identity: str, keys: Keys) -> None:
    # A later deployment gives the board a new identity and certificate, so the present one can be revoked.
    if (keys.folder / CA).exists():
        for each in keys.entries():
            if not each.revoked and each.certificate.identity == identity:
                keys.revoke(each.certificate.fingerprint)
    file = BoardsFile()
    for entry in file.entries().values():
        if entry.uuid == identity:
            file.remove(entry.name)
