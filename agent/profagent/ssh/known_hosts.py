"""Whether a board is the one that it was: known_hosts, and what to do about a key that does not stand there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import asyncssh
from asyncssh.public_key import get_default_public_key_algs

from profagent.errors import ProfagentError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.ssh.passwords import Asker

_USER, _GLOBAL = ["~/.ssh/known_hosts"], ["/etc/ssh/ssh_known_hosts"]
_SSH_PORT = 22
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


class HostKeys:
    """The keys that are known. `seen` is the unknown one that the board showed last."""

    def __init__(self, options: asyncssh.SSHClientConnectionOptions) -> None:
        """Raises OSError, and ValueError for a line that asyncssh cannot read."""
        users = cast("list[str]", options.config.get("UserKnownHostsFile")) or _USER
        others = cast("list[str]", options.config.get("GlobalKnownHostsFile", _GLOBAL))
        files = [Path(file).expanduser() for file in (*users, *others)]
        lines = (file.read_text("utf-8", "replace") for file in files if file.is_file())
        self._file = files[0]
        self._known = asyncssh.import_known_hosts("\n".join(lines))
        self._login = f"ssh://{options.username}@{options.orig_host}:{options.port}"
        self._name = ""
        self._trusted: Sequence[asyncssh.SSHKey] = []
        self.seen: asyncssh.SSHKey | None = None
        self.match(options.host_key_alias or options.host, "", options.port if options.port != _SSH_PORT else None)
        # asyncssh asks for known kinds alone, and a board that has none of them any more would just hang up.
        kinds = dict.fromkeys(kind for key in self._trusted for kind in key.sig_algorithms)
        usual = dict.fromkeys(get_default_public_key_algs()) if kinds else {}
        self.kinds = (
            () if options.config.get("HostKeyAlgorithms") else tuple(kind.decode("ascii") for kind in (kinds | usual))
        )

    def match(self, host: str, _addr: str, port: int | None) -> Any:
        """What is known under the name and its port: addresses change hands, and ports are boards of their own."""
        self._name = f"[{host.lower()}]:{port}" if port else host.lower()
        self.seen = None
        matches = self._known.match(self._name, "", None)
        self._trusted = matches[0]
        return matches

    async def judge(self, reason: str, asker: Asker) -> None:
        """Have somebody accept the key that was seen. RefusedError unless that is done."""
        if self.seen is None:
            raise RefusedError(
                f"the host key of {self._name} is refused: {reason}", hint=f"see its lines in {self._file}"
            )
        shown = f"{self.seen.get_algorithm()} {self.seen.get_fingerprint()}"
        if self._trusted:
            raise RefusedError(
                f"the host key of {self._name} has changed: {shown} is not the known"
                f" {', '.join(sorted(key.get_fingerprint() for key in self._trusted))}",
                hint="somebody may stand between; if the board was installed anew, forget the old key with"
                f" `ssh-keygen -R '{self._name}' -f '{self._file}'`, and compare the new one with that on the board:"
                " `ssh-keygen -lf /etc/ssh/ssh_host_…_key.pub`",
            )
        answer = await asker.confirm(
            f"The host {self._name} is not known. Its key's fingerprint is\n  {shown}\nIs that the board's? (yes/no) "
        )
        if not answer:
            why = "is not known, and there is no terminal to ask at" if answer is None else "was not accepted"
            raise RefusedError(
                f"the host key of {self._name} {why}: {shown}",
                hint="compare the fingerprint with `ssh-keygen -lf /etc/ssh/ssh_host_…_key.pub` on the board, then log"
                f" in once with `ssh {self._login}` and answer yes",
            )
        await asyncio.to_thread(self._write, f"{self._name} {self.seen.export_public_key().decode().strip()}\n")

    def _write(self, line: str) -> None:
        """Remember a key for now and later. ProfagentError when the file cannot be written."""
        self._known.load(line)
        try:
            self._file.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            self._file.touch(_FILE_MODE)
            with self._file.open("a+b") as known:
                known.seek(0)
                content = known.read()
                known.write((b"" if not content or content.endswith(b"\n") else b"\n") + line.encode())
        except OSError as error:
            raise ProfagentError(
                f"cannot remember the host key in {self._file}: {error.strerror}",
                hint="check the file's owner and mode",
            ) from error
