"""Where the workspace is, who may write in it, and its folders."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from profagent import ledger
from profagent.cli.main import run
from profagent.errors import StoreError, UsageError, WorkspaceBusyError
from profagent.importing.importing import import_into, import_job
from profagent.ingest.changes import ContentLedger, LinkLedger, LogAdvanced
from profagent.ledger import Entry
from profagent.link.coverage import Interval, Standing
from profagent.store.coverage import NOT_ENDED, coverage_of
from profagent.store.summary import all_sessions, session_summary
from profagent.store.workspace import Workspace, default_workspace
from profagent.tables.provenance import coverage_line
from tests.fakes.dumps import write_files
from tests.fakes.job_copy import JOB
from tests.fakes.small_job import SMALL_JOB
from tests.unit.store.rows import AICORE, AICPU, CALLS, Rows, aicore, aicpu, calls
from tests.unit.store.rows import JOB as NAMED_JOB


def test_the_variable_names_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFAGENT_WORKSPACE", "/elsewhere")
    assert default_workspace() == Path("/elsewhere")
    assert Workspace.at(None).database == Path("/elsewhere/profagent.db")
    assert Workspace.at(Path("here")).root == Path("here")


def test_without_it_the_user_s_data_folder_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PROFAGENT_WORKSPACE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_workspace() == Path("/data/profagent")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_workspace() == tmp_path / ".local/share/profagent"


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "new" / "workspace")
    with workspace.locked(), pytest.raises(WorkspaceBusyError, match="another profagent"), workspace.locked():
        pass
    with workspace.locked():
        pass


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot use the workspace"), Workspace(tmp_path / "file").locked():
        pass


@pytest.mark.parametrize("identity", ["../up", "a/b", "", ".", "address 10.0.0.7:50151", "x" * 65, "-rf", "caf\u00e9"])
def test_an_identity_that_is_no_plain_name_stays_inside(identity: str, tmp_path: Path) -> None:
    folder = Workspace(tmp_path).board_mirror(identity)
    assert folder.parent == tmp_path / "mirror"
    assert len(folder.name) == 32


def test_a_workspace_that_is_not_there_is_told_to_whoever_reads_it(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "none")
    with pytest.raises(UsageError, match="no workspace in"):
        workspace.readable_database()
    assert not workspace.root.exists()


def test_what_is_made_is_for_its_owner_alone_and_what_stands_stays(tmp_path: Path) -> None:
    (tmp_path / "standing").mkdir(mode=0o755)
    for root, mode in ((tmp_path / "standing", 0o755), (tmp_path / "above" / "made", 0o700)):
        job = write_files(tmp_path / JOB, SMALL_JOB)
        asyncio.run(import_into(job, Workspace(root), asyncio.Event()))
        assert run(["export", "summary", "1", "--workspace", str(root)]) == 4
        assert (root.stat().st_mode & 0o777, root.parent.stat().st_mode & 0o077) == (mode, 0)
        open_to_others = {path for path in root.rglob("*") if path.stat().st_mode & 0o077}
        assert all("exports" in path.parts and path.is_file() for path in open_to_others), open_to_others
        assert asyncio.run(import_job(job)).database.stat().st_mode & 0o777 == 0o600


# A session in figures


def test_captures_share_a_workspace_and_no_board(tmp_path: Path) -> None:
    first, second = Workspace(tmp_path), Workspace(tmp_path)
    with first.shared(), second.shared():
        with pytest.raises(WorkspaceBusyError, match="the workspace"), first.locked():
            pass
        with (
            first.board_locked("b1"),
            second.board_locked("b2"),
            pytest.raises(WorkspaceBusyError, match="the board b1"),
            second.board_locked("b1"),
        ):
            pass
    with first.locked(), pytest.raises(WorkspaceBusyError), second.shared():
        pass


def test_records_belong_to_the_session_that_fetched_them(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 512), aicore(), aicpu([(1, 2)], (1, 2)), calls([0, 1, 2]))
    rows.apply(LogAdvanced(AICPU, 1, 128), LogAdvanced(CALLS, 1, 96))
    rows.session()
    rows.apply(LogAdvanced(AICORE, 1, 768), aicore(ticks=(1,), first=2))
    first, second = (rows.ask(session_summary, session) for session in (1, 2))
    assert first["records"] == {"aicore": 2, "aicpu": 1, "acl_api": 3}
    assert second["records"] == {"aicore": 1, "aicpu": 0, "acl_api": 0}
    assert (first["jobs"], first["board"], first["simulated"]) == ([NAMED_JOB], "b1", False)
    assert first["bytes"] == 768 + 128 + 96


def test_a_session_is_complete_when_it_has_ended_and_nothing_is_missing(rows: Rows) -> None:
    rows.apply(ContentLedger(AICORE, (Entry("note", "sequence-gap", "x", count=3),)))
    assert rows.ask(session_summary, 1)["incomplete"] == [NOT_ENDED.text]
    rows.run(rows.writer.end(9))
    assert (rows.ask(session_summary, 1)["complete"], rows.ask(session_summary, 1)["incomplete"]) == (True, [])
    rows.apply(LinkLedger(None, Entry("loss", "unreadable", "y", count=7)))
    summary = rows.ask(session_summary, 1)
    assert summary["ledger"] == {"loss": {"unreadable": 7}, "note": {"sequence-gap": 3}}
    assert (summary["complete"], summary["incomplete"]) == (False, ["loss: unreadable (7)"])
    assert rows.query("SELECT complete FROM sessions") == [(0,)]


@pytest.mark.parametrize("reason", sorted(ledger.INCOMPLETE))
def test_a_note_about_the_capture_itself_makes_a_session_incomplete(rows: Rows, reason: str) -> None:
    rows.apply(LinkLedger(None, Entry("note", reason, "what was not there")))
    rows.run(rows.writer.end(9))
    assert rows.ask(session_summary, 1)["incomplete"] == ["what was not there"]
    assert rows.query("SELECT complete FROM sessions") == [(0,)]


S = 1_000_000


def test_what_a_session_covered(rows: Rows) -> None:
    assert rows.ask(coverage_of, 1) is None
    intervals = (
        Interval("", 0, 2 * S, Standing.COVERED),
        Interval("", 2 * S, 5 * S, Standing.COVERED),
        Interval("", 5 * S, 9 * S, Standing.AWAY, "reset"),
        Interval("", 20 * S, 30 * S, Standing.COVERED),  # another run of `record` went on with it
        Interval(NAMED_JOB, 1 * S, 3 * S, Standing.BEHIND),
    )
    rows.run(rows.writer.cover(intervals[:1]))
    # An interval that went on is longer now.
    rows.run(rows.writer.cover([Interval("", 0, 1 * S, Standing.COVERED), *intervals]))
    found = rows.ask(coverage_of, 1)
    assert found is not None
    assert (found["covered_us"], found["total_us"]) == (13 * S, 30 * S)
    assert [(gap["standing"], gap["job"], gap["from_us"], gap["to_us"], gap["detail"]) for gap in found["gaps"]] == [
        ("behind", NAMED_JOB, 1 * S, 3 * S, ""),
        ("away", None, 5 * S, 9 * S, "reset"),
        ("not-run", None, 9 * S, 20 * S, ""),
    ]
    assert coverage_line(found) == (
        f"covered 13.0 of 30.0 s; {NAMED_JOB} behind from 00:00:01 UTC (2.0 s); link lost at 00:00:05 UTC (4.0 s);"
        " no `record` ran from 00:00:09 UTC (11.0 s)"
    )
    assert rows.query("SELECT count(*), sum(duration_us) FROM coverage WHERE job IS NULL") == [(4, 19 * S)]
    # Of many gaps those of the board are named.
    rows.run(rows.writer.cover([Interval(f"JOB{each}", 20 * S, 29 * S, Standing.BEHIND) for each in "ABC"]))
    assert coverage_line(rows.ask(coverage_of, 1)) == (
        "covered 4.0 of 30.0 s; link lost at 00:00:05 UTC (4.0 s); no `record` ran from 00:00:09 UTC (11.0 s);"
        " JOBA behind from 00:00:20 UTC (9.0 s); 3 more gaps"
    )


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
    # The third has no sample that is not the first's.
    assert [(each["jobs"], each["sampled"], each["passed_over"]) for each in (first, second, third)] == [
        (1, 1, 0),
        (2, 1, 0),
        (2, 0, 0),
    ]
    fetched = rows.query("SELECT session, name FROM fetched_jobs JOIN job USING (job) ORDER BY session, name")
    assert fetched == [(1, NAMED_JOB), (2, other), (3, NAMED_JOB)]
    for each in (first, second, third):
        figures = rows.ask(session_summary, each["session"])["sampling"]
        assert (figures["sampled"], figures["due"]) == ((0, None) if each is third else (1, None))
