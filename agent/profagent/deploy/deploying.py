"""Deploying the daemon to a board over SSH: look, plan, bring, try out, and remove."""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import tomllib
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent.deploy.board import Asked, board_keys, check_room, check_version, is_deployed, looked_at
from profagent.deploy.daemon_tree import chosen_version
from profagent.deploy.setup import LOST_S
from profagent.deploy.survey import fact_lines
from profagent.deploy.units import Layout, back_request, install_request, installed_init, named_roots, removal_request
from profagent.errors import ProfagentError, RefusedError, UnreachableError, UsageError
from profagent.files import finished
from profagent.keys.keys import BOARD_CERT, BOARD_KEY, Keys, content
from profagent.link.boards_file import BoardEntry, BoardsFile
from profagent.link.channel import connected
from profagent.link.credentials import CA, Access, Certificate, KnownBoard, default_keys
from profagent.ssh.connection import Person, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from profagent.deploy.board import BoardSettings, DeployBoard
    from profagent.deploy.daemon_tree import DaemonTree
    from profagent.deploy.survey import BoardFacts
    from profagent.deploy.units import Service
    from profagent.link.boards_file import BoardEntry
    from profagent.link.messages import Board
    from profagent.ssh.remote import Program, Remote


# An interpreter on a small board takes its time.
LIMIT_S = 90.0
_BETWEEN_S = 1.0
# One that ended once may have been started again meanwhile.
DEAD = 3
_BEAT_S = LOST_S / 12


async def changed(remote: Remote, facts: BoardFacts, layout: Layout, request: Mapping[str, Any]) -> None:
    """Have `setup` do something that needs no second word. Raises ProfagentError, UnreachableError."""
    async with _asked(remote, facts, layout, request) as program:
        await _said(program, facts)


async def tried_out(
    remote: Remote,
    facts: BoardFacts,
    layout: Layout,
    request: Mapping[str, Any],
    ask: Callable[[], Awaitable[Board]],
) -> Board:
    """Have a version run, and answer `ask`; else what was there before is there, and runs, again.

    So it is when this is cancelled, and when the link is lost: the board does it by itself.
    """
    async with _asked(remote, facts, layout, request) as program:
        version = request["version"]
        try:
            answer = await _said(program, facts)
            if answer["is"] == "back":
                error = ProfagentError(answer["why"], hint="see its log there")
                raise _not_usable(version, facts, error, answer["log"])
            board = await ask()
            program.stdin.write(b"keep\n")
            await finished(asyncio.create_task(_said(program, facts)))
        except asyncio.CancelledError:
            await finished(asyncio.create_task(_given_up(program)))
            raise
        except (UnreachableError, RefusedError) as error:
            raise await _failed(version, facts, program, error) from error
    return board


async def _failed(version: str, facts: BoardFacts, program: Program, error: ProfagentError) -> ProfagentError:
    """What is said of a version that was taken back."""
    try:
        log = await _given_up(program)
    except UnreachableError as lost:
        before = f"{facts.current} runs again" if facts.current else "nothing runs there"
        return UnreachableError(
            f"{lost}; {facts.hostname} leads back by itself within {LOST_S} s: {before} then", hint=lost.hint
        )
    return _not_usable(version, facts, error, log)


def _not_usable(version: str, facts: BoardFacts, error: ProfagentError, log: str) -> ProfagentError:
    before = f"{facts.current} runs again" if facts.current else "nothing runs there"
    said = _last_message(log)
    return type(error)(
        f"{version} was started and cannot be used: {error}; {before}"
        + (f"; its log ends with: {said}" if said else ""),
        hint=f"{error.hint}; where only SSH gets through, take --listen 127.0.0.1:50151",
    )


async def _given_up(program: Program) -> str:
    """Have what is on trial taken back; the end of the service's log. Raises UnreachableError."""
    with suppress(OSError):
        program.stdin.write(b"back\n")
    answer = json.loads(await program.read_line() or b"{}")
    await program.wait()
    return str(answer.get("log", ""))


@asynccontextmanager
async def _asked(
    remote: Remote, facts: BoardFacts, layout: Layout, request: Mapping[str, Any]
) -> AsyncIterator[Program]:
    """`setup`, which was given a request, and hears this host for as long as the context."""
    await remote.must(f"mkdir -p {layout.prefix}")
    await remote.put(files("profagent.deploy").joinpath("setup.py").read_bytes(), layout.setup)
    # A bundle has a Python of its own.
    tree = request.get("part") or layout.current
    system = shlex.quote(facts.python.path) if facts.python else "python3"
    command = f"python={tree}/bin/python; [ -x $python ] || python={system}; exec $python -I -B {layout.setup}"
    async with remote.stream(command) as program:
        program.stdin.write(json.dumps(request).encode() + b"\n")
        async with program.kept_awake(_BEAT_S):
            yield program


async def _said(program: Program, facts: BoardFacts) -> Mapping[str, Any]:
    """The next answer. Raises ProfagentError for one that says why not, UnreachableError."""
    line = await program.read_line()
    if not line:
        complaint = (await program.complaint()).strip().splitlines() or ["it ended without a word"]
        await program.wait()
        raise ProfagentError(
            f"nothing can be changed on {facts.hostname}: {complaint[-1]}",
            hint="see that the file system can be written to, and that the board's Python runs",
        )
    answer: Mapping[str, Any] = json.loads(line)
    if answer["is"] == "failed":
        raise ProfagentError(f"{facts.hostname}: {answer['why']}", hint=answer["hint"])
    return answer


def _last_message(log: str) -> str:
    """A log's last line that is not indented, with what to do that stands below it."""
    lines = [line for line in log.splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if not line[0].isspace()]
    return ": ".join(line.strip() for line in lines[begins[-1] :]) if begins else ""


async def answered(remote: Remote, service: Service, settings: BoardSettings, entry: BoardEntry, keys: Path) -> Board:
    """Who answers: over mutual TLS, or through a tunnel where the daemon listens on the board alone.

    It is waited for as long as the board says that it runs. Raises RefusedError, UnreachableError.
    """
    if settings.has_tls:
        access = Access(keys, known={entry.name: entry.known})
        return await _described(remote, service, entry.name, access)
    async with remote.forward(settings.own_address) as local:
        access = Access(known={entry.name: KnownBoard(entry.name, local, entry.uuid)})
        return await _described(remote, service, entry.name, access)


async def is_active(remote: Remote, service: Service) -> bool:
    """Whether the board says that the service runs. Raises UnreachableError."""
    return (await remote.run(service.is_active)).status == 0


async def _described(remote: Remote, service: Service, name: str, access: Access) -> Board:
    until = asyncio.get_running_loop().time() + LIMIT_S
    found_dead = 0
    while True:
        try:
            async with connected(name, access) as channel:
                return await channel.describe()
        except RefusedError:
            raise
        except UnreachableError:
            found_dead = 0 if await is_active(remote, service) else found_dead + 1
            if found_dead == DEAD or asyncio.get_running_loop().time() > until:
                raise
        await asyncio.sleep(_BETWEEN_S)


Files = dict[str, tuple[bytes, int]]
_KEY_MODES = {BOARD_KEY: 0o600}


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """What was asked for; `name` may be empty, and is then the board's host name."""

    target: str
    layout: Layout = field(default_factory=Layout)
    asked: Asked = field(default_factory=Asked)
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
    """What came of it. Without a board: nothing was done, the changes are what would be."""

    entry: BoardEntry
    version: str
    changes: tuple[str, ...]
    replaced: tuple[str, ...]
    board: Board | None
    at_boot: str


async def deploy(options: DeployOptions, show: Callable[[str], None], tell: Callable[[str], None]) -> Deployed:
    """Have the board run this host's version, and be known by its name from now on. `show` is given the plan's lines.

    What is so already is left alone. Raises UsageError, UnreachableError, RefusedError, ProfagentError; unless the
    board says otherwise, what ran there before runs on.
    """
    async with connect(options.target, Person()) as remote:
        board = await _visited(remote, options, show)
        version = await chosen_version(board.facts, options.python, options.bundle, options.wheelhouse)
        check_version(board.facts, version.name, is_upgrade=options.is_upgrade)
        is_there = board.facts.current == version.name and await is_active(remote, board.service)
        check_room(board.facts, options.layout, 0 if is_there else version.size_bytes)
        replaced = tuple(_replaced(board, options.keys))
        await _agreed(options, board.facts, replaced, show)
        entry, keys = (board.entry, {}) if options.is_dry else _with_keys(options, board, tell)
        wanted = board.differing(keys)
        changes = tuple(_changes(board, options, version, wanted, is_there=is_there))
        for change in changes:
            show(f"change   {change}")
        found = None
        if not options.is_dry:
            if changes:
                part = "" if is_there else await _brought(remote, options.layout, version, tell)
                found = await _tried(remote, board, entry, options.keys, version.name, part, wanted)
            else:
                found = await answered(remote, board.service, board.settings, entry, options.keys)
            BoardsFile().put(entry, is_same=True)
        return Deployed(entry, version.name, changes, replaced, found, board.service.starts_at_boot)


async def roll_back(options: DeployOptions, show: Callable[[str], None]) -> Deployed:
    """Have the version before run again; a second time leads back. Raises as `deploy`."""
    async with connect(options.target, Person()) as remote:
        board = await _visited(remote, options, show)
        facts = board.facts
        if not facts.previous or facts.previous not in facts.versions:
            raise UsageError(f"{facts.hostname} has no version before {facts.current or 'any'}", hint="deploy one")
        if board.copied_from is not None:
            raise UsageError(
                f"{facts.hostname} has the identity of {board.copied_from.name}, another machine",
                hint="deploy to it, which gives it one of its own",
            )
        change = f"{facts.previous} in place of {facts.current}"
        show(f"change   {change}")
        found = None
        if not options.is_dry:
            found = await _tried(remote, board, board.entry, options.keys, facts.previous, "", board.differing({}))
        return Deployed(board.entry, facts.previous, (change,), (), found, board.service.starts_at_boot)


async def remove(options: DeployOptions, show: Callable[[str], None]) -> bool:
    """Stop the service and remove its files, on the board and from boards.toml; whether there was anything.

    Raises UsageError, also where JOBs are among what would be removed, UnreachableError, ProfagentError.
    """
    layout = options.layout
    async with connect(options.target, Person()) as remote:
        board = await _visited(remote, options, show)
        facts = board.facts
        if not is_deployed(facts, layout):
            return False
        roots = tomllib.loads(facts.files.get(layout.config, "")).get("roots", ())
        request = removal_request(layout, board.service, (*roots, *named_roots(facts.files, layout)))
        show(f"change   remove what was deployed below {layout.prefix}, its service and {layout.settings}")
        if not options.is_dry:
            await changed(remote, facts, layout, request)
            _forget(board.entry.uuid, Keys(options.keys))
        return True


def _forget(identity: str, keys: Keys) -> None:
    # Deployed again, the board has a new identity, and needs a certificate of that.
    if (keys.folder / CA).exists():
        for each in keys.entries():
            if not each.revoked and each.certificate.identity == identity:
                keys.revoke(each.certificate.fingerprint)
    file = BoardsFile()
    for entry in file.entries().values():
        if entry.uuid == identity:
            file.remove(entry.name)


async def _visited(remote: Remote, options: DeployOptions, show: Callable[[str], None]) -> DeployBoard:
    """The board, looked at; what an interrupted deployment changed is taken back first. Nothing else is written."""
    board = await looked_at(remote, options)
    if board.facts.is_on_trial:
        show("change   what an interrupted deployment changed is taken back first")
        if not options.is_dry:
            await changed(remote, board.facts, options.layout, back_request(options.layout, board.service))
            board = await looked_at(remote, options)
    for line in fact_lines(board.facts, datetime.now(UTC)):
        show(line)
    return board


async def _brought(remote: Remote, layout: Layout, version: DaemonTree, tell: Callable[[str], None]) -> str:
    """Where the version has arrived on the board."""
    tell(f"bringing {version.name}: {version.size_bytes / 1e6:.0f} MB")
    part = f"{layout.versions}/{version.name}.{secrets.token_hex(4)}.part"

    await remote.unpack(version.tar(), part)
    return part


async def _tried(
    remote: Remote, board: DeployBoard, entry: BoardEntry, keys: Path, version: str, part: str, wanted: Files
) -> Board:
    layout = board.layout
    had_service = installed_init(layout, board.facts.files) is not None
    request = install_request(layout, board.service, version, part, wanted, had_service=had_service)
    trying = tried_out(
        remote, board.facts, layout, request, lambda: answered(remote, board.service, board.settings, entry, keys)
    )
    return await trying


def _changes(
    board: DeployBoard, options: DeployOptions, version: DaemonTree, wanted: Files, *, is_there: bool
) -> Iterator[str]:
    facts, layout = board.facts, board.layout
    if facts.current != version.name:
        yield f"{version.name} below {layout.versions}" + (f", in place of {facts.current}" if facts.current else "")
    elif not is_there:
        yield f"{version.name} anew: its service does not run"
    yield from (f"write {path}" for path in wanted)
    if board.settings.has_tls and options.is_dry and f"{layout.keys}/{BOARD_CERT}" not in facts.files:
        yield f"a certificate of {options.keys}"
    yield from (f"remove {path}" for path in board.service.unwanted if path in facts.files)


def _replaced(board: DeployBoard, keys: Path) -> Iterator[str]:
    """What somebody else may rely on: another CA's keys, and an identity that is another board's."""
    there = board.facts.files.get(f"{board.layout.keys}/{CA}")
    own = content(keys / CA) if (keys / CA).exists() else None
    if board.settings.has_tls and there is not None and there.encode() != own:
        yield f"the keys of {_ca_name(there)}: hosts that have keys of it will be refused"
    other = board.copied_from
    if other is not None:
        yield f"the identity {other.uuid}: it is that of {other.name}, another machine; keys are made anew, too"


async def _agreed(
    options: DeployOptions, facts: BoardFacts, replaced: tuple[str, ...], show: Callable[[str], None]
) -> None:
    """Ask whether it may be replaced. Raises UsageError when nobody says so."""
    for line in replaced:
        show(f"replace  {line}")
    if not replaced or options.is_dry or options.may_replace:
        return
    if not await Person().confirm(f"Replace {'these' if len(replaced) > 1 else 'this'}? (yes/no) "):
        raise UsageError(
            f"nothing was changed on {facts.hostname}, which is to lose {replaced[0]}",
            hint="say yes at a terminal, or --replace, when nobody needs that any more",
        )


def _ca_name(pem: str) -> str:
    try:
        return f"the CA {Certificate.read(pem.encode(), CA).name}"
    except UsageError:
        return "a CA that cannot be told"


def _with_keys(options: DeployOptions, board: DeployBoard, tell: Callable[[str], None]) -> tuple[BoardEntry, Files]:
    """The board with its certificate's fingerprint, and keys by their paths there."""
    if not board.settings.has_tls:
        return board.entry, {}
    # A copy's key is the other board's.
    has_own = board.facts.has_key and board.copied_from is None
    installed = board.facts.files.get(f"{board.layout.keys}/{BOARD_CERT}") if has_own else None
    host = board.settings.host(board.reached_by)
    fingerprint, files = board_keys(options.keys, board.entry.name, host, board.entry.uuid, installed, tell)
    placed = {f"{board.layout.keys}/{name}": (data, _KEY_MODES.get(name, 0o644)) for name, data in files.items()}
    return replace(board.entry, fingerprint=fingerprint), placed
