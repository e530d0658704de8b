"""How a board's daemon is given other settings, by the way in which it was started."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profagent.link.translate import DaemonFacts

__all__ = ["RIGHTS", "given", "given_at_start"]

RIGHTS = "give it CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE, as systemd/profagentd.service does, or have it run as root"


def given(daemon: DaemonFacts | None, keys: str, arguments: str) -> str:
    """Settings that a running daemon takes: `keys` of its file, or `arguments` where it has none."""
    if daemon is None or not daemon.settings_file:
        return f"start the daemon with {arguments}"
    return f"on the board: in {daemon.settings_file} {keys}, then kill -HUP {daemon.pid}"


def given_at_start(daemon: DaemonFacts | None, keys: str, arguments: str) -> str:
    """The same of settings that take a restart."""
    if daemon is None or not daemon.settings_file:
        return f"start the daemon with {arguments}"
    return f"on the board: in {daemon.settings_file} {keys}, then restart the service"
