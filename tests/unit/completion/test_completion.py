"""Words that shells complete: each kind by itself, then in the real shells."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import ShellComplete

from profagent.cli.completing import Bash
from profagent.cli.main import COMPLETE_VARIABLE, VERBS, group, run
from profagentd.simulate.run import SimulationOptions
from tests.board.terminal import at_terminal
from tests.daemon.simulated_job import write_job
from tests.integration.host import ENVIRONMENT

if TYPE_CHECKING:
    from pathlib import Path

# In place of the command: a shell that asks for words is answered, whatever else was typed is printed.
PROGRAM = f"""#!/bin/sh
if [ -n "${COMPLETE_VARIABLE}" ]; then
    exec {sys.executable} -c 'from profagent.cli.main import main; main()'
fi
echo "ran: $*"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's home with a workspace, two boards, and the program in `bin`."""
    home = tmp_path_factory.mktemp("home")
    (home / "board").mkdir()
    options = SimulationOptions(model="yolov5s", layers=4, root=home / "board")
    job = write_job(options.root, options, 2, gaps=False)
    workspace = str(home / ".local" / "share" / "profagent")
    assert run(["import", "-dir", str(job), "--workspace", workspace]) == 0
    assert run(["baseline", "set", "release-1.2", "1", "--workspace", workspace]) == 0
    boards = home / ".config" / "profagent" / "boards.toml"
    boards.parent.mkdir(parents=True)
    boards.write_text('[boards.euler]\naddress = "192.168.1.20"\n[boards.lab-3]\naddress = "192.168.1.23"\n')
    program = home / "bin" / "profagent"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return home


@pytest.fixture
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ZDOTDIR", "PROFAGENT_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    return home


def words(*before: str, word: str = "") -> list[str]:
    """What a shell is offered."""
    completing = ShellComplete(group, {}, "profagent", COMPLETE_VARIABLE)
    return [item.value for item in completing.get_completions([*before], word) if item.type == "plain"]


@pytest.mark.parametrize(
    ("before", "word", "offered"),
    [
        ([], "st", ["stats"]),
        (["baseline"], "", ["list", "set"]),
        (["stats"], "--sk", ["--skip"]),
        (["stats", "--by"], "ai", ["aicpu"]),
        (["stats", "1", "--by", "api", "--sort"], "m", ["mean", "median", "mad", "max"]),
        (["record", "--board"], "", ["euler", "lab-3"]),
        (["watch", "--board"], "e", ["euler"]),
        (["deploy"], "lab", ["lab-3"]),
        (["boards", "remove"], "e", ["euler"]),
        (["stats"], "", ["1", "last", "baseline=release-1.2"]),
        (["watch"], "l", ["last"]),
        (["export", "trace", "1"], "1", ["1"]),
        (["diff", "1"], "base", ["baseline=release-1.2"]),
        (["baseline", "set"], "rel", ["release-1.2"]),
        (["trend", "--model"], "", ["yolov5s"]),
        (["trend", "--model", "another", "--layer"], "", []),
        (["sessions", "--where"], "label", ["label=baseline=release-1.2"]),
        (["stats", "1", "--workspace", "/nowhere", "--job"], "", []),
        (["stats", "--workspace", "/nowhere"], "", []),
        (["nonsense"], "x", []),
    ],
)
def test_words_of_each_kind(at_home: Path, before: list[str], word: str, offered: list[str]) -> None:
    assert words(*before, word=word) == offered


def test_layers_and_jobs_are_those_of_the_model_and_session(at_home: Path) -> None:
    layers = words("trend", "--model", "yolov5s", "--layer")
    assert len(layers) == 4
    [job] = words("show", "1", "--job")
    assert job.startswith("JOB")
    for named in ("last", "-1", "baseline=release-1.2"):
        assert words("stats", named, "--job") == [job]
    for named in ("2", "-2", "build=7"):
        assert words("show", named, "--job") == []


def test_verbs_come_in_their_order_without_being_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.cli.main.import_module", None)
    assert words() == list(VERBS)


def test_files_that_cannot_be_read_give_nothing(at_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profagent").mkdir()
    (tmp_path / "profagent" / "boards.toml").write_text("[boards")
    (tmp_path / "profagent.db").write_bytes(b"no database")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert words("record", "--board") == []
    assert words("stats", "--workspace", str(tmp_path)) == []


@pytest.mark.parametrize(
    ("typed", "at", "reply"),
    [
        ("profagent diff baseline", 2, "plain,baseline=release-1.2"),
        ("profagent diff baseline =", 3, "plain,release-1.2"),
        ("profagent diff baseline = rel", 4, "plain,release-1.2"),
        ("profagent sessions --where = label = base", 6, "plain,baseline=release-1.2"),
    ],
)
def test_bash_parts_words_at_equals_signs(
    at_home: Path, typed: str, at: int, reply: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(at))
    assert Bash(group, {}, "profagent", COMPLETE_VARIABLE).complete().splitlines()[-1] == reply


def environment(home: Path) -> dict[str, str]:
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    return {**ENVIRONMENT, "HOME": str(home), "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def installed(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Install a shell's completion, twice; what it says is left to do."""
    assert run(["completion", "install", "--shell", shell]) == 0
    wrote, todo = capsys.readouterr().out.splitlines()
    assert wrote.startswith("wrote /")
    assert run(["completion", "install", "--shell", shell]) == 0
    again, todo_again = capsys.readouterr().out.splitlines()
    assert again == f"{wrote.removeprefix('wrote ')} is up to date already"
    assert todo == todo_again
    return todo.removeprefix("next: ")


# What is typed with a TAB in it, and what the command is given then.
TYPED = {"profagent sta\t1": "ran: stats 1", "profagent diff baseline=\t1": "ran: diff baseline=release-1.2 1"}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab_completes_in_a_shell(shell: str, at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    todo = installed(shell, capsys)
    command = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    with at_terminal(*command, **environment(at_home)) as terminal:
        terminal.type(f"{todo.rpartition(': ')[2]}; echo re''ady")
        terminal.until("ready")
        for typed, given in TYPED.items():
            terminal.type(typed)
            terminal.until(given)
        terminal.type("exit")


def test_fish_completes(at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    installed("fish", capsys)
    asked = ["sta", "record --board eu"]
    script = "; ".join(f"complete -C 'profagent {each}'" for each in asked)
    ended = subprocess.run(
        ["fish", "--command", script], env=environment(at_home), capture_output=True, text=True, timeout=60, check=True
    )
    verb, board = (line.split("\t") for line in ended.stdout.splitlines())
    assert verb == ["stats", "Show what takes the time: layers, types, models, API calls."]
    assert board == ["euler", "192.168.1.20"]


def test_the_shell_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert run(["completion", "show"]) == 0
    assert "complete --no-files --command profagent" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert run(["completion", "install"]) == 2
    assert "--shell" in capsys.readouterr().err


@pytest.mark.parametrize(("shell", "ours"), [("fish", "split --max 1"), ("zsh", "$funcstack[1] == _profagent")])
def test_what_is_replaced_in_clicks_scripts_is_there(shell: str, ours: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "show", "--shell", shell]) == 0
    assert ours in capsys.readouterr().out
