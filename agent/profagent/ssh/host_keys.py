"""Whether a host is the one that it was: known_hosts, and what to do about a key that does not stand there."""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs, get_public_key_algs

from profagent.errors import ProfagentError, RefusedError
from profagent.ssh.settings import ACCEPT, STRICT

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.ssh.passwords import Asker
    from profagent.ssh.settings import Settings

_SSH_PORT = 22
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
# A hashed name, as ssh-keygen(1) writes it: HMAC-SHA1 with a salt of its own.
_HASHED, _SALT_BYTES = "|1|{}|{}", 20
# Trusted keys, authorities and revoked keys; then the same of X.509, which is not used here.
_Keys = Sequence[asyncssh.SSHKey]
_Matches = tuple[_Keys, _Keys, _Keys, Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]


class HostKeys:
    """The keys of one host that are known. `seen` is the one that it showed last; files are read when this is made."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        is_plain = settings.has_alias or settings.port == _SSH_PORT
        self._name = settings.known_as if is_plain else f"[{settings.known_as}]:{settings.port}"
        known = asyncssh.import_known_hosts("\n".join(_readable_lines(settings.known_hosts)))
        self._trusted, self._authorities, self._revoked, *_ = known.match(self._name, "", None)
        self._accepted: list[asyncssh.SSHKey] = []
        self._takes_certificates = bool(self._authorities)
        self.seen: asyncssh.SSHKey | None = None

    def match(self, _host: str, _addr: str, _port: int | None) -> _Matches:
        """The authorities and revoked keys, in asyncssh's form: of keys alone `is_known` is asked."""
        self.seen = None
        return [], self._authorities, self._revoked, [], [], [], []

    def is_known(self, key: asyncssh.SSHKey) -> bool:
        """Whether a key that the host shows is trusted; it is kept for `judge`."""
        self.seen = key
        return key in self._trusted or key in self._accepted

    @property
    def algorithms(self) -> Sequence[str]:
        """The kinds that are asked for, those first of which a key is known; empty for what the configuration says.

        As with ssh, kinds that it adds to the usual ones, or takes from them, leave that order.
        """
        change, listed = self._settings.key_kinds[:1], self._settings.key_kinds[1:].split(",")
        if change not in ("", "+", "-"):
            return ()
        certified = get_default_certificate_algs() if self._takes_certificates else ()
        known = [kind for key in (*self._trusted, *self._accepted) for kind in key.sig_algorithms]
        usual = dict.fromkeys(each.decode("ascii") for each in (*certified, *known, *get_default_public_key_algs()))
        possible = (each.decode("ascii") for each in get_public_key_algs())
        chosen = {each for each in (*usual, *possible) if any(fnmatchcase(each, pattern) for pattern in listed)}
        if change == "-":
            return [each for each in usual if each not in chosen]
        return [*usual, *sorted(chosen - usual.keys())]

    async def judge(self, asker: Asker) -> None:
        """Decide about the key that was seen, or have somebody decide. RefusedError unless another login may do."""
        if self.seen is None and self._takes_certificates:
            # A certificate that does not hold is none: the host's key may be known for itself.
            self._takes_certificates = False
            return
        if self.seen is None:
            raise self._revoked_key()
        if self._trusted or self._accepted:
            raise self._changed(self.seen)
        if self._settings.strictness != ACCEPT:
            await self._ask(asker)
        self._accepted.append(self.seen)
        await asyncio.to_thread(self._write, self.seen)

    async def _ask(self, asker: Asker) -> None:
        """Have somebody accept the key that was seen. RefusedError unless that is done."""
        assert self.seen is not None
        if self._settings.strictness == STRICT:
            raise self._unknown("is not known, and StrictHostKeyChecking is yes")
        answer = await asker.confirm(
            f"The host {self._shown} is not known. Its {self._kind} key has the fingerprint\n"
            f"  {self.seen.get_fingerprint()}\nIs that the board's? (yes/no) "
        )
        if not answer:
            why = "is not known, and there is no terminal to ask at" if answer is None else "was not accepted"
            raise self._unknown(why)

    def _changed(self, seen: asyncssh.SSHKey) -> RefusedError:
        """The host shows another key than it did."""
        known = ", ".join(sorted({key.get_fingerprint() for key in (*self._trusted, *self._accepted)}))
        file = "".join(f" -f '{file}'" for file in self._settings.known_hosts[:1])
        return RefusedError(
            f"the host key of {self._shown} has changed: {self._kind} {seen.get_fingerprint()} is not the known"
            f" {known}",
            hint="somebody may stand between; if the board was installed anew, forget the old key with"
            f" `ssh-keygen -R '{self._name}'{file}`, and compare the new one with that on the board:"
            " `ssh-keygen -lf /etc/ssh/ssh_host_…_key.pub`",
        )

    def _revoked_key(self) -> RefusedError:
        """The host's key is one that known_hosts says not to trust."""
        return RefusedError(
            f"the host key of {self._shown} is revoked, or its certificate does not hold",
            hint=f"see its @revoked and @cert-authority lines in {' and '.join(map(str, self._settings.known_hosts))}",
        )

    def _unknown(self, why: str) -> RefusedError:
        assert self.seen is not None
        return RefusedError(
            f"the host key of {self._shown} {why}: {self._kind} {self.seen.get_fingerprint()}",
            hint="compare the fingerprint with `ssh-keygen -lf /etc/ssh/ssh_host_…_key.pub` on the board, then log in"
            f" once with `{self._command}` and answer yes",
        )

    @property
    def _kind(self) -> str:
        return "" if self.seen is None else self.seen.get_algorithm()

    @property
    def _shown(self) -> str:
        named = self._settings.target.host
        return self._name if named.lower() == self._settings.known_as else f"{named} ({self._name})"

    @property
    def _command(self) -> str:
        target = self._settings.target
        ask = " -o StrictHostKeyChecking=ask" if self._settings.strictness == STRICT else ""
        port = f" -p {target.port}" if target.port else ""
        return f"ssh{ask}{port} {f'{target.user}@' if target.user else ''}{target.host}"

    def _write(self, key: asyncssh.SSHKey) -> None:
        """Remember a key for later, as ssh does. ProfagentError when the file cannot be written."""
        file = self._settings.new_known_hosts
        if file is None:
            return
        name = _hashed(self._name) if self._settings.hashes_names else self._name
        try:
            file.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            file.touch(_FILE_MODE)
            with file.open("ab+") as known:
                known.seek(0)
                content = known.read()
                known.write(b"" if not content or content.endswith(b"\n") else b"\n")
                known.write(name.encode() + b" " + key.export_public_key().rstrip(b"\n") + b"\n")
        except OSError as error:
            raise ProfagentError(
                f"cannot remember the host key in {file}: {error.strerror}", hint="check the file's owner and mode"
            ) from error


def _hashed(name: str) -> str:
    salt = os.urandom(_SALT_BYTES)
    return _HASHED.format(
        *(base64.b64encode(part).decode() for part in (salt, hmac.digest(salt, name.encode(), "sha1")))
    )


def _readable_lines(files: Iterable[Path]) -> Iterable[str]:
    """The lines that can be understood; `ssh` passes over the others, too."""
    for file in files:
        try:
            lines = file.read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        for line in lines:
            try:
                asyncssh.import_known_hosts(line)
            except ValueError:
                continue
            yield line
