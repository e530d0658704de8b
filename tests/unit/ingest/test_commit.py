"""The commit rule: mirror, sync, transaction, acknowledgement, in this order and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from profagent.ingest.changes import JobChanges
from profagent.ingest.commit import Step, commit

CHANGES = (JobChanges("JOB" + "A" * 29, "/board", ()),)


class Recorder:
    """Both sides of the rule; fails at the call of that name."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[str] = []
        self.failing = failing
        self.applied: Sequence[JobChanges] = ()

    def _call(self, name: str) -> None:
        if name == self.failing:
            raise OSError(name)
        self.calls.append(name)

    async def write(self) -> Sequence[JobChanges]:
        self._call("write")
        return CHANGES

    async def sync(self) -> None:
        self._call("sync")

    async def apply(self, changes: Sequence[JobChanges]) -> None:
        self._call("apply")
        self.applied = changes

    async def acknowledge(self) -> None:
        self._call("acknowledge")

    async def commit(self, reached: Callable[[Step], None]) -> Sequence[JobChanges]:
        return await commit(self.write, self.sync, self.apply, self.acknowledge, reached)


async def test_each_step_follows_the_one_before() -> None:
    recorder = Recorder()

    def reached(step: Step) -> None:
        recorder.calls.append(step.value)

    assert await recorder.commit(reached) is CHANGES
    assert recorder.applied is CHANGES
    assert recorder.calls == [
        *("write", "mirrored", "sync", "synced"),
        *("apply", "committed", "acknowledge", "acknowledged"),
    ]


@pytest.mark.parametrize(
    ("failing", "done"),
    [
        ("write", []),
        ("sync", ["write"]),
        ("apply", ["write", "sync"]),
        ("acknowledge", ["write", "sync", "apply"]),
    ],
)
async def test_nothing_follows_a_step_that_failed(failing: str, done: list[str]) -> None:
    recorder = Recorder(failing)
    with pytest.raises(OSError, match=failing):
        await recorder.commit(lambda _: None)
    assert recorder.calls == done
