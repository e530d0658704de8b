"""Where a board's JOBs are, and what a host makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory for JOBs, empty."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace that is yet to be made."""
    return tmp_path / "workspace"
