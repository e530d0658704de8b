"""A stored session comes again as it was: the same events, at its pace, with its marks and losses."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profagent.errors import UsageError
from profagent.export.sqlite_file import export_sqlite
from profagent.ingest.changes import Change, FrequencyKnown, LogJudged, NamesAnnounced
from profagent.limits import LONGEST_PAUSE_S
from profagent.stats.stats import stats
from profagent.store.marks import add_mark
from profagent.store.workspace import Workspace, set_baseline
from profagent.watch.against import against_of
from profagent.watch.layers import LayerQuery
from profagent.watch.model import BoardModel, LinkState
from profagent.watch.replay import Pace, Player, Replayed, replay
from profagent.watch.screen.run import play_into
from tests.integration.host import profagent
from tests.unit.store.conftest import opened
from tests.unit.store.rows import aicore
from tests.unit.watch.arriving_job import ArrivingJob, aicore_path
from tests.unit.watch.conftest import INFERENCES
from tools.draw_screen import MARKED_US, PERIOD_US, START_US


class Clock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    def pace(self, speed: float, stop: asyncio.Event) -> Pace:
        pace = Pace(speed, stop, lambda: self.now_s)

        async def wait(seconds: float) -> None:
            self.waits.append(round(seconds, 3))
            self.now_s += seconds

        pace._wait = wait  # type: ignore[method-assign]
        return pace


def replayed(workspace: Workspace, **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    shown: list[dict[str, Any]] = []
    told: list[str] = []
    chosen = Replayed(workspace, 1, speed=float("inf"), **options)
    shown.append(asyncio.run(replay(chosen, shown.append, told.append, asyncio.Event())))
    return shown, told


def test_every_inference_comes_again_in_the_order_in_which_it_ran(stored: Workspace) -> None:
    shown, told = replayed(stored)
    inferences = [event for event in shown if event["event"] == "inference"]
    assert [event["current_pic_count"] for event in inferences] == list(range(INFERENCES))
    assert all(event["figures"] == "final" and event["simulated"] and event["slowest"] for event in inferences)
    assert all(event["slowest"][0]["bound_by"] for event in inferences)
    assert (shown[-1]["inferences"], shown[-1]["records"]["acl_api"]) == (INFERENCES, 3 * INFERENCES + 2)
    assert told[0] == "replaying session 1 of euler [simulated]"
    assert shown[-1]["sampling"]["due"] == INFERENCES
    assert any(event["event"] == "board" and event["npu_utilization"] for event in shown)


def test_figures_are_those_of_the_database(stored: Workspace) -> None:
    shown, _ = replayed(stored)
    with closing(sqlite3.connect(stored.database)) as database:
        rows = database.execute(
            "SELECT current_pic_count, sum(duration_us) FROM op_records WHERE session = 1 GROUP BY 1 ORDER BY 1"
        ).fetchall()
    found = [
        (event["current_pic_count"], event["layers_us"] - event["aicpu_us"]) for event in shown if "layers_us" in event
    ]
    assert [count for count, _ in found] == [count for count, _ in rows]
    assert [us for _, us in found] == pytest.approx([us for _, us in rows], abs=0.001)


def test_the_screen_says_what_stats_say(stored: Workspace) -> None:
    model, stop = BoardModel("replay", lambda: 0, LinkState.REPLAYED), asyncio.Event()
    asyncio.run(play_into(model, Replayed(stored, 1), Pace(float("inf"), stop), stop))
    layers = model.layers("yolov5s.0")
    told = asyncio.run(stats(stored.database, session=1, by="layer", skip=0))
    (figures,) = told.models
    shown = layers.inferences()
    assert (shown.origin, shown.total) == (figures.latency_from, INFERENCES) == ("call", INFERENCES)
    quantiles = np.quantile(shown.latencies_us, (0.5, 0.95, 0.99)).tolist()
    assert quantiles == pytest.approx([figures.latency.median, figures.latency.p95, figures.latency.p99])
    assert (shown.per_s, shown.gap_us) == pytest.approx((figures.per_second, figures.gap_us))
    assert (shown.recorded, shown.of_layers) == (figures.recorded, figures.of_layers)
    assert shown.layers_us == pytest.approx(figures.layers.mean)
    shares = {line.name: line.share * 100 for line in layers.view(LayerQuery()).lines}
    assert shares == pytest.approx({row.key[1]: row.share for row in told.rows})
    assert sum(shares.values()) == pytest.approx(100)


def test_a_mark_comes_where_it_was_set(stored: Workspace) -> None:
    order: list[object] = []
    chosen = Replayed(stored, 1, speed=float("inf"))
    asyncio.run(
        replay(chosen, lambda event: order.append(event.get("current_pic_count")), order.append, asyncio.Event())
    )
    place = order.index("mark: lights on")
    before = max(each for each in order[:place] if isinstance(each, int))
    after = min(each for each in order[place:] if isinstance(each, int))
    assert after == before + 1
    assert abs(before - MARKED_US // PERIOD_US) <= 1


def test_a_loss_comes_with_its_inference(stored: Workspace, tmp_path: Path) -> None:
    workspace = Workspace(Path(shutil.copytree(stored.root, tmp_path / "other")))
    with closing(sqlite3.connect(workspace.database)) as database, database:
        ((job, log),) = database.execute(
            "SELECT job, log FROM log WHERE kind = 'aicore' AND path LIKE '%.20' LIMIT 1"
        ).fetchall()
        database.execute(
            "INSERT INTO ledger_entry (session, job, log, origin, grade, reason, detail, count)"
            " VALUES (1, ?, ?, 'link', 'loss', 'digest-mismatch', 'made up', 1)",
            (job, log),
        )
    shown, _ = replayed(workspace)
    (event,) = [event for event in shown if event.get("current_pic_count") == 20 and event["event"] == "inference"]
    assert {"grade": "loss", "reason": "digest-mismatch", "count": 1} in event["ledger"]
    assert shown[-1]["ledger"]["loss"] == 1


def test_losses_without_an_inference_come_with_the_first_of_their_job(stored: Workspace, tmp_path: Path) -> None:
    workspace = Workspace(Path(shutil.copytree(stored.root, tmp_path / "other")))
    entries = "INSERT INTO ledger_entry (session, job, log, origin, grade, reason, detail, count)"
    with closing(sqlite3.connect(workspace.database)) as database, database:
        ((job, name),) = database.execute("SELECT job, name FROM job WHERE name LIKE 'JOB%'").fetchall()
        cursor = database.execute(
            "INSERT INTO log (job, path, shown_path, kind, generation, offset, complete)"
            " SELECT job, replace(path, '.20', '.999'), 'gone', kind, 1, 0, 2 FROM log"
            " WHERE kind = 'aicore' AND path LIKE '%.20' RETURNING log, path"
        )
        ((log, path),) = cursor.fetchall()
        for number, reason in ((log, "deleted-undelivered"), (None, "ring-full")):
            database.execute(f"{entries} VALUES (1, ?, ?, 'link', 'loss', ?, 'made up', 1)", (job, number, reason))
    shown, _ = replayed(workspace)
    ledger = [event for event in shown if event["event"] == "ledger" and event["grade"] == "loss"]
    assert [(event["job"], event["log"], event["reason"]) for event in ledger] == [
        (name, path, "deleted-undelivered"),
        (name, None, "ring-full"),
    ]
    first = next(place for place, event in enumerate(shown) if event["event"] == "inference")
    assert shown.index(ledger[-1]) < first
    assert shown[-1]["ledger"]["loss"] == 2


def test_a_loss_that_the_daemon_keeps_comes_at_its_time(stored: Workspace, tmp_path: Path) -> None:
    workspace = Workspace(Path(shutil.copytree(stored.root, tmp_path / "other")))
    with closing(sqlite3.connect(workspace.database)) as database, database:
        ((entry,),) = database.execute(
            "INSERT INTO ledger_entry (session, origin, grade, reason, detail, count)"
            " VALUES (1, 'board', 'loss', 'deleted-undelivered', 'made up', 7) RETURNING entry"
        ).fetchall()
        database.execute(
            "INSERT INTO kept_loss (board, id, entry, job_name, lost_logs, to_us)"
            " SELECT board, '00000000000000ff', ?, 'JOB_GONE', 3, ? FROM session",
            (entry, START_US + MARKED_US),
        )
    shown, _ = replayed(workspace)
    (place,) = [place for place, event in enumerate(shown) if event["event"] == "kept_loss"]
    assert (shown[place]["job"], shown[place]["lost_logs"]) == ("JOB_GONE", 3)
    before = [event["current_pic_count"] for event in shown[:place] if event["event"] == "inference"]
    assert abs(len(before) - MARKED_US // PERIOD_US) <= 1
    assert shown[-1]["ledger"]["loss"] == 7


def test_it_keeps_the_recorded_pace_times_the_speed(stored: Workspace) -> None:
    clock = Clock()

    async def play(speed: float) -> float:
        stop, begun_s = asyncio.Event(), clock.now_s
        pace = clock.pace(speed, stop)

        player = Player(Replayed(stored, 1, speed))
        await player.play(lambda _: None, lambda _: None, lambda _, __: None, lambda _: None, pace, stop)
        return clock.now_s - begun_s

    took_s = INFERENCES * PERIOD_US / 1_000_000
    assert asyncio.run(play(1.0)) == pytest.approx(took_s, abs=0.3)
    assert asyncio.run(play(4.0)) == pytest.approx(took_s / 4, abs=0.1)


async def test_where_nothing_came_it_does_not_wait_for_hours() -> None:
    clock = Clock()
    pace = clock.pace(1.0, asyncio.Event())
    await pace.reach(START_US)
    assert await pace.reach(START_US + 3_600_000_000) == 3600 - LONGEST_PAUSE_S
    assert clock.waits == [LONGEST_PAUSE_S]


async def test_it_stands_still_while_it_is_paused() -> None:
    stop = asyncio.Event()
    pace = Pace(float("inf"), stop)
    await pace.reach(1)
    pace.pause(is_paused=True)
    reaching = asyncio.create_task(pace.reach(2))
    await asyncio.sleep(0)
    assert not reaching.done()
    pace.pause(is_paused=False)
    await reaching


@pytest.mark.parametrize("options", [{}, {"with_records": True}], ids=["inferences", "records"])
def test_a_session_that_was_exported_as_a_database_is_replayed_without_its_mirror(
    stored: Workspace, tmp_path: Path, options: dict[str, Any]
) -> None:
    alone = Workspace(tmp_path / "alone")
    asyncio.run(export_sqlite(stored.database, alone.database, 1))
    assert [file.name for file in alone.root.iterdir()] == [alone.database.name]
    assert replayed(alone, **options) == replayed(stored, **options)


def test_inferences_that_were_all_open_at_once_are_told_as_the_rows_have_them(tmp_path: Path) -> None:
    """Every log comes before any `.done`: 54,000 records are open at a time, live and replayed."""
    paths, ticks = [aicore_path(count) for count in range(27)], [1] * 2_000
    begin: list[Change] = [FrequencyKnown(100), NamesAnnounced([*paths])]
    judged: list[Change] = [LogJudged(path, 1, "") for path in paths[1:]]
    with opened(tmp_path) as rows:
        rows.apply(*begin, *(aicore(path, ticks) for path in paths))
        workspace = Workspace(rows.file.parent)
        waiting, _ = replayed(workspace)
        rows.apply(*judged)
        shown, _ = replayed(workspace)
        states = rows.query("SELECT current_pic_count, figures, why FROM inference ORDER BY inference")
    job = ArrivingJob()
    live = [
        event for changes in (begin, [aicore(path, ticks) for path in paths], judged) for event in job.feed(changes)
    ]
    assert figures_in(waiting) == [(count, "pending", states[0][2]) for count in range(27)]
    assert [waiting[-1]["inferences"], waiting[-1]["records"]["aicore"]] == [0, 0]
    assert figures_in(shown) == states
    assert figures_in(live) == states[1:]
    assert figures_in(job.wait(60)) == states[:1]
    for summary in (shown[-1], job.events.summary()):
        assert (summary["inferences"], summary["records"]["aicore"]) == (26, 52_000)


def figures_in(events: Sequence[dict[str, Any]]) -> list[tuple[int, str, str | None]]:
    inferences = [event for event in events if event["event"] == "inference"]
    return [(event["current_pic_count"], event["figures"], event["why"]) for event in inferences]


def test_lines_of_a_pipe_and_of_json(stored: Workspace) -> None:
    ended = profagent("watch", "1", "--speed", "1000", "--workspace", stored.root)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert sum(" yolov5s.0 inference " in line for line in lines) == INFERENCES
    assert "mark: lights on" in ended.err
    ended = profagent("watch", "1", "--speed", "1000", "--workspace", stored.root, "--json")
    assert json.loads(ended.out.splitlines()[-1])["inferences"] == INFERENCES


def test_layers_are_compared_with_a_baseline_or_a_session(stored: Workspace, tmp_path: Path) -> None:
    workspace = Workspace(Path(shutil.copytree(stored.root, tmp_path / "other")))
    asyncio.run(set_baseline(workspace, "last-night", 1))
    by_name, by_number = (asyncio.run(against_of(workspace, name)) for name in ("baseline=last-night", "1"))
    assert (by_name.name, by_number.name) == ("baseline=last-night", "session 1")
    assert by_name.medians == by_number.medians
    assert by_name.medians["yolov5s"]["model.0.conv+model.0.sigmoid+model.0.mul"] == pytest.approx(200, rel=0.1)
    assert "detect.nms" in by_name.medians["yolov5s"]
    with pytest.raises(UsageError, match="no session with the label baseline=none"):
        asyncio.run(against_of(workspace, "baseline=none"))


def test_marks_are_kept_with_their_session(tmp_path: Path, stored: Workspace) -> None:
    workspace = Workspace(Path(shutil.copytree(stored.root, tmp_path / "other")))
    asyncio.run(add_mark(workspace.database, 1, START_US, "the beginning"))
    with closing(sqlite3.connect(workspace.database)) as database:
        rows = database.execute("SELECT session, text FROM session_marks ORDER BY time_us").fetchall()
    assert rows == [(1, "the beginning"), (1, "lights on")]


COUNTER_MAP = str(resources.files("profagent.formats").joinpath("maps/simulated.toml"))
REFUSED: list[tuple[tuple[str, ...], str]] = [
    ((), "boards or a session, not both"),
    (("--board", "a", "1"), "boards or a session, not both"),
    (("--board", "a", "--board", "a"), "named twice"),
    (("--board", "a", "--speed", "2"), "--speed goes with a session"),
    (("1", "--save"), "--save goes with --board"),
    (("1", "--counter-map", COUNTER_MAP), "--counter-map goes with --board"),
    (("1", "--against", "day"), "--against is for the screen"),
    (("--board", "a", "--board", "b", "--budget", "20", "--plain"), "run watch on a terminal without --plain"),
]


@pytest.mark.parametrize(
    ("arguments", "why"), REFUSED, ids=lambda each: " ".join(each) if isinstance(each, tuple) else ""
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], why: str) -> None:
    ended = profagent("watch", *arguments)
    assert ended.code == 2
    assert why in ended.err
