"""A session in figures."""

from __future__ import annotations

from profagent.ingest.changes import ContentLedger, Entry, LinkLedger, LogAdvanced
from profagent.store.summary import all_sessions, session_summary
from tests.unit.store.rows import AICORE, AICPU, CALLS, JOB, Rows, aicore, aicpu, calls


def test_records_belong_to_the_session_that_fetched_them(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 512), aicore(), aicpu([(1, 2)], (1, 2)), calls([0, 1, 2]))
    rows.apply(LogAdvanced(AICPU, 1, 128), LogAdvanced(CALLS, 1, 96))
    rows.session()
    rows.apply(LogAdvanced(AICORE, 1, 768), aicore(ticks=(1,), first=2))
    first, second = (rows.ask(session_summary, session) for session in (1, 2))
    assert first["records"] == {"aicore": 2, "aicpu": 1, "acl_api": 3}
    assert second["records"] == {"aicore": 1, "aicpu": 0, "acl_api": 0}
    assert (first["jobs"], first["board"], first["simulated"]) == ([JOB], "b1", False)
    assert first["bytes"] == 768 + 128 + 96


def test_only_losses_make_a_session_incomplete(rows: Rows) -> None:
    rows.apply(ContentLedger(AICORE, (Entry("note", "sequence-gap", "x", count=3),)))
    assert rows.ask(session_summary, 1)["complete"] is True
    rows.apply(LinkLedger(None, Entry("loss", "unreadable", "y", count=7)))
    summary = rows.ask(session_summary, 1)
    assert summary["ledger"] == {"loss": {"unreadable": 7}, "note": {"sequence-gap": 3}}
    assert summary["complete"] is False


def test_every_session_is_listed_with_the_columns_of_its_view(rows: Rows) -> None:
    rows.session()
    rows.apply(aicore())
    first, second = rows.ask(all_sessions)
    assert (first["session"], first["inferences"], second["session"], second["inferences"]) == (1, 0, 2, 1)
    assert {"board", "labels", "losses", "notes", "counter_map"} <= set(first)


def test_what_an_earlier_session_fetched_is_in_no_figure_of_a_later_one(rows: Rows) -> None:
    other = "JOB" + "B" * 29
    rows.apply(LogAdvanced(AICORE, 1, 512), aicore())
    rows.session()
    rows.apply(LogAdvanced(AICORE, 1, 512))
    rows.apply(LogAdvanced(AICORE, 1, 512), aicore(), job=other)
    rows.run(rows.writer.end(9))
    rows.session()
    rows.apply(LogAdvanced(AICORE, 1, 768), aicore(ticks=(1,), first=2))
    rows.apply(job=other)
    first, second, third = rows.ask(all_sessions)
    # What two sessions fetched of one JOB the view cannot tell apart.
    assert [(each["jobs"], each["sampled"], each["passed_over"]) for each in (first, second, third)] == [
        (1, None, None),
        (2, 1, 0),
        (2, None, None),
    ]
    fetched = rows.query("SELECT session, name FROM fetched_jobs JOIN job USING (job) ORDER BY session, name")
    assert fetched == [(1, JOB), (2, other), (3, JOB)]
    for each in (first, second, third):
        figures = rows.ask(session_summary, each["session"])["sampling"]
        assert (figures["sampled"], figures["due"]) == (0 if each is third else 1, None)
