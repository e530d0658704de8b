"""The certificate of a board that is deployed: the one that it has, one that was issued before, or a new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.errors import UsageError
from profagent.keys.keys import BOARD_CERT, BOARD_KEY, Keys
from profagent.link.certificate import Certificate
from profagent.link.credentials import CA, REVOKED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["BoardKeys", "board_keys", "ca_certificate"]


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
