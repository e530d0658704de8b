"""A stored session that the tests of replay and screen share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tools.draw_screen import stored_session

if TYPE_CHECKING:
    from profagent.store.workspace import Workspace


INFERENCES = 30


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with the session of the README's picture, but fewer inferences."""
    return asyncio.run(stored_session(tmp_path_factory.mktemp("stored"), INFERENCES))
