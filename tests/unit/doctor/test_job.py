"""What doctor finds in real JOB directories: data, times, acl.json files beside them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from profagent.ascend_options.rules import all_rules
from profagent.doctor.checks import CHECKS, CHECKS_OF
from profagent.doctor.cli import job_sections
from profagent.doctor.finding import Finding, FindingMark, Section, bad, good, unknown
from profagent.doctor.job import FACTS, JobInference, JobNet, batch_votes, fact_finding, job_data, job_facts, tick_votes
from profagent.errors import UsageError
from profagent.ingest.local import LocalJobFiles
from profagentd.simulate.network import FACTS as SIMULATED
from tests.integration.board import simulated

INFO = {"info.json.0": 42}
TABLES = {"data/yolo.0.layer.info": 9, "data/yolo.0.net.info": 9}
CALLS = {"data/acl_api.0.yolo.0": 64, "data/acl_api.0.yolo.0.done": 9}
LAYERS = {f"data/aicore.0.yolo.3.0.1.1.{pictures}": 512 for pictures in (0, 1)}
FIRST = {path: size for path, size in LAYERS.items() if path.endswith(".0")}
BUILD = "--online_model_type=2"


@pytest.mark.parametrize(
    ("files", "found", "told"),
    [
        ({**INFO, **TABLES, **CALLS, **LAYERS}, [("job-data", FindingMark.GOOD)], " of 1 model"),
        (INFO, [("job-data", FindingMark.BAD)], BUILD),
        ({**INFO, "data/acl_api.0.yolo.v1.0": 0}, [("job-data", FindingMark.BAD)], "'yolo.v1' (id 0)"),
        (
            {**INFO, **TABLES, **LAYERS, "data/acl_api.0.other.1": 0},
            [("job-data", FindingMark.BAD), ("job-data", FindingMark.GOOD)],
            BUILD,
        ),
        ({**TABLES, **LAYERS, "data/acl_api.0.yolo.0": 0}, [("job-data", FindingMark.GOOD)], ""),
        ({**INFO, **TABLES, **CALLS, **dict.fromkeys(LAYERS, 0)}, [("job-data", FindingMark.BAD)], "aic_metrics"),
        ({**TABLES, **FIRST}, [("job-data", FindingMark.GOOD), ("job-sampling", FindingMark.UNKNOWN)], ""),
    ],
)
def test_what_a_job_has(files: dict[str, int], found: list[tuple[str, FindingMark]], told: str) -> None:
    findings = list(job_data(files))
    assert [(each.check, each.mark) for each in findings] == found
    assert told in f"{findings[0].evidence} {findings[0].remedy}"


def looked_at(job: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in job_sections(job)[0].findings}


def test_a_job_in_good_order_and_one_with_another_clock_or_none(tmp_path: Path) -> None:
    job = simulated(tmp_path, 5)
    assert {check: each.mark for check, each in looked_at(job).items()} == dict.fromkeys(
        ("job-data", "job-clock"), FindingMark.GOOD
    )
    assert job_sections(job)[0].about == f"{job} [simulated]"
    assert all(section.is_good for section in job_sections(job))
    (job / "info.json.0").write_text('{"DeviceInfo": [{"aic_frequency": "70"}]}')
    ticks = job_sections(job)[-1].findings[0]
    assert (ticks.check, ticks.mark) == ("tick-unit", FindingMark.BAD)
    assert ticks.evidence.startswith("refutes 100-cycles")
    (job / "info.json.0").write_text("{}")
    assert looked_at(job)["job-clock"].mark is FindingMark.BAD


def test_what_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a JOB directory"):
        job_sections(tmp_path)


# Each open fact in each of its alternatives, told from a JOB's files alone; evidence that points nowhere

NETWORK = """
name = "open"
batch_num = 2
[[segments]]
unit = "aicore"
runs = [
    { time_us = 60.0, layers = ["a:Convolution", "relu:Relu"] },
    { time_us = 0.0, layers = ["split:Split:2"] },
    { time_us = 90.0, batch = true, layers = ["b:InnerProduct"] },
    { time_us = 70.0, layers = ["c:Convolution"] },
    { time_us = 0.0, layers = ["d:Slice"] },
]
[[segments]]
unit = "aicpu"
runs = [{ time_us = 4000.0, layers = ["e:Custom"] }]
[[segments]]
unit = "aicore"
runs = [{ time_us = 80.0, layers = ["f:Convolution"] }]
"""
# The longest tick looks like an NPU that idles.
LONGEST = ("tick-unit", "us")
CASES = [(fact, name) for fact in FACTS for name in SIMULATED[fact] if (fact, name) != LONGEST]


def made(root: Path, inferences: int = 3, *, pictures: int = 1, facts: tuple[str, ...] = ()) -> Path:
    root.mkdir(exist_ok=True)
    (root / "open.toml").write_text(NETWORK, "utf-8")
    return simulated(root / "jobs", inferences, model=str(root / "open.toml"), pictures=pictures, facts=facts)


def facts_of(job: Path) -> Section:
    return job_facts(LocalJobFiles(job), str(job))


def told(job: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in facts_of(job).findings}


@pytest.mark.parametrize(("fact", "alternative"), CASES, ids=[f"{fact}={each}" for fact, each in CASES])
def test_each_alternative_is_confirmed_and_all_others_are_refuted(tmp_path: Path, fact: str, alternative: str) -> None:
    answers = told(made(tmp_path, pictures=4, facts=(f"{fact}={alternative}",)))
    found = answers.pop(fact)
    likely, *_ = FACTS[fact]
    others = ", ".join(each for each in FACTS[fact] if each != alternative)
    assert found.evidence.startswith(f"confirms {alternative}: {FACTS[fact][alternative]}; refutes {others}: ")
    is_misread = alternative != likely
    assert (found.mark, bool(found.remedy)) == ((FindingMark.BAD, True) if is_misread else (FindingMark.GOOD, False))
    assert FindingMark.BAD not in {each.mark for each in answers.values()}


def test_one_inference_cannot_tell_about_ticks_pictures_and_loops(tmp_path: Path) -> None:
    job = made(tmp_path, 1)
    found = told(job)
    unknown = {check for check, each in found.items() if each.mark is FindingMark.UNKNOWN}
    assert unknown == {"tick-unit", "batch-number"}
    assert facts_of(job).about == f"{job}: facts that nobody knows [simulated: it proves nothing about hardware]"


def test_a_job_without_clock_tables_and_data_cannot_tell(tmp_path: Path) -> None:
    job = made(tmp_path)
    (job / "info.json.0").write_text("{}")
    assert told(job)["tick-unit"].evidence.startswith("cannot tell: no inference of 50 us or more")
    for path in job.glob("data/*.info"):
        path.write_bytes(b"\xff\xff\xff")
    assert told(job)["batch-number"].mark is FindingMark.UNKNOWN
    shutil.rmtree(job / "data")
    assert {each.mark for each in told(job).values()} == {FindingMark.UNKNOWN}


def ticks(*inferences: JobInference) -> str:
    return fact_finding("tick-unit", tick_votes(inferences, 700)).evidence


@pytest.mark.parametrize("window_us", [700, 900, 1_000, 2_000, 5_000])
def test_an_npu_that_idles_looks_like_a_longer_tick(window_us: int) -> None:
    """700 ticks are 100 us by the likely unit, and 700 us if a tick is a microsecond."""
    assert ticks(*[JobInference("a", 700, window_us)] * 3).startswith("cannot tell: ")


@pytest.mark.parametrize("disturbed", [10, 700 * 20, 2**32 - 1])
@pytest.mark.parametrize("others", [0, 1, 2, 3, 9])
def test_one_disturbed_tick_never_refutes_the_truth(disturbed: int, others: int) -> None:
    found = ticks(JobInference("a", disturbed, 130), *[JobInference("a", 700, 130)] * others)
    assert "100-cycles" not in found.partition("refutes ")[2].partition(";")[0].partition(":")[0]


def batches(*sequences: list[int]) -> str:
    """What inferences with these numbers tell of a net of four layers and three pictures."""
    nets = [[JobNet(tuple(each), (False,) * 4, (3,))] for each in sequences]
    return fact_finding("batch-number", batch_votes(nets)).evidence


EACH_PICTURE = [0, 1, 2, 3, 3, 3]


@pytest.mark.parametrize("disturbed", [[0, 1, 2, 3], [0, 1, 2, 3, 3], [0, 1, 2, 3, 3, 2], [0, 1, 2, 9, 3, 3]])
def test_one_disturbed_or_dropped_record_never_refutes_the_truth(disturbed: list[int]) -> None:
    assert batches(disturbed).startswith("cannot tell: ")
    assert batches(disturbed, EACH_PICTURE, EACH_PICTURE).startswith("confirms each-picture: ")
    assert batches([0, 98, 99], [0, 98, 99]).startswith("refutes on, each-batch, each-picture, once; left is none")


# The table of checks has every check, and no other

ROOT = Path(__file__).parents[3]
CHECK = r"[a-z]+(?:-[a-z]+)*"


def test_the_table_has_every_check() -> None:
    package = ROOT / "agent/profagent"
    modules = [
        *(package / "doctor").glob("*.py"),
        *(package / "ascend_options").glob("*.py"),
        package / "lake/checks.py",
    ]
    code = "\n".join(path.read_text("utf-8") for path in modules)
    named = re.findall(rf'\b(?:good|bad|unknown)\(\s*"({CHECK})"', code)
    assigned = re.findall(rf'\bcheck(?:, \w+)* = "({CHECK})"', code)
    assert {"npu-stack", "umask", "certificate", "switch"} <= {*named, *assigned}
    assert {*named, *assigned, *FACTS, *(rule.check for rule in all_rules().rules)} == CHECKS.keys()
    assert sum(map(len, CHECKS_OF.values())) == len(CHECKS)


def test_a_finding_has_a_check_of_the_table_and_no_worse_mark() -> None:
    with pytest.raises(KeyError, match="a-word-of-its-own"):
        good("a-word-of-its-own", "seen")
    with pytest.raises(AssertionError, match="file-system"):
        bad("file-system", "it is never bad")
    with pytest.raises(AssertionError, match="packages"):
        unknown("packages", "it only lists")


def test_a_finding_without_a_remedy_of_its_own_has_that_of_the_table() -> None:
    assert bad("clock", "seen").remedy == CHECKS["clock"].remedy
    assert bad("clock", "seen", "set it").remedy == "set it"
    assert unknown("metrics", "seen").remedy == CHECKS["metrics"].remedy
    # Not known is no fault: nothing has to be done.
    assert unknown("clock", "seen").remedy == ""
