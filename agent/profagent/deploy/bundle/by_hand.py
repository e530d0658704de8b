"""What `install.sh` asks a bundle's own Python: the steps of `profagent deploy`, written down for a shell of the board.

On a board there are the modules of MODULES, the units, and the standard library; nothing else is imported here.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
import tomllib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from profagent.deploy import lock, steps, trial
from profagent.deploy.daemon_tree import MANIFEST
from profagent.deploy.layout import Layout
from profagent.deploy.units import FOUND_INIT, Service, check_drop_in, every_service_file, installed_init, owned_init
from profagent.deploy.units import service as service_of
from profagent.errors import ProfagentError, UsageError

__all__ = ["MODULES", "main"]

# Of the package profagent; a test imports this module with them alone.
MODULES = (
    "__init__",
    "errors",
    "deploy/__init__",
    "deploy/bundle/__init__",
    "deploy/bundle/by_hand",
    "deploy/daemon_tree",
    "deploy/layout",
    "deploy/lock",
    "deploy/steps",
    "deploy/trial",
    "deploy/units",
)
KEYS = {"cert": "board.pem", "key": "board.key", "ca": "ca.pem", "revoked": "revoked.txt"}
_PRIVATE, _PUBLIC = 0o600, 0o644
_SYSTEMD_RUNS = "/run/systemd/system"
_ODD = "surrogateescape"
_DEFAULT_LISTEN = "127.0.0.1:50151"
_PAUSE_S, _CONNECT_S = 0.2, 5.0


def main(arguments: Sequence[str]) -> int:
    """Print the answer to `PREFIX QUESTION WORD…`, or on stderr why there is none; the exit code."""
    prefix, question, *words = arguments
    try:
        answer = _ANSWERS[question](Layout.of(prefix), *words)
    except (ProfagentError, OSError) as error:
        hint = error.hint if isinstance(error, ProfagentError) else "see that it can be read and written, and has room"
        sys.stderr.write(f"install.sh: {error}\n  {hint}\n")
        return 1
    sys.stdout.write(f"{answer}\n")
    return 0


def _name(_: Layout, directory: str) -> str:
    """What the version in a directory is called, of which every file is as it was made."""
    text = Path(directory, MANIFEST).read_bytes()
    manifest = json.loads(text)
    for path, digest in manifest["files"].items():
        if hashlib.sha256(Path(directory, path).read_bytes()).hexdigest() != digest:
            raise ProfagentError(f"{path} is damaged", hint="unpack the bundle again")
    return f"{manifest['version']}-{hashlib.sha256(text).hexdigest()[:8]}"


def _init(layout: Layout, wish: str) -> str:
    """Says which init system has, or is to have, the service."""
    installed = _own_init(layout)
    if wish != "auto" and installed not in (None, wish):
        raise UsageError(f"it was installed with --init {installed}", hint="leave --init out, or --remove it first")
    if wish == "systemd" and not Path(_SYSTEMD_RUNS).is_dir():
        raise UsageError("this board does not run systemd", hint="take --init auto")
    return f"echo {installed or wish}" if installed or wish != "auto" else FOUND_INIT


def _installed(layout: Layout) -> str:
    """Which init system has the service; none without one."""
    return _own_init(layout) or "none"


def _own_init(layout: Layout) -> str | None:
    """Raises UsageError where the service is another deployment's."""
    files = _texts(every_service_file(layout))
    installed = installed_init(layout, files)
    if installed != owned_init(layout, files):
        raise UsageError(f"the service starts a daemon that is not below {layout.prefix}", hint="remove that one first")
    return installed


def _staged(layout: Layout, init: str, keys: str, listen: str) -> str:
    """Puts everything beside what it is to replace; roots come on standard input, a line each, for new settings."""
    old = _texts((layout.config, layout.board_id))
    text = old.get(layout.config) or _new_settings(layout, keys, listen, sys.stdin.read().splitlines())
    own = _service(layout, init, text)
    check_drop_in(_texts(own.unwanted + tuple(own.files)), own, "this board")
    files = {path: (content.encode(), mode) for path, (content, mode) in own.files.items()}
    if keys:
        for name in KEYS.values():
            mode = _PRIVATE if name == KEYS["key"] else _PUBLIC
            files[f"{layout.keys}/{name}"] = (Path(keys, name).read_bytes(), mode)
    if not old.get(layout.board_id, "").strip():
        files[layout.board_id] = (f"{uuid.uuid4()}\n".encode(), _PUBLIC)
    for path, (content, mode) in files.items():
        _write(f"{path}.new", content, mode)
    _write(f"{layout.config}.new", text.encode("utf-8", _ODD), _PUBLIC)
    _write(_proposed(layout), _with_staged_keys(layout, text).encode("utf-8", _ODD), _PUBLIC)
    return ""


def _checked(layout: Layout, version: str) -> str:
    """Has a version say what it thinks of what was staged."""
    proposed = _proposed(layout)
    check = steps.checked_settings(layout, layout.version(version), proposed)
    # By the names that files will have.
    told = r"""printf '%s\n' "$said" | sed 's/\.new\(\.part\)*//g' >&2"""
    return f"said=$({check} 2>&1) || {{ {told}; exit 1; }}; rm -f {proposed}"


def _kept(layout: Layout, init: str, version: str) -> str:
    return trial.kept(layout, _switch(layout, init, version)[0])


def _trial(layout: Layout, init: str, version: str, owner: str) -> str:
    switch, own = _switch(layout, init, version)
    return trial.script(layout, own, switch, owner)


def _answers(layout: Layout, limit_s: str) -> str:
    """Waits until something listens where the settings say."""
    listen = tomllib.loads(_texts((layout.config,))[layout.config]).get("listen", _DEFAULT_LISTEN)
    until = time.monotonic() + float(limit_s)
    while True:
        try:
            _connect(listen)
        except OSError as error:
            if time.monotonic() > until:
                raise ProfagentError(f"nothing answers at {listen}: {error}", hint="see the log") from error
            time.sleep(_PAUSE_S)
        else:
            return ""


def _lost_root(layout: Layout, init: str) -> str:
    """The root, if any, that would be removed with what was installed."""
    files = _texts((layout.config, *_named(layout)))
    return steps.lost_root(layout, service_of(init, layout, (), deletes=False), _roots(layout, files)) or ""


def _removed(layout: Layout, init: str) -> str:
    own = service_of(init, layout, (), deletes=True)
    return f"( {own.stop}\n)\n{steps.removed(layout, own)}"


def _at_boot(layout: Layout, init: str) -> str:
    return service_of(init, layout, (), deletes=False).starts_at_boot


def _switch(layout: Layout, init: str, version: str) -> tuple[trial.Switch, Service]:
    """To a version, with what was staged."""
    own = _service(layout, init, _texts((f"{layout.config}.new",))[f"{layout.config}.new"])
    links = {each: Path(each).readlink().name if Path(each).is_symlink() else "" for each in _links(layout)}
    current, previous = links.values()
    written = [path for path in (*layout.files, *own.files) if Path(f"{path}.new").exists()]
    had_service = installed_init(layout, _texts(every_service_file(layout))) is not None
    before = current if current not in ("", version) else previous
    switch = trial.Switch(
        written, own.unwanted, version, before, current, previous, had_service=had_service, stops_first=False
    )
    return switch, own


def _links(layout: Layout) -> tuple[str, str]:
    return layout.current, layout.previous


def _service(layout: Layout, init: str, settings: str) -> Service:
    files = {layout.config: settings, **_texts(_named(layout))}
    deletes = _settings(layout, files).get("retain", "keep") != "keep"
    return service_of(init, layout, _roots(layout, files), deletes=deletes)


def _roots(layout: Layout, files: Mapping[str, str]) -> list[str]:
    return [*_settings(layout, files).get("roots", ()), *steps.named_roots(files, layout)]


def _settings(layout: Layout, files: Mapping[str, str]) -> dict[str, Any]:
    try:
        return tomllib.loads(files.get(layout.config, ""))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{layout.config} cannot be read: {error}", hint="mend it, then run this again") from error


def _new_settings(layout: Layout, keys: str, listen: str, roots: Sequence[str]) -> str:
    named = ", ".join(f'"{root}"' for root in roots)
    tls = [f'tls_{key} = "{layout.keys}/{name}"' for key, name in KEYS.items()] if keys else []
    return "\n".join((f'listen = "{listen}"', f"roots = [{named}]", *tls, ""))


def _with_staged_keys(layout: Layout, text: str) -> str:
    """Settings that name certificates and keys as they are called before they take their places."""
    for name in KEYS.values():
        path = f"{layout.keys}/{name}"
        if Path(f"{path}.new").exists():
            text = text.replace(f'"{path}"', f'"{path}.new"')
    return text


def _proposed(layout: Layout) -> str:
    return f"{layout.config}.new.part"


def _named(layout: Layout) -> list[str]:
    return [str(path) for path in sorted(Path(layout.roots_d).glob("*.conf"))]


def _texts(paths: Iterable[str]) -> dict[str, str]:
    """The files that there are, by path."""
    return {path: Path(path).read_text("utf-8", _ODD) for path in paths if Path(path).is_file()}


def _write(path: str, content: bytes, mode: int) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)


def _connect(listen: str) -> None:
    if listen.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(listen.removeprefix("unix:"))
    else:
        host, _, port = listen.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()


_ANSWERS: dict[str, Callable[..., str]] = {
    "name": _name,
    "init": _init,
    "installed": _installed,
    "lock": lambda layout, init: layout.lock(init),
    "held": lambda layout, init, owner: lock.held(layout.lock(init), owner),
    "owned": lambda layout, init, owner: lock.owned(layout.lock(init), owner),
    "directories": lambda layout, init: steps.made_directories(layout, service_of(init, layout, (), deletes=False)),
    "cleared": steps.cleared_versions,
    "part": steps.part_of,
    "settled": steps.settled,
    "unstaged": lambda layout, init: steps.unstaged(layout, service_of(init, layout, (), deletes=True)),
    "staged": _staged,
    "checked": _checked,
    "kept": _kept,
    "trial": _trial,
    "begun": trial.begun,
    "answers": _answers,
    "confirmed": trial.confirmed,
    "taken-back": trial.taken_back,
    "lost-root": _lost_root,
    "removed": _removed,
    "at-boot": _at_boot,
}
