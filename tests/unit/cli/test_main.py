"""The command line as a whole: what it imports, its help, and its exit codes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from profagent.cli.main import GLOSSARY, GROUPS, VERBS, LazyGroup, group, main, run
from profagent.errors import (
    IncompleteError,
    ProfagentError,
    StoreError,
    UnreachableError,
    UnsupportedBoardError,
    UsageError,
    WorkspaceBusyError,
)
from profagent.tables.provenance import summary_lines
from tests.integration.host import ENVIRONMENT

HEAVY = (
    "rich",
    "textual",
    "numpy",
    "grpc",
    "sqlite3",
    "google.protobuf",
    "msgspec",
    "asyncio",
    "profagent.commands",
    "profagent.store",
)
PROBE = """
import json, sys
from profagent.cli.main import run
code = run(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def _modules(*arguments: str) -> list[str]:
    """What a command line has imported when it is over."""
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    code, modules = json.loads(ended.stderr)
    assert code == 0
    return list(modules)


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("-h",)], ids=" ".join)
def test_help_and_version_import_next_to_nothing(arguments: tuple[str, ...]) -> None:
    modules = _modules(*arguments)
    for heavy in HEAVY:
        assert not [module for module in modules if module == heavy or module.startswith(f"{heavy}.")]
    assert [module for module in modules if module.startswith("profagent")] == [
        "profagent",
        "profagent.cli",
        "profagent.cli.main",
        "profagent.codes",
        "profagent.errors",
    ]


def test_a_verb_imports_what_it_needs_and_no_other_verb() -> None:
    modules = _modules("sessions", "--help")
    assert "profagent.sessions.cli" in modules
    assert not {"deltalake", "duckdb", "pyarrow"}.intersection(modules)
    assert "grpc" not in modules
    assert "profagent.watch.cli" not in modules


@pytest.mark.parametrize(
    ("verb", "unwanted"), [("record", "prometheus_client"), ("export", "pyarrow"), ("export", "tomlkit")]
)
def test_what_one_option_needs_is_not_imported_without_it(verb: str, unwanted: str) -> None:
    assert unwanted not in _modules(verb, "--help")


def test_an_import_loads_nothing_that_reads_certificates() -> None:
    probe = "import sys, profagent.importing.paths; print(*sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", probe], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    loaded = ended.stdout.split()
    assert "profagent.record.recording" in loaded
    assert not {"cryptography", "tomlkit"} & {*loaded}


def test_the_help_lists_verbs_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for verb, (_, about) in (each for verbs in GROUPS.values() for each in verbs.items()):
        assert f"  {verb} " in text
        assert about.split()[0] in text
    titles = ["Look:", "Capture:", "Compare:", "Export:", "Run boards:", "Settle counters:"]
    assert [line for line in text.splitlines() if line in titles] == titles
    assert text.endswith(f"{GLOSSARY}\n")
    for meaning in ("0 success", "2 usage error", "3 a board cannot be reached", "4 data is incomplete"):
        assert meaning in " ".join(text.split())


def _commands(words: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            each = command.get_command(context, word)
            assert each is not None
            yield from _commands((*words, word), each)


def _verb(verb: str) -> click.Command:
    command = group.get_command(click.Context(group), verb)
    assert command is not None
    return command


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_command_begins_with_two_examples_that_parse(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with where the words are explained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for folder in ("debian-arm64", "JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC"):
        (tmp_path / folder).mkdir()
    for words, command in _commands((verb,), _verb(verb)):
        assert run([*words, "--help"]) == 0
        usage, first, *others = capsys.readouterr().out.split("\n\n")
        assert usage.startswith(f"Usage: profagent {' '.join(words)} ")
        title, *examples = first.splitlines()
        assert title == "  Examples:", words
        assert len(examples) >= 2, words
        assert others[-1] == f"  {GLOSSARY}\n"
        assert not others[0].lstrip().startswith("Example")
        for example in examples:
            _parse(example.strip())
        assert command.get_short_help_str().split()[0] != "Examples:"


def _parse(example: str) -> None:
    """Let every command of it take its words, but do nothing."""
    program, verb, *arguments = shlex.split(example)
    command, words = _verb(verb), verb
    assert program == "profagent"
    while isinstance(command, click.Group) and arguments:
        words = arguments.pop(0)
        found = command.get_command(click.Context(command), words)
        assert found is not None
        command = found
    with command.make_context(words, arguments):
        pass


def test_a_path_that_is_no_text_is_written_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr("profagent.cli.main.run", lambda: print(os.fsdecode(b"caf\xe9")))
        with pytest.raises(SystemExit):
            main()
    assert (tmp_path / "out").read_bytes() == b"caf\xe9\n"


def test_a_verb_that_there_is_not_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fly"]) == 2
    assert "Did you mean" not in capsys.readouterr().err
    assert run(["statz"]) == 2
    assert "No such command 'statz'. Did you mean 'stats'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProfagentError("it broke", hint="mend it"), 1),
        (StoreError("it broke", hint="mend it"), 1),
        (WorkspaceBusyError("it broke", hint="mend it"), 1),
        (UsageError("it broke", hint="mend it"), 2),
        (UnsupportedBoardError("it broke", hint="mend it"), 2),
        (UnreachableError("it broke", hint="mend it"), 3),
        (IncompleteError("it broke", hint="mend it"), 4),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_become_exit_codes(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(LazyGroup, "invoke", fail)
    assert run(["sessions"]) == code
    if isinstance(error, ProfagentError):
        assert capsys.readouterr().err == "profagent: it broke\n  mend it\n"


@pytest.mark.parametrize("told", ["fast", "0", "-1", "nan", "inf"])
def test_a_peak_memory_rate_that_is_none_is_a_usage_error(
    told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROFAGENT_PEAK_MEMORY_RATE", told)
    assert run(["stats", "1"]) == 2
    assert "$PROFAGENT_PEAK_MEMORY_RATE" in capsys.readouterr().err


# `profagent aclconfig` on files of this host


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "acl.json"


def test_a_file_is_made_asked_and_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["aclconfig", "set", "--interval", "1", "--output", "/opt/app/profiling", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: written\n"
    assert run(["aclconfig", "get", str(file)]) == 0
    assert "interval     1\n" in capsys.readouterr().out
    assert run(["aclconfig", "check", str(file)]) == 0
    assert "every inference is recorded" in capsys.readouterr().out
    assert run(["aclconfig", "set", "--interval", "1", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is False


def test_what_the_runtime_would_not_record_is_exit_code_1(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('{"dump": {"dump_path": "/d"}}')
    assert run(["aclconfig", "set", "--output", "/o", str(file)]) == 1
    assert "the file has both dump and profiler" in capsys.readouterr().err
    assert run(["aclconfig", "check", str(file)]) == 1
    file.unlink()
    assert run(["aclconfig", "set", "--switch", "off", "--output", "/o", str(file)]) == 0
    assert run(["aclconfig", "check", "--json", str(file)]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["get"], 2, "aclconfig set --output DIR"),
        (["check"], 2, "does not exist"),
        (["set"], 2, "names no output"),
        (["set", "--output", "/o", "--interval", "10000"], 2, "10000"),
    ],
)
def test_what_cannot_be_right_is_told(
    arguments: list[str], code: int, told: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["aclconfig", *arguments, str(file)]) == code
    assert told in capsys.readouterr().err
    assert not file.exists()


def test_a_file_that_is_no_json_stays_as_it_is(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("{")
    assert run(["aclconfig", "set", "--output", "/o", str(file)]) == 1
    assert "aclconfig check" in capsys.readouterr().err
    assert file.read_text() == "{"
    assert run(["aclconfig", "get", str(file)]) == 1


# Summaries of a capture in lines, and the options of `record` as values

SUMMARY: dict[str, Any] = {
    "session": 4,
    "board": "0f3a-board-1",
    "hostname": "euler",
    "simulated": False,
    "jobs": ["JOBA", "JOBB"],
    "bytes": 1234,
    "records": {"aicore": 5, "aicpu": 0, "acl_api": 2},
    "coverage": {
        "covered_us": 5_000_000,
        "total_us": 12_000_000,
        "gaps": [{"standing": "away", "job": None, "from_us": 5_000_000, "to_us": 12_000_000, "detail": "reset"}],
        "more_gaps": 0,
    },
    "events": {"ops": 1200, "ranges": 0, "samples": 7},
    "sampling": {
        "sampled": 96,
        "due": 100,
        "late": 0,
        "never_came": 4,
        "interval": 10,
        "interval_from": "acl.json",
        "keeping": "every 3",
        "kept": 32,
        "passed_over": 64,
    },
    "ledger": {"loss": {}, "note": {"sequence-gap": 3}},
    "earlier": [],
    "kept_losses": [],
    "implausible": [],
    "not_final": [],
    "complete": True,
    "database": "/w/profagent.db",
    "mirror": "/w/mirror/board-1",
}


def test_a_summary_in_lines() -> None:
    assert summary_lines(SUMMARY) == [
        "session 4 of euler: complete",
        "  JOBs:     JOBA JOBB",
        "  records:  5 aicore, 0 aicpu, 2 acl_api; 1234 bytes",
        "  sources:  1,200 ops, 7 samples",
        "  coverage: covered 5.0 of 12.0 s; link lost at 00:00:05 UTC (7.0 s)",
        "  sampling: captured 96 of 100 due (interval 10, from acl.json); kept 32 of 96 inferences (every 3)",
        "  ledger:   note: sequence-gap (3)",
        "  database: /w/profagent.db",
        "  mirror:   /w/mirror/board-1",
    ]


def test_what_an_earlier_session_fetched_is_told_as_its_own() -> None:
    summary = {**SUMMARY, "earlier": [{"job": "JOBA", "session": 1, "inferences": 1060}]}
    assert "  JOBA: nothing new: 1,060 inferences are there from session 1" in summary_lines(summary)
