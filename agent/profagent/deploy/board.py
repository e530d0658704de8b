"""Plan of a deployment to one board: its identity, settings, keys and service."""

from __future__ import annotations

import re
import tomllib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from profagent.deploy.installed import survey_installed
from profagent.deploy.units import Service, check_owner, chosen_init, installed_init, named_roots, owned_init, service
from profagent.errors import ProfagentError, UsageError
from profagent.keys.keys import BOARD_CERT, BOARD_KEY, Keys, content
from profagent.link.addresses import host_of, is_local
from profagent.link.boards_file import BoardEntry, BoardsFile, check_same
from profagent.link.credentials import CA, REVOKED, Certificate, own_consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from profagent.boards.layout import Layout
    from profagent.deploy.deploying import DeployOptions
    from profagent.deploy.installed import InstalledFacts
    from profagent.ssh.remote import Remote


DEFAULT_LISTEN = "0.0.0.0:50151"
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:\[\]]+):([1-9]\d{0,4})")
_ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 - looked for, not listened on
_TLS = {"tls_cert": "board.pem", "tls_key": "board.key", "tls_ca": "ca.pem", "tls_revoked": "revoked.txt"}
_MIN_FREE = "min_free"


@dataclass(frozen=True, slots=True)
class RequestedSettings:
    """Settings named on the command line.

    None or empty leaves the board's own value, or the default where the board has none.
    """

    listen: str | None = None
    roots: tuple[str, ...] = ()
    retain: str | None = None
    retain_for: tuple[str, ...] = ()
    min_free: str | None = None

    def check(self) -> None:
        """Raise UsageError if the options contradict each other or cannot be parsed."""
        if self.listen is not None and not self.listen.startswith("unix:/") and not _ADDRESS.fullmatch(self.listen):
            raise UsageError(
                f"--listen {self.listen!r} is not of the form HOST:PORT",
                hint=f"take {DEFAULT_LISTEN}, or unix:/PATH with --via ssh",
            )
        if (self.min_free is not None) != (self.retain == _MIN_FREE):
            raise UsageError("--retain min_free and --min-free SIZE go together", hint="e.g. --min-free 200MB, or 10%")
        if self.retain_for and self.retain in (None, "keep"):
            raise UsageError("--retain-for goes with --retain delivered or min_free", hint="add one, or leave it out")


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """Text of profagentd.toml, with the values that the rest of a deployment needs."""

    text: str
    listen: str
    roots: tuple[str, ...]
    deletes: bool

    @property
    def has_tls(self) -> bool:
        """True if hosts need a certificate: the daemon listens beyond the board itself."""
        return not is_local(self.listen)

    def host(self, reached_by: str) -> str:
        """Return the name or address by which hosts call the daemon.

        `reached_by` is the board's name for SSH; it is used if the daemon listens on every address, or needs a tunnel.
        """
        host = host_of(self.listen)
        return reached_by if not self.has_tls or host in _ANY_HOST else host

    def address(self, reached_by: str) -> str:
        """Return the daemon's address for boards.toml: HOST:PORT or unix:PATH."""
        if not self.has_tls:
            # Without TLS only an SSH tunnel leads to the daemon, and the tunnel ends at exactly this address.
            return self.listen
        host = self.host(reached_by)
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    @property
    def own_address(self) -> str:
        """Address by which programs on the board reach the daemon."""
        return f"127.0.0.1:{self._port}" if host_of(self.listen) in _ANY_HOST else self.listen

    @property
    def _port(self) -> str:
        return self.listen.rpartition(":")[2]


def board_settings(
    old: str, asked: RequestedSettings, layout: Layout, init: str, identity: str, consumer: str
) -> BoardSettings:
    """Return the board's settings with the requested changes; other keys and comments stay as they are.

    `old` is the present text of profagentd.toml, empty for none. `consumer` is the consumer whose acknowledgement
    counts as delivery unless `asked` names others. Raises ProfagentError if the text on the board cannot be parsed,
    UsageError for contradictory options.
    """
    asked.check()
    try:
        document = tomlkit.parse(old)
    except TOMLKitError as error:
        raise ProfagentError(f"{layout.config} on the board: {error}", hint="correct it there, or remove it") from error
    if asked.listen is None and not isinstance(document.get("listen", ""), str):
        raise ProfagentError(
            f"{layout.config} on the board: listen = {document['listen']} is not a string",
            hint="correct it there, or use --listen",
        )
    for key, value in _changes(document, asked, consumer).items():
        _set(document, key, value)
    has_tls = not is_local(str(document["listen"]))
    for key, file in _TLS.items():
        _set(document, key, f"{layout.keys}/{file}" if has_tls else None)
    if has_tls:
        _set(document, "insecure", None)
    if not layout.is_usual:
        _set(document, "identity", identity)
        # systemd provides the state directory itself (StateDirectory=), so the key would contradict the unit.
        _set(document, "state", None if init == "systemd" else layout.state)
    text = tomlkit.dumps(document)
    values = tomllib.loads(text)
    return BoardSettings(
        text if text.endswith("\n") else f"{text}\n",
        values["listen"],
        tuple(values.get("roots", ())),
        values.get("retain", "keep") != "keep",
    )


def _changes(document: Any, asked: RequestedSettings, consumer: str) -> dict[str, Any]:
    changes: dict[str, Any] = {"listen": asked.listen or document.get("listen", DEFAULT_LISTEN)}
    if asked.roots:
        changes["roots"] = list(asked.roots)
    if asked.retain is not None:
        keeps = asked.retain == "keep"
        changes["retain"] = None if keeps else asked.retain
        changes["retain_for"] = None if keeps else list(asked.retain_for or (consumer,))
        changes[_MIN_FREE] = asked.min_free
        if asked.retain != _MIN_FREE:
            changes["delete_undelivered"] = None
    return changes


def _set(document: Any, key: str, value: Any) -> None:
    """Set a key, or remove it for None; an equal value keeps the formatting that the file has."""
    if value is None:
        document.pop(key, None)
    elif document.get(key) != value:
        document[key] = value


def choose_init(facts: InstalledFacts, wish: str, layout: Layout) -> str:
    """Return the member of INITS to use.

    Raises UsageError if the user is not root, or another init system has the service.
    """
    chosen = chosen_init(wish, installed_init(layout, facts.files), facts.init, facts.hostname)
    if chosen != "none" and facts.uid != 0:
        raise UsageError(
            f"{facts.user} may not install a service on {facts.hostname}",
            hint="log in as root; or take --init none --prefix with a directory of your own, and start it yourself",
        )
    return chosen


def check_version(facts: InstalledFacts, name: str, *, is_upgrade: bool) -> None:
    """Raise UsageError if another version would be replaced without --upgrade, or there is none to upgrade."""
    if is_upgrade and not facts.current:
        raise UsageError(f"there is nothing to upgrade on {facts.hostname}", hint="leave --upgrade out")
    if facts.current not in ("", name) and not is_upgrade:
        raise UsageError(
            f"{facts.hostname} has {facts.current}, and this is {name}",
            hint="--upgrade replaces it; --rollback returns to the earlier version",
        )


def is_deployed(facts: InstalledFacts, layout: Layout) -> bool:
    """Return True if the board has any part of a deployment to this layout."""
    is_served = owned_init(layout, facts.files) is not None
    return is_served or layout.config in facts.files or bool(facts.current)


def board_name(facts: InstalledFacts) -> str:
    """Return a name for boards.toml, made of the host name.

    Raises UsageError if the host name is empty or a placeholder.
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", facts.hostname).strip("-_")[:63]
    if not name or facts.hostname in ("", "(none)", "localhost"):
        raise UsageError(f"the board has the name {facts.hostname!r}", hint="give it a name with --name")
    return name


# Hardware marks belong to one board, the most reliable first. Image marks are shared by all boards flashed from one
# image, unless the image creates them at its first boot.
_HARDWARE, _IMAGE = (("mac",), ("serial",)), ("machine-id", "host-key")


@dataclass(slots=True)
class DeployBoard:
    """Board to deploy to: its facts, and the settings, service and entry that it is to have."""

    layout: Layout
    reached_by: str
    facts: InstalledFacts
    settings: BoardSettings
    service: Service
    entry: BoardEntry
    copied_from: BoardEntry | None
    """Entry of the other machine from which this board's identity was copied; None if the identity is its own."""

    def differing(self, keys: Mapping[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
        """Return the files (content and mode by path) that the board lacks or has with other content.

        These are the identity, the service's files, the settings, and `keys`. A private key is never read from the
        board; `keys` has it only together with a new certificate.
        """
        wanted = {
            self.layout.board_id: (f"{self.entry.uuid}\n".encode(), 0o644),
            **keys,
            **{path: (text.encode(), mode) for path, (text, mode) in self.service.files.items()},
            self.layout.config: (self.settings.text.encode(), 0o644),
        }
        texts = self.facts.files
        return {path: file for path, file in wanted.items() if texts.get(path) != file[0].decode("utf-8", "replace")}


async def planned(remote: Remote, options: DeployOptions) -> DeployBoard:
    """Return the board with its plan; nothing is written there.

    Raises UsageError, ProfagentError, UnreachableError.
    """
    options.asked.check()
    layout, entries = options.layout, BoardsFile().entries()
    facts = await survey_installed(remote, layout)
    check_owner(layout, facts.files, facts.hostname)
    init = choose_init(facts, options.init, layout)
    marks = (*facts.marks, *([f"host-key:{remote.host_key}"] if remote.host_key else ()))
    known = recognised(entries.values(), facts.files.get(layout.board_id, "").strip(), options.target, marks)
    config = facts.files.get(layout.config, "")
    settings = board_settings(config, options.asked, layout, init, known.identity, own_consumer())
    entry = BoardEntry(
        options.name or (known.entry.name if known.entry else board_name(facts)),
        settings.address(remote.host),
        known.identity,
        known.entry.fingerprint if known.entry and settings.has_tls else "",
        options.target,
        " ".join(marks),
        "" if layout.is_usual else layout.prefix,
    ).check("--name")
    check_same(entry, entries)
    roots = (*settings.roots, *named_roots(facts.files, layout))
    own = service(init, layout, roots, deletes=settings.deletes)
    return DeployBoard(layout, remote.host, facts, settings, own, entry, known.copied_from)


@dataclass(frozen=True, slots=True)
class Recognised:
    """Identity that a board has from now on, and its entry in boards.toml."""

    identity: str
    entry: BoardEntry | None = None
    copied_from: BoardEntry | None = None
    """Entry of the other machine whose identity is written on this board; None if there is no such machine."""


def recognised(entries: Iterable[BoardEntry], written: str, target: str, marks: Collection[str]) -> Recognised:
    """Return the identity of a board, and its entry in boards.toml if it has one.

    `written` is the identity on the board, empty for none; `target` its name for SSH; `marks` identify the machine. A
    board without a written identity that is known by its SSH name was flashed again, and gets its former identity back.
    An identity that was copied from another machine is replaced by a new one.
    """
    found = next((entry for entry in entries if (entry.uuid == written if written else entry.ssh == target)), None)
    if found is None:
        return Recognised(written or str(uuid.uuid4()))
    # Flashing a board changes its image marks and leaves its hardware. A board without a written identity may have been
    # flashed, so image marks prove nothing there.
    if _is_another_machine(found.machine.split(), marks, by_image=bool(written)):
        return Recognised(str(uuid.uuid4()), copied_from=found if written else None)
    return Recognised(written or found.uuid or str(uuid.uuid4()), found)


def _is_another_machine(before: Collection[str], now: Collection[str], *, by_image: bool) -> bool:
    """Return True if the marks are known to belong to two machines; False if no kind of mark is on both sides."""
    for kinds in (*_HARDWARE, *([_IMAGE] if by_image else [])):
        old, new = ({mark for mark in marks if mark.partition(":")[0] in kinds} for marks in (before, now))
        if old and new:
            return not old & new
    return False


def board_keys(
    folder: Path, name: str, host: str, identity: str, installed: str | None, tell: Callable[[str], None]
) -> tuple[str, Mapping[str, bytes]]:
    """Return the certificate's fingerprint, and the key files by name, for the board that hosts call `host`.

    A CA is created in `folder` if that is empty. `installed` is the certificate (PEM) that the board has together with
    its private key; both stay in use if they fit. Raises UsageError.
    """
    keys = Keys(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        keys.init()
        tell(f"made a CA for keys in {folder}; keep its ca.key secret, and keep a backup")
    if not (folder / CA).exists():
        raise UsageError(f"{folder} has no {CA}", hint="name the folder of `profagent keys init` with --keys")
    files = {each: content(folder / each) for each in (CA, REVOKED) if (folder / each).exists()}
    if installed is not None and (found := _fitting(keys, installed.encode(), host, identity)):
        return found.fingerprint, {**files, BOARD_CERT: installed.encode()}
    handed_out = folder / "boards" / name
    if not (handed_out / BOARD_KEY).exists() or not _fitting(keys, content(handed_out / BOARD_CERT), host, identity):
        keys.issue_board(name, (host,), identity=identity)
    own = {each: content(handed_out / each) for each in (BOARD_CERT, BOARD_KEY)}
    return Certificate.read(own[BOARD_CERT], handed_out).fingerprint, {**files, **own}


def _fitting(keys: Keys, pem: bytes, host: str, identity: str) -> Certificate | None:
    try:
        found = Certificate.read(pem, BOARD_CERT)
    except UsageError:
        return None
    is_its = host in found.addresses and found.identity in ("", identity)
    return found if is_its and keys.takes(found) else None
