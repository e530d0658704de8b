"""Where a board's JOBs are, and what a host makes of them."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
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
    """The one demo of a run: the first worker that needs it plays it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "demo"
    told = Path(f"{folder}.json")
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            folder.mkdir()
            played = processed("demo", "--for", "2s", "--model", "resnet50", TMPDIR=str(folder))
            told.write_text(json.dumps(asdict(played)))
    ended = Ended(**json.loads(told.read_text()))
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
