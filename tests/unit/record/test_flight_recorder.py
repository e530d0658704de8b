"""A flight recorder: what it keeps of a capture, what it thins, and what a kill at any step leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profagent.errors import StoreError
from profagent.formats.incident_rules import IncidentRule, KeepWhen
from profagent.link.messages import FollowedLog, Received, Started
from profagent.ingest.mirror import digest_of
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording, Step
from profagent.stats.stats import stats
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from tests.encoders import aicore_record, api_record, done_text
from tests.unit.record.link import JOB, Sender
from tests.unit.watch.arriving_job import INFO_JSON, START_US, aicore_path

NOW_US = 1_800_000_000_000_000
PERIOD_US = 10_000
CALLS = "data/acl_api.0.m.0"
SLOW_EVERY = 50
USUAL, SLOW = (700, 1400, 350), (700, 5600, 350)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch has a step, and nothing waits for the board to hear that it arrived."""
    monkeypatch.setattr("profagent.record.recording.RING_STEP_S", 0.0)
    monkeypatch.setattr("profagent.store.ring.RING_SETTLE_S", 0.0)
    monkeypatch.setattr("profagent.formats.incident_rules.FEWEST_FOR_A_QUANTILE", 20)


def choice(rule: str = "latency > 1.5 * p95", **other: Any) -> KeepWhen:
    options = {"around_us": 25_000, "budget_bytes": None, "cool_down_us": 0, **other}
    return KeepWhen((IncidentRule.parse(rule),), **options)


class Inference:
    """Files of one inference; every SLOW_EVERY-th takes 600 µs more in its second layer, at 700 MHz."""

    def __init__(self, number: int) -> None:
        self.path = aicore_path(number)
        ticks = SLOW if number % SLOW_EVERY == SLOW_EVERY - 1 else USUAL
        self.us = sum(ticks) / 7
        self.start_us = START_US + number * PERIOD_US
        end_us = self.start_us + round(self.us)
        self.data = b"".join(aicore_record(place, each, 0) for place, each in enumerate(ticks))
        times = {"start_time": self.start_us, "end_time": end_us}
        self.done = done_text(file_len=len(self.data), **times, cache_hit=3, cache_mis=1)
        self.call = api_record(2, self.start_us - 10, end_us + 20)
        self.latency_us = end_us - self.start_us + 30


class Board:
    """A board that has files, and sends what the host does not hold of them."""

    def __init__(self, inferences: int) -> None:
        self.inferences = [Inference(number) for number in range(inferences)]

    async def send(self, recording: Recording, batch: int = 20) -> list[Any]:
        """Everything in order; what was acknowledged as complete."""
        sender = Sender(recording)
        await sender.open()
        await sender.send("info.json.0", INFO_JSON, snapshot=True)
        for first in range(0, len(self.inferences), batch):
            some = self.inferences[first : first + batch]
            events: list[Received] = []
            for each in some:
                for path, data, is_snapshot in ((each.path, each.data, False), (f"{each.path}.done", each.done, True)):
                    log, holding = await sender.offer(path, snapshot=is_snapshot)
                    if not holding.skip:
                        start = 0 if is_snapshot and holding.offset < len(data) else holding.offset
                        generation = (holding.generation or 1) if start else holding.generation + 1
                        at = FollowedLog(log.handle, JOB, log.path, is_snapshot, generation, len(data))
                        event = Started(log.handle, generation, start, "new", data[start:], digest_of(data))
                        events.append(Received(JOB, at, event))
            if events:
                await sender.happen(*events)
            calls = b"".join(each.call for each in self.inferences[: first + batch])
            await sender.send(CALLS, calls, complete=False)
        return sender.acknowledged


@asynccontextmanager
async def recording(root: Path, chosen: KeepWhen | None, dies: Step | None = None, after: int = 0) -> AsyncIterator[Recording]:
    """A recording that dies at a step, the `after`-th time that it comes there."""
    left = [after]

    def reached(step: Step) -> None:
        if step is dies:
            left[0] -= 1
            if left[0] < 0:
                raise StoreError("killed", hint="")

    workspace = Workspace(root)
    with workspace.locked():
        async with Store(workspace.database) as store:
            yield Recording(workspace, store, RecordingOptions(lambda: NOW_US, keep_when=chosen), reached=reached)


async def rows(root: Path, sql: str) -> list[tuple[Any, ...]]:
    async with Store(Workspace(root).database) as store:
        return await store.query(sql)


async def whole_capture(root: Path, board: Board, chosen: KeepWhen | None) -> None:
    async with recording(root, chosen) as found:
        await board.send(found)
        await found.end()


async def test_slow_inferences_are_kept_whole_and_the_others_as_figures(tmp_path: Path) -> None:
    board = Board(400)
    await whole_capture(tmp_path, board, choice())
    slow = [each for number, each in enumerate(board.inferences) if number % SLOW_EVERY == SLOW_EVERY - 1]
    found = await rows(tmp_path, "SELECT time_us, value, culprit, kept, inferences FROM incidents ORDER BY number")
    assert [(time, value) for time, value, *_ in found] == [(each.start_us - 0, each.latency_us) for each in slow]
    print(found)
    print(await rows(tmp_path, "SELECT count(*) FROM inference"), await rows(tmp_path, "SELECT count(*) FROM log"))
    print(await rows(tmp_path, "SELECT subject, sum(number), sum(total), max(most) FROM minute_figure GROUP BY 1"))
    print(await rows(tmp_path, "SELECT * FROM flight_recorder"))
    print(len(list(tmp_path.rglob("aicore*"))))
