"""Answers as JUnit XML, for build servers: a test case for each thing that may fail."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["junit_xml"]


def junit_xml(name: str, cases: Sequence[tuple[str, str | None]], text: str) -> bytes:
    """XML of a suite's test cases, each a name and its failure (None: it passed); `text` is what was printed."""
    failures = sum(failure is not None for _, failure in cases)
    suite = ET.Element("testsuite", name=name, tests=str(len(cases)), failures=str(failures), errors="0", skipped="0")
    for case_name, failure in cases:
        case = ET.SubElement(suite, "testcase", classname=name, name=_allowed(case_name))
        if failure is not None:
            ET.SubElement(case, "failure", message=_allowed(failure))
    ET.SubElement(suite, "system-out").text = _allowed(text)
    suites = ET.Element("testsuites")
    suites.append(suite)
    written: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written


def _allowed(text: str) -> str:
    """The text without what XML 1.0 has no way to write."""
    return "".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text)
