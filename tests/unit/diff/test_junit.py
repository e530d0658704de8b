"""A comparison as JUnit XML."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from profagent.diff.report import junit_xml


def test_cases_and_failures_are_counted() -> None:
    suite = ET.fromstring(junit_xml("profagent diff", [("a>b", None), ("c", "c failed & so on")], "the text"))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("name") for case in suite.iter("testcase")] == ["a>b", "c"]
    assert [failure.get("message") for failure in suite.iter("failure")] == ["c failed & so on"]
    assert suite.findtext("system-out") == "the text"


def test_what_xml_cannot_hold_is_replaced() -> None:
    suite = ET.fromstring(junit_xml("profagent diff", [("a\x00b", "c\x1b[2J")], "d\x0ce\nf 检测"))[0]
    assert suite.findtext("system-out") == "d\N{REPLACEMENT CHARACTER}e\nf 检测"
