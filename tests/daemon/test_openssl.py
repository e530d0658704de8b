"""Imports without OpenSSL, and the daemon's own."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from profagentd.main import without_openssl
from tests.daemon.certificates import Authority
from tests.daemon.daemon_process import running


def test_it_is_found_only_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "_hashlib", raising=False)
    with without_openssl(), pytest.raises(ImportError):
        importlib.import_module("_hashlib")
    assert importlib.import_module("_hashlib").__name__ == "_hashlib"


def test_what_was_imported_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.import_module("_hashlib")
    with without_openssl():
        assert importlib.import_module("_hashlib") is known
    assert sys.modules["_hashlib"] is known


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_daemon_keeps_none(tls: bool, tmp_path: Path) -> None:
    board = Authority(tmp_path / "authority").board().arguments if tls else []
    with running("--root", tmp_path, *board) as daemon:
        mapped = Path(f"/proc/{daemon.process.pid}/maps").read_text("utf-8")
    assert "cygrpc" in mapped
    assert not [name for name in ("_ssl.", "_hashlib.") if name in mapped]
