"""Deploying the daemon to a board over SSH: look, plan, bring, try out, and remove."""

from __future__ import annotations

import secrets
import tomllib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.deploy.board import check_room, check_version, chosen_version, fact_lines, is_deployed, looked_at
from profagent.deploy.installing import answered, changed, is_active, tried_out
from profagent.deploy.settings import Asked
from profagent.deploy.units import Layout, back_request, install_request, installed_init, named_roots, removal_request
from profagent.errors import UsageError
from profagent.keys.keys import BOARD_CERT, BOARD_KEY, Keys
from profagent.link.boards_file import BoardEntry, BoardsFile
from profagent.link.credentials import CA, REVOKED, Certificate, default_keys
from profagent.ssh.connection import connect
from profagent.ssh.passwords import Person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from profagent.deploy.board import DeployBoard
    from profagent.deploy.daemon_tree import DaemonTree
    from profagent.deploy.survey import BoardFacts
    from profagent.link.messages import Board
    from profagent.ssh.remote import Remote

Files = dict[str, tuple[bytes, int]]
_KEY_MODES = {BOARD_KEY: 0o600}


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

    async def pieces() -> AsyncIterator[bytes]:
        for piece in version.tar():
            yield piece

    await remote.unpack(pieces(), part)
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
    own = _content(keys / CA) if (keys / CA).exists() else None
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


def board_keys(
    folder: Path, name: str, host: str, identity: str, installed: str | None, tell: Callable[[str], None]
) -> tuple[str, Mapping[str, bytes]]:
    """The fingerprint and files, by name, for the board that hosts call `host`; a CA is made where there is none.

    `installed` is the certificate (PEM) that the board has together with its key, which then stay. UsageError.
    """
    keys = Keys(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        keys.init()
        tell(f"made a CA for keys in {folder}; keep its ca.key secret, and a copy of it")
    if not (folder / CA).exists():
        raise UsageError(f"{folder} has no {CA}", hint="name the folder of `profagent keys init` with --keys")
    files = {each: _content(folder / each) for each in (CA, REVOKED) if (folder / each).exists()}
    if installed is not None and (found := _fitting(keys, installed.encode(), host, identity)):
        return found.fingerprint, {**files, BOARD_CERT: installed.encode()}
    handed_out = folder / "boards" / name
    if not (handed_out / BOARD_KEY).exists() or not _fitting(keys, _content(handed_out / BOARD_CERT), host, identity):
        keys.issue_board(name, (host,), identity=identity)
    own = {each: _content(handed_out / each) for each in (BOARD_CERT, BOARD_KEY)}
    return Certificate.read(own[BOARD_CERT], handed_out).fingerprint, {**files, **own}


def _fitting(keys: Keys, pem: bytes, host: str, identity: str) -> Certificate | None:
    """The certificate, when the CA's hosts take it of the board with that identity at that host."""
    try:
        found = Certificate.read(pem, BOARD_CERT)
    except UsageError:
        return None
    is_its = host in found.addresses and found.identity in ("", identity)
    return found if is_its and keys.takes(found) else None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="check its owner and mode") from error
