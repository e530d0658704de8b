"""Where a board's JOBs are, and what a host makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.host import Ended, processed


@dataclass(frozen=True)
class Demo:
    """A demo that has ended, and the directory of temporary files that it had."""

    ended: Ended
    folder: Path

    @property
    def workspace(self) -> Path:
        """What it left: a session of a simulated board with all four sources; a test that writes takes a copy."""
        (found,) = self.folder.glob("profagent-demo-*")
        return found


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The one demo of a worker."""
    folder = tmp_path_factory.mktemp("demo")
    ended = processed("demo", "--for", "2s", "--model", "resnet50", TMPDIR=str(folder))
    assert ended.code == 0, ended.err
    return Demo(ended, folder)


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
def demo_workspace(demo: Demo) -> Path:
    """The workspace of a demo. Nobody writes to it."""
    return demo.workspace
