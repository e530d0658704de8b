"""Pushers, upkeep and readers at one lake, each a process of its own, of which writers are killed all the time.

It is a program, `python -m tests.faults.lake_race FOLDER KILLS READINGS`, that prints a Race: its processes are forked
from one that has imported everything and started no thread.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import sys
import time
import traceback
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from profagent.errors import LakeError
from profagent.lake import engines, upkeep
from profagent.lake.engines import engine_of
from profagent.lake.lake import SESSIONS, Lake, Push

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

PUSHERS, READERS = 4, 2
# The others are as these.
DATA = ("records", "layers")
TABLES = (*DATA, SESSIONS)
TODAY = datetime.now(UTC).date()
# Upkeep lets go of what has such a name, though somebody is at work on it.
LONG_AGO = TODAY - timedelta(days=30)
NAMESPACE = uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")
LONGEST_S = 3600.0
STOP, STARTER = "stop", "starter"
# Sessions of which a part is seen, or more than is there, or which are there twice.
WRONG = """
WITH counted AS (SELECT session, count(*) AS number, sum(value) AS total FROM records GROUP BY session),
     figures AS (SELECT session, count(*) AS number FROM layers GROUP BY session)
SELECT s.session, s.records, c.number, f.number FROM sessions s LEFT JOIN counted c ON s.session = c.session
LEFT JOIN figures f ON s.session = f.session
WHERE c.number IS DISTINCT FROM s.records OR c.total IS DISTINCT FROM s.total OR f.number IS DISTINCT FROM s.layers
UNION ALL SELECT session, count(*), 0, 0 FROM sessions GROUP BY session HAVING count(*) > 1
"""


@dataclasses.dataclass
class Race:
    """What was done and seen: readings in which something was wrong, at the end sessions that lack, and rows that went.

    `left_over`: rows in the tables that no push can name any more, after the last upkeep.
    """

    kills: int = 0
    readings: int = 0
    wrong: list[Any] = dataclasses.field(default_factory=list)
    sessions: int = 0
    missing: list[int] = dataclasses.field(default_factory=list)
    gone: int = 0
    left_over: int = 0
    seconds: float = 0.0


def session_of(number: int) -> str:
    return str(uuid.uuid5(NAMESPACE, str(number)))


def newest(number: int) -> int:
    """Each third session is decoded anew once it is there."""
    return int(number % 3 == 0)


def push(lake: Lake, number: int, content: int, day: date) -> None:
    """As `profagent push` does, of rows that tell by their number which content they are."""
    session = session_of(number)
    before = lake.pushed(session) or {"content": -1, "push": ""}
    if before["content"] >= content:
        return
    own = Push.on(day, session, str(content), before["push"])
    owners = {"date": f"2026-11-{1 + number % 3:02}", "session": session, "push": own.name}
    sizes = {table: (place + 1) * (20 + number % 7 + 50 * content) for place, table in enumerate(DATA)}
    for table, size in sizes.items():
        columns = {**{name: [value] * size for name, value in owners.items()}, "value": np.arange(size)}
        batch = pa.RecordBatch.from_pydict(columns)
        lake.append(table, own, batch.schema, partial(iter, [batch]))
    total = sum(range(sizes["records"]))
    lake.name_session(
        own, pa.RecordBatch.from_pylist([{**owners, **sizes, "number": number, "content": content, "total": total}])
    )


def push_all(lake: Lake, number: int) -> None:
    """Push what there is to push of a session, under another name where one was given up meanwhile."""
    for content in range(newest(number) + 1):
        try:
            push(lake, number, content, LONG_AGO if number % 3 == 1 else TODAY)
        except LakeError as error:
            if "took so long" not in str(error):
                raise
            push(lake, number, content, TODAY)


def contents(lake: Lake) -> dict[int, int]:
    """Return what content each session has that is there."""
    with engine_of(lake) as engine:
        return dict(engine.ask("SELECT number, content FROM sessions").rows)


def is_over(folder: Path) -> bool:
    """Whether the race has ended, or its own process has."""
    return (folder / STOP).exists() or str(os.getppid()) != (folder / STARTER).read_text()


def pusher(lake: Lake, place: int, folder: Path) -> None:
    """Push one session after the other; each is pushed by two at a time."""
    there, number = contents(lake), place // 2
    while not is_over(folder):
        if there.get(number) != newest(number):
            push_all(lake, number)
        number += PUSHERS // 2


def compactor(lake: Lake, folder: Path) -> None:
    while not is_over(folder):
        rows = sum(done.rows for done in upkeep.compact(lake))
        with (folder / "gone").open("a") as told:
            told.write(f"{rows}\n")
        time.sleep(0.1)


def vacuum(lake: Lake, folder: Path) -> None:
    while not is_over(folder):
        for table in TABLES:
            lake.change(table, lambda found: found.vacuum(upkeep.RETENTION_H, False, enforce_retention_duration=False))
        time.sleep(0.1)


def reader(lake: Lake, place: int, folder: Path) -> None:
    with (folder / f"readings{place}").open("w", buffering=1) as told:
        while not is_over(folder):
            with engine_of(lake) as engine:
                told.write(json.dumps(engine.ask(WRONG).rows) + "\n")


def forked(work: Callable[[], None]) -> int:
    """Start a process that does some work; its number. One that fails says so, and ends with 1."""
    process = os.fork()
    if process:
        return process
    try:
        work()
    except BaseException:  # noqa: BLE001 - a process ends here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def awaited(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def race(folder: Path, kills: int, readings: int) -> Race:
    """Kill so many writers at least, until there have been so many readings."""
    vars(upkeep).update(TABLES=TABLES)
    vars(engines).update(_ORDER=TABLES[::-1])
    lake, done, drawn, began = Lake(str(folder / "lake")), Race(), random.Random(7), time.monotonic()
    (folder / STARTER).write_text(str(os.getpid()))
    assert awaited(forked(lambda: push(lake, 0, 0, TODAY))) == 0
    works = [partial(pusher, lake, place, folder) for place in range(PUSHERS)]
    works += [partial(compactor, lake, folder), partial(vacuum, lake, folder)]
    writers = {forked(work): work for work in works}
    readers = [forked(partial(reader, lake, place, folder)) for place in range(READERS)]
    try:
        while done.kills < kills or _readings(folder) < readings:
            assert time.monotonic() < began + LONGEST_S
            time.sleep(drawn.uniform(0.02, 0.25))
            victim = drawn.choice(sorted(writers))
            os.kill(victim, signal.SIGKILL)
            assert awaited(victim) == -signal.SIGKILL, "a writer has failed"
            work = writers.pop(victim)
            writers[forked(work)] = work
            done.kills += 1
    finally:
        (folder / STOP).touch()
        codes = [awaited(each) for each in (*writers, *readers)]
    assert not any(codes), "a process has failed"
    _looked_at(lake, folder, done)
    done.seconds = time.monotonic() - began
    return done


def _readings(folder: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("readings*"))


def _looked_at(lake: Lake, folder: Path, done: Race) -> None:
    """See what there is, once each session that was begun is pushed to its end."""
    seen = [json.loads(line) for file in folder.glob("readings*") for line in file.read_text().splitlines()]
    for number in range(max(contents(lake)) + PUSHERS):
        push_all(lake, number)
    done.gone = sum(map(int, (folder / "gone").read_text().split())) + sum(each.rows for each in upkeep.compact(lake))
    with engine_of(lake) as engine:
        seen.append(engine.ask(WRONG).rows)
        old = f"SELECT count(*) FROM all_{{}} WHERE push LIKE '{LONG_AGO}%' AND push NOT IN (SELECT push FROM sessions)"
        done.left_over = sum(engine.ask(old.format(table)).rows[0][0] for table in DATA)
    found = contents(lake)
    done.readings, done.wrong, done.sessions = len(seen), [rows for rows in seen if rows], len(found)
    done.missing = [each for each in range(max(found) + 1) if found.get(each) != newest(each)]


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(race(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
