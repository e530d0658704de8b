"""What commands tell a script of a session with a loss, and of one without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profagent.cli.main import VERBS, run
from profagent.export.formats import FORMATS
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job

SHOWING = {
    "show": "",
    "stats": "",
    "advise": "",
    "report": "-o report.html",
    "trend": "--model yolov5s",
    "ledger": "",
    "incidents": "",
    "watch": "--speed 1000 --plain",
}
WRITING = {f"export {name}": "" for name in FORMATS} | {"import": "--workspace again"}
# Those that make a session of a board have tests of their own; the others write no data of a session, and judge none.
OF_BOARDS = {"record", "collect", "ab", "nightly", "demo"}
OTHERS = {
    *("sessions", "gc", "diff", "baseline", "deploy", "boards", "keys", "doctor", "aclconfig", "options", "bundle"),
    *("calibrate", "redecode", "kit", "completion", "push", "fleet", "schema", "mcp", "explain"),
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A JOB that is whole, and one of which the last record of an inference is cut."""
    whole, cut = (
        write_job(tmp_path_factory.mktemp(name), SimulationOptions(layers=3), 3, gaps=False)
        for name in ("whole", "cut")
    )
    (log,) = (cut / "data").glob("aicore.*.1")
    log.write_bytes(log.read_bytes()[:-100])
    for job, code in ((whole, 0), (cut, 4)):
        assert run(["import", "-dir", str(job), "--workspace", str(job.parent / "workspace")]) == code
    return {"whole": whole, "cut": cut}


def test_every_command_is_judged_here_or_has_a_reason() -> None:
    assert {verb.split()[0] for verb in (*SHOWING, *WRITING)} | OF_BOARDS | OTHERS == VERBS.keys()


def command_line(verb: str, job: Path) -> list[str]:
    """The command about the JOB, by the words that it takes."""
    options = (SHOWING | WRITING)[verb].split()
    if verb == "import":
        return [verb, "-dir", str(job), *options]
    if verb in ("trend", "watch"):
        session = ["1"] if verb == "watch" else []
        return [verb, *session, "--workspace", str(job.parent / "workspace"), *options]
    return [*verb.split(), str(job), *options]


@pytest.mark.parametrize("verb", [*SHOWING, *WRITING])
def test_who_writes_says_4_and_who_shows_says_why(
    jobs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(command_line(verb, jobs["cut"])) == (4 if verb in WRITING else 0)
    told = capfd.readouterr()
    assert "INCOMPLETE" in told.err + (told.out if verb == "import" else "")
    assert "torn-record" in told.err + (told.out if verb == "import" else "")
    assert run(command_line(verb, jobs["whole"])) == 0
    told = capfd.readouterr()
    assert "INCOMPLETE" not in told.err + told.out


def test_an_export_that_leaves_out_all_it_was_asked_for_says_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job = write_job(tmp_path, SimulationOptions(layers=3), 3, gaps=False)
    assert run(["export", "summary", "-dir", str(job), "--inference", "99"]) == 4
    assert "no inference has the picture count 99" in capfd.readouterr().err
    (job / "info.json.0").write_text("{}")
    assert run(["export", "timeline", "-dir", str(job)]) == 4
    assert "left out" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["stats", "9"], "usage", 2),
        (["stats", "--unknown"], "usage", 2),
        (["record", "--board", "127.0.0.1:1", "--for", "1s"], "unreachable", 3),
        (["fleet", "stats", "--lake", "nowhere"], "lake", 1),
    ],
)
def test_a_command_that_fails_says_so_in_json(
    arguments: list[str], code: str, exit_code: int, jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = [] if arguments[0] == "fleet" else ["--workspace", str(jobs["whole"].parent / "workspace")]
    assert run([*arguments, *workspace, "--json"]) == exit_code
    printed = capsys.readouterr()
    failure = json.loads(printed.out.splitlines()[-1])
    assert failure.keys() == {"error", "code", "hint", "exit_code"}
    assert (failure["code"], failure["exit_code"]) == (code, exit_code)
    assert failure["error"] in printed.err
    assert failure["hint"]
    assert run([*arguments, *workspace]) == exit_code
    assert not capsys.readouterr().out
