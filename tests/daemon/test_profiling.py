"""Which acl.json is a JOB's: where it is looked for, and what makes it certain."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from profagentd.limits import LARGEST_ACL_JSON_BYTES
from profagentd.sources.acl_json import FRESH_US, AclConfig, NotUsable, find_profiling, parse_acl_config
from profagentd.sources.files import FolderPlace

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
        place = FolderPlace(os.fsencode(self.root), os.fsencode(f"app/profiling/{JOB}"))
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
    assert "app/acl.json: it is no JSON" in caplog.text


def test_no_link_is_followed_and_nothing_but_a_small_file_is_read(project: Project, tmp_path: Path) -> None:
    outside = written(tmp_path / "outside/acl.json", project.holder)
    (project.root / "app/acl.json").symlink_to(outside)
    (project.root / "app/src").symlink_to(outside.parent)
    os.mkfifo(project.holder / "acl.json")
    (project.holder / "src").mkdir()
    written(project.holder / "src/acl.json", project.holder)
    with (project.holder / "src/acl.json").open("a") as file:
        file.write(" " * LARGEST_ACL_JSON_BYTES)
    assert project.found() is None
    assert project.found(str(project.root / "app/acl.json")) is None


# What an acl.json tells, case by case as the runtime library was seen to take it

ON = '"switch":"on","output":"/out","aic_metrics":"ArithmeticUtilization","aicpu":"on","acl_api":"on"'

# The case's name in the observation, its file, and the interval that the runtime started with; None: no JOB from it.
SEEN: list[tuple[str, str, str | None]] = [
    ("all on, no interval", f"{{{ON}}}", ""),
    ('interval "0"', f'{{{ON},"interval":"0"}}', "0"),
    ('interval "9999"', f'{{{ON},"interval":"9999"}}', "9999"),
    ('interval " 7"', f'{{{ON},"interval":" 7"}}', " 7"),
    ("interval number 5", f'{{{ON},"interval":5}}', None),
    ("nested unknown object", f'{{{ON},"deep":{{"deeper":{{"a":"b"}}}}}}', ""),
    ("array value", f'{{{ON},"list":["a","b"]}}', ""),
    ('switch "off"', '{"switch":"off","output":"/out","aicpu":"on"}', None),
    ('switch "ON"', '{"switch":"ON","output":"/out","aicpu":"on"}', None),
    ("no switch", '{"output":"/out","aicpu":"on"}', None),
    ("no output", '{"switch":"on","aicpu":"on"}', None),
    ("empty object", "{}", None),
    ("pretty printed, tabs, CRLF", f'{{\r\n\t{ON},\r\n\t"interval" : "3"\r\n}}', "3"),
    ("trailing comma", f'{{{ON},"interval":"4",}}', "4"),
]


@pytest.mark.parametrize(("case", "profiler", "interval"), SEEN)
def test_the_runtimes_cases(case: str, profiler: str, interval: str | None) -> None:
    data = b'{"profiler":%s}' % profiler.encode()
    if interval is None:
        with pytest.raises(NotUsable):
            parse_acl_config(data)
    else:
        assert parse_acl_config(data) == AclConfig("/out", interval, "on", "on", "ArithmeticUtilization"), case


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON"),
        (b'{"profiler":{"switch":"on"', "no JSON"),
        (b'\xef\xbb\xbf{"profiler":{"switch":"on","output":"/out"}}', "no JSON"),
        (b'\xff{"profiler":{}}', "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"profiler":{"switch":"on","output":"/out"},"x":true}', "no string"),
        (rb'{"profiler":{"switch":"on","output":"/out\u0000"}}', "no text has"),
        (rb'{"profiler":{"switch":"on","output":"/\ud800"}}', "no text has"),
        (rb'{"profiler":{"switch":"on","output":"/out","interval":"\udfff"}}', "no text has"),
        (b'{"profiler":{"switch":"on","output":"/out"},"x":[{"y":null}]}', "no string"),
        (b'{"dump":{"mode":"on"}}', "no profiler"),
        (b'["profiler"]', "no profiler"),
        (b'{"profiler":"on"}', "no profiler"),
    ],
)
def test_a_file_that_began_no_job_says_why(data: bytes, why: str) -> None:
    with pytest.raises(NotUsable, match=why):
        parse_acl_config(data)


def test_either_spelling_is_read_and_the_runtimes_own_goes_first() -> None:
    profiler = '"switch":"on","output":"/out","aacpu":"off","aac_metrics":"X"'
    assert parse_acl_config(b'{"profiler":{%s}}' % profiler.encode()) == AclConfig("/out", "", "off", "", "X")
    both = profiler + ',"aicpu":"on","aic_metrics":"Y"'
    assert parse_acl_config(b'{"profiler":{%s}}' % both.encode()) == AclConfig("/out", "", "on", "", "Y")


def test_an_output_leads_to_the_directory_that_holds_the_job(tmp_path: Path) -> None:
    real = tmp_path / "profiling"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "src").mkdir()
    starts = [os.fsencode(tmp_path / "src"), os.fsencode(tmp_path)]
    holder = os.fsencode(real.resolve())
    for output in (str(real), str(real) + "/", str(tmp_path / "link"), "profiling", "./profiling/", "../profiling"):
        assert AclConfig(output).leads_to(holder, starts), output
    for output in (str(tmp_path), "src", ".", "profiling/deeper", "/nowhere"):
        assert not AclConfig(output).leads_to(holder, starts), output
