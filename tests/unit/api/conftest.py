"""The workspace `lab`, made once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.api.lab import make_lab

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions that nobody changes."""
    return make_lab(tmp_path_factory.mktemp("api"))
