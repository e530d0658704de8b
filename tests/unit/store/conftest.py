"""A database of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.dumps import check
from tests.unit.store.rows import Rows


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    """A writer's database; what it holds in the end must not contradict itself."""
    with opened(tmp_path) as rows:
        yield rows


@contextmanager
def opened(folder: Path) -> Iterator[Rows]:
    """The same where a test needs several."""
    rows = Rows(folder)
    try:
        yield rows
        check(rows.connection)
    finally:
        rows.connection.close()
        rows.close()
        rows.runner.close()
