"""What holds for every test: an asyncio test leaves no task behind; generated examples may be slow, and come again."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
from collections.abc import AsyncIterator

import pytest
from hypothesis import settings

# gRPC's fork handlers would run in each child before it becomes another program, and abort some of them.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# Each worker has a core: more threads for small matrices only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if sys.version_info >= (3, 11):  # the agent's; the board's side has no documents
    from tests.documents import check_printed

    check_printed()

# A search for garbage looks through all modules and tests, and finds little: one in ten of them does.
gc.set_threshold(7_000, 10, 10)

settings.register_profile("project", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("project")

# A task that was cancelled, or a call of gRPC that is over, may need some more turns of the loop.
ENDING_S = 2.0


@pytest.fixture
async def no_task_is_left() -> AsyncIterator[None]:
    """Fail when tasks outlive the test and the fixtures that were set up after this one."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=ENDING_S)
    assert not left, f"tasks that nobody ended: {left}"


@pytest.fixture(autouse=True)
def asyncio_tests_end_their_tasks(request: pytest.FixtureRequest) -> None:
    """Put the check of tasks around each test that is a coroutine, outside of its other fixtures."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("no_task_is_left")
