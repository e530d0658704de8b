"""What came of a run, or did not, is told with its likely cause and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profagent.aclconfig.edit import DEFAULTS
from profagent.collect.explain import Aftermath, causes, failure
from profagent.collect.look import Main, Place

JOB = "JOB" + "A" * 29
ALL = Main(has_own_profiling=False, acl_paths=("../acl.json",))
AFTER = Aftermath(
    Place("/app", "out/main"), "/app/acl.json", replace(DEFAULTS, interval=1), ALL, status=0, why="", complaint=""
)
INFO = {"info.json.0": 42, "data/m.0.net.info": 9, "data/m.0.layer.info": 9}
LAYERS = {"data/aicore.0.m.1.0.1.1.0": 256, "data/aicore.0.m.1.0.1.1.0.done": 50}
CALLS_MADE = {"data/acl_api.0.m.0": 64, "data/acl_api.0.m.0.done": 50}
WHOLE = {**INFO, **LAYERS, **CALLS_MADE, "data/aicore.0.m.1.0.1.1.1": 256}


def told(after: Aftermath) -> str:
    return "\n".join(f"{cause.text} -> {cause.remedy}" for cause in causes(after))


def ended(status: int, complaint: str = "", **more: object) -> str:
    cause = failure(replace(AFTER, status=status, complaint=complaint, **more))  # type: ignore[arg-type]
    return "" if cause is None else f"{cause.text} -> {cause.remedy}"


@pytest.mark.parametrize(
    ("status", "complaint", "wanted"),
    [
        (0, "Permission denied", ""),
        (126, "sh: 3: exec: ./main: Permission denied", "chmod +x"),
        (127, "main: error while loading shared libraries: libsvp_acl.so: cannot open", "LD_LIBRARY_PATH"),
        (127, "main.sh: 2: exec: /app/out/main: not found", "C library (glibc or musl)"),
        (127, "main: symbol lookup error: undefined symbol: f", "ended with 127"),
        (126, "/app/out/main: 2: ./tool: Exec format error", "starts: /app/out/main: 2: ./tool: Exec format error"),
        (1, "write: No space left on device", "disk is full"),
        (3, "", "ended with 3"),
        (139, "", "signal SIGSEGV"),
        (255, "", "ended with 255"),
    ],
)
def test_how_a_program_ended(status: int, complaint: str, wanted: str) -> None:
    assert wanted in ended(status, complaint)
    assert bool(ended(status, complaint)) is bool(wanted)


def test_a_program_that_was_not_started_or_was_ended() -> None:
    assert "acl.json cannot be written: cp: denied" in ended(125, why="cp: denied")
    assert told(replace(AFTER, status=125, why="cp: denied")) == ""
    assert "away for too long" in ended(143, why="abandoned")
    assert "the board was restarted, or the keeper" in ended(1, why="lost")
    assert "disk is full" in ended(1, free_kib=3)
    assert "disk is full" in told(replace(AFTER, jobs={JOB: WHOLE}, free_kib=3))


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"info.json.0": 42}, "no model that is built for profiling"),
        ({"info.json.0": 42, "data/acl_api.0.m.0": 0}, "--online_model_type=2"),
        ({**INFO, **CALLS_MADE}, "calls were recorded, and no layers"),
        ({**WHOLE, "data/acl_api.0.other.1": 64}, "was not finished"),
    ],
)
def test_what_a_job_lacks(files: dict[str, int], wanted: str) -> None:
    assert wanted in told(replace(AFTER, jobs={JOB: files}))


def test_an_interval_of_0_is_named_where_one_inference_came() -> None:
    files = {path: size for path, size in WHOLE.items() if not path.endswith(".1.1")}
    asked = replace(AFTER.asked, interval=0)
    assert "--interval 1" in told(replace(AFTER, asked=asked, jobs={JOB: files}))
    assert told(replace(AFTER, jobs={JOB: files})) == ""


def test_of_several_jobs_it_is_not_guessed_which_is_the_programs() -> None:
    other = JOB[:-1] + "B"
    after = replace(AFTER, jobs={JOB: WHOLE, other: WHOLE}, growing=(other,))
    assert f"{JOB}, {other} were made in /app/profiling while the program ran" in told(after)
    assert f"{other} was written to after the program had ended" in told(after)


@pytest.mark.parametrize(
    ("main", "wanted"),
    [
        (replace(ALL, has_own_profiling=True), "148047"),
        (replace(ALL, acl_paths=()), "called that without a path"),
        (replace(ALL, acl_paths=("../src/acl.json",)), "which is /app/src/acl.json, not /app/acl.json"),
        (ALL, "did not come as far as svp_acl_init"),
    ],
)
def test_why_there_is_no_job(main: Main, wanted: str) -> None:
    assert wanted in told(replace(AFTER, main=main))


def test_a_job_elsewhere_and_a_board_without_the_npu() -> None:
    assert f"made elsewhere: /app/out/{JOB}" in told(replace(AFTER, elsewhere=(f"/app/out/{JOB}",)))
    assert "other NPU stack" in told(replace(AFTER, has_npu=False))
    assert "other NPU stack" not in told(AFTER)
