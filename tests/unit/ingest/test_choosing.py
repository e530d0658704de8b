"""Which inferences are kept by time when their JOB ends before their `.done` comes."""

from __future__ import annotations

from pathlib import Path

from profagent.formats.schedule import ByTime
from tests.fakes.job_copy import JobCopy
from tests.fakes.small_job import ON_CPU, PLAIN, SMALL_JOB, TORN

KEEPING = ByTime(1, 1_000)
TABLE = "data/m.0.layer.info"
_OF_LOG = "SELECT count(*) FROM aicpu JOIN segment USING (segment) JOIN log USING (log) WHERE path = ?"


def test_what_has_no_time_at_the_jobs_end_is_decoded_whole_at_each_end(tmp_path: Path) -> None:
    with JobCopy(tmp_path, keeping=KEEPING) as copy:
        copy.feed(TORN, SMALL_JOB[ON_CPU][:128])
        copy.end()
        copy.feed(TORN, SMALL_JOB[ON_CPU][128:])
        copy.snapshot(TORN + ".done", b"no .done")
        copy.snapshot(TORN + ".done", SMALL_JOB[ON_CPU + ".done"])
        copy.complete(TORN)
        copy.send(TABLE, SMALL_JOB[TABLE])
        copy.end()
        assert copy.query(_OF_LOG, TORN) == [(2,)]
        assert copy.query("SELECT count(*) FROM aicpu WHERE layer_index IS NULL") == [(0,)]


def test_a_done_that_cannot_be_read_is_told_when_its_inference_turns_out_to_be_kept(tmp_path: Path) -> None:
    with JobCopy(tmp_path, keeping=KEEPING) as copy:
        copy.send(ON_CPU, SMALL_JOB[ON_CPU])
        copy.snapshot(ON_CPU + ".done", b"no .done")
        assert copy.query("SELECT reason FROM ledger") == []
        copy.send(PLAIN + ".done", SMALL_JOB[PLAIN + ".done"])
        assert ("malformed",) in copy.query("SELECT reason FROM ledger")
