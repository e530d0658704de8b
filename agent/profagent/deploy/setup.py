"""Changes what is deployed on a board. It runs there, on the standard library of Python 3.9 and nothing else.

It reads a request and says what became of it, a JSON object a line. A version is started on trial: unless `keep`
comes, what was there before comes back. So it does when the input ends, or when no line came for as many seconds as
its argument says. What a trial replaced is in one file until then: the next run puts it back where this one was killed.
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
    """What cannot be done, and what would help."""

    def __init__(self, why: str, hint: str = "see its message") -> None:
        super().__init__(why)
        self.hint = hint


def main() -> int:
    """Do what the first line asks for; the exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    hear = _Ear(float(sys.argv[1]))
    line = hear.word()
    if not line:
        return 1
    request = json.loads(line)
    try:
        with _alone(request["lock"], request["owner"]):
            _take_back(request["trial"])
            _ACTS[request["act"]](request, hear)
        if request["act"] == "remove":
            for directory in request["empty"]:
                with suppress(OSError):
                    os.rmdir(directory)
            _say("removed")
    except (SetupError, OSError) as error:
        _say("failed", why=str(error), hint=getattr(error, "hint", "see that it can be written, and has room"))
        return 1
    return 0


def checked_tree(directory: str) -> str:
    """The name of the version in a directory, of which every file is as it was made. Raises SetupError."""
    with open(f"{directory}/{MANIFEST}", "rb") as file:
        text = file.read()
    manifest = json.loads(text)
    for path, digest in manifest["files"].items():
        with open(f"{directory}/{path}", "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                raise SetupError(f"{path} is damaged", "bring it again: unpack the bundle, or run this, once more")
    return f"{manifest['version']}-{hashlib.sha256(text).hexdigest()[:_DIGITS]}"


class _Ear:
    """Lines of standard input from a host, which is gone when none came for `silence_s`."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._rest = b""

    def line(self) -> str | None:
        """Return the next line; None when the host is gone."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([0], [], [], self._silence_s)
            piece = os.read(0, 1 << 16) if ready else b""
            if not piece:
                return None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def word(self) -> str:
        """The next line that says something; empty when nobody is there."""
        line: str | None = ""
        while line == "":
            line = self.line()
        return line or ""


@contextmanager
def _alone(lock: str, owner: str) -> Iterator[None]:
    os.makedirs(os.path.dirname(lock), exist_ok=True)
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(handle, 200).decode("utf-8", "replace").strip() or "another host"
            raise SetupError(f"it is being worked on from {other}", "try again when that is done") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, owner.encode(), 0)
        yield
        with suppress(OSError):
            os.unlink(lock)
    finally:
        os.close(handle)


def _install(request: Request, hear: _Ear) -> None:
    """Have a version run with its files, on trial until the host says `keep`."""
    name = _arrived(request)
    _begin(request)
    try:
        _place(request)
        _check(request, name)
    except BaseException:
        _take_back(request["trial"], was_started=False)
        raise
    try:
        why = _start(request, name)
    except BaseException:
        _take_back(request["trial"])
        raise
    if not why:
        _say("started", version=name)
        if hear.word() == "keep":
            os.unlink(request["trial"])
            _clear_versions(request["prefix"])
            _say("kept")
            return
    log = _shell(request["service"]["log"])[1]
    _take_back(request["trial"])
    _say("back", log=log, **({"why": why} if why else {}))


def _arrived(request: Request) -> str:
    """The version that is to run, whole and on the disk, among the others."""
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
    os.rename(part, f"{versions}/{name}")
    return name


def _place(request: Request) -> None:
    """Have files take their places; the service that runs has read those before."""
    for path, (content, mode) in request["files"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(f"{path}.new", base64.b64decode(content), mode)
        os.replace(f"{path}.new", path)
    for path in request["unwanted"]:
        _forget(path)


def _check(request: Request, name: str) -> None:
    """Have a version say what it thinks of settings and keys."""
    launcher = f"{request['prefix']}/versions/{name}/{_LAUNCHER}"
    status, said = _shell(f"{launcher} --config {request['config']} --roots-d {request['roots_d']} --check-config")
    if status != 0:
        why, hint = _first_complaint(said.strip() or f"exit status {status}")
        raise SetupError(f"{name} cannot run here: {why}", hint)


def _first_complaint(text: str) -> tuple[str, str]:
    """The mistakes that the daemon names, with the first one's hint; else why it does not run at all."""
    said = text.splitlines()
    if said[0].startswith("Traceback"):
        return said[-1], "that is its own fault, not the settings': bring it anew, or another version"
    mistakes = [line for line in said if not line.startswith(" ")]
    hints = [line.strip() for line in said if line.startswith(" ")]
    return "; ".join(mistakes), hints[0] if hints else "see `profagent deploy --help`"


def _begin(request: Request) -> None:
    """Keep what the trial replaces, in one file that is there whole or not at all."""
    prefix = request["prefix"]
    saved = {path: _kept(path) for path in (*request["files"], *request["unwanted"])}
    links = {name: _link(f"{prefix}/{name}") for name in ("current", "previous")}
    kept = {"prefix": prefix, "files": saved, "links": links, "service": request["service"]}
    kept["had_service"] = request["had_service"]
    _write(f"{request['trial']}.new", json.dumps(kept).encode(), 0o600)
    os.sync()
    os.replace(f"{request['trial']}.new", request["trial"])


def _start(request: Request, name: str) -> str:
    """Have the links lead to a version, and the service start; why it does not."""
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
    """Put back what a trial replaced, if one was begun and neither kept nor taken back."""
    try:
        with open(trial, "rb") as file:
            kept = json.loads(file.read())
    except FileNotFoundError:
        return
    service = kept["service"]
    if was_started:
        _shell(service["stop"])
    for path, file_before in kept["files"].items():
        if file_before is None:
            _forget(path)
        else:
            _write(f"{path}.new", base64.b64decode(file_before[0]), file_before[1])
            os.replace(f"{path}.new", path)
    for name, target in kept["links"].items():
        _point(f"{kept['prefix']}/{name}", target)
    commands = ("enable", "restart") if kept["had_service"] else ("forget",)
    for command in commands if was_started else ():
        _shell(service[command])
    os.sync()
    os.unlink(trial)


def _remove(request: Request, _: _Ear) -> None:
    """Stop the service and take away all that deployments have made; JOBs are elsewhere, as was asked before."""
    _shell(request["service"]["stop"])
    _point(f"{request['prefix']}/current", "")
    _point(f"{request['prefix']}/previous", "")
    _clear_versions(request["prefix"])
    for path in request["paths"]:
        shutil.rmtree(path, ignore_errors=True)
        _forget(path)
    _shell(request["service"]["forget"])


# What was begun before is taken back in any case.
_ACTS: dict[str, Callable[[Request, _Ear], None]] = {
    "install": _install,
    "remove": _remove,
    "back": lambda _request, _hear: _say("back"),
}


def _clear_versions(prefix: str) -> None:
    """Remove what no link leads to, whole or in part; nothing else that stands there."""
    leads = {_link(f"{prefix}/{name}").rpartition("/")[2] for name in ("current", "previous")}
    with suppress(FileNotFoundError):
        for each in os.scandir(f"{prefix}/versions"):
            is_ours = os.path.exists(f"{each.path}/{MANIFEST}") or each.name.endswith(".part")
            if _VERSION.fullmatch(each.name) and is_ours and each.name not in leads:
                shutil.rmtree(each.path, ignore_errors=True)


def _shell(command: str) -> tuple[int, str]:
    """Its exit status and what it says. A service that it leaves behind may keep its output open, so that is a file."""
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


def _kept(path: str) -> tuple[str, int] | None:
    try:
        with open(path, "rb") as file:
            return base64.b64encode(file.read()).decode(), os.fstat(file.fileno()).st_mode & 0o777
    except FileNotFoundError:
        return None


def _write(path: str, content: bytes, mode: int) -> None:
    _forget(path)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)


def _forget(path: str) -> None:
    with suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(path)


def _link(path: str) -> str:
    return os.readlink(path) if os.path.islink(path) else ""


def _point(path: str, target: str) -> None:
    """Have a link lead there; nowhere: it goes."""
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
