"""Samples by the names of files, the figures of models, and the notes that follow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profagent.formats.board_files import Done
from profagent.formats.names import parse_log_name
from profagent.formats.sampling import MAY_HAVE_STOPPED, NOT_LISTED
from profagent.ingest.changes import (
    Change,
    ContentLedger,
    InferenceTimed,
    JobChanges,
    LinkLedger,
    LogAdvanced,
    NamesAnnounced,
    PassedOver,
    ProfilingKnown,
)
from profagent.ledger import INTERVAL_MISMATCH, RING_CALLS, SAMPLE_LATE, SAMPLE_NEVER_CAME, Entry
from profagent.limits import MOST_SAMPLING_NOTES
from profagent.store.sampling import most_calls_between, sampling_of
from tests.unit.store.conftest import opened
from tests.unit.store.rows import CALLS, JOB, Rows, aicore, calls, name_of

TOLD = ProfilingKnown(10, "/app/acl.json")


@pytest.fixture
def rows(rows: Rows) -> Rows:
    """A database whose JOB was told whole."""
    rows.list_all()
    return rows


def path(count: int, *, unit: str = "aicore", pictures: int = 1, model: str = "m", end: str = "") -> str:
    return f"data/{unit}.0.{model}.3.0.1.{pictures}.{count}{end}"


def come(rows: Rows, paths: Iterable[str]) -> None:
    """Empty files of these names, a batch each."""
    for each in paths:
        rows.apply(LogAdvanced(each, 1, 0))


def figures(rows: Rows) -> tuple[object, ...]:
    """Interval, where from, sampled, due, late, never came: of the session."""
    found = rows.ask(sampling_of, 1)
    return tuple(found[key] for key in ("interval", "interval_from", "sampled", "due", "late", "never_came"))


def noted(rows: Rows) -> list[tuple[str, str, int]]:
    rows.finish()
    found = rows.query("SELECT reason, detail, count FROM ledger_entry WHERE origin = 'sampling' ORDER BY entry")
    return [(reason, detail, count) for reason, detail, count in found]


def test_all_files_of_an_inference_are_one_sample(rows: Rows) -> None:
    rows.apply(TOLD)
    names = [path(0), path(0, end=".done"), path(0, unit="aicpu"), path(0, unit="aicpu", end=".done"), path(10)]
    come(rows, [*names, "data/m.0.net.info", "data/acl_api.0.m.0", "data/cont.0.m.0.1.1.5"])
    assert figures(rows) == (10, "acl.json", 2, 2, 0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_figures_and_notes_do_not_depend_on_the_order_of_files(rows: Rows, seed: int) -> None:
    counts = [0, 10, 23, 33, 70, 80]
    random.Random(seed).shuffle(counts)
    rows.apply(TOLD)
    come(rows, [path(count) for count in counts])
    assert figures(rows) == (10, "acl.json", 6, 8, 2, 2)
    assert noted(rows) == [
        (SAMPLE_LATE, "m.0: the sample at picture 23 came 3 inferences late", 1),
        (SAMPLE_LATE, "m.0: the sample at picture 70 came 7 inferences late", 1),
        (SAMPLE_NEVER_CAME, "m.0: due at picture 43, 53, never came", 2),
    ]


def test_a_log_that_was_lost_on_the_way_was_sampled_all_the_same(rows: Rows) -> None:
    rows.apply(TOLD)
    come(rows, [path(0), path(20)])
    rows.apply(LinkLedger(path(10), Entry("loss", "removed", "before it was sent")))
    assert figures(rows) == (10, "acl.json", 3, 3, 0, 0)


@pytest.mark.parametrize("job", [JOB, ""])
def test_a_loss_that_names_no_file_makes_what_was_due_unknown(rows: Rows, job: str) -> None:
    rows.apply(TOLD)
    come(rows, [path(0), path(20)])
    rows.write(JobChanges(job, "/board", (LinkLedger(None, Entry("loss", "removed-unseen", "x")),)))
    assert noted(rows) == []
    assert figures(rows) == (10, "acl.json", 2, None, None, None)


def loaded_again(rows: Rows, *samples: tuple[int, tuple[int, ...]]) -> None:
    """A file for each picture count, with an inference that began at each of these times."""
    rows.apply(TOLD)
    for count, begins in samples:
        numbers = tuple(range(len(begins)))
        segments = aicore(path(count), (1,) * len(begins), ordinals=numbers, loads=numbers)
        rows.apply(LogAdvanced(path(count), 1, 256 * len(begins)), segments, *began(count, begins))


def began(count: int, begins: tuple[int, ...]) -> list[Change]:
    """When the inferences of a file began; 0 is not known."""
    name = parse_log_name(path(count))
    assert name is not None
    return [InferenceTimed(name, at, Done(256, us, us + 1, 0, 0)) for at, us in enumerate(begins) if us]


def test_each_load_of_a_model_has_samples_of_its_own_which_the_end_of_the_job_tells_apart(rows: Rows) -> None:
    loaded_again(rows, (0, (100, 200)), (10, (110,)), (12, (212,)), (32, (232,)), (20, (120,)))
    assert figures(rows) == (10, "acl.json", 6, 7, 1, 1)
    assert noted(rows) == [
        (SAMPLE_LATE, "m.0, load 2: the sample at picture 12 came 2 inferences late", 1),
        (SAMPLE_NEVER_CAME, "m.0, load 2: due at picture 22, never came", 1),
    ]
    assert figures(rows) == (10, "acl.json", 6, 7, 1, 1)
    assert rows.query("SELECT sampled, due FROM sampling_by_model") == [(6, 7)]
    assert rows.query("SELECT * FROM sample_gaps") == []
    loaded_again(rows, (42, (242,)))
    assert figures(rows) == (10, "acl.json", 7, 8, 1, 1)


def test_picture_counts_that_do_not_fit_the_acl_json_are_noted(rows: Rows) -> None:
    rows.apply(TOLD)
    come(rows, [path(0), path(4)])
    assert figures(rows) == (10, "acl.json", 2, None, None, None)
    assert noted(rows) == [(INTERVAL_MISMATCH, "m.0: its picture counts do not fit the interval 10 of its acl.json", 1)]


def test_notes_follow_what_comes_later_and_are_written_once(rows: Rows) -> None:
    rows.apply(TOLD)
    come(rows, [path(0), path(20)])
    assert [note[2] for note in noted(rows)] == [1]
    first = rows.query("SELECT entry FROM ledger_entry")
    assert (noted(rows), rows.query("SELECT entry FROM ledger_entry")) == (noted(rows), first)
    come(rows, [path(10)])
    assert noted(rows) == []


def test_very_many_notes_are_told_together(rows: Rows) -> None:
    rows.apply(ProfilingKnown(2, "x"))
    rows.apply(*(LogAdvanced(path(5 * number), 1, 0) for number in range(MOST_SAMPLING_NOTES + 4)))
    notes = noted(rows)
    assert len(notes) == 2 * MOST_SAMPLING_NOTES + 2
    assert notes[-2:] == [
        (SAMPLE_LATE, "m.0: 3 more samples came late", 3),
        (SAMPLE_NEVER_CAME, "m.0: 3 more samples that were due never came", 3),
    ]
    assert sum(note[2] for note in notes if note[0] == SAMPLE_NEVER_CAME) == figures(rows)[5]


def test_what_is_passed_over_on_purpose_was_sampled_and_has_no_rows(rows: Rows) -> None:
    rows.apply(TOLD)
    rows.apply(LogAdvanced(path(0), 1, 512), aicore(path(0)))
    rows.apply(LogAdvanced(path(10), 1, 512), aicore(path(10)))
    rows.apply(PassedOver(path(10)), PassedOver(path(10, end=".done")))
    found = rows.ask(sampling_of, 1)
    assert (found["sampled"], found["due"], found["kept"], found["passed_over"]) == (2, 2, 1, 1)
    assert rows.query("SELECT current_pic_count FROM inferences") == [(0,)]
    assert rows.query("SELECT shown_path FROM log WHERE NOT kept ORDER BY 1") == [(path(10),), (path(10, end=".done"),)]
    rows.finish()
    assert rows.query("SELECT sampled, due, passed_over FROM sessions") == [(2, 2, 1)]


def test_two_models_are_told_apart_and_summed(rows: Rows) -> None:
    rows.apply(TOLD)
    come(rows, [*(path(count) for count in (0, 10, 30)), *(path(count, model="n") for count in (0, 10))])
    assert figures(rows) == (10, "acl.json", 5, 6, 0, 1)
    rows.finish()
    assert rows.query("SELECT model, sampled, due FROM sampling_by_model ORDER BY model") == [("m", 3, 4), ("n", 2, 2)]


# Sessions that follow each other over one JOB


class Capture:
    """Sessions over one JOB of a program that samples at `counts`; each session begins and ends as a record does."""

    def __init__(self, rows: Rows, counts: list[int]) -> None:
        self.rows, self.counts = rows, counts
        self.copied: set[int] = set()

    def record(
        self,
        until: int,
        *,
        copies: Callable[[int], bool],
        keeps: Callable[[int], bool] = bool,
        is_listed: bool = True,
    ) -> None:
        """A session that has copied some of what is there up to sample number `until` when it stops.

        If not all `is_listed`, it has heard of nothing else.
        """
        new = [count for count in self.counts[:until] if count not in self.copied and copies(count)]
        self.copied.update(new)
        announced = self.counts[:until] if is_listed else new
        self.rows.apply(NamesAnnounced([path(count) for count in announced]), state="open")
        if is_listed:
            self.rows.list_all()
        self.rows.apply(*(LogAdvanced(path(each), 1, 0) if keeps(each) else PassedOver(path(each)) for each in new))
        self.rows.run(self.rows.writer.end(9))
        self.rows.session()


def of_sessions(rows: Rows, sessions: int) -> list[tuple[int, int | None]]:
    """Sampled and due of each, which the view `sessions` has as well."""
    found = [rows.ask(sampling_of, session) for session in range(1, sessions + 1)]
    figures = [(each["sampled"], each["due"]) for each in found]
    shown = rows.query("SELECT sampled, due FROM sessions WHERE session <= ? ORDER BY session", sessions)
    assert shown == [(sampled, due if sampled else None) for sampled, due in figures]
    return figures


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_sessions_divide_the_job_wherever_they_stop_and_none_changes_later(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.sampled_from([10, 10, 10, 13, 20, 47]), min_size=1, max_size=20))
    counts = [0, *accumulate(gaps)]
    stops = sorted(data.draw(st.lists(st.integers(1, len(counts)), min_size=1, max_size=5)))
    known: list[tuple[int, int | None]] = []
    with TemporaryDirectory() as folder, opened(Path(folder)) as rows:
        rows.apply(TOLD)
        capture = Capture(rows, counts)
        for number, stop in enumerate([*stops, len(counts)], 1):
            is_last = number > len(stops)
            chosen = set(counts) if is_last else data.draw(st.sets(st.sampled_from(counts)))
            capture.record(
                stop,
                copies=chosen.__contains__,
                keeps=lambda count: count % 20 == 0,
                is_listed=is_last or data.draw(st.booleans()),
            )
            found = of_sessions(rows, number)
            # What was not known, as not all was listed, may be known now.
            assert [
                (now[0], now[1] if was[1] is not None else None) for now, was in zip(found, known, strict=False)
            ] == known
            known = found
    assert sum(sampled for sampled, _ in known) == len(counts)
    assert sum(due or 0 for _, due in known) == 1 + sum(gap // 10 for gap in gaps)


def test_what_came_while_nobody_recorded_belongs_to_who_copied_it(rows: Rows) -> None:
    rows.apply(TOLD)
    capture = Capture(rows, [0, 10, 20, 30, 60, 70])
    capture.record(2, copies=lambda _: True)
    capture.record(6, copies=lambda count: count > 20)
    assert of_sessions(rows, 2) == [(2, 2), (3, 5)]
    capture.record(6, copies=lambda _: True)
    assert of_sessions(rows, 3) == [(2, 2), (3, 5), (1, 1)]
    assert rows.query("SELECT sampled, due, never_came FROM sampling_by_model") == [(6, 8, 2)]
    assert rows.query("SELECT session, reason, count FROM ledger WHERE grade = 'note'") == [(2, SAMPLE_NEVER_CAME, 2)]


def test_a_session_that_had_not_caught_up_knows_what_was_due_once_another_has(rows: Rows) -> None:
    rows.apply(TOLD)
    come(rows, [path(20)])
    rows.write(JobChanges(JOB, "/board", (), "quiet"))
    rows.run(rows.writer.end(9))
    found = rows.ask(sampling_of, 1)
    assert (found["sampled"], found["due"], found["why"]) == (1, None, NOT_LISTED)
    rows.session()
    come(rows, [path(0), path(10)])
    rows.list_all()
    rows.run(rows.writer.end(9))
    assert of_sessions(rows, 2) == [(1, 1), (2, 2)]


# Programs that start and stop recording by themselves


def executed(rows: Rows, counts: Iterable[int]) -> None:
    """Inferences that took 5 µs each, 10 µs apart, and the calls of those that ran while the program recorded."""
    for count in counts:
        log = path(count)
        times = InferenceTimed(name_of(log), 0, Done(256, 10 * count, 10 * count + 5))
        rows.apply(LogAdvanced(log, 1, 256), aicore(log, (1,)), times)


def test_inferences_that_ran_while_the_program_did_not_record_were_not_due(rows: Rows) -> None:
    sampled = [*range(5), *range(20, 25)]
    executed(rows, sampled)
    # Number 5 ran while number 4 was being written, and 19 before the first sample of the second stretch.
    rows.apply(calls(range(12), [10 * count + 6 for count in sorted([*sampled, 5, 19])], CALLS))
    assert figures(rows) == (1, "inferred", 10, 12, 0, 2)
    assert noted(rows) == [(SAMPLE_NEVER_CAME, "m.0: due between pictures 4 and 20, never came", 2)]


def test_without_calls_nobody_knows_whether_the_program_recorded(rows: Rows) -> None:
    executed(rows, [*range(5), *range(20, 25)])
    assert figures(rows) == (1, "inferred", 10, None, None, None)
    assert rows.ask(sampling_of, 1)["why"] == MAY_HAVE_STOPPED


# Where the runtime's ring of calls may have overflowed


@pytest.mark.parametrize(
    ("ends", "flushes", "most"),
    [
        ([], [], 0),
        ([], [5], 0),
        ([1, 2, 3], [], 3),
        ([1, 2, 3], [2], 2),
        ([1, 2, 3, 7, 8, 9, 10], [3, 6], 4),
        ([1, 5, 9], [1, 5, 9], 1),
    ],
)
def test_calls_are_counted_up_to_the_flush_that_wrote_them(ends: list[int], flushes: list[int], most: int) -> None:
    assert most_calls_between(np.array(ends, np.float64), np.array(flushes, np.float64)) == most


def fill(rows: Rows, count: int, *flushes: int) -> None:
    """Calls that end at 0, 1, 2, …, and inferences that end at `flushes`."""
    rows.apply(calls(range(count), range(count)))
    for number, end_us in enumerate(flushes):
        path = f"data/aicore.0.m.3.0.1.1.{number}"
        rows.apply(aicore(path), InferenceTimed(name_of(path), 0, Done(512, 1, end_us)))


def full(rows: Rows) -> list[tuple[object, ...]]:
    rows.finish()
    return rows.query("SELECT session, log, grade, reason, count FROM ledger WHERE reason = 'ring-full'")


@pytest.mark.parametrize(("count", "is_full"), [(RING_CALLS - 1, False), (RING_CALLS, True), (2 * RING_CALLS, True)])
def test_as_many_calls_as_the_ring_holds_are_noted(rows: Rows, count: int, *, is_full: bool) -> None:
    fill(rows, count)
    assert full(rows) == [(1, CALLS, "note", "ring-full", count)] * is_full


def test_a_sampled_inference_flushes_the_ring(rows: Rows) -> None:
    fill(rows, 600, 300)
    assert full(rows) == []


def test_the_note_stays_until_it_is_another(rows: Rows) -> None:
    fill(rows, 600)
    first = full(rows)
    rows.session()
    assert full(rows) == first
    rows.apply(ContentLedger(CALLS, ()))
    assert full(rows) == first


def test_flushes_at_samples_that_were_passed_over_are_not_known(rows: Rows) -> None:
    path = "data/aicore.0.m.3.0.1.1.0"
    fill(rows, 600)
    rows.apply(aicore(path), PassedOver(path))
    assert full(rows) == []
