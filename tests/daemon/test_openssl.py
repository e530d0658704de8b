"""Imports without OpenSSL, and the daemon's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.certificates import Authority
from tests.daemon.daemon_process import running


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_daemon_keeps_none(tls: bool, tmp_path: Path) -> None:
    board = Authority(tmp_path / "authority").board().arguments if tls else []
    with running("--root", tmp_path, *board) as daemon:
        mapped = Path(f"/proc/{daemon.process.pid}/maps").read_text("utf-8")
    assert "cygrpc" in mapped
    assert not [name for name in ("_ssl.", "_hashlib.") if name in mapped]
