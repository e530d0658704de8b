"""Checks of acl.json, each against what the runtime library did with such a file, and the text that mends it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profagent.doctor.acl_json import acl_json_section
from profagent.doctor.finding import Mark, Section

RIGHT = {
    "switch": "on",
    "output": "/opt/app/profiling",
    "interval": "1",
    "acl_api": "on",
    "aicpu": "on",
    "aacpu": "on",
    "aic_metrics": "ArithmeticUtilization",
    "aac_metrics": "ArithmeticUtilization",
}


def text(profiler: object = None, /, **others: object) -> bytes:
    return json.dumps({"profiler": RIGHT if profiler is None else profiler, **others}).encode()


def without(*keys: str, **others: object) -> bytes:
    return text({key: value for key, value in RIGHT.items() if key not in keys} | others)


def looked_at(data: bytes, **told: Any) -> Section:
    return acl_json_section("acl.json", data, **{"output": "directory", **told})


def bad(section: Section) -> list[str]:
    return [finding.check for finding in section.findings if finding.mark is Mark.BAD]


def unknown(section: Section) -> list[str]:
    return [finding.check for finding in section.findings if finding.mark is Mark.UNKNOWN]


@pytest.mark.parametrize(
    "data",
    [
        text(),
        text().replace(b'"}', b'",}'),
        without(interval=" 7"),
        without("acl_api", "aicpu", "aacpu"),
        without("aac_metrics", "aacpu"),
        text(dump={"dump_list": [], "dump_switch": "off"}),
    ],
)
def test_files_with_which_the_runtime_records(data: bytes) -> None:
    section = looked_at(data)
    assert {finding.mark for finding in section.findings} == {Mark.GOOD}


@pytest.mark.parametrize(
    ("data", "check", "evidence"),
    [
        (b"[]", "acl-json", "no object"),
        (without(interval=5), "acl-json", "profiler.interval = 5"),
        (text(graph={"fast": [True]}), "acl-json", "graph.fast[] = True"),
        (without("switch"), "acl-switch", "there is no switch"),
        (without(switch="off"), "acl-switch", "148047"),
        (without(switch="ON"), "acl-switch", "'ON'"),
        (without("aic_metrics", "aicpu", "acl_api"), "acl-items", "'aac_metrics' alone"),
        (without("aicpu"), "acl-items", "'aacpu' alone"),
        (without(aic_metrics="arithmeticutilization"), "acl-items", "exactly 'ArithmeticUtilization'"),
        (without(aic_metrics="PipeUtilization"), "acl-items", "'PipeUtilization'"),
        (without(acl_api="On"), "acl-items", "'On'"),
        (text({"switch": "on", "output": "/opt/a"}), "acl-items", "no item"),
        (without(interval=0), "acl-interval", "0, and must be a string"),
        (without(interval="10000"), "acl-interval", "'10000'"),
        (without(interval="-1"), "acl-interval", "'-1'"),
        (without("output"), "acl-output", "crashes"),
        (text(dump={"dump_list": [{"model_name": "m"}], "dump_path": "/opt/dump"}), "acl-dump", "both"),
        (without("switch", Switch="on"), "acl-keys", "'Switch' (meant: 'switch'?)"),
        (without("aic_metrics", aicMetric="x"), "acl-keys", "'aicMetric' (meant: 'aic_metrics'?)"),
        (json.dumps({"Profiler": RIGHT}).encode(), "acl-switch", "'Profiler'"),
    ],
)
def test_files_with_which_it_does_not(data: bytes, check: str, evidence: str) -> None:
    section = looked_at(data)
    (found,) = (finding for finding in section.findings if finding.check == check)
    assert found.mark is Mark.BAD
    assert evidence in found.evidence
    assert found.remedy


@pytest.mark.parametrize(
    ("data", "check"),
    [
        (without(interval="0"), "acl-interval"),
        (without("interval"), "acl-interval"),
        (without("aic_metrics", "aac_metrics"), "acl-items"),
        (b"{}", "acl-switch"),
        (text("on"), "acl-switch"),
    ],
)
def test_what_is_right_only_if_it_is_wanted_is_not_known(data: bytes, check: str) -> None:
    section = looked_at(data)
    assert bad(section) == []
    assert unknown(section) == [check]


def test_an_output_that_the_daemon_does_not_look_into() -> None:
    for roots, is_found in ((["/opt/app"], True), (["/opt/app/profiling/"], True), (["/opt/ap"], False), (["/"], True)):
        section = looked_at(text(), roots=roots)
        assert ("acl-output" not in bad(section)) == is_found
        assert is_found or "--root /opt/app/profiling" in section.findings[-1].remedy


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"profiler": {}} // ours', "line 1 column 18"),
        ('{\n"profiler": {"switch": "on",\n "output": /opt/x}}', "line 3 column 12"),
        ('\ufeff{"profiler": {}}', "BOM"),
        ("[" * 5000, "recursion"),
        ("", "line 1 column 1"),
    ],
)
def test_what_is_no_json_is_named_with_its_line_and_column(text: str, where: str) -> None:
    section = looked_at(text.encode())
    (found,) = section.findings
    assert (found.check, found.mark) == ("acl-json", Mark.BAD)
    assert where in found.evidence
