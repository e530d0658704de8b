"""Tables on a real terminal and in a pipe: width, colours, and what they import."""

from __future__ import annotations

import csv
import re
import sys
from typing import TYPE_CHECKING

import pytest

from profagent.cli.main import run
from profagent.cli.table import text_width
from profagentd.simulate.run import SimulationOptions
from tests.board.terminal import at_terminal, without_terminal
from tests.daemon.simulated_job import write_job

if TYPE_CHECKING:
    from pathlib import Path

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
