"""A flight recorder: what it keeps of a capture, what it thins, and what a kill at any step leaves."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import profagent
from profagent.advise.advise import Advice, advise
from profagent.advise.rules import own_rules
from profagent.cli.main import run
from profagent.diff.diff import Operand, diff, parse_condition
from profagent.formats.incident_rules import IncidentRule, KeepWhen
from profagent.ingest.mirror import SharedSync, digest_of
from profagent.lake.aggregates import GAMMA, aggregates
from profagent.link.messages import Acknowledgement, FollowedLog, Holding, JobStatus, Received, Started
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording, Step
from profagent.report.report import gather
from profagent.stats.slo import judgements
from profagent.stats.stats import stats
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from profagent.tables.slo import Judged, Objective
from profagent_app.marks import Kind
from tests.encoders import aicore_record, api_record, done_text, layer_item
from tests.fakes.spooled import mark
from tests.unit.record.link import JOB, Sender
from tests.unit.watch.arriving_job import INFO_JSON, LAYERS, START_US, aicore_path

NOW_US = 1_800_000_000_000_000
PERIOD_US = 10_000
CALLS = "data/acl_api.0.m.0"
SLOW_EVERY, LACKING_EVERY = 50, 7
LAYER_INFO = b"".join(layer_item(i, name.encode() + b"\0", prof_layer_id=1 + i) for i, name in enumerate(LAYERS))
USUAL, SLOW = (700, 1400, 350), (700, 5600, 350)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waits(monkeypatch)


def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch has a step, and nothing waits for the board to hear that it arrived."""
    monkeypatch.setattr("profagent.record.recording.RING_STEP_S", 0.0)
    monkeypatch.setattr("profagent.store.ring.RING_SETTLE_S", 0.0)
    monkeypatch.setattr("profagent.formats.incident_rules.FEWEST_FOR_A_QUANTILE", 20)


def choice(rule: str = "latency > 1.5 * p95", **other: Any) -> KeepWhen:
    options = {"around_us": 25_000, "budget_bytes": None, "cool_down_us": 0, **other}
    return KeepWhen((IncidentRule.parse(rule),), **options)


class _KilledError(Exception):
    """End of a process at a step."""


class Inference:
    """Files of one inference; every SLOW_EVERY-th takes 600 µs more in its second layer, at 700 MHz.

    With `noise` its times vary, and every LACKING_EVERY-th has no record of its last layer.
    """

    def __init__(self, number: int, noise: np.random.Generator | None = None, period_us: int = PERIOD_US) -> None:
        self.path = aicore_path(number)
        ticks: tuple[int, ...] = SLOW if number % SLOW_EVERY == SLOW_EVERY - 1 else USUAL
        rest_us = 0.0
        if noise is not None:
            ticks = (*(round(each * noise.normal(1, 0.02)) for each in ticks),)
            rest_us = noise.normal(100, 5)
        self.us = sum(ticks) / 7
        self.start_us = START_US + number * period_us
        end_us = self.start_us + round(self.us + rest_us)
        recorded = ticks[:-1] if noise is not None and number % LACKING_EVERY == 0 else ticks
        self.data = b"".join(aicore_record(place, each, 0) for place, each in enumerate(recorded))
        times = {"start_time": self.start_us, "end_time": end_us}
        self.done = done_text(file_len=len(self.data), **times, cache_hit=3, cache_mis=1)
        before_us, after_us = (60, 80) if noise is not None else (10, 20)
        self.call = api_record(2, self.start_us - before_us, end_us + after_us)
        self.latency_us = end_us - self.start_us + before_us + after_us
        self.files = ((self.path, self.data), (f"{self.path}.done", self.done))


class Board:
    """A board that has files, and sends what the host does not hold of them."""

    def __init__(self, inferences: int, noise: np.random.Generator | None = None, period_us: int = PERIOD_US) -> None:
        self.inferences = [Inference(number, noise, period_us) for number in range(inferences)]

    async def send(self, recording: Recording, batch: int = 40) -> list[Acknowledgement]:
        """Send everything in order on a new stream; return what was acknowledged as complete."""
        sender = Sender(recording)
        await sender.open()
        await sender.send("info.json.0", INFO_JSON, snapshot=True)
        await sender.send("data/m.0.layer.info", LAYER_INFO, snapshot=True)
        await self.send_from(0, recording, sender, batch)
        return [each for each in sender.acknowledged if each.complete]

    async def send_from(self, begin: int, recording: Recording, sender: Sender, batch: int) -> None:
        """Send the inferences from a number on."""
        for first in range(begin, len(self.inferences), batch):
            some = self.inferences[first : first + batch]
            files = {path: data for each in some for path, data in each.files}
            logs = [
                FollowedLog(first * 2 + number + 100, JOB, path.encode(), path.endswith(".done"))
                for number, path in enumerate(files)
            ]
            held = {each.handle: each for each in await recording.holdings(logs)}
            events = [event for log in logs if (event := _event(log, held[log.handle], files[log.path.decode()]))]
            await sender.happen(*events)
            calls = b"".join(each.call for each in self.inferences[: first + batch])
            await sender.send(CALLS, calls, complete=False)


def _event(log: FollowedLog, holding: Holding, data: bytes) -> Received | None:
    if holding.skip:
        return None
    is_same = holding.offset == len(data) and holding.prefix_digest == digest_of(data)
    start = holding.offset if is_same else 0
    generation = holding.generation if is_same else holding.generation + 1
    at = FollowedLog(log.handle, JOB, log.path, log.snapshot, generation, len(data))
    return Received(JOB, at, Started(log.handle, generation, start, "new", data[start:], digest_of(data)))


@asynccontextmanager
async def recording(
    root: Path, chosen: KeepWhen | None, dies: Step | None = None, after: int = 0
) -> AsyncIterator[Recording]:
    """A recording that dies at a step, the `after`-th time that it comes there."""
    left = [after]

    def reached(step: Step) -> None:
        if step is dies:
            left[0] -= 1
            if left[0] < 0:
                raise _KilledError

    workspace = Workspace(root)
    # The order of the steps is the point here, and not the disk.
    workspace.synced = SharedSync(root, sync=lambda _: None)
    with workspace.locked():
        async with Store(workspace.database, durable=False) as store:
            yield Recording(workspace, store, RecordingOptions(lambda: NOW_US, keep_when=chosen), reached=reached)


async def rows(root: Path, sql: str) -> list[tuple[Any, ...]]:
    async with Store(Workspace(root).database) as store:
        return await store.query(sql)


async def whole_capture(root: Path, board: Board, chosen: KeepWhen | None, batch: int = 40) -> None:
    async with recording(root, chosen) as found:
        await board.send(found, batch)
        await found.end()


def mirrored(root: Path) -> set[str]:
    return {path.name for path in root.rglob("aicore*") if path.suffix != ".done"}


def changed(root: Path, board: Board) -> list[str]:
    """Mirrored files of inferences that are not as the board has them, and files that were left in another folder."""
    theirs = {path.rpartition("/")[2]: data for each in board.inferences for path, data in each.files}
    files = [path for path in root.rglob("*") if path.is_file() and path.parent.name in ("data", ".spare")]
    return [
        path.name
        for path in files
        if path.parent.name == ".spare" or path.read_bytes() != theirs.get(path.name, path.read_bytes())
    ]


def slow_of(board: Board) -> list[Inference]:
    return [each for number, each in enumerate(board.inferences) if number % SLOW_EVERY == SLOW_EVERY - 1]


# What incidents say that they kept, and what is there.
COUNTED = (
    "SELECT i.time_us, i.inferences, i.bytes, count(*), sum(offset) FROM incidents i JOIN inference n"
    " ON n.start_us <= i.end_us AND n.end_us >= i.begin_us JOIN segment g ON g.inference = n.inference"
    " JOIN log USING (log) GROUP BY i.number ORDER BY i.time_us"
)
INCIDENTS = "SELECT time_us, value, model, culprit, round(excess_us), kept, inferences, bytes > 0 FROM incidents"


async def test_slow_inferences_are_kept_whole_and_the_others_as_figures(tmp_path: Path) -> None:
    board = Board(200)
    await whole_capture(tmp_path / "flight", board, choice())
    await whole_capture(tmp_path / "all", board, None)
    found = await rows(tmp_path / "flight", INCIDENTS)
    assert found == [
        (each.start_us, each.latency_us, "m", "pool", 600, 1, near, 1)
        for each, near in zip(slow_of(board), (5, 5, 5, 3), strict=True)
    ]
    # Windows of 25 ms hold two inferences on both sides, and the newest inference of all has no successor yet.
    kept = await rows(tmp_path / "flight", "SELECT current_pic_count FROM inference ORDER BY 1")
    windows = {number + near for number in range(SLOW_EVERY - 1, 200, SLOW_EVERY) for near in range(-2, 3)} - {200, 201}
    assert {number for (number,) in kept} == windows | {199}
    assert mirrored(tmp_path / "flight") == {board.inferences[number].path[5:] for number in windows | {199}}
    assert changed(tmp_path / "flight", board) == []
    assert await rows(tmp_path / "flight", "SELECT count(*), sum(passed_over), sum(sampled) FROM sampling") == [
        (1, 200 - len(kept), 200)
    ]
    assert await rows(tmp_path / "flight", "SELECT * FROM ledger_entry") == []


async def test_a_thinned_log_is_neither_copied_again_nor_left_undelivered(tmp_path: Path) -> None:
    board = Board(60)
    async with recording(tmp_path, choice()) as found:
        await board.send(found)
        sender = Sender(found)
        # The host says that it holds the newest inference, and thins it before the board goes on.
        last = board.inferences[-1]
        log, holding = await sender.offer(last.path)
        board.inferences += [Inference(60 + number) for number in range(20)]
        await board.send_from(60, found, sender, 20)
        assert (await rows(tmp_path, f"SELECT kept FROM log WHERE path = '{last.path}'")) == [(0,)]
        sender.acknowledged.clear()
        event = _event(log, holding, last.data)
        assert event is not None
        await sender.happen(event)
        assert sender.acknowledged == [Acknowledgement(log.handle, 1, len(last.data), complete=True)]
        # A new stream: positions are known for a while, and then the inference alone.
        acknowledged = await board.send(found)
        assert len(acknowledged) == 2 * 80 + 2
        await found._store.query("UPDATE thinned_log SET thinned_s = 0")
        acknowledged = await board.send(found)
        gone = await rows(tmp_path, "SELECT count(*) FROM sample WHERE NOT kept")
        assert len(acknowledged) == 2 * (80 - gone[0][0]) + 2
        assert await rows(tmp_path, "SELECT sum(inferences) FROM minute_figure WHERE subject = 'layers'") == gone


async def test_a_kill_at_any_step_leaves_each_inference_once_as_rows_or_in_the_figures(tmp_path: Path) -> None:
    board, kills = Board(0), 0
    for after in (0, 1, 2, 0):
        for step in Step:
            board.inferences += [Inference(len(board.inferences) + number) for number in range(12)]
            async with recording(tmp_path, choice(), step, after) as found:
                with suppress(_KilledError):
                    await board.send(found, 6)
                    continue
                kills += 1
    assert kills >= 20
    await whole_capture(tmp_path, board, choice())
    assert await rows(tmp_path, "SELECT count(*) FROM session") == [(1,)]
    (figures,) = await rows(tmp_path, "SELECT sum(number), round(sum(total)) FROM minute_figure WHERE subject = 'call'")
    kept = {number for (number,) in await rows(tmp_path, "SELECT current_pic_count FROM inference")}
    gone = [each for number, each in enumerate(board.inferences) if number not in kept]
    assert figures == (len(gone), sum(each.latency_us for each in gone))
    assert len(kept) < 40
    listed = await rows(tmp_path, COUNTED)
    assert [time for time, *_ in listed] == [each.start_us for each in slow_of(board)]
    assert [claimed for _, *claimed, _, _ in listed] == [counted for _, _, _, *counted in listed]
    assert {int(name.rpartition(".")[2]) for name in mirrored(tmp_path)} == kept
    assert changed(tmp_path, board) == []
    assert await rows(tmp_path, "SELECT * FROM ledger_entry WHERE grade = 'loss'") == []


@pytest.mark.parametrize("step", [Step.SYNCED, Step.COMMITTED, Step.THINNED])
async def test_after_a_kill_other_rules_begin_a_session_that_takes_nothing_of_the_one_before(
    step: Step, tmp_path: Path
) -> None:
    counts = (
        "SELECT session, count(*) + (SELECT ifnull(sum(inferences), 0) FROM minute_figure f WHERE subject = 'layers'"
        " AND f.session = i.session), (SELECT count(*) FROM sample s WHERE s.session = i.session) FROM inference i"
        " GROUP BY session"
    )
    board = Board(70)
    with suppress(_KilledError):
        async with recording(tmp_path, choice(), step, 1) as found:
            await board.send(found, 24)
    before = await rows(tmp_path, counts)
    await whole_capture(tmp_path, board, choice("latency > 1.4 * p95"))
    after = await rows(tmp_path, counts)
    assert after[: len(before)] == before
    assert sum(count for _, count, _ in after) == 70
    assert all(count == sampled for _, count, sampled in after)


@pytest.mark.parametrize("batch", [40, 160])
async def test_beyond_the_budget_of_a_day_an_incident_is_listed_and_not_kept(batch: int, tmp_path: Path) -> None:
    """Also where all incidents of a backlog are found at once."""
    board = Board(160)
    await whole_capture(tmp_path, board, choice(budget_bytes=1), batch)
    found = await rows(tmp_path, "SELECT kept, inferences, bytes > 0, inference IS NULL FROM incidents")
    assert found == [(1, 5, 1, 0), (0, 5, 0, 1), (0, 5, 0, 1)]
    # Those of the first window, and the newest of all.
    assert await rows(tmp_path, "SELECT count(*) FROM inference") == [(6,)]


async def test_figures_of_earlier_days_are_folded_by_the_hour(tmp_path: Path) -> None:
    half_an_hour_us, minute_us = 1_800_000_000, 60_000_000
    board = Board(120, period_us=half_an_hour_us)
    await whole_capture(tmp_path, board, choice("latency > 1s"))
    minutes = await rows(tmp_path, "SELECT minute, number FROM minute_figure WHERE subject = 'call' ORDER BY minute")
    # The newest inference of all stays as records.
    gone = [each.start_us // minute_us for each in board.inferences[:-1]]
    end = (gone[-1] - 24 * 60) // 60 * 60
    assert [*minutes] == sorted(Counter(each // 60 * 60 if each < end else each for each in gone).items())
    assert max(number for _, number in minutes) == 2


def test_commands_list_incidents_and_open_at_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = Board(110)
    asyncio.run(whole_capture(tmp_path, board, choice()))
    place = ("--workspace", str(tmp_path))
    assert run(["incidents", "1", *place, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["number"], first["culprit"], second["time_us"]) == (1, "pool", board.inferences[99].start_us)
    assert run(["sessions", *place]) == 0
    assert "2 incidents: `profagent incidents 1` lists them" in capsys.readouterr().out
    assert run(["watch", "1", "--at", "2", "--speed", "1000", "--plain", *place]) == 0
    counts = re.findall(r"inference (\d+) ", capsys.readouterr().out)
    assert counts == ["97", "98", "99", "100", "101", "109"]
    assert run(["export", "trace", "1", "--incident", "2", "--output", str(tmp_path / "t.json"), *place]) == 0
    assert len(re.findall(r'"name": ?"pool"', (tmp_path / "t.json").read_text("utf-8"))) == 5
    assert run(["export", "trace", "1", "--incident", "3", *place]) == 2
    assert "session 1 has no incident 3" in capsys.readouterr().err
    assert run(["stats", "1", "--by", "model", *place]) == 0
    assert "figures are of all inferences" in capsys.readouterr().out
    assert run(["stats", "1", "--skip", "3", *place]) == 2


# Rules about frames, whose stages the program marks

MARKS_COLLECTION = "MARKS-program-20261128T020000000Z"
STAGES = {"preprocess": 900, "infer": 500, "postprocess": 350}
STALLED_FRAME, STALL_US = 240, 9_000


def frame_marks(number: int, period_us: int = 100_000) -> bytes:
    """The spans of a frame with noise of some µs, one frame of which has a stall before its inference."""
    begin_us, found = START_US + number * period_us, b""
    for place, (stage, usual_us) in enumerate(STAGES.items()):
        stalled_us = STALL_US if number == STALLED_FRAME and stage == "preprocess" else 0
        end_us = begin_us + usual_us + number % 7 + stalled_us
        about = f'{{"frame":{number}}}'
        found += mark(Kind.SPAN, stage, begin_us, end_us, about, number=len(STAGES) * number + place)
        begin_us = end_us
    return found


@pytest.mark.parametrize(
    ("rule", "value_us"), [("frame > 1.5 * p99", 1750), ("stage > 1.5 * p99", 900), ("stage[preprocess] > 5ms", 900)]
)
async def test_a_stall_before_the_inference_is_an_incident_that_names_its_stage(
    rule: str, value_us: int, tmp_path: Path
) -> None:
    """It is found once, also by a recorder that is killed in between."""
    data = b"".join(map(frame_marks, range(300)))
    for some in (len(data) // 3, len(data)):
        async with recording(tmp_path, choice(rule)) as found:
            sender = Sender(found, MARKS_COLLECTION)
            await sender.open()
            found.know_job(JobStatus(1, MARKS_COLLECTION, "/spool", "open", caught_up=False, source="marks"))
            await sender.send("00000001", data[:some], complete=False)
            if some == len(data):
                await found.end()
    ((value, culprit, excess),) = await rows(tmp_path, "SELECT value, culprit, excess_us FROM incidents")
    assert value == pytest.approx(value_us + STALL_US, abs=25)
    assert (culprit, excess) == ("preprocess", pytest.approx(STALL_US, abs=10))


# Figures of a thinned session beside those of the same recording, unthinned


@pytest.fixture(scope="module")
def thinned_and_whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Workspaces of the same noisy inferences: one by a flight recorder, one with everything."""
    root = tmp_path_factory.mktemp("captures")
    board = Board(400, np.random.default_rng(7))
    with pytest.MonkeyPatch.context() as patch:
        without_waits(patch)
        asyncio.run(whole_capture(root / "flight", board, choice()))
        asyncio.run(whole_capture(root / "all", board, None))
    return root / "flight", root / "all"


@pytest.mark.parametrize("by", ["layer", "type", "model", "device", "segment"])
async def test_figures_are_of_all_inferences(by: Any, thinned_and_whole: tuple[Path, Path]) -> None:
    flight, everything = thinned_and_whole
    thinned, whole = (
        await stats(flight / "profagent.db", by=by),
        await stats(everything / "profagent.db", by=by, skip=0),
    )
    for one, other in zip(thinned.rows, whole.rows, strict=True):
        assert (one.key, one.figures.number) == (other.key, other.figures.number)
        for name in ("total", "mean"):
            assert getattr(one.figures, name) == pytest.approx(getattr(other.figures, name))
        assert (one.share, one.in_inference) == pytest.approx((other.share, other.in_inference))
        # Where records are missing, single sums have the layer's mean as it was then.
        near = 0.012 if "not in any layer" in one.key else 0.0051
        for name in ("median", "p95", "p99", "max"):
            assert getattr(one.figures, name) == pytest.approx(getattr(other.figures, name), rel=near)
        assert one.figures.median is not None
        if one.figures.mad is not None:
            assert one.figures.mad == pytest.approx(other.figures.mad, abs=0.005 * one.figures.median)
    if by in ("layer", "type"):
        assert sum(row.share or 0.0 for row in thinned.rows) == pytest.approx(100)
    for model, of_whole in zip(thinned.models, whole.models, strict=True):
        assert model.per_second == pytest.approx(of_whole.per_second)
        assert model.lacking == of_whole.lacking
        assert model.layers.mean == pytest.approx(of_whole.layers.mean)


async def test_a_lake_gets_the_histograms_of_all_inferences(thinned_and_whole: tuple[Path, Path]) -> None:
    (thinned, own), (whole, others) = [await aggregates(each / "profagent.db", 1) for each in thinned_and_whole]
    # Without a flight recorder the warm-up is left out, of which this recording has none.
    for one, other in zip(thinned, whole, strict=True):
        assert one[:7] == other[:7]
        assert one.mean == pytest.approx(other.mean)
        assert one.p95 == pytest.approx(other.p95, rel=0.012 if one.layer == "not in any layer" else 0.005)
        assert one.min == other.min
    for key in {each[:6] for each in others}:
        counts = [
            np.array([(each.bucket, each.number) for each in found if each[:6] == key], np.int64)
            for found in (own, others)
        ]
        p90, of_whole = [
            GAMMA ** float(np.repeat(*each[each[:, 0].argsort()].T)[int(0.9 * each[:, 1].sum())]) for each in counts
        ]
        assert counts[0][:, 1].sum() == counts[1][:, 1].sum()
        assert p90 == pytest.approx(of_whole, rel=0.007)


async def test_advice_comes_from_no_kept_inference_alone(thinned_and_whole: tuple[Path, Path]) -> None:
    async def advice(root: Path) -> Advice:
        return await advise(root / "profagent.db", own_rules(), language="en")

    thinned, whole = [await advice(each) for each in thinned_and_whole]
    assert [each.rule for each in thinned.findings] == ["execute-waits"]
    assert [each.rule for each in whole.findings] == ["execute-waits", "cache-misses"]
    assert thinned.findings[0].gain_us == pytest.approx(whole.findings[0].gain_us)
    cannot_tell = {each.rule for each in thinned.undecided if "flight recorder" in each.why}
    assert cannot_tell >= {"npu-contention", "cache-misses"}
    assert "uneven-inferences" in thinned.quiet


async def test_objectives_count_all_inferences(thinned_and_whole: tuple[Path, Path]) -> None:
    async def verdicts(root: Path, *texts: str) -> list[Judged]:
        found = await judgements(root / "profagent.db", [*map(Objective.parse, texts)], skip=0)
        return [case for each in found for case in each.cases]

    flight, everything = thinned_and_whole
    limits = ("latency.p95 < 900us", "latency.p99 < 900us", "latency.mean < 900us", "latency.rate >= 90/s")
    for text in (*limits, "layer[pool].p95 < 300us", "layer[pool].max < 300us"):
        ((one,), (other,)) = await verdicts(flight, text), await verdicts(everything, text)
        assert one.verdict == other.verdict, text
        assert one.value == pytest.approx(other.value, rel=0.005)
        if "rate" not in text:
            assert one.number == other.number == 400
            assert one.exceeded <= other.exceeded <= one.exceeded + one.unsure
    ((slow,), (rate,)) = await verdicts(flight, "latency.p95 < 900us"), await verdicts(flight, "latency.rate >= 90/s")
    assert (slow.exceeded, slow.unsure, slow.share) == (8, 0, 0.02)
    assert (rate.verdict, rate.share) == ("holds", None)
    median = (await stats(flight / "profagent.db", by="model")).rows[0].figures.median or 0.0
    (unsure,) = await verdicts(flight, f"latency.median < {median:.3f}us")
    assert (unsure.verdict, unsure.share) == ("unknown", None)
    assert " to " in unsure.line()


async def test_a_comparison_has_the_figures_and_tells_no_change(
    thinned_and_whole: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    flight, everything = [each / "profagent.db" for each in thinned_and_whole]
    found = await diff(
        Operand("all", everything), Operand("flight", flight), [parse_condition("layer.median>+5%")], skip=0
    )
    (model,) = found.models
    assert model.latency is not None
    for change in (model.latency, model.layers, *model.changes.values()):
        assert (change.p, change.is_significant) == (None, False)
        assert change.new.number == change.base.number
        assert change.new.mean == pytest.approx(change.base.mean)
        assert change.new.p95 == pytest.approx(change.base.p95, rel=0.006)
    assert [each.new.mean for each in model.types] == pytest.approx([each.base.mean for each in model.types])
    assert model.new.lacking() == model.base.lacking()
    assert (model.new.inferences, found.can_tell) == (400, False)
    assert "a flight recorder" in found.outcomes[0].undecided


def test_commands_and_programs_say_which_figures_a_thinned_session_has(
    thinned_and_whole: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flight, _ = thinned_and_whole
    place = ("--workspace", str(flight))
    assert run(["diff", "1", "1", *place, "--fail-if", "latency.p99>+5%"]) == 4
    assert "cannot tell latency.p99>+5%: a flight recorder" in capsys.readouterr().out
    assert run(["diff", "1", "1", *place, "--skip", "3"]) == 2
    kept = "kept 38 of 400 inferences"
    for name, output in (("trace", "t.json"), ("sqlite", "s.db"), ("summary", None)):
        assert run(["export", name, "1", *place, *(("--output", str(tmp_path / output)) if output else ())]) == 0
        assert capsys.readouterr().err.count(kept) == 1
    caveats = profagent.open(flight).session(1).stats(by="model").provenance.caveats
    own = [line for line in caveats if kept in line or "362" in line or "kept ones alone" in line]
    assert len(own) == 3
    assert run(["stats", "1", *place]) == 0
    printed = capsys.readouterr().out
    shown = asyncio.run(gather(Operand("1", flight / "profagent.db", 1), own_rules(), "en"))
    assert all(line in printed and line in shown["caveats"] for line in own)
    (spread,) = shown["spreads"]["inferences"]
    assert (spread["all"], sum(spread["counts"]), spread["count"]) == (400, 400, 38)
    assert run(["stats", "1", "--by", "frame", *place, "--slo", "stage[NPU m].p99 < 1s"]) == 4
    by_frame = capsys.readouterr().out
    assert "in 362 of 400 frames a call has no records" in by_frame
    assert "unknown stage[NPU m].p99 < 1s: a flight recorder thinned inferences" in by_frame
