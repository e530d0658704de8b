"""Each open fact in each of its alternatives, told from the simulated board's files alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from profagent.cli.main import run
from profagent.doctor import job_examining as module
from profagent.doctor.facts import FACTS
from profagent.doctor.finding import Finding, Mark
from profagent.doctor.job_examining import job_facts
from profagent.formats.model_info import parse_net_info
from profagentd.simulate.network import FACTS as SIMULATED
from tests.integration.board import simulated

NETWORK = """
name = "open"
batch_num = 2
[[segments]]
unit = "aicore"
loops = {loops}
runs = [
    {{ time_us = 60.0, layers = ["a:Convolution", "relu:Relu"] }},
    {{ time_us = 0.0, layers = ["split:Split:2"] }},
    {{ time_us = 90.0, batch = true, layers = ["b:InnerProduct"] }},
    {{ time_us = 70.0, layers = ["c:Convolution"] }},
    {{ time_us = 0.0, layers = ["d:Slice"] }},
]
[[segments]]
unit = "aicpu"
runs = [{{ time_us = 4000.0, layers = ["e:Custom"] }}]
[[segments]]
unit = "aicore"
runs = [{{ time_us = 80.0, layers = ["f:Convolution"] }}]
"""
# In few inferences the longest tick looks like an NPU that idles.
LONGEST = ("tick-unit", "us")
CASES = [
    (name, alternative)
    for name, alternatives in SIMULATED.items()
    for alternative in alternatives
    if (name, alternative) != LONGEST
]


def made(
    root: Path, inferences: int = 3, *, loops: int = 1, pictures: int = 1, loads: int = 1, facts: tuple[str, ...] = ()
) -> Path:
    root.mkdir(exist_ok=True)
    (root / "open.toml").write_text(NETWORK.format(loops=loops), "utf-8")
    model = str(root / "open.toml")
    return simulated(root / "jobs", inferences, loads=loads, model=model, pictures=pictures, facts=facts)


def told(job: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in job_facts(job).findings}


def test_the_simulated_board_has_every_alternative_of_every_fact() -> None:
    assert {fact.name: fact.names for fact in FACTS} == SIMULATED


@pytest.mark.parametrize(("name", "alternative"), CASES, ids=[f"{name}={each}" for name, each in CASES])
def test_each_alternative_is_confirmed_and_all_others_are_refuted(tmp_path: Path, name: str, alternative: str) -> None:
    loops, pictures = (3, 1) if name == "loop-number" else (1, 4)
    answers = told(made(tmp_path, loops=loops, pictures=pictures, facts=(f"{name}={alternative}",)))
    found = answers.pop(name)
    (fact,) = (fact for fact in FACTS if fact.name == name)
    (chosen,) = (each for each in fact.alternatives if each.name == alternative)
    others = ", ".join(each for each in fact.names if each != alternative)
    assert found.evidence.startswith(f"confirms {alternative}: {chosen.text}; refutes {others}: ")
    assert found.mark is (Mark.GOOD if chosen.is_read else Mark.BAD)
    assert bool(found.remedy) != chosen.is_read
    assert Mark.BAD not in {each.mark for each in answers.values()}
    assert "tick-unit" not in answers or answers["tick-unit"].mark is Mark.GOOD


@pytest.mark.parametrize("alternative", SIMULATED["tick-unit"])
def test_every_tick_is_confirmed_by_what_longer_inferences_have_more_of(tmp_path: Path, alternative: str) -> None:
    found = told(made(tmp_path, 16, facts=(f"tick-unit={alternative}",)))["tick-unit"]
    assert found.evidence.startswith(f"confirms {alternative}: ")
    assert found.evidence.endswith(f"; those with more ticks take longer as by {alternative}")


def test_the_longest_tick_is_neither_confirmed_nor_refuted_by_few(tmp_path: Path) -> None:
    found = told(made(tmp_path, facts=("=".join(LONGEST),)))["tick-unit"]
    assert found.mark is Mark.UNKNOWN
    assert found.evidence.startswith("cannot tell: layers take of 3 inferences, at the median, ")


def test_one_inference_of_one_picture_cannot_tell_about_pictures_and_loops(tmp_path: Path) -> None:
    job = made(tmp_path, 1)
    found = told(job)
    assert {check for check, each in found.items() if each.mark is Mark.UNKNOWN} == {"batch-number", "loop-number"}
    assert "no inference of several pictures" in found["batch-number"].evidence
    assert "no net that loops" in found["loop-number"].evidence
    assert job_facts(job).about == f"{job}: facts that nobody knows [simulated: it proves nothing about hardware]"


def test_one_batch_run_leaves_two_ways_of_numbering(tmp_path: Path) -> None:
    found = told(made(tmp_path, pictures=2))["batch-number"]
    assert found.mark is Mark.UNKNOWN
    assert found.evidence.startswith("refutes each-picture, once; left is on or each-batch: 6 segments; ")


def test_a_job_without_clock_tables_and_data_cannot_tell(tmp_path: Path) -> None:
    job = made(tmp_path)
    (job / "info.json.0").write_text("{}")
    (job / "simulated").unlink()
    assert told(job)["tick-unit"].evidence.startswith("cannot tell: no inference of 50 us or more")
    for path in job.glob("data/*.info"):
        path.write_bytes(b"\xff\xff\xff")
    found = told(job)
    assert all(found[name].mark is Mark.UNKNOWN for name in ("name-nul", "net-start", "item-form", "batch-number"))
    shutil.rmtree(job / "data")
    section = job_facts(job)
    assert {each.mark for each in section.findings} == {Mark.UNKNOWN}
    assert "simulated" not in section.about


def test_a_cpu_part_that_was_not_recorded_makes_no_tick_longer(tmp_path: Path) -> None:
    """300 us of layers and 4 ms of the CPU between them: by its time alone a tick might be a microsecond."""
    job = made(tmp_path)
    for path in job.glob("data/aicpu.*"):
        path.unlink()
    found = told(job)["tick-unit"].evidence
    assert found.startswith("cannot tell: layers take of 3 inferences")
    assert found.endswith("; of 3 a CPU part may have gone unrecorded")


def test_of_a_model_that_was_loaded_again_the_last_inferences_are_looked_at(tmp_path: Path) -> None:
    found = told(made(tmp_path, 5, loads=3, pictures=4))
    assert found["tick-unit"].evidence.startswith("confirms 100-cycles: ")
    assert found["batch-number"].evidence.startswith("confirms on: ")


def test_batches_that_were_chosen_at_run_time_are_those_of_the_done(tmp_path: Path) -> None:
    """The network's own batches are of 2 pictures; these are of 3 and 1, so that other layers come again."""
    job = made(tmp_path, pictures=4)
    for done in job.glob("data/aicore.*.done"):
        done.write_bytes(done.read_bytes() + b"online_batch_num:3,1")
    assert "expected 17 by on, 12 by each-batch" in told(job)["batch-number"].evidence


def test_of_very_many_inferences_some_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INFERENCES", 2)
    assert "of 2 inferences" in told(made(tmp_path, 6))["tick-unit"].evidence


@pytest.mark.parametrize("start", SIMULATED["net-start"])
def test_nets_are_read_wherever_their_file_begins(tmp_path: Path, start: str) -> None:
    (path,) = made(tmp_path, 1, facts=(f"net-start={start}",)).glob("data/*.net.info")
    assert [net.net_id for net in parse_net_info(path.read_bytes(), path.name)] == [0, 1, 2]


def test_doctor_tells_them_and_fails_where_a_job_is_read_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", str(made(tmp_path / "likely"))]) == 0
    assert "  ✓ tick-unit     confirms 100-cycles: " in capsys.readouterr().out
    assert run(["doctor", str(made(tmp_path / "other", pictures=4, facts=("batch-number=once",)))]) == 1
    shown = capsys.readouterr().out
    assert "  ✗ batch-number  confirms once: " in shown
    assert "→ send it, for what depends on it is not read right: profagent kit" in shown
