"""Where a board's JOBs are, and what a host makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.host import processed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory for JOBs, empty."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace that is yet to be made."""
    return tmp_path / "workspace"


@pytest.fixture(scope="session")
def demo_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of a demo: a session of a simulated board with all four sources. Nobody writes to it."""
    folder = tmp_path_factory.mktemp("demo")
    ended = processed("demo", "--for", "2s", "--model", "resnet50", TMPDIR=str(folder))
    assert ended.code == 0, ended.err
    (found,) = folder.glob("profagent-demo-*")
    return found
