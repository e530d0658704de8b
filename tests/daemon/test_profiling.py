"""Which acl.json is a JOB's: where it is looked for, and what makes it certain."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from profagentd.sources.acl_json import FRESH_US, LARGEST_BYTES, find_profiling
from profagentd.sources.files import Place

JOB = "JOB" + "A" * 29
MADE_US = 1_767_225_600_000_000


def written(path: Path, output: Path | str, *, interval: str = "10", changed_us: int = MADE_US - 1) -> Path:
    """An acl.json, last changed at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"profiler": {"switch": "on", "output": str(output), "interval": interval}}))
    os.utime(path, ns=(changed_us * 1000, changed_us * 1000))
    return path


class Project:
    """A root with a JOB in `profiling`."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path.resolve() / "root"
        self.holder = self.root / "app/profiling"
        (self.holder / JOB).mkdir(parents=True)

    def found(self, *patterns: str, late_us: int = 0) -> str | None:
        """The interval that is found for the JOB, looked for so long after it was made."""
        place = Place(os.fsencode(self.root), os.fsencode(f"app/profiling/{JOB}"))
        profiling = find_profiling(place, MADE_US, MADE_US + late_us, patterns)
        return profiling.config.interval if profiling else None


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize(
    "place", ["app/profiling/acl.json", "app/profiling/src/acl.json", "app/acl.json", "app/src/acl.json"]
)
def test_the_usual_places_are_beside_the_job_and_one_above(project: Project, place: str) -> None:
    written(project.root / place, project.holder)
    assert project.found() == "10"


@pytest.mark.parametrize("place", ["acl.json", "src/acl.json", "app/other/acl.json", "../acl.json"])
def test_no_other_place_is_looked_at(project: Project, place: str) -> None:
    written(project.root / place, project.holder)
    assert project.found() is None


@pytest.mark.parametrize("output", ["profiling", "../profiling", "./profiling/"])
def test_a_relative_output_begins_at_the_file_or_one_above_it(project: Project, output: str) -> None:
    written(project.root / "app/src/acl.json", output)
    assert project.found() == "10"


def test_configured_files_are_looked_at_wherever_they_are_and_nothing_else(project: Project, tmp_path: Path) -> None:
    written(project.root / "app/acl.json", project.holder, interval="1")
    file = written(tmp_path / "elsewhere/camera/acl.json", project.holder, interval="2")
    assert project.found(str(file)) == "2"
    assert project.found(str(tmp_path / "elsewhere/*/acl.json")) == "2"
    assert project.found(str(tmp_path / "nothing/acl.json")) is None


def test_two_files_that_differ_tell_nothing(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    written(project.root / "app/acl.json", project.holder)
    written(project.root / "app/src/acl.json", project.holder, interval="3")
    assert project.found() is None
    assert "differ" in caplog.text


def test_a_file_that_was_changed_after_the_job_was_made_tells_nothing_later(project: Project) -> None:
    file = written(project.root / "app/acl.json", project.holder, changed_us=MADE_US + 1)
    assert project.found(late_us=FRESH_US + 1) is None
    os.utime(file, ns=(MADE_US * 1000, MADE_US * 1000))
    assert project.found(late_us=FRESH_US + 1) == "10"


def test_of_a_job_that_was_just_made_the_file_is_what_its_program_read(project: Project) -> None:
    # A board without a battery wakes in 1970: its files may be newer than anything it makes.
    written(project.root / "app/acl.json", project.holder, changed_us=MADE_US + 10**15)
    assert project.found(late_us=FRESH_US) == "10"


def test_what_is_broken_is_passed_over_with_a_line_in_the_log(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (project.root / "app/acl.json").write_text('{"profiler":')
    written(project.root / "app/src/acl.json", project.holder)
    assert project.found() == "10"
    assert "app/acl.json is passed over: it is no JSON" in caplog.text


def test_no_link_is_followed_and_nothing_but_a_small_file_is_read(project: Project, tmp_path: Path) -> None:
    outside = written(tmp_path / "outside/acl.json", project.holder)
    (project.root / "app/acl.json").symlink_to(outside)
    (project.root / "app/src").symlink_to(outside.parent)
    os.mkfifo(project.holder / "acl.json")
    (project.holder / "src").mkdir()
    written(project.holder / "src/acl.json", project.holder)
    with (project.holder / "src/acl.json").open("a") as file:
        file.write(" " * LARGEST_BYTES)
    assert project.found() is None
    assert project.found(str(project.root / "app/acl.json")) is None
