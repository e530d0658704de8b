"""What systemd is told of the daemon, by the socket that it names (sd_notify(3)); without one nothing is said."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagentd.clock import Clock

_LOGGER = logging.getLogger(__name__)
_US_PER_S = 1_000_000


class Notifier:
    """Tells how the daemon is. A datagram that cannot be sent is of no consequence: systemd is gone, or behind."""

    def __init__(self, clock: Clock, environment: Mapping[str, str] = os.environ) -> None:
        self._clock = clock
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog_s(environment)  # None when nobody watches over this process
        self._socket: socket.socket | None = None
        if self._address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @property
    def is_heard(self) -> bool:
        """Whether there is somebody to tell."""
        return self._socket is not None

    def close(self) -> None:
        """Tell nothing more."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def ready(self, status: str) -> None:
        """It serves, or goes on serving with other settings."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """A line for `systemctl status`."""
        self._send(f"STATUS={status}")

    def alive(self) -> None:
        """It works: the next such word is due within `watchdog_s`."""
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """Settings are read anew; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(self._clock.monotonic() * _US_PER_S)}")

    def stopping(self, status: str) -> None:
        """It is about to end."""
        self._send("STOPPING=1", f"STATUS={status}")

    def _send(self, *lines: str) -> None:
        if not self._socket:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            self._socket.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            _LOGGER.debug("systemd was not told %s: %s", lines[0], error.strerror)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """How long systemd waits for a sign of life; None when it does not, or does for another process."""
    text, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not text.isdigit() or process != str(os.getpid()):
        return None
    return int(text) / _US_PER_S or None
