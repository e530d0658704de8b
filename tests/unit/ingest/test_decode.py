"""A JOB's files become changes, and rows, in whatever order they come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from profagent import ledger
from profagent.formats.board_files import Done
from profagent.formats.counter_maps import simulated_map
from profagent.formats.names import parse_log_name
from profagent.ingest.changes import ApiRecords, Change, Redecoded
from profagent.ingest.decode import JobDecoder
from profagent.ingest.logs import DataLog
from profagent.ingest.mirror import JobMirror
from tests.encoders import aicore_record, api_record
from tests.fakes.dumps import dump, files_of, imported
from tests.fakes.job_copy import JOB, JobCopy
from tests.fakes.small_job import BATCHED, ON_CPU, PLAIN, RELOADED, SMALL_JOB, aicore_done

SAMPLES = Path(__file__).parents[2] / "data" / "jobs"
EARLY = next(SAMPLES.glob("JOB*"))
RELOAD = next((SAMPLES / "runtime-reload").glob("JOB*"))
API = next((SAMPLES / "runtime-api").glob("JOB*"))


def of(*paths: str) -> dict[str, bytes]:
    """Some files of the small JOB, with what belongs to them."""
    return {path: data for path, data in SMALL_JOB.items() if path.startswith((*paths, "info.json"))}


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[JobCopy]:
    with JobCopy(tmp_path / "copy") as copy:
        yield copy


def rows(copy: JobCopy, path: str) -> list[tuple[object, ...]]:
    return copy.query(
        "SELECT load, ordinal, net, sequence, layer_index, i.start_us FROM aicore JOIN segment g USING (segment)"
        " JOIN inference i USING (inference) JOIN log USING (log) WHERE path = ? ORDER BY record",
        path,
    )


@pytest.mark.parametrize("job", [EARLY, RELOAD, API], ids=["early", "reload", "api"])
@pytest.mark.parametrize("remembered", [1, 1024])
def test_sample_jobs_sent_last_file_first_have_the_rows_of_an_import(
    tmp_path: Path, job: Path, remembered: int
) -> None:
    files = files_of(job)
    with JobCopy(tmp_path / "copy", job=job.name, remembered_logs=remembered) as copy:
        for path in reversed(list(files)):
            copy.send(path, files[path])
        for path in files:
            if path + ".done" in files:
                copy.complete(path)
        copy.end()
        assert dump(copy.database) == imported(tmp_path / job.name, files)


def test_data_tables_and_done_may_come_in_any_order(tmp_path: Path) -> None:
    files = of(BATCHED, "data/b.1.")
    expected = imported(tmp_path / JOB, files)
    assert all(row[10] is not None for row in expected["op_records"])
    for number, order in enumerate(permutations(path for path in files if path != "info.json.0")):
        with JobCopy(tmp_path / str(number)) as copy:
            for path in (*order, "info.json.0"):
                copy.send(path, files[path])
            copy.complete(BATCHED)
            copy.end()
            assert dump(copy.database) == expected, order


def test_a_model_loaded_again_appends_to_its_log(copy: JobCopy, tmp_path: Path) -> None:
    data = SMALL_JOB[RELOADED]
    copy.send("info.json.0", SMALL_JOB["info.json.0"])
    copy.feed(RELOADED, data[:768])
    copy.snapshot(RELOADED + ".done", aicore_done(768, 500))
    copy.complete(RELOADED)
    assert [row[5] for row in rows(copy, RELOADED)] == [500] * 3
    copy.feed(RELOADED, data[768:])
    copy.snapshot(RELOADED + ".done", SMALL_JOB[RELOADED + ".done"])
    copy.complete(RELOADED)
    copy.end()
    assert [row[0] for row in rows(copy, RELOADED)] == [0, 0, 0, 1, 1, 1, 1]
    assert dump(copy.database) == imported(tmp_path / JOB, of(RELOADED))


def test_a_file_made_anew_voids_its_rows(copy: JobCopy, tmp_path: Path) -> None:
    files = of(PLAIN, ON_CPU)
    for path in (ON_CPU, ON_CPU + ".done"):
        copy.send(path, SMALL_JOB[path])
    copy.complete(ON_CPU)
    copy.send(PLAIN, SMALL_JOB[RELOADED])
    copy.snapshot(PLAIN + ".done", SMALL_JOB[PLAIN + ".done"])
    copy.recreate(PLAIN, b"")
    assert rows(copy, PLAIN) == []
    assert copy.query("SELECT load, complete, start_us FROM inference") == [(0, 0, None)]
    copy.feed(PLAIN, files[PLAIN][:300])
    assert len(rows(copy, PLAIN)) == 1
    copy.feed(PLAIN, files[PLAIN][300:])
    copy.send("info.json.0", files["info.json.0"])
    copy.complete(PLAIN)
    copy.end()
    assert dump(copy.database) == imported(tmp_path / JOB, files)
    assert copy.held(PLAIN).generation == 2
    assert [file.read_bytes() for file in (copy.folder / "superseded" / "data").iterdir()] == [SMALL_JOB[RELOADED]]


def test_a_done_that_cannot_be_read_any_more_takes_back_what_it_said(copy: JobCopy) -> None:
    copy.send(PLAIN, SMALL_JOB[PLAIN])
    copy.snapshot(PLAIN + ".done", SMALL_JOB[PLAIN + ".done"])
    copy.complete(PLAIN)
    assert copy.query("SELECT start_us IS NULL, complete FROM inference") == [(0, 1)]
    copy.snapshot(PLAIN + ".done", b"file_len:10")
    assert copy.query("SELECT start_us IS NULL, complete FROM inference") == [(1, 0)]
    assert copy.query("SELECT log, reason FROM ledger WHERE reason <> 'no-layer'") == [(PLAIN + ".done", "malformed")]


def test_data_takes_back_that_its_done_had_none(copy: JobCopy) -> None:
    copy.snapshot(PLAIN + ".done", SMALL_JOB[PLAIN + ".done"])
    copy.end()
    assert copy.query("SELECT grade, reason, count FROM ledger WHERE log IS NOT NULL") == [
        ("loss", "done-without-data", 1024)
    ]
    copy.send(PLAIN, SMALL_JOB[PLAIN])
    assert copy.query("SELECT reason FROM ledger WHERE log IS NOT NULL") == [("no-layer",)]


def test_layers_that_come_late_take_back_that_records_had_none(copy: JobCopy) -> None:
    for path in (PLAIN, PLAIN + ".done"):
        copy.send(path, SMALL_JOB[path])
    assert {row[4] for row in rows(copy, PLAIN)} == {None}
    copy.send("data/m.0.layer.info", SMALL_JOB["data/m.0.layer.info"])
    assert [row[4] for row in rows(copy, PLAIN)] == [0, 1, 2, 5]
    assert copy.query("SELECT * FROM ledger") == []


def test_a_table_that_comes_again_unchanged_writes_no_record_again(tmp_path: Path) -> None:
    mirror = JobMirror(tmp_path / "job", incoming=tmp_path / "incoming", superseded=tmp_path / "superseded")
    decoder = JobDecoder(mirror)
    table = SMALL_JOB["data/m.0.layer.info"]

    def taken(path: str, data: bytes, *, snapshot: bool = False) -> list[Change]:
        mirror.begin(path, 1, 0, snapshot=snapshot)
        mirror.append(path, 0, data, snapshot=snapshot)
        if snapshot:
            return list(decoder.snapshot(path, 1, mirror.finish_snapshot(path) or b"", b""))
        return [*decoder.begin(path, 1, 0), *decoder.append(path, 1, 0, data)]

    taken(PLAIN, SMALL_JOB[PLAIN])
    assert any(isinstance(change, Redecoded) for change in taken("data/m.0.layer.info", table, snapshot=True))
    assert not any(isinstance(change, Redecoded) for change in taken("data/m.0.layer.info", table, snapshot=True))
    mirror.close()


@pytest.mark.parametrize("remembered", [1, 1024])
def test_the_mark_of_a_simulated_board_brings_its_counters_whenever_it_comes(tmp_path: Path, remembered: int) -> None:
    with JobCopy(tmp_path, marked_map=simulated_map(), remembered_logs=remembered) as copy:
        copy.send(PLAIN, SMALL_JOB[PLAIN])
        copy.send(RELOADED, SMALL_JOB[RELOADED])
        assert copy.query("SELECT count(*) FROM aicore WHERE mac_busy IS NOT NULL") == [(0,)]
        copy.send("simulated", b"by hand\n")
        assert copy.query("SELECT count(*) FROM aicore WHERE mac_busy IS NULL") == [(0,)]
        assert copy.query("SELECT simulated, counter_map FROM session") == [(1, "simulated")]
        copy.restart()
        copy.send(BATCHED, SMALL_JOB[BATCHED])
        assert copy.query("SELECT count(*) FROM aicore WHERE mac_busy IS NULL") == [(0,)]


def test_a_small_file_of_which_only_the_beginning_was_read_is_malformed(copy: JobCopy) -> None:
    copy.apply(copy.decoder.snapshot("data/m.0.layer.info", 1, b"", b"d", size=5 << 20))
    assert copy.query("SELECT log, reason FROM ledger") == [("data/m.0.layer.info", "malformed")]


# One data log while it grows, in pieces of any size

AICORE = "data/aicore.0.m.3.0.1.1.0"
# Two inferences of two segments each; the first misses its sequence number 1.
RECORDS = [(0, 0, 10), (2, 0, 20), (0, 2, 30), (0, 0, 40), (1, 0, 50), (0, 2, 60)]
DATA = b"".join(aicore_record(sequence, ticks, net) for sequence, net, ticks in RECORDS)


def new_log(path: str = AICORE) -> DataLog:
    name = parse_log_name(path)
    assert name is not None
    return DataLog(path, name)


@pytest.mark.parametrize(
    ("size", "file_len", "record"),
    [
        (1536, 768, 3),
        (1536, 1536, 0),
        (1536, 2048, None),
        (1536, 700, None),
        (1536, 0, None),
        (0, 0, None),
        (1600, 576, 4),
    ],
)
def test_the_announced_length_tells_where_the_last_inference_begins(
    size: int, file_len: int, record: int | None
) -> None:
    log = new_log()
    log.append((DATA * 2)[:size], None, None)
    assert log.announced_load_record() is None
    log.done = Done(file_len, 1, 2)
    assert log.announced_load_record() == record


def test_calls_without_the_magic_number_are_left_out_with_their_places() -> None:
    log = new_log("data/acl_api.0.m.0")
    calls = [api_record(2, 5, 9), api_record(2, 5, 9, magic=1), api_record(2, 0, 9), api_record(3, 5, 9, magic=0)]
    found = [log.append(piece, None, None) for piece in (calls[0], calls[1], calls[2] + calls[3])]
    numbers = [each.number.tolist() for each in found if isinstance(each, ApiRecords)]
    assert numbers == [[0], [], [2]]
    odd = {reason: (entry.count, entry.first, entry.last) for reason, entry in log.facts.odd.items()}
    assert odd == {ledger.BAD_RECORD: (2, 32, 96), ledger.BEGIN_UNKNOWN: (1, 64, 64)}
