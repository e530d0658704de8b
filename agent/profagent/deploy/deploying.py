"""Deploying the daemon to a board over SSH: look, plan, bring, switch, and ask who answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.deploy.answering import answered, is_active
from profagent.deploy.board_version import chosen_version
from profagent.deploy.installing import is_whole
from profagent.deploy.layout import Layout
from profagent.deploy.plan import check_room, check_version
from profagent.deploy.settings import Asked
from profagent.deploy.units import check_drop_in, other_prefix
from profagent.deploy.visiting import visited
from profagent.errors import UsageError
from profagent.keys.keys import BOARD_CERT, BOARD_KEY, Keys
from profagent.link.boards_file import BoardEntry, BoardsFile
from profagent.link.credentials import CA, REVOKED, Certificate, default_keys
from profagent.ssh.passwords import Person

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.deploy.daemon_tree import DaemonTree
    from profagent.deploy.visiting import Visit
    from profagent.link.messages import Board
    from profagent.ssh.passwords import Asker


@dataclass(frozen=True, slots=True)
class BoardKeys:
    """Files by their names in the board's keys/, with `board.key` where the board needs another."""

    fingerprint: str
    files: Mapping[str, bytes]


def board_keys(
    folder: Path, name: str, host: str, identity: str, installed: str | None, tell: Callable[[str], None]
) -> BoardKeys:
    """Keys for the board that hosts call `host`; a CA is made where there is none. Raises UsageError.

    `installed` is the certificate (PEM) that the board has together with its key.
    """
    keys = Keys(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        keys.init()
        tell(f"made a CA for keys in {folder}; keep its ca.key secret, and a copy of it")
    files = {each: _content(folder / each) for each in (CA, REVOKED) if (folder / each).exists()}
    if CA not in files:
        raise UsageError(f"{folder} has no {CA}", hint="name the folder of `profagent keys init` with --keys")
    if installed is not None and (found := _fitting(keys, installed.encode(), host, identity)):
        return BoardKeys(found.fingerprint, {**files, BOARD_CERT: installed.encode()})
    handed_out = folder / "boards" / name
    if not (handed_out / BOARD_KEY).exists() or not _fitting(keys, _content(handed_out / BOARD_CERT), host, identity):
        keys.issue_board(name, (host,), identity=identity)
    own = {each: _content(handed_out / each) for each in (BOARD_CERT, BOARD_KEY)}
    return BoardKeys(Certificate.read(own[BOARD_CERT], handed_out).fingerprint, {**files, **own})


def ca_certificate(folder: Path) -> bytes | None:
    """What boards know the CA's hosts by (PEM); None where there is no CA. Raises UsageError."""
    return _content(folder / CA) if (folder / CA).exists() else None


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


def replaced_keys(visit: Visit, keys: Path) -> Iterator[str]:
    """The CA whose keys the board has, when it is not that of `keys`."""
    there = visit.facts.files.get(f"{visit.layout.keys}/{CA}")
    if visit.settings.has_tls and there is not None and there.encode() != ca_certificate(keys):
        yield f"the keys of {_ca_name(there)}: hosts that have keys of it will be refused"


def replaced_identity(visit: Visit) -> Iterator[str]:
    """The identity, when it is another board's."""
    if visit.copied_from is not None:
        other = visit.copied_from
        yield f"the identity {other.uuid}: it is that of {other.name}, another machine; keys are made anew, too"


def replaced_service(visit: Visit) -> Iterator[str]:
    """The service, when it is that of another prefix."""
    other = other_prefix(visit.layout, visit.facts.files)
    if other is not None:
        yield f"the service, which starts the daemon below {other}: that is stopped, its files and settings stay"


async def agreed(replaced: Sequence[str], hostname: str, asker: Asker) -> None:
    """Ask whether it may be replaced. Raises UsageError when nobody says so."""
    if replaced and not await asker.confirm(f"Replace {'these' if len(replaced) > 1 else 'this'}? (yes/no) "):
        raise UsageError(
            f"nothing was changed on {hostname}, which is to lose {replaced[0]}",
            hint="say yes at a terminal, or --replace, when nobody needs that any more",
        )


def _ca_name(pem: str) -> str:
    try:
        return f"the CA {Certificate.read(pem.encode(), CA).name}"
    except UsageError:
        return "a CA that cannot be told"


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
    async with visited(options, show) as visit:
        facts = visit.facts
        version = await chosen_version(facts, options.python, options.bundle, options.wheelhouse)
        check_version(facts, version.name, is_upgrade=options.is_upgrade)
        check_drop_in(facts.files, visit.service, facts.hostname)
        is_there = version.name in facts.versions and await is_whole(visit.remote, options.layout, version)
        check_room(facts, options.layout, version, is_there=is_there)
        replaced = (*replaced_keys(visit, options.keys), *replaced_identity(visit), *replaced_service(visit))
        await _agreed(options, visit, replaced, show)
        keys = None if options.is_dry or not visit.settings.has_tls else _keys(options, visit, tell)
        work = _Work(options, visit, version, keys, await _faults(visit, version, is_there=is_there))
        for change in work.changes:
            show(f"change   {change}")
        board = None if options.is_dry else await work.done(tell)
        return Deployed(work.entry, version.name, work.changes, replaced, board, visit.service.starts_at_boot)


async def roll_back(options: DeployOptions, show: Callable[[str], None]) -> Deployed:
    """Have the version before run again; a second time leads back. Raises as `deploy`."""
    async with visited(options, show) as visit:
        facts = visit.facts
        if not facts.previous or facts.previous not in facts.versions:
            raise UsageError(f"{facts.hostname} has no version before {facts.current or 'any'}", hint="deploy one")
        check_drop_in(facts.files, visit.service, facts.hostname)
        if visit.copied_from is not None:
            raise UsageError(
                f"{facts.hostname} has the identity of {visit.copied_from.name}, another machine",
                hint="deploy to it, which gives it one of its own",
            )
        replaced = tuple(replaced_service(visit))
        await _agreed(options, visit, replaced, show)
        changes = (f"{facts.previous} in place of {facts.current}",)
        show(f"change   {changes[0]}")
        board = None
        if not options.is_dry:
            target = visit.target(facts.previous, facts.current)
            async with visit.alone() as own:
                board = await own.try_out(target, visit.settings, visit.entry, options.keys)
        return Deployed(visit.entry, facts.previous, changes, replaced, board, visit.service.starts_at_boot)


class _Work:
    """What is to change on a board, and the doing."""

    def __init__(
        self, options: DeployOptions, visit: Visit, version: DaemonTree, keys: BoardKeys | None, faults: Sequence[str]
    ) -> None:
        """`faults`: what is not as it was deployed, as lines of the plan."""
        self._options = options
        self._visit = visit
        self._version = version
        self.entry = replace(visit.entry, fingerprint=keys.fingerprint) if keys else visit.entry
        self._files = visit.differing(
            {
                visit.layout.board_id: (f"{visit.entry.uuid}\n".encode(), 0o644),
                **{
                    f"{visit.layout.keys}/{name}": (content, _KEY_MODES.get(name, 0o644))
                    for name, content in (keys.files if keys else {}).items()
                },
            }
        )
        self.changes = (*self._changes(), *faults)

    async def done(self, tell: Callable[[str], None]) -> Board:
        """Do it; who answers then."""
        visit, options, name = self._visit, self._options, self._version.name
        if self.changes:
            current = visit.facts.current
            previous = current if current not in ("", name) else visit.facts.previous
            async with visit.alone() as own:
                await own.bring(self._version, tell)
                target = visit.target(name, previous, self._files)
                board = await own.try_out(target, visit.settings, self.entry, options.keys)
                await own.tidy(name, previous)
        else:
            board = await answered(visit.remote, visit.service, visit.settings, self.entry, options.keys)
        BoardsFile().put(self.entry, is_same=True)
        return board

    def _changes(self) -> list[str]:
        facts, layout = self._visit.facts, self._visit.layout
        changes: list[str] = []
        if facts.current != self._version.name:
            instead = f", in place of {facts.current}" if facts.current else ""
            changes.append(f"{self._version.name} below {layout.versions}{instead}")
        changes += [f"write {path}" for path in (*self._files, *self._visit.service_files())]
        if self._visit.settings.has_tls and self._options.is_dry and f"{layout.keys}/{BOARD_CERT}" not in facts.files:
            changes.append(f"a certificate of {self._options.keys}")
        if facts.files.get(layout.config) != self._visit.settings.text:
            changes.append(f"write {layout.config}")
        changes += [f"remove {path}" for path in self._visit.service.unwanted if path in facts.files]
        return changes


async def _faults(visit: Visit, version: DaemonTree, *, is_there: bool) -> list[str]:
    """What has become of a version that was deployed: what is to be put right, a line each."""
    if visit.facts.current != version.name:
        return []
    faults: list[str] = []
    if not is_there:
        faults.append(f"{version.name} anew: its files are damaged")
    if not await is_active(visit.remote, visit.service):
        faults.append("start the service, which does not run")
    return faults


def _keys(options: DeployOptions, visit: Visit, tell: Callable[[str], None]) -> BoardKeys:
    # A copy's key is the other board's.
    has_own = visit.facts.has_key and visit.copied_from is None
    installed = visit.facts.files.get(f"{options.layout.keys}/{BOARD_CERT}") if has_own else None
    host = visit.settings.host(visit.remote.host)
    return board_keys(options.keys, visit.entry.name, host, visit.entry.uuid, installed, tell)


async def _agreed(options: DeployOptions, visit: Visit, replaced: Sequence[str], show: Callable[[str], None]) -> None:
    for line in replaced:
        show(f"replace  {line}")
    if not options.is_dry and not options.may_replace:
        await agreed(replaced, visit.facts.hostname, Person())
