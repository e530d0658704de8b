"""The list of a workspace's sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profagent.cli.main import run
from profagent.cli.target import named_target
from profagent.errors import UsageError
from profagent.formats.counter_maps import CounterMaps, simulated_map
from profagent.store.sessions import condition_of, fits, labels_of
from profagent.store.workspace import Workspace, baseline_session, baselines, session_named, set_baseline
from tests.unit.store.database import JOB, START_US, DatabaseBuilder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """One unfinished session, one complete, one with a loss."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.session(source="record", simulated=1)
    builder.session(source="record", ended_us=1_700_000_100_000_000)
    lossy = builder.session(source="watch", ended_us=1_700_000_100_000_000)
    builder.ledger(lossy, "loss", "torn-record", 2)
    builder.kept_loss(lossy, job_name="JOB" + "A" * 29, lost_logs=4, lost_bytes=9)
    builder.insert("session_label", session=lossy, key="build", value="12")
    builder.close()
    return tmp_path


def test_sessions_are_listed_with_their_state(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sessions", "--workspace", str(workspace)]) == 0
    header, *lines, kept = [line for line in capsys.readouterr().out.splitlines() if line.strip("- ")]
    assert header.split()[:2] == ["session", "board"]
    assert ["unfinished" in lines[0], " complete" in lines[1], "INCOMPLETE" in lines[2]] == [True, True, True]
    assert "euler [simulated]" in lines[0]
    assert "2023-11-14 22:13:20" in lines[0]
    assert lines[2].rstrip().endswith("build=12")
    assert kept.startswith("session 3: loss: JOBAAA")
    assert "deleted-undelivered: 4 logs, 9 bytes" in kept


def test_sessions_as_json_have_the_view_s_columns(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sessions", "--workspace", str(workspace), "--json"]) == 0
    sessions = json.loads(capsys.readouterr().out)
    assert [session["session"] for session in sessions] == [1, 2, 3]
    assert [session["losses"] for session in sessions] == [0, 0, 11]
    assert [[loss["lost_logs"] for loss in session["kept_losses"]] for session in sessions] == [[], [], [4]]


@pytest.mark.parametrize(
    "words",
    [["sessions"], ["baseline", "set", "x", "1"], ["gc", "--keep-last", "1"], ["stats", "1"]],
)
def test_a_workspace_that_is_not_there_is_an_error(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--workspace", str(tmp_path / "typo")]) == 2
    told = capsys.readouterr()
    assert told.err.splitlines()[0] == f"profagent: there is no workspace in {tmp_path / 'typo'}"
    assert ("usage" in told.out) is ("--json" in words)
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize(
    ("conditions", "sessions"),
    [
        (["label=build=12"], [3]),
        (["label=build"], [3]),
        (["label=build=13"], []),
        (["source=record"], [1, 2]),
        (["source=watch", "board=euler"], [3]),
        (["source=watch", "board=gauss"], []),
    ],
)
def test_sessions_are_chosen(
    workspace: Path, capsys: pytest.CaptureFixture[str], conditions: list[str], sessions: list[int]
) -> None:
    where = [word for condition in conditions for word in ("--where", condition)]
    assert run(["sessions", "--workspace", str(workspace), "--json", *where]) == 0
    assert [session["session"] for session in json.loads(capsys.readouterr().out)] == sessions
    assert run(["sessions", "--workspace", str(workspace), *where]) == 0
    assert ("no sessions that fit" in capsys.readouterr().out) is (not sessions)


def test_boards_with_one_host_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    other = builder.insert("board", identity="feedbeef-0000", hostname="euler", model="SS928")
    builder.session()
    builder.session(board=other)
    builder.close()
    assert run(["sessions", "--workspace", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "euler 0ddba11" in out
    assert "euler feedbeef" in out


def test_a_board_has_its_own_name_wherever_it_is_shown(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workspace))
    (workspace / "profagent").mkdir()
    boards = workspace / "profagent" / "boards.toml"
    boards.write_text('[boards.line-3]\naddress = "10.0.0.3"\nuuid = "0ddba11"\n')
    at = ["--workspace", str(workspace)]
    for command, said in {
        ("sessions",): "line-3 [simulated]",
        ("sessions", "--where", "board=line-3"): "line-3 [simulated]",
        ("ledger", "3"): "session 3 of line-3\n",
        ("show", "2"): "session 2 of line-3: nothing; no JOB",
    }.items():
        run([*command, *at])
        shown = capsys.readouterr().out
        assert said in shown
        assert "0ddba11" not in shown
    assert run(["sessions", "--json", *at]) == 0
    assert {each["board"] for each in json.loads(capsys.readouterr().out)} == {"0ddba11"}
    boards.write_text("[boards")
    assert run(["ledger", "3", *at]) == 0
    assert capsys.readouterr().out.startswith("session 3 of euler\n")


# Labels, and sessions that are chosen by them

SESSION: dict[str, Any] = {
    "board": "u-1",
    "hostname": "euler",
    "source": "record",
    "sdk_version": "Hi3403V100 V2.0",
    "frequencies_mhz": [700],
    "labels_by_key": {"build": "12", "note": "a=b c"},
}


def test_labels_are_read_and_the_last_of_a_key_holds() -> None:
    assert labels_of(["a=b", "c.D-9_=x=y z", "e=", "a=d"]) == {"a": "d", "c.D-9_": "x=y z", "e": ""}


@pytest.mark.parametrize(
    "text", ["", "a", "=b", "a b=c", "é=c", "k" * 65 + "=v", "k=\x1b[2J", "k=a\nb", "k=" + "v" * 257]
)
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        labels_of(["fine=1", text])
    assert "KEY=VALUE" in error.value.hint


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("label=build", True),
        ("label=build=12", True),
        ("label=build=1", False),
        ("label=build=", False),
        ("label=note=a=b c", True),
        ("label=other", False),
        ("board=u-1", True),
        ("board=euler", True),
        ("board=eul", False),
        ("source=record", True),
        ("source=watch", False),
        ("sdk=Hi3403V100 V2.0", True),
        ("sdk=Hi3403V100", False),
        ("frequency=700", True),
        ("frequency=70", False),
    ],
)
def test_a_condition_is_read_and_holds_or_not(text: str, holds: bool) -> None:
    assert fits(SESSION, [condition_of(text)]) is holds


def test_all_conditions_must_hold() -> None:
    assert fits(SESSION, [])
    assert not fits(SESSION, [condition_of("label=build"), condition_of("source=import")])


@pytest.mark.parametrize("text", ["", "build=12", "label=", "label==x", "board=", "board", "session=1"])
def test_what_is_no_condition_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as error:
        condition_of(text)
    assert "label=KEY=VALUE" in error.value.hint


# The ledger of a session, entry by entry


@pytest.fixture
def with_ledger(tmp_path: Path) -> Path:
    """One session: a log with a torn record, twelve gaps, and a loss that a newer board told."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(ended_us=1_700_000_100_000_000)
    job = builder.job(session)
    values = {"session": session, "job": job, "origin": "content", "count": 1}
    builder.insert(
        "ledger_entry", **values, grade="loss", reason="torn-record", detail="has 100 bytes", first=9, last=99
    )
    for number in range(12):
        builder.insert("ledger_entry", **values, grade="note", reason="sequence-gap", detail=f"gap {number}")
    builder.insert("ledger_entry", session=session, origin="link", grade="loss", reason="moon", detail="full", count=2)
    builder.close()
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], with_ledger: Path, *words: str) -> list[str]:
    assert run(["ledger", "1", "--workspace", str(with_ledger), *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_entry_has_its_place_and_each_reason_its_meaning(
    with_ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = told(capsys, with_ledger)
    start = lines.index("loss: torn-record (1)")
    assert lines[start + 1] == "  The last record of a log is incomplete."
    assert lines[start + 2].startswith("  To do: Copy the JOB again")
    assert lines[start + 3] == f"  - {JOB}: has 100 bytes"
    assert lines[-1] == "  - and 2 more: --all lists them"


def test_a_reason_of_a_newer_board_is_shown_as_it_came(with_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, with_ledger)[:3] == ["session 1 of euler", "loss: moon (2)", "  - the board: full (2)"]


def test_grade_and_all_choose_what_is_listed(with_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(told(capsys, with_ledger, "--grade", "note", "--all")) == 4 + 12
    assert not any(line.startswith("note") for line in told(capsys, with_ledger, "--grade", "loss"))


def test_json_has_the_columns_of_the_view_with_text_and_remedy(
    with_ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = json.loads(told(capsys, with_ledger, "--json", "--grade", "loss")[0])
    assert (first["reason"], first["text"], first["remedy"]) == ("moon", None, None)
    assert (second["job"], second["first"], second["last"]) == (JOB, 9, 99)
    assert second["text"].startswith("The last record")


def test_a_session_that_is_not_there_is_refused(with_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ledger", "7", "--workspace", str(with_ledger)]) == 2
    assert "no session 7" in capsys.readouterr().err


# `profagent baseline`: a session's name, which is a label


@pytest.fixture
def two_sessions(tmp_path: Path) -> Workspace:
    """Two sessions."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.session(source="record", simulated=1)
    builder.session(started_us=START_US + 5)
    builder.close()
    return Workspace(tmp_path)


async def test_a_name_leads_to_its_session_and_may_move(two_sessions: Workspace) -> None:
    assert await baselines(two_sessions) == {}
    await set_baseline(two_sessions, "release-1.2", 1)
    await set_baseline(two_sessions, "nightly", 2)
    assert await baselines(two_sessions) == {"release-1.2": 1, "nightly": 2}
    await set_baseline(two_sessions, "release-1.2", 2)
    assert await baselines(two_sessions) == {"release-1.2": 2}
    assert await baseline_session(two_sessions, "release-1.2") == 2


async def test_it_is_set_while_another_process_writes_to_the_workspace(two_sessions: Workspace) -> None:
    with two_sessions.locked():
        await set_baseline(two_sessions, "nightly", 1)
    assert await baseline_session(two_sessions, "nightly") == 1


@pytest.mark.parametrize(("name", "session"), [("", 1), ("a b", 1), ("x" * 65, 1), ("good", 9)])
async def test_what_cannot_be_is_refused(two_sessions: Workspace, name: str, session: int) -> None:
    with pytest.raises(UsageError):
        await set_baseline(two_sessions, name, session)
    with pytest.raises(UsageError, match="no baseline"):
        await baseline_session(two_sessions, name)


def test_the_command_sets_and_lists(two_sessions: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--workspace", str(two_sessions.root)]
    assert run(["baseline", "list", *at]) == 0
    assert capsys.readouterr().out == f"no baselines in {two_sessions.root}\n"
    assert run(["baseline", "set", "good", "1", *at]) == 0
    assert capsys.readouterr().out == f"baseline good is session 1 of {two_sessions.root}\n"
    assert run(["baseline", "list", *at]) == 0
    heading, _, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["baseline", "session", "board"]
    assert row.split()[:3] == ["good", "1", "euler"]
    assert run(["baseline", "list", "--json", *at]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["name"], document["session"]) == ("good", 1)
    assert run(["sessions", "--where", "label=baseline=good", *at]) == 0
    assert "baseline=good" in capsys.readouterr().out


# A session by a word


@pytest.mark.parametrize(
    ("word", "session"),
    [("1", 1), ("03", 3), ("last", 3), ("-1", 3), ("-2", 2), ("-3", 1), ("build=12", 3), ("baseline=good", 1)],
)
async def test_a_word_names_a_session(workspace: Path, word: str, session: int) -> None:
    await set_baseline(Workspace(workspace), "good", 1)
    assert await session_named(Workspace(workspace), word) == session


async def test_of_several_sessions_with_a_label_the_newest_is_meant(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for value in ("7", "7", "8"):
        builder.insert("session_label", session=builder.session(), key="build", value=value)
    builder.close()
    assert [await session_named(Workspace(tmp_path), word) for word in ("build=7", "build=8")] == [2, 3]


@pytest.mark.parametrize(
    ("word", "said", "hint"),
    [
        ("4", "no session 4", "`profagent sessions`"),
        ("-4", "no session -4", "`profagent sessions`"),
        ("build=13", "no session with the label build=13", "`profagent sessions`"),
        ("newest", "'newest' names neither a session nor a directory", "LABEL=VALUE"),
        ("-0", "'-0' names neither", "LABEL=VALUE"),
        ("a" * 300, "names neither a session nor a directory", "LABEL=VALUE"),
        ("baseline:good", "'baseline:good' names neither", "write baseline=good"),
        ("results/JOB", "the JOB directory results/JOB does not exist", "LABEL=VALUE"),
    ],
)
async def test_a_word_that_names_no_session_is_told_with_what_to_write(
    workspace: Path, word: str, said: str, hint: str
) -> None:
    with pytest.raises(UsageError) as told:
        await named_target(word, None, workspace, CounterMaps())
    assert said in str(told.value)
    assert hint in told.value.hint


async def test_a_counter_map_is_not_for_a_session_that_is_stored(workspace: Path) -> None:
    with pytest.raises(UsageError, match="--counter-map goes with a JOB directory"):
        await named_target("last", None, workspace, CounterMaps(simulated_map()))


# Of each command that takes a session: its words before and behind it.
TAKING = {
    "show": (),
    "stats": (),
    "advise": (),
    "report": ("-o", "x.html"),
    "watch": (),
    "ledger": (),
    "diff last": (),
    "baseline set good": (),
    "redecode": (),
    "kit": ("-o", "x.tar.gz"),
    **{
        f"export {form}": () for form in ("summary", "timeline", "trace", "perfetto", "speedscope", "parquet", "sqlite")
    },
}


@pytest.mark.parametrize("command", TAKING)
def test_every_command_takes_a_session_counted_from_the_newest(
    workspace: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    behind = [*TAKING[command], "--workspace", str(workspace)]
    assert run([*command.split(), "-7", *behind]) == 2
    assert f"{workspace} has no session -7" in capsys.readouterr().err
    assert run([*command.split(), "-7", "--nonsense", *behind]) == 2
    assert "No such option '--nonsense'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "watch", "export summary", "stats"])
@pytest.mark.parametrize("spelling", [["--session", "3"], ["--session=3"]])
def test_the_earlier_spelling_is_told_the_one_that_holds(
    command: str, spelling: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), *spelling]) == 2
    assert capsys.readouterr().err == (
        "profagent: there is no option --session\n  a session stands by itself: profagent " + command + " 3\n"
    )


@pytest.mark.parametrize("words", [[], ["1", "-dir", "JOB"]])
def test_the_vendors_commands_take_a_session_or_a_directory(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", *words]) == 2
    assert "name either a session or a JOB directory" in capsys.readouterr().err
