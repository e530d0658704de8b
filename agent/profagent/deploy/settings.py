"""The daemon's settings on a board: what stands there already, changed by what was asked for."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from profagent.errors import ProfagentError, UsageError
from profagent.link.credentials import host_of, is_local

if TYPE_CHECKING:
    from profagent.deploy.units import Layout

__all__ = ["DEFAULT_LISTEN", "Asked", "BoardSettings", "board_settings"]

DEFAULT_LISTEN = "0.0.0.0:50151"
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:\[\]]+):([1-9]\d{0,4})")
_ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 - looked for, not listened on
_TLS = {"tls_cert": "board.pem", "tls_key": "board.key", "tls_ca": "ca.pem", "tls_revoked": "revoked.txt"}
_MIN_FREE = "min_free"


@dataclass(frozen=True, slots=True)
class Asked:
    """Settings that were asked for; None, or empty: as they are on the board, else the usual ones."""

    listen: str | None = None
    roots: tuple[str, ...] = ()
    retain: str | None = None
    retain_for: tuple[str, ...] = ()
    min_free: str | None = None

    def check(self) -> None:
        """Raises UsageError for what makes no sense."""
        if self.listen is not None and not self.listen.startswith("unix:/") and not _ADDRESS.fullmatch(self.listen):
            raise UsageError(
                f"--listen {self.listen!r} is no HOST:PORT", hint=f"take {DEFAULT_LISTEN}, or unix:/PATH with --via ssh"
            )
        for root in self.roots:
            if not root.startswith("/"):
                raise UsageError(f"--root {root!r} is no absolute path", hint="it is a directory of the board")
        if (self.min_free is not None) != (self.retain == _MIN_FREE):
            raise UsageError("--retain min_free and --min-free SIZE go together", hint="e.g. --min-free 200MB, or 10%")
        if self.retain_for and self.retain in (None, "keep"):
            raise UsageError("--retain-for goes with --retain delivered or min_free", hint="add one, or leave it out")


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """The text of profagentd.toml, and what of it others need."""

    text: str
    listen: str
    roots: tuple[str, ...]
    deletes: bool

    @property
    def has_tls(self) -> bool:
        """Whether hosts need a certificate."""
        return not is_local(self.listen)

    def host(self, reached_by: str) -> str:
        """By which name or address hosts call the daemon, on a board that SSH reaches by `reached_by`."""
        host = host_of(self.listen)
        return reached_by if not self.has_tls or host in _ANY_HOST else host

    def address(self, reached_by: str) -> str:
        """HOST:PORT, or unix:PATH, for boards.toml."""
        if not self.has_tls:
            # Only a tunnel leads there, and has to end at this very place.
            return self.listen
        host = self.host(reached_by)
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    @property
    def own_address(self) -> str:
        """What the board's own programs call it."""
        return f"127.0.0.1:{self._port}" if host_of(self.listen) in _ANY_HOST else self.listen

    @property
    def _port(self) -> str:
        return self.listen.rpartition(":")[2]


def board_settings(old: str, asked: Asked, layout: Layout, init: str, identity: str, consumer: str) -> BoardSettings:
    """The settings with what was asked for; what a person wrote there stays. Raises ProfagentError, UsageError.

    `consumer` is whose captures count as delivery unless others are named.
    """
    asked.check()
    try:
        document = tomlkit.parse(old)
    except TOMLKitError as error:
        raise ProfagentError(f"{layout.config} on the board: {error}", hint="mend it there, or remove it") from error
    if asked.listen is None and not isinstance(document.get("listen", ""), str):
        raise ProfagentError(
            f"{layout.config} on the board: listen = {document['listen']} is no text",
            hint="mend it there, or use --listen",
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
        # systemd gives the service a directory of its own.
        _set(document, "state", None if init == "systemd" else layout.state)
    text = tomlkit.dumps(document)
    values = tomllib.loads(text)
    return BoardSettings(
        text if text.endswith("\n") else f"{text}\n",
        values["listen"],
        tuple(values.get("roots", ())),
        values.get("retain", "keep") != "keep",
    )


def _changes(document: Any, asked: Asked, consumer: str) -> dict[str, Any]:
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
    """Another value, or none; an equal one stays as it was written."""
    if value is None:
        document.pop(key, None)
    elif document.get(key) != value:
        document[key] = value
