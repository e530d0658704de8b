"""Services that start the daemon on a board: their files, the commands that control them, and requests to `setup`."""

from __future__ import annotations

import base64
import re
import socket
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from profagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from profagent.boards.layout import Layout


# The lock is in a directory that every board has, that is writable, and that no prefix contains.
_BOARD_LOCK = "/var/run/profagentd.deploying"
TEMPLATE = "retention.conf.in"
_MADE = "# Made by a deployment, which makes it anew; what is your own goes into another file here.\n"
INITS = ("systemd", "initd", "none")
# Resources of this package, below systemd/.
SERVICE_FILES = (
    "profagentd.service",
    "profagentd.init",
    "sysusers.d/profagentd.conf",
    "tmpfiles.d/profagentd.conf",
    TEMPLATE,
)
_UNIT = "/etc/systemd/system/profagentd.service"
DROP_IN = f"{_UNIT}.d/retention.conf"
_USERS, _DIRECTORIES = "/etc/sysusers.d/profagentd.conf", "/etc/tmpfiles.d/profagentd.conf"
_INIT_SCRIPT = "/etc/init.d/profagentd"
# BusyBox's rcS starts scripts that are named like this; Debian uses update-rc.d instead.
_BOOT_LINK = "/etc/init.d/S90profagentd"
_LOG_LINES = 5
_PREFIX = re.compile(r"=(\S+)/current/bin/profagentd|^PREFIX=(\S+)$", re.MULTILINE)
# Shell command that prints the board's init system, a member of INITS.
FOUND_INIT = (
    "if [ -d /run/systemd/system ]; then echo systemd; elif [ -d /etc/init.d ]; then echo initd; else echo none; fi"
)


@dataclass(frozen=True, slots=True)
class Service:
    """Service of one init system: files (text and mode) by path, and shell commands that control it.

    `starts_at_boot` is a sentence for people about starting at boot.
    """

    init: str
    files: Mapping[str, tuple[str, int]]
    unwanted: tuple[str, ...]
    """Paths that an earlier deployment may have written and that this service must not have."""
    enable: str
    restart: str
    stop: str
    forget: str
    """Command that makes the init system forget the service, run after its files were removed."""
    is_active: str
    log: str
    starts_at_boot: str
    owned: tuple[str, ...] = field(default=())
    """Other paths that the service creates, removed together with it."""


def service(init: str, layout: Layout, roots: Sequence[str], *, deletes: bool) -> Service:
    """Return the service for a member of INITS; with `deletes` it may delete JOBs below `roots`."""
    if init == "systemd":
        return _systemd_service(layout, roots, deletes=deletes)
    return _script_service(layout, has_boot=init == "initd")


def every_service_file(layout: Layout) -> tuple[str, ...]:
    """Return the paths of all files that a service of any init system may have."""
    return (_UNIT, DROP_IN, _USERS, _DIRECTORIES, _INIT_SCRIPT, _private_script(layout))


def installed_init(layout: Layout, paths: Mapping[str, str]) -> str | None:
    """Return the init system whose files are among a board's, or None.

    One that starts this layout's daemon is preferred.
    """
    known = {_UNIT: "systemd", _INIT_SCRIPT: "initd", _private_script(layout): "none"}
    return owned_init(layout, paths) or next((init for path, init in known.items() if path in paths), None)


def chosen_init(wish: str, installed: str | None, found: str, where: str) -> str:
    """Return the requested member of INITS; for `auto` the one that has the service, else the board's own.

    Raises UsageError if the request contradicts the installed service or the board.
    """
    if wish not in ("auto", installed or wish):
        hint = "leave --init out, or --remove what is installed first"
        raise UsageError(f"the service on {where} was installed with --init {installed}", hint=hint)
    if wish == "systemd" != found:
        raise UsageError(f"{where} does not run systemd", hint="take --init auto")
    return installed or found if wish == "auto" else wish


def owned_init(layout: Layout, texts: Mapping[str, str]) -> str | None:
    """Return the init system that starts this layout's daemon, or None; `texts` are a board's files by path.

    A service of another prefix does not count.
    """
    if f"={layout.prefix}/current/bin/profagentd" in texts.get(_UNIT, ""):
        return "systemd"
    if f"\nPREFIX={layout.prefix}\n" in texts.get(_INIT_SCRIPT, ""):
        return "initd"
    return "none" if _private_script(layout) in texts else None


def check_owner(layout: Layout, texts: Mapping[str, str], where: str) -> None:
    """Raise UsageError if the board's service starts the daemon of another prefix."""
    if owned_init(layout, texts) is not None or installed_init(layout, texts) is None:
        return
    found = _PREFIX.search(texts.get(_UNIT, "") + texts.get(_INIT_SCRIPT, ""))
    other = "a place that cannot be told" if found is None else found[1] or found[2]
    raise UsageError(
        f"the service on {where} starts the daemon below {other}",
        hint=f"`profagent deploy … --prefix {other} --remove` first, or deploy with that --prefix",
    )


def named_roots(files: Mapping[str, str], layout: Layout) -> tuple[str, ...]:
    """Return the roots that programs have entered in roots.d; `files` are texts by path."""
    texts = [text for path, text in sorted(files.items()) if path.startswith(f"{layout.roots_d}/")]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return tuple(line for line in lines if line.startswith("/"))


def install_request(
    layout: Layout,
    service: Service,
    version: str,
    part: str,
    files: Mapping[str, tuple[bytes, int]],
    *,
    had_service: bool,
) -> dict[str, Any]:
    """Return the request to `setup` to install a version.

    `part` is the directory with the uploaded version; empty if the board has the version already.
    """
    return {
        **setup_request("install", layout, service),
        "version": version,
        "part": part,
        "files": {path: (base64.b64encode(content).decode(), mode) for path, (content, mode) in files.items()},
        "unwanted": service.unwanted,
        "had_service": had_service,
        "directories": [layout.versions, layout.roots_d],
        "private": [layout.keys, layout.state],
        "config": layout.config,
        "roots_d": layout.roots_d,
    }


def removal_request(layout: Layout, service: Service, roots: Iterable[str]) -> dict[str, Any]:
    """Return the request to `setup` to remove a deployment.

    Raises UsageError if one of `roots` lies in a directory that would be removed.
    """
    settings = (layout.config, layout.board_id, layout.keys, layout.roots_d, f"{layout.settings}/default")
    own = (layout.state, f"{layout.prefix}/run/profagentd.pid", f"{layout.prefix}/run/profagentd.daemon.pid")
    paths = (*service.files, *service.unwanted, *service.owned, *settings, *own, layout.setup)
    for root in roots:
        if any(f"{root}/".startswith(f"{each}/") for each in (layout.versions, layout.settings, *paths)):
            raise UsageError(f"JOBs below {root} would be removed, too", hint="move them elsewhere first")
    empty = (
        "/etc/sysusers.d",
        "/etc/tmpfiles.d",
        layout.versions,
        f"{layout.prefix}/run",
        layout.settings,
        layout.prefix,
    )
    return {**setup_request("remove", layout, service), "paths": paths, "empty": empty}


def setup_request(act: str, layout: Layout, service: Service) -> dict[str, Any]:
    """Return the fields that all requests to `setup` share; the act `back` needs no others."""
    commands = ("enable", "restart", "stop", "forget", "log")
    # A board has one system service, hence one lock for all prefixes. A private prefix without a service shares nothing
    # with the others, and its user may not write to the directory of the board's lock.
    has_own_lock = service.init == "none" and not layout.is_usual
    return {
        "act": act,
        "owner": socket.gethostname(),
        "prefix": layout.prefix,
        "lock": f"{layout.prefix}/deploying" if has_own_lock else _BOARD_LOCK,
        "trial": layout.trial,
        "service": {name: getattr(service, name) for name in commands},
    }


def _systemd_service(layout: Layout, roots: Sequence[str], *, deletes: bool) -> Service:
    to_write = {
        _UNIT: (_placed(_text("profagentd.service"), layout), 0o644),
        # This file names no path of the layout, so there is nothing to place.
        _USERS: (_text("sysusers.d/profagentd.conf"), 0o644),
        _DIRECTORIES: (_placed(_text("tmpfiles.d/profagentd.conf"), layout), 0o644),
    }
    if deletes:
        # The leading minus makes systemd ignore a root that does not exist.
        paths = " ".join(f'"-{_for_unit(root)}"' for root in dict.fromkeys(roots))
        to_write[DROP_IN] = (_MADE + _text(TEMPLATE).replace("@ROOTS@", paths), 0o644)
    has_user = "id -u profagentd >/dev/null 2>&1"
    return Service(
        "systemd",
        to_write,
        () if deletes else (DROP_IN,),
        enable=f"{has_user} || systemd-sysusers {_USERS} || useradd --system --shell /sbin/nologin profagentd;"
        f" {has_user} && systemctl daemon-reload && systemctl --quiet enable profagentd",
        restart="systemctl reset-failed profagentd 2>/dev/null; systemctl restart profagentd",
        stop="systemctl --quiet disable --now profagentd",
        forget="systemctl daemon-reload; userdel profagentd 2>/dev/null || deluser profagentd 2>/dev/null || :",
        is_active="systemctl --quiet is-active profagentd",
        # _SYSTEMD_UNIT= selects the daemon's own messages: systemd's, which come later, would hide the cause.
        log=f"journalctl _SYSTEMD_UNIT=profagentd.service --lines {_LOG_LINES} --output cat --no-pager",
        starts_at_boot="systemd starts it at boot, and again when it fails",
        # The unit names its state by StateDirectory, which systemd puts there whatever the prefix is.
        owned=(f"{_UNIT}.d", "/var/lib/profagentd"),
    )


def _script_service(layout: Layout, *, has_boot: bool) -> Service:
    path = _INIT_SCRIPT if has_boot else _private_script(layout)
    at_boot = "the init script starts it at boot, and again when it fails"
    manual = f"nothing starts it at boot: have the board run {path} start"
    return Service(
        "initd" if has_boot else "none",
        {path: (_placed(_text("profagentd.init"), layout), 0o755)},
        (),
        enable=_ENABLE if has_boot else ":",
        restart=f"{path} restart",
        stop=f"{path} stop",
        forget=f"! command -v update-rc.d >/dev/null || update-rc.d profagentd remove; rm -f {_BOOT_LINK}"
        if has_boot
        else ":",
        # `status` exits with 0 also while a failed daemon waits for its next start; only a running one has a process.
        is_active=f"{path} status | grep -q process",
        # The lines of the init script's watcher come later, and would hide the cause.
        log=f"grep -v ' profagentd.init: ' {layout.log} | tail -n {_LOG_LINES}",
        starts_at_boot=at_boot if has_boot else manual,
        owned=(layout.log, f"{layout.log}.1"),
    )


_ENABLE = f"""if command -v update-rc.d >/dev/null; then update-rc.d profagentd defaults
else ln -sf profagentd {_BOOT_LINK}; fi"""


def _for_unit(path: str) -> str:
    return path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _private_script(layout: Layout) -> str:
    return f"{layout.prefix}/profagentd.init"


def _text(name: str) -> str:
    return files("profagent.deploy").joinpath("systemd", *name.split("/")).read_text("utf-8")


def _placed(text: str, layout: Layout) -> str:
    if layout.is_usual:
        return text
    moved = {
        "/etc/default/profagentd": f"{layout.settings}/default",
        "/etc/profagent": layout.settings,
        "/opt/profagent": layout.prefix,
        "/var/lib/profagentd": layout.state,
        "/var/log/profagentd.log": layout.log,
        "RUN=/var/run": f"RUN={layout.run}",
    }
    return re.sub("|".join(map(re.escape, moved)), lambda found: moved[found[0]], text)
