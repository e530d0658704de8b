"""Tables on a real terminal and in a pipe: width, colours, and what they import."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from profagent.cli import options
from profagent.cli.main import run
from profagent.cli.progress import BYTES, Progress, progress
from profagent.cli.running import REPEATED_S, LinkRemarks, remarks
from profagent.cli.target import job_target, named_target
from profagent.errors import RefusedError, UnreachableError, UsageError
from profagent.formats.counter_maps import BUILT_IN
from profagent.link.messages import Clocks, Retention
from profagent.tables.table import text_width
from profagentd.simulate.run import SimulationOptions
from tests.board.terminal import at_terminal, without_terminal
from tests.daemon.simulated_job import write_job
from tests.unit.link.board import BOARD

PYTHON = (sys.executable, "-c")
CODE = "import sys; from profagent.cli.main import run; code = run(); {}sys.exit(code)"
SLOWER, FASTER = "model.1.conv+model.1.sigmoid+model.1.mul", "model.2.cv1.conv+model.2.cv1.sigmoid+model.2.cv1.mul"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A JOB's op_summary tables, and the same with a slower and a faster layer."""
    folder = tmp_path_factory.mktemp("tables")
    options = SimulationOptions(model="yolov5s", layers=12, root=folder)
    job = write_job(options.root, options, 10, gaps=False)
    assert run(["export", "summary", "-dir", str(job)]) == 0
    changed = folder / "changed"
    changed.mkdir()
    for file in (job / "summary").glob("op_summary*.csv"):
        heading, *rows = csv.reader(file.read_text().splitlines())
        time, name = heading.index("Time(us)"), heading.index("Layer Name")
        for row in rows:
            factor = {SLOWER: 1.5, FASTER: 0.5}.get(row[name], 1.0)
            row[time] = f"{float(row[time]) * factor:.3f}"
        (changed / file.name).write_text("\n".join(map(",".join, [heading, *rows])) + "\n")
    return job / "summary", changed


def plain(line: str) -> str:
    """It without its colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", line)


def test_a_terminal_gets_what_fits_with_colours_that_mean_something(tables: tuple[Path, Path]) -> None:
    command = (*PYTHON, CODE.format(""), "diff", *map(str, tables))
    with at_terminal(*command, TERM="xterm", COLUMNS="80") as terminal:
        assert terminal.ended() == 0
    lines = terminal.seen.splitlines()
    slower, faster = (next(line for line in lines if word in line and "…" in line) for word in ("slower", "faster"))
    assert slower.startswith("\x1b[31m")
    assert faster.startswith("\x1b[32m")
    assert re.match(r"model\.1\.\S*…\S*\.1\.mul  slower ", plain(slower))
    assert text_width(plain(slower)) <= 80
    assert any("change(%)" in line for line in lines)


def test_wide_shows_all_and_no_color_no_colours(
    tables: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name, value in {"COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    assert run(["diff", *map(str, tables), "--wide"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "…" not in shown
    assert SLOWER in shown


def test_a_pipe_gets_whole_plain_text_and_needs_no_rich(
    tables: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    command = (*PYTHON, CODE.format("print('rich' in sys.modules, file=sys.stderr); "), "diff", *map(str, tables))
    ended = without_terminal(*command, TERM="xterm", COLUMNS="80")
    assert ended.stderr == "False\n"
    [slower] = [line for line in ended.stdout.splitlines() if line.startswith(SLOWER)]
    assert slower.split()[1] == "slower"
    assert "\x1b" not in ended.stdout
    assert run(["diff", *map(str, tables), "--wide"]) == 0
    assert capsys.readouterr().out == ended.stdout


# What is said of a board when a link to it opens

NOW_US = BOARD.clocks.wall_us
HOUR_US = 3_600_000_000
DELIVERED = Retention("delivered", ("nightly",))


def test_an_open_board_is_warned_of() -> None:
    [told] = remarks(replace(BOARD, insecure=True), "operator", NOW_US)
    assert "board is open (--insecure)" in told


@pytest.mark.parametrize(
    ("role", "retention", "is_told"),
    [
        ("viewer", DELIVERED, True),
        ("viewer", Retention("min-free"), True),
        ("viewer", Retention("keep"), False),
        ("viewer", None, False),
        ("operator", DELIVERED, False),
        ("unknown", DELIVERED, False),
    ],
)
def test_a_viewer_learns_that_its_copies_release_nothing(role: str, retention: Retention | None, is_told: bool) -> None:
    told = list(remarks(replace(BOARD, retention=retention), role, NOW_US))
    assert bool(told) is is_told
    assert all("--role operator" in each for each in told)


@pytest.mark.parametrize(
    ("wall_us", "shown"),
    [(0, "1970-01-01"), (NOW_US + 25 * HOUR_US, "2023-11-15"), (NOW_US - 25 * HOUR_US, "2023-11-13"), (2**63, "N/A")],
)
def test_a_clock_that_is_far_off_is_named_with_its_day(wall_us: int, shown: str) -> None:
    [told] = remarks(replace(BOARD, clocks=Clocks(wall_us, 0)), "operator", NOW_US)
    assert f"shows {shown}, this host's 2023-11-14" in told
    assert "date -s" in told


def test_who_waits_with_a_refused_credential_is_told_what_to_do() -> None:
    links = LinkRemarks(lambda: 0.0)
    assert links.gone(RefusedError("revoked", hint="issue another"), 40.0) == "revoked; retrying in 40 s; issue another"
    assert links.gone(UnreachableError("gone", hint="check it"), 0.0) == "gone; retrying in 1 s"


def test_the_same_is_said_again_when_some_time_has_passed_or_the_link_was_there() -> None:
    now_s = 0.0
    links = LinkRemarks(lambda: now_s)
    refused, closed = (UnreachableError(why, hint="") for why in ("refused", "closed"))
    assert [links.gone(error, 1.0) is not None for error in (closed, refused, refused)] == [True, True, False]
    now_s = REPEATED_S
    assert [links.gone(refused, 20.0), links.gone(refused, 1.0)] == ["refused; retrying in 20 s", None]
    links.linked()
    assert links.gone(refused, 1.0) == "refused; retrying in 1 s"


# How far long work is: lines now and then in a pipe, a bar on a terminal, nothing for programs


class Clock:
    """A clock that stands until it is moved."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_elsewhere_a_line_every_ten_seconds_with_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    shown = Progress("import", "files", now_s=clock)
    for second in range(25):
        clock.now_s = 100.0 + second
        shown(20 * second, 1000)
    shown.end()
    assert capsys.readouterr() == (
        "",
        "import: 200 of 1,000 files, 20/s, 40 s left\nimport: 400 of 1,000 files, 20/s, 30 s left\n",
    )


def test_bytes_are_megabytes(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    shown = Progress("upload", BYTES, now_s=clock)
    shown(0, 50e6)
    clock.now_s += 10
    shown(5e6, 50e6)
    assert capsys.readouterr().err == "upload: 5.0 of 50.0 MB, 0.5 MB/s, 90 s left\n"


@click.command()
@options.as_json
@options.quiet
def work(*, as_json: bool) -> None:
    with progress("work", "steps") as shown:
        click.echo(shown.is_shown)


@pytest.mark.parametrize(("arguments", "is_shown"), [([], True), (["--json"], False), (["--quiet"], False)])
def test_nothing_is_shown_with_json_or_quiet(arguments: list[str], is_shown: bool) -> None:
    assert CliRunner().invoke(work, arguments).output == f"{is_shown}\n"


def test_nothing_is_shown_where_no_command_runs() -> None:
    with progress("work", "steps") as shown:
        assert not shown.is_shown


AT_WORK = """
import time, click
from profagent.cli import options
from profagent.cli.progress import progress
from profagent.cli.running import tell

@click.command()
@options.quiet
def work():
    with progress("redecode", "records") as shown:
        for done in range(6):
            shown(1000 * done, 5000)
            if done == 3:
                tell("a remark")
            time.sleep(0.1)
    click.echo("the answer")

work()
"""


def test_a_terminal_has_a_bar_that_goes_and_leaves_what_was_said() -> None:
    with at_terminal(sys.executable, "-c", AT_WORK, TERM="xterm", COLUMNS="100") as terminal:
        assert terminal.ended() == 0
    assert re.search(r"redecode .*━.* of 5,000 records, [\d,.]+/s .*\d\d:\d\d", terminal.seen)
    assert re.search(r"(\r|\x1b\[2K|\n)a remark *\n", terminal.seen)
    assert terminal.seen.endswith("the answer\n")
    assert "\x1b[?25h" in terminal.seen  # the cursor is back


def test_a_terminal_that_cannot_go_back_has_no_bar() -> None:
    with at_terminal(sys.executable, "-c", AT_WORK, TERM="dumb") as terminal:
        assert terminal.ended() == 0
    assert terminal.seen == "a remark\nthe answer\n"


# What a verb is about: a JOB directory or a session, and which of its inferences


@pytest.mark.parametrize(
    ("job", "workspace", "said"),
    [("JOBA", None, "--job goes with a session"), (None, Path("w"), "--workspace goes with a session")],
)
async def test_a_job_directory_named_by_a_word_is_told_of_no_option_that_nobody_typed(
    job: str | None, workspace: Path | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        await named_target(str(tmp_path), job, workspace, BUILT_IN)
    assert str(error.value) == said
    with pytest.raises(UsageError, match=said):
        await job_target(tmp_path, job, workspace, BUILT_IN)
    assert error.value.hint == f"leave it out: {tmp_path} is a JOB directory"
