"""What tests of several packages begin with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.store.database import DatabaseBuilder

SMALL = Path(__file__).parents[1] / "data" / "jobs" / "JOBTYRYTZMLNOARGBLJWHWAIQCCTSSTR"


@pytest.fixture
def builder(tmp_path: Path) -> DatabaseBuilder:
    """A database to be filled by plain INSERTs."""
    return DatabaseBuilder(tmp_path / "profagent.db")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace that is yet to be made."""
    return tmp_path / "workspace"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A copy of a small JOB that the runtime library wrote."""
    return Path(shutil.copytree(SMALL, tmp_path / SMALL.name))
