"""`profagent gc`: what goes, what stays, and that the disk has the room."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.cli.main import run
from profagent.cli.options import age_us, size_bytes
from profagent.errors import UsageError
from profagent.nightly.cli import cleared_after_night
from profagent.nightly.night import Nightly, NightlyRetention
from profagent.sessions import clearing
from profagent.sessions.clearing import Chosen, Rules, choose
from profagent.store.sessions import HeldSession
from profagent.store.workspace import Workspace, set_baseline
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.fakes.dumps import check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


INFERENCES = 40
HOUR_US = 3_600_000_000
BYS = ("layer", "type", "model", "segment", "aicpu", "api")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sessions of a simulated JOB each, the second with a loss, in `ws`; the JOBs are in `board`."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "board").mkdir()
    for number in range(3):
        options = SimulationOptions(model="yolov5s", layers=20, seed=number, root=folder / "board")
        job = write_job(options.root, options, INFERENCES, gaps=False)
        if number == 1:
            with next((job / "data").glob("aicore.*.3")).open("ab") as file:
                file.write(b"torn")
        assert run(["import", "-dir", str(job), "--workspace", str(folder / "ws")]) in (0, 4)
    return folder


@pytest.fixture
def workspace(recorded: Path, tmp_path: Path) -> Path:
    shutil.copytree(recorded, tmp_path / "copy")
    return tmp_path / "copy" / "ws"


def gc(workspace: Path, *arguments: str) -> int:
    return run(["gc", "--workspace", str(workspace), *arguments])


def stats(workspace: Path, session: int, by: str, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert run(["stats", str(session), "--workspace", str(workspace), "--by", by, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def count(workspace: Path, sql: str) -> int:
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {sql}").fetchone()[0])


def test_figures_ledger_and_layers_stay_and_the_rest_goes(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {by: stats(workspace, 2, by, capsys) for by in BYS}
    losses = count(workspace, "ledger WHERE session = 2")
    layers = count(workspace, "layer")
    mirrors = list((workspace / "mirror" / "import").iterdir())
    collected = workspace / "nightly" / "jobs"
    for each in mirrors:
        (collected / each.name / "data").mkdir(parents=True)
    for session in (1, 2, 3):
        (workspace / "exports" / f"session-{session}").mkdir(parents=True)
    assert gc(workspace, "--keep-last", "1") == 0
    assert "deleted the records of 2 sessions: 1, 2" in capsys.readouterr().out
    for by in BYS:
        after = stats(workspace, 2, by, capsys)
        assert after["rows"] == before[by]["rows"]
        assert {name: after[name] for name in ("unit", "left_out", "models")} == {
            name: before[by][name] for name in ("unit", "left_out", "models")
        }
    assert count(workspace, "ledger WHERE session = 2") == losses > 0
    assert count(workspace, "layer") == layers
    assert count(workspace, f"sessions WHERE inferences = {INFERENCES} AND (session = 3) = (cleared_us IS NULL)") == 3
    assert len(mirrors) == 3
    (mirror,) = (workspace / "mirror" / "import").iterdir()
    assert [job.name for job in collected.iterdir()] == [mirror.name]
    assert [each.name for each in (workspace / "exports").iterdir()] == ["session-3"]
    assert count(workspace, "part JOIN log USING (log) JOIN session_job USING (job) WHERE session_job.session < 3") == 0
    assert count(workspace, "inference WHERE session < 3") == 0
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        check(connection)


def test_a_dry_run_lets_everything_stay(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file() and "db-" not in path.name}
    assert gc(workspace, "--keep-last", "1", "--dry-run") == 0
    assert "would delete the records of 2 sessions: 1, 2" in capsys.readouterr().out
    after = {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file() and "db-" not in path.name}
    assert after == before


def test_what_stays_is_said(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["baseline", "set", "good", "1", "--workspace", str(workspace)]) == 0
    assert gc(workspace, "--where", "source=import") == 0
    said = capsys.readouterr().out
    assert "deleted the records of 2 sessions: 2, 3" in said
    assert "session 1 stays: it is the baseline good" in said


def test_what_needs_records_says_that_they_are_gone(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gc(workspace, "--keep-last", "0") == 0
    for command in (["show"], ["export", "summary"], ["export", "timeline"]):
        assert run([*command, "1", "--workspace", str(workspace)]) == 2
        assert "session 1 has only its figures" in capsys.readouterr().err
    assert run(["redecode", "1", "--workspace", str(workspace)]) == 2
    assert "session 1 has only its figures" in capsys.readouterr().err
    assert run(["stats", "1", "--workspace", str(workspace), "--skip", "3"]) == 2
    assert run(["sessions", "--workspace", str(workspace)]) == 0
    assert capsys.readouterr().out.count("figures only") == 3
    assert gc(workspace, "--keep-last", "0") == 0


def test_what_ends_in_the_middle_is_whole_before_or_after(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A session has its records or its figures; files that are left over go the next time."""
    records = count(workspace, "aicore")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(clearing, "clear_sessions", killed)
        assert gc(workspace, "--keep-last", "0") == 130
    assert count(workspace, "aicore") == records
    assert count(workspace, "figure") == 0
    with monkeypatch.context() as patched:
        patched.setattr(clearing, "_remove_files", killed)
        assert gc(workspace, "--keep-last", "2") == 130
    assert count(workspace, "cleared_session") == 1
    assert len(list((workspace / "mirror" / "import").iterdir())) == 3
    assert gc(workspace, "--keep-last", "2") == 0
    assert len(list((workspace / "mirror" / "import").iterdir())) == 2


def test_without_a_rule_nothing_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gc(tmp_path) == 2
    assert "name the sessions that may be deleted" in capsys.readouterr().err
    assert gc(tmp_path, "--keep-last", "1") == 2
    assert "no workspace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        *((age_us, text, hours * HOUR_US) for text, hours in (("36h", 36), ("2d", 48), ("1w", 168))),
        *((size_bytes, text, size) for text, size in (("500", 500), ("1k", 1024), ("1.5G", 3 << 29), ("2TB", 2 << 40))),
    ],
)
def test_ages_and_sizes(read: Callable[[str], int], text: str, value: int) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((age_us, each) for each in ("", "3", "d", "-1d", "1y")),
        *((size_bytes, each) for each in ("", "G", "-1", "1X")),
    ],
)
def test_what_is_none(read: Callable[[str], int], text: str) -> None:
    with pytest.raises(UsageError):
        read(text)


def test_a_night_lets_go_of_neither_baselines_nor_what_the_next_is_compared_with(workspace: Path) -> None:
    def cleared(condition: str) -> list[str]:
        settings = Nightly([], retention=NightlyRetention(where=[condition]))
        return cleared_after_night(Workspace(workspace), settings, Rules(), {2: "of the next night"})

    assert cleared("source=record") == []
    asyncio.run(set_baseline(Workspace(workspace), "release", 1))
    assert cleared("source=import") == ["deleted the records of 1 session: 3"]


# Which sessions lose their records


def session(number: int, *jobs: int, board: str = "b", size: int = 10, is_over: bool = True) -> HeldSession:
    return HeldSession(number, board, number * 100, is_over, frozenset(jobs or (number,)), size)


def chosen(
    held: list[HeldSession], rules: Rules, *, staying: dict[int, str] | None = None, on_disk: int = 100
) -> Chosen:
    asked = {each.session for each in held}
    return choose(held, rules, asked=asked, staying=staying or {}, held_bytes=on_disk)


def numbers(choice: Chosen) -> list[int]:
    return sorted(each.session for group in choice.groups for each in group)


def test_the_last_of_each_board_stay() -> None:
    held = [session(1), session(2, board="c"), session(3), session(4), session(5, board="c")]
    assert numbers(chosen(held, Rules(keep_last=1))) == [1, 2, 3]
    assert numbers(chosen(held, Rules(keep_last=9))) == []
    assert numbers(chosen(held, Rules(keep_last=0))) == [1, 2, 3, 4, 5]


def test_the_oldest_go_until_the_rest_fits() -> None:
    held = [session(number, size=25) for number in range(1, 5)]
    choice = chosen(held, Rules(most_bytes=60))
    assert numbers(choice) == [1, 2]
    assert choice.freed_bytes == 50
    assert numbers(chosen(held, Rules(most_bytes=100))) == []


def test_a_baseline_and_a_session_that_goes_on_stay() -> None:
    choice = chosen(
        [session(1), session(2), session(3, is_over=False)], Rules(before_us=900), staying={1: "the baseline good"}
    )
    assert numbers(choice) == [2]
    assert choice.staying == {1: "is the baseline good", 3: "has not ended"}


def test_sessions_that_share_a_job_go_together_or_stay() -> None:
    held = [session(1, 7), session(2, 7, 8), session(3, 8), session(4)]
    assert numbers(chosen(held, Rules(before_us=250))) == []
    assert chosen(held, Rules(before_us=250)).staying == {
        1: "shares a JOB with session 3, which stays",
        2: "shares a JOB with session 3, which stays",
    }
    choice = chosen(held, Rules(before_us=301))
    assert [[each.session for each in group] for group in choice.groups] == [[1, 2, 3]]


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 6), max_size=3), st.sampled_from("bc"), st.booleans()), max_size=9),
    st.integers(0, 900),
    st.integers(0, 3),
    st.integers(0, 120),
    st.sets(st.integers(0, 8)),
)
def test_what_must_stay_stays(
    drawn: list[tuple[set[int], str, bool]], before_us: int, keep_last: int, most: int, baselines: set[int]
) -> None:
    """Whatever the rules are: no baseline, no unfinished session, none whose JOBs another needs."""
    held = [
        session(number, *(jobs or {100 + number}), board=board, is_over=over)
        for number, (jobs, board, over) in enumerate(drawn)
    ]
    names = {number: f"n{number}" for number in baselines}
    going = numbers(chosen(held, Rules(before_us, keep_last, most), staying=names))
    kept = [each for each in held if each.session not in going]
    for each in (held[number] for number in going):
        assert each.is_over
        assert each.session not in baselines
        assert each.started_us < before_us
        assert not any(each.jobs & other.jobs for other in kept)
    for board in "bc":
        newest = [each.session for each in held if each.board == board][-keep_last:] if keep_last else []
        assert not {*newest} & {*going}
