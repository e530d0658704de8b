"""Who this board is, as far as its files tell."""

from __future__ import annotations

import enum
import os
import socket
from dataclasses import dataclass
from pathlib import Path

_TEXT_LIMIT = 256


class IdentitySource(enum.Enum):
    """Where the board's identity comes from; the numbers are the wire's."""

    UNKNOWN = 0
    DEPLOYED = 1
    MACHINE_ID = 2


@dataclass(frozen=True)
class Identity:
    """What stays the same while the daemon runs; empty strings are what is not known."""

    identity: str
    source: IdentitySource
    hostname: str
    boot_id: str
    model: str
    sdk_version: str


def identify(configured: str = "", filesystem: Path = Path("/")) -> Identity:
    """The board's identity: the one that is configured, else by the files under `filesystem`."""
    deployed = configured or _first_line(filesystem / "etc/profagent/board-id")
    machine = _first_line(filesystem / "etc/machine-id")
    source = IdentitySource.DEPLOYED if deployed else IdentitySource.MACHINE_ID if machine else IdentitySource.UNKNOWN
    return Identity(
        identity=deployed or machine or "",
        source=source,
        hostname=os.fsencode(socket.gethostname()).decode("utf-8", "replace"),
        boot_id=_first_line(filesystem / "proc/sys/kernel/random/boot_id") or "",
        model=_first_line(filesystem / "proc/device-tree/model") or "",
        sdk_version=_sdk_version(filesystem / "proc/umap"),
    )


def _sdk_version(umap: Path) -> str:
    """The first line of the NPU's node: older SDKs name it svp_npu, newer ones svp_nnn."""
    return _first_line(umap / "svp_npu") or _first_line(umap / "svp_nnn") or ""


def _first_line(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = os.read(descriptor, _TEXT_LIMIT)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    lines = content.decode("utf-8", "replace").strip("\0\n ").splitlines()
    return lines[0].strip("\0 ") if lines else None
