"""Long work shows how far it is, on standard error alone; with --json or --quiet it does not."""

from __future__ import annotations

import asyncio
import re
import shutil
from importlib.resources import files
from typing import TYPE_CHECKING

import click
import pytest

from profagent.cli import progress
from profagent.cli.main import group
from profagent.cli.progress import JobsProgress
from profagent.record import record
from profagent.record.options import RecordOptions
from profagent.record.record import record as record_boards
from profagent.store.workspace import Workspace
from tests.integration.board import running, simulated
from tests.integration.host import profagent

if TYPE_CHECKING:
    from pathlib import Path

LONG = ["import", "export timeline", "export summary", "export trace", "record", "collect", "bundle", "calibrate"]
LONG += ["redecode", "gc", "deploy"]
MAP = str(files("profagent.formats") / "maps" / "simulated.toml")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A JOB; each step of work is told."""
    monkeypatch.setattr(progress, "LINE_EACH_S", 0.0)
    return simulated(tmp_path / "root", 30, model="yolov5s", layers=6, seed=3)


@pytest.mark.parametrize("words", LONG)
def test_long_work_can_be_quiet(words: str) -> None:
    verb, *others = words.split()
    command = group.get_command(click.Context(group), verb)
    for word in others:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    assert "--quiet" in [name for option in command.params for name in option.opts]


def test_work_on_a_job_is_told(job: Path, tmp_path: Path) -> None:
    """All of it in one walk, first as it is, then quiet."""
    workspace, table = tmp_path / "ws", tmp_path / "op_summary.csv"
    commands = [
        (("import", "-dir", job), "import: "),
        (("import", "-dir", job, "--workspace", workspace), "import: "),
        (("export", "timeline", "-dir", job), "export: 30 of 30 inferences"),
        (("export", "summary", "-dir", job), "export: 30 of 30 tables"),
        (("calibrate", job, "--vendor-summary", table), "fit: "),
        (("redecode", "1", "--workspace", workspace, "--counter-map", MAP), "redecode: "),
        (("gc", "--keep-last", "0", "--workspace", workspace), "gc: 0 of 1 sessions"),
    ]
    for command, told in commands:
        loud = profagent(*command)
        assert told in loud.err, loud.err
        assert told not in loud.out
        if command[:2] == ("export", "summary"):
            shutil.copy(next((job / "summary").glob("op_summary*.csv")), table)
    for command, told in commands[:4]:
        for way in ("--quiet", "--json"):
            assert told not in profagent(*command, way).err


def test_a_backlog_is_told_while_it_is_copied(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The capture goes on until it was."""
    monkeypatch.setattr(record, "MEASURE_S", 0.01)
    stop, know = asyncio.Event(), JobsProgress.know

    def known(backlog: JobsProgress, address: str, name: str, copied: int, held: int) -> None:
        know(backlog, address, name, copied, held)
        if copied == held and name == job.name:
            stop.set()

    monkeypatch.setattr(JobsProgress, "know", known)
    with running("--root", job.parent) as board, click.Context(click.Command("record")).scope():
        options = RecordOptions((board.address,), Workspace(tmp_path / "ws"), backlog=True)
        summary = asyncio.run(record_boards(options, lambda _: None, stop))
    assert job.name in summary["jobs"]
    *_, last = (line for line in capsys.readouterr().err.splitlines() if line.startswith("record: "))
    done, total = re.findall(r"([\d.]+) of ([\d.]+) MB", last)[0]
    assert done == total != "0.0"


def test_what_boards_held_is_added_up(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EACH_S", 0.0)
    backlog = JobsProgress(progress.Progress("record", progress.BYTES, now_s=lambda: 0.0))
    backlog.know("a", "JOB1", 1_000_000, 4_000_000)
    backlog.know("b", "JOB1", 9_000_000, 6_000_000)
    assert capsys.readouterr().err == "record: 1.0 of 4.0 MB\nrecord: 7.0 of 10.0 MB\n"
