"""What the daemon takes of the board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagentd.follow import client as module
from profagentd.follow.client import usage

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_use_is_counted() -> None:
    used = usage((7, 0))
    assert used.cpu_us > 0
    assert used.rss_bytes > 1_000_000
    assert used.free_bytes == (7, 0)


def test_memory_that_cannot_be_seen_is_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STATM", tmp_path / "missing")
    assert usage(()).rss_bytes == 0
