"""Program behind `install.sh` of a bundle: it does on the board itself what `profagent deploy` does over SSH.

A bundle brings the modules of MODULES, the units and the standard library; this module imports nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from profagent.boards.layout import DEFAULT_PREFIX, Layout
from profagent.deploy import setup
from profagent.deploy.units import (
    FOUND_INIT,
    INITS,
    Service,
    check_owner,
    chosen_init,
    every_service_file,
    install_request,
    installed_init,
    named_roots,
    removal_request,
    service,
)
from profagent.errors import ProfagentError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Modules of the package profagent that a bundle contains; a test imports this module with no others.
MODULES = (
    "__init__",
    "codes",
    "errors",
    "boards/__init__",
    "boards/layout",
    "deploy/__init__",
    "deploy/bundle/__init__",
    "deploy/bundle/by_hand",
    "deploy/setup",
    "deploy/units",
)
KEYS = {"cert": "board.pem", "key": "board.key", "ca": "ca.pem", "revoked": "revoked.txt"}
# File beside the keys, with the identity of the board for which they were issued.
BOARD_ID = "board-id"
# Bytes of a board's files that are not UTF-8 are kept by this error handler, and written back as they were.
_ODD = "surrogateescape"
_DEFAULT_LISTEN = "127.0.0.1:50151"
# Seconds until the daemon must answer: an interpreter on a slow memory card takes long to start.
_ANSWER_S = 120.0
_PAUSE_S, _CONNECT_S = 0.2, 5.0


def main() -> int:
    """Install, roll back or remove, and return the exit code."""
    here, *words = sys.argv[1:]
    options = _options(words)
    try:
        if os.geteuid() != 0:
            raise UsageError("only root may install a service", hint="become root, with su")
        _run(Path(here), Layout(options.prefix), options)
    except (ProfagentError, setup.SetupError, OSError) as error:
        sys.stderr.write(f"install.sh: {error}\n  {getattr(error, 'hint', 'see that it can be read and written')}\n")
        return 1
    return 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="install.sh",
        description="Installs this version below /opt/profagent, and starts it; over another one it is the upgrade.",
    )
    parser.add_argument("--root", action="append", default=[], metavar="DIR", help="where programs write their JOBs")
    parser.add_argument("--keys", metavar="DIR", help="what `profagent keys issue board` made on the host")
    parser.add_argument("--listen", metavar="HOST:PORT", help=f"0.0.0.0:50151 with keys, else {_DEFAULT_LISTEN}")
    parser.add_argument(
        "--init", choices=["auto", *INITS], default="auto", help="what starts it; found out unless given"
    )
    parser.add_argument("--prefix", default=DEFAULT_PREFIX, help=argparse.SUPPRESS)
    act = parser.add_mutually_exclusive_group()
    act.add_argument("--rollback", action="store_true", help="go back to the version before")
    act.add_argument("--remove", action="store_true", help="stop it and remove all but JOBs")
    return parser.parse_args(words)


def _run(here: Path, layout: Layout, options: argparse.Namespace) -> None:
    board = _texts((layout.config, layout.board_id, *every_service_file(layout), *_named(layout)))
    check_owner(layout, board, "this board")
    installed = installed_init(layout, board)
    if options.remove:
        own = service(installed or "none", layout, (), deletes=True)
        roots = _settings(layout, board).get("roots", ())
        with _running_setup(removal_request(layout, own, (*roots, *named_roots(board, layout))), here) as pipes:
            _answer(pipes)
        sys.stdout.write("profagentd is removed; JOBs are as they were\n")
        return
    found = subprocess.check_output(["sh", "-c", FOUND_INIT], text=True).strip()  # noqa: S603, S607
    init = chosen_init(options.init, installed, found, "this board")
    version, previous = "", Path(layout.prefix, "previous")
    if not options.rollback:
        _check(here, layout, board, options)
    elif previous.is_symlink():
        version = previous.readlink().name
    else:
        raise UsageError("there is no earlier version", hint="install one")
    files = _files(layout, board, options)
    text = files[layout.config][0].decode("utf-8", _ODD)
    settings = _settings(layout, {layout.config: text})
    roots = [*settings.get("roots", ()), *named_roots(board, layout)]
    own = service(init, layout, roots, deletes=settings.get("retain", "keep") != "keep")
    files.update({path: (content.encode(), mode) for path, (content, mode) in own.files.items()})
    part = "" if options.rollback else _copied(here, layout)
    request = install_request(layout, own, version, part, files, had_service=installed is not None)
    _try_out(request, here, settings.get("listen", _DEFAULT_LISTEN), own)


def _check(here: Path, layout: Layout, board: Mapping[str, str], options: argparse.Namespace) -> None:
    """Raise UsageError if the options do not fit this board, SetupError if the tree is damaged."""
    machine = json.loads((here / setup.MANIFEST).read_bytes())["machine"]
    if machine != platform.machine():
        hint = f"make one with profagent bundle --arch {platform.machine()}"
        raise UsageError(f"this is for {machine}, and the board is {platform.machine()}", hint=hint)
    if layout.config in board and (options.root or options.listen):
        raise UsageError(f"{layout.config} is there already", hint="leave --root and --listen out, and edit that file")
    if layout.config not in board and not options.root:
        raise UsageError("there are no settings on this board", hint="say where JOBs are: --root DIR")
    for name in KEYS.values() if options.keys else ():
        if not Path(options.keys, name).is_file():
            raise UsageError(
                f"there is no {options.keys}/{name}",
                hint="make it on the host with profagent keys issue board, and copy the folder here",
            )
    setup.checked_tree(str(here))


def _files(layout: Layout, board: Mapping[str, str], options: argparse.Namespace) -> dict[str, tuple[bytes, int]]:
    text = board.get(layout.config) or _new_settings(layout, options)
    files = {layout.config: (text.encode("utf-8", _ODD), 0o644)}
    if not (own := board.get(layout.board_id, "").strip()):
        files[layout.board_id] = (f"{_issued_identity(options) or uuid.uuid4()}\n".encode(), 0o644)
    elif (issued := _issued_identity(options)) not in ("", own):
        raise UsageError(
            f"the keys in {options.keys} are those of the board {issued}, and this one is {own}",
            hint=f"issue them on the host with --identity {own}, and copy the folder here",
        )
    for name in KEYS.values() if options.keys else ():
        mode = 0o600 if name == KEYS["key"] else 0o644
        files[f"{layout.keys}/{name}"] = (Path(options.keys, name).read_bytes(), mode)
    return files


def _issued_identity(options: argparse.Namespace) -> str:
    file = Path(options.keys or "", BOARD_ID)
    return file.read_text("utf-8").strip() if options.keys and file.is_file() else ""


def _new_settings(layout: Layout, options: argparse.Namespace) -> str:
    listen = options.listen or ("0.0.0.0:50151" if options.keys else _DEFAULT_LISTEN)
    # JSON strings and arrays of strings are valid TOML.
    values = {"listen": listen, "roots": options.root}
    values |= {f"tls_{key}": f"{layout.keys}/{name}" for key, name in KEYS.items()} if options.keys else {}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _copied(here: Path, layout: Layout) -> str:
    part = f"{layout.versions}/{here.name}.{os.getpid():08x}.part"
    try:
        shutil.copytree(here, part, symlinks=True)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise UsageError(f"cannot copy it to {layout.prefix}", hint="make room there: `df`, `du -s .`") from error
    return part


def _try_out(request: Mapping[str, Any], here: Path, listen: str, own: Service) -> None:
    with _running_setup(request, here) as pipes:
        answer = _answer(pipes)
        if answer["is"] == "started":
            until = time.monotonic() + float(os.environ.get("ANSWER_S", _ANSWER_S))
            while (why := _silent(listen)) and time.monotonic() < until:
                time.sleep(_PAUSE_S)
                # An empty line says that this program is alive; without any, `setup` restores the previous version.
                _write(pipes, b"")
            _write(pipes, b"back" if why else b"keep")
            answer = {"why": f"nothing answers at {listen}: {why}", **_answer(pipes)}
    name = request["version"] or here.name
    if answer["is"] == "back":
        log = answer["log"].strip()
        raise ProfagentError(
            f"profagentd {name} does not start, so the earlier version runs again: {answer['why']}",
            hint=f"its log ends with: {log}" if log else "see the log of profagentd",
        )
    sys.stdout.write(f"profagentd {name} is installed; {own.starts_at_boot}\n")


def _write(pipes: tuple[IO[bytes], IO[bytes]], word: bytes) -> None:
    pipes[0].write(word + b"\n")
    pipes[0].flush()


def _silent(listen: str) -> str:
    try:
        if listen.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(listen.removeprefix("unix:"))
        else:
            host, _, port = listen.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except OSError as error:
        return str(error)
    return ""


@contextmanager
def _running_setup(request: Mapping[str, Any], here: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Run `setup` in a process and session of its own, which restores the version if this process is killed."""
    command = [str(here / "bin/python"), "-I", "-B", setup.__file__, f"{_ANSWER_S:g}"]
    with subprocess.Popen(  # noqa: S603 - this tree's own
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        yield process.stdin, process.stdout


def _answer(pipes: tuple[IO[bytes], IO[bytes]]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(pipes[1].readline() or b'{"is": "failed", "why": "it ended without a word"}')
    if answer["is"] == "failed":
        raise ProfagentError(answer["why"], hint=answer.get("hint", "run this again"))
    return answer


def _settings(layout: Layout, board: Mapping[str, str]) -> dict[str, Any]:
    try:
        return tomllib.loads(board.get(layout.config, ""))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{layout.config} cannot be read: {error}", hint="correct it, then run this again") from error


def _named(layout: Layout) -> list[str]:
    return [str(path) for path in sorted(Path(layout.roots_d).glob("*.conf"))]


def _texts(paths: Iterable[str]) -> dict[str, str]:
    return {path: Path(path).read_text("utf-8", _ODD) for path in paths if Path(path).is_file()}
