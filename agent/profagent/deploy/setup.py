"""Program that changes a deployment; it runs on the board, with the standard library of Python 3.9 alone.

It reads a request and answers with one JSON object a line. A version is started on trial: the previous version is
restored unless the host sends `keep`. It is also restored when the input ends, or when no line arrived for as many
seconds as the first argument says. Until then one file holds what the trial replaced; if this program is killed, the
next run restores from that file.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MANIFEST", "SetupError", "checked_tree", "main"]

MANIFEST = "manifest.json"
_VERSION = re.compile(r".+-[0-9a-f]{8}(\..*)?")
_DIGITS = 8
_LAUNCHER = "bin/profagentd"
Request = dict[str, Any]


class SetupError(Exception):
    """Failure of a request, with a hint about its remedy."""

    def __init__(self, why: str, hint: str = "see its message") -> None:
        super().__init__(why)
        self.hint = hint


def main() -> int:
    """Carry out the request in the first line of the input, and return the exit code."""
    # When the SSH link is lost the program must live on, to restore the previous version.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    host = _HostLines(float(sys.argv[1]))
    line = host.word()
    if not line:
        return 1
    request = json.loads(line)
    try:
        with _locked(request["lock"], request["owner"]):
            _take_back(request["trial"])
            # A trial that a killed run left behind was undone above, so every act starts from a confirmed state.
            _ACTS[request["act"]](request, host)
        if request["act"] == "remove":
            # Only after the lock is released: its file may lie in one of these directories.
            for directory in request["empty"]:
                with suppress(OSError):
                    os.rmdir(directory)
            _say("removed")
    except (SetupError, OSError) as error:
        _say("failed", why=str(error), hint=getattr(error, "hint", "see that it can be written, and has room"))
        return 1
    return 0


def checked_tree(directory: str) -> str:
    """Return the name of the version in a directory, once every file's digest agrees with the manifest.

    Raises SetupError for a damaged file.
    """
    with open(f"{directory}/{MANIFEST}", "rb") as file:
        text = file.read()
    manifest = json.loads(text)
    for path, digest in manifest["files"].items():
        with open(f"{directory}/{path}", "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                raise SetupError(f"{path} is damaged", "copy it again: unpack the bundle or run this command once more")
    return f"{manifest['version']}-{hashlib.sha256(text).hexdigest()[:_DIGITS]}"


class _HostLines:
    """Reader of lines from the host, which counts as gone when none arrived for `silence_s` seconds."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        # Bytes that were read beyond the last complete line.
        self._rest = b""

    def line(self) -> str | None:
        """Return the next line; None if the host is gone."""
        while b"\n" not in self._rest:
            # No line within the bound counts as a lost host, because a dead link may never report its end.
            ready, _, _ = select.select([0], [], [], self._silence_s)
            piece = os.read(0, 1 << 16) if ready else b""
            if not piece:
                return None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def word(self) -> str:
        """Return the next line that is not empty; an empty string if the host is gone. Empty lines are keepalives."""
        line: str | None = ""
        while line == "":
            line = self.line()
        return line or ""


@contextmanager
def _locked(lock: str, owner: str) -> Iterator[None]:
    os.makedirs(os.path.dirname(lock), exist_ok=True)
    # O_NOFOLLOW: the lock is in a directory of the system, where a link must not redirect the write.
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(handle, 200).decode("utf-8", "replace").strip() or "another host"
            raise SetupError(f"it is being changed from {other}", "try again when that is done") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, owner.encode(), 0)
        yield
        with suppress(OSError):
            os.unlink(lock)
    finally:
        os.close(handle)


def _install(request: Request, host: _HostLines) -> None:
    name = _arrived(request)
    _begin(request)
    try:
        _place(request)
        _check(request, name)
    except BaseException:
        # Nothing was started yet: the files go back, and the running service is not restarted.
        _take_back(request["trial"], was_started=False)
        raise
    # From here on the service may have been touched, so a restore also restarts it.
    try:
        why = _start(request, name)
    except BaseException:
        _take_back(request["trial"])
        raise
    if not why:
        _say("started", version=name)
        if host.word() == "keep":
            os.unlink(request["trial"])
            _clear_versions(request["prefix"])
            _say("kept")
            return
    # The log is read before the restore, whose own messages would displace the cause.
    log = _shell(request["service"]["log"])[1]
    _take_back(request["trial"])
    _say("back", log=log, **({"why": why} if why else {}))


def _arrived(request: Request) -> str:
    for directory in request["directories"]:
        os.makedirs(directory, exist_ok=True)
    for directory in request["private"]:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    versions, part = f"{request['prefix']}/versions", request["part"]
    if not part:
        checked_tree(f"{versions}/{request['version']}")
        return str(request["version"])
    name = checked_tree(part)
    os.sync()
    shutil.rmtree(f"{versions}/{name}", ignore_errors=True)
    # The rename follows the sync: a directory with a version's name never has incomplete files after a power cut.
    os.rename(part, f"{versions}/{name}")
    return name


def _place(request: Request) -> None:
    for path, (content, mode) in request["files"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(f"{path}.new", base64.b64decode(content), mode)
        os.replace(f"{path}.new", path)
    for path in request["unwanted"]:
        _forget(path)


def _check(request: Request, name: str) -> None:
    """Raise SetupError if the version's daemon refuses the settings and keys, or does not run at all."""
    launcher = f"{request['prefix']}/versions/{name}/{_LAUNCHER}"
    status, said = _shell(f"{launcher} --config {request['config']} --roots-d {request['roots_d']} --check-config")
    if status != 0:
        why, hint = _first_complaint(said.strip() or f"exit status {status}")
        raise SetupError(f"{name} cannot run here: {why}", hint)


def _first_complaint(text: str) -> tuple[str, str]:
    said = text.splitlines()
    if said[0].startswith("Traceback"):
        return said[-1], "that is its own fault, not the settings': bring it anew, or another version"
    mistakes = [line for line in said if not line.startswith(" ")]
    hints = [line.strip() for line in said if line.startswith(" ")]
    return "; ".join(mistakes), hints[0] if hints else "see `profagent deploy --help`"


def _begin(request: Request) -> None:
    """Save what the trial replaces, in one file that appears complete or not at all."""
    prefix = request["prefix"]
    saved = {path: _file_content(path) for path in (*request["files"], *request["unwanted"])}
    links = {name: _link(f"{prefix}/{name}") for name in ("current", "previous")}
    replaced = {"prefix": prefix, "files": saved, "links": links, "service": request["service"]}
    replaced["had_service"] = request["had_service"]
    _write(f"{request['trial']}.new", json.dumps(replaced).encode(), 0o600)
    os.sync()
    # The rename follows the sync, so after a power cut the file is either absent or complete.
    os.replace(f"{request['trial']}.new", request["trial"])


def _start(request: Request, name: str) -> str:
    """Point the links to a version and start the service; return why it does not start, or an empty string."""
    prefix, service = request["prefix"], request["service"]
    before = _link(f"{prefix}/current")
    if before not in ("", f"versions/{name}"):
        _point(f"{prefix}/previous", before)
    _point(f"{prefix}/current", f"versions/{name}")
    for command in (service["enable"], service["restart"]):
        status, said = _shell(command)
        if status != 0:
            lines = said.strip().splitlines() or [f"exit status {status}"]
            return f"the service does not start: {lines[-1]}"
    return ""


def _take_back(trial: str, *, was_started: bool = True) -> None:
    try:
        with open(trial, "rb") as file:
            replaced = json.loads(file.read())
    except FileNotFoundError:
        return
    service = replaced["service"]
    if was_started:
        _shell(service["stop"])
    for path, file_before in replaced["files"].items():
        if file_before is None:
            _forget(path)
        else:
            _write(f"{path}.new", base64.b64decode(file_before[0]), file_before[1])
            os.replace(f"{path}.new", path)
    for name, target in replaced["links"].items():
        _point(f"{replaced['prefix']}/{name}", target)
    commands = ("enable", "restart") if replaced["had_service"] else ("forget",)
    for command in commands if was_started else ():
        _shell(service[command])
    # The trial file goes last: if this run is killed before, the next one restores once more, to the same end.
    os.sync()
    os.unlink(trial)


def _remove(request: Request, _: _HostLines) -> None:
    """Stop the service and remove everything that deployments made; the host has checked that no JOBs are there."""
    _shell(request["service"]["stop"])
    _point(f"{request['prefix']}/current", "")
    _point(f"{request['prefix']}/previous", "")
    _clear_versions(request["prefix"])
    for path in request["paths"]:
        shutil.rmtree(path, ignore_errors=True)
        _forget(path)
    _shell(request["service"]["forget"])


# `back` has nothing to do but to answer: main() undoes an interrupted trial before every act.
_ACTS: dict[str, Callable[[Request, _HostLines], None]] = {
    "install": _install,
    "remove": _remove,
    "back": lambda _request, _hear: _say("back"),
}


def _clear_versions(prefix: str) -> None:
    leads = {_link(f"{prefix}/{name}").rpartition("/")[2] for name in ("current", "previous")}
    with suppress(FileNotFoundError):
        for each in os.scandir(f"{prefix}/versions"):
            is_ours = os.path.exists(f"{each.path}/{MANIFEST}") or each.name.endswith(".part")
            if _VERSION.fullmatch(each.name) and is_ours and each.name not in leads:
                shutil.rmtree(each.path, ignore_errors=True)


def _shell(command: str) -> tuple[int, str]:
    """Return a command's exit status and output.

    The output goes to a file: a service that the command leaves running may hold a pipe open for ever.
    """
    with tempfile.TemporaryFile() as said:
        ran = subprocess.run(  # noqa: S603 - the host's own commands
            ["sh", "-c", command],  # noqa: S607
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            check=False,
        )
        said.seek(0)
        return ran.returncode, said.read(1 << 16).decode("utf-8", "replace")


def _file_content(path: str) -> tuple[str, int] | None:
    try:
        with open(path, "rb") as file:
            return base64.b64encode(file.read()).decode(), os.fstat(file.fileno()).st_mode & 0o777
    except FileNotFoundError:
        return None


def _write(path: str, content: bytes, mode: int) -> None:
    _forget(path)
    # O_EXCL: after the unlink, a file or link that appears here belongs to somebody else.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)


def _forget(path: str) -> None:
    with suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(path)


def _link(path: str) -> str:
    return os.readlink(path) if os.path.islink(path) else ""


def _point(path: str, target: str) -> None:
    """Replace a link atomically; an empty target removes it."""
    if not target:
        _forget(path)
        return
    _forget(f"{path}.new")
    os.symlink(target, f"{path}.new")
    os.replace(f"{path}.new", path)


def _say(what: str, **more: object) -> None:
    with suppress(OSError):
        sys.stdout.write(json.dumps({"is": what, **more}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
