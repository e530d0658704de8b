"""The Chinese texts of reports: none is missing, and each has an English form that profagent still writes."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

import profagent
from profagent.diff.report import OTHER_KINDS
from profagent.ledger import REASONS
from profagent.report.texts import Texts, table_of
from profagent.stats.document import columns_of
from profagent.stats.stats import BYS

CHINESE = table_of("zh")
FIELD = re.compile(r"\{\w+\}")
# A literal of the scripts that a reader sees: two words, or the argument of `say`.
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
TWO_WORDS = re.compile(r"[A-Za-z]{2,}[,.:;]? [a-z]{2,}")
SAID = re.compile(r'say\("((?:[^"\\]|\\.)*)"')
# Selectors and queries of the scripts.
NO_TEXTS = {"main section:not([hidden])", "(prefers-color-scheme: dark)", "input, select"}
# A clause may be put together from so many strings of the code.
MOST_PIECES = 3


def page_file(name: str) -> str:
    return resources.files("profagent.report").joinpath("page", name).read_text("utf-8")


def code() -> str:
    """Return the package's sources, with the strings that go over several lines joined."""
    files = Path(profagent.__file__).parent.rglob("*.py")
    return "\n".join(re.sub(r'"\s+f?"', "", file.read_text("utf-8")).replace('\\"', '"') for file in files)


def pieces(words: list[str], text: str) -> int:
    """Return in how many pieces the words occur in the text, the longest first; many if one does not occur."""
    if not words:
        return 0
    longest = next((end for end in range(len(words), 0, -1) if " ".join(words[:end]) in text), None)
    return MOST_PIECES + 1 if longest is None else 1 + pieces(words[longest:], text)


def test_every_text_of_the_page_has_a_chinese_one() -> None:
    placeholders = page_file("page.html").split("@@")[1::2]
    scripts = page_file("page.js") + page_file("charts.js")
    read = {text.replace("\\n", "\n") for text in LITERAL.findall(scripts) if TWO_WORDS.search(text)} - NO_TEXTS
    read |= {text.replace("\\n", "\n") for text in SAID.findall(scripts)}
    parts = {"title", "language", "verdict", "styles", "library", "scripts", "data"}
    assert {*read, *placeholders} - parts - CHINESE.page.keys() == set()


def test_every_column_and_every_kind_of_change_has_a_chinese_name() -> None:
    names = {*BYS, *(name for by in BYS for name in columns_of(by)), *OTHER_KINDS, "same", "loss", "note"}
    assert names - CHINESE.page.keys() == set()


def test_every_reason_of_the_ledger_has_a_chinese_meaning() -> None:
    assert CHINESE.reasons.keys() == REASONS.keys()


def test_the_code_still_writes_each_line() -> None:
    text = code()
    for english in CHINESE.lines:
        for part in FIELD.split(english):
            for clause in re.split(r"\(s\)|[;,]? ?\(|\)|; |, |: ", part):
                assert pieces(clause.split(), text) <= MOST_PIECES, f"{clause!r} of {english!r}"


@pytest.mark.parametrize("section", ["page", "lines"])
def test_a_chinese_text_has_the_fields_of_the_english_one(section: str) -> None:
    for english, chinese in getattr(CHINESE, section).items():
        assert sorted(FIELD.findall(chinese)) == sorted(FIELD.findall(english)), english


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("session 3 of euler", "会话 3（euler）"),
        ("loss: torn-record (5)", "丢失：torn-record（5）"),
        ("2 inferences of JOB1 not copied", "JOB1 有 2 次推理未复制"),
        ("JOB1: loss: none", "JOB1: 丢失：无"),
        ("a name; loss: none", "a name; 丢失：无"),
        ("700 MHz in BASE, 800 MHz in NEW", "BASE 为 700 MHz，NEW 为 800 MHz"),
        ("layers: 2 slower, 1 faster; 3 moved, 1 split", "层：2 个变慢，1 个变快; 3 个换处理器，1 个拆分"),
        ("what a newer daemon wrote", "what a newer daemon wrote"),
    ],
)
def test_a_line_is_translated_whole_or_part_by_part(english: str, chinese: str) -> None:
    assert Texts.of_language("zh").line(english) == chinese
    assert Texts.of_language("en").line(english) == english


@pytest.mark.parametrize(
    ("lane", "chinese"),
    [("NPU layers yolo", "NPU 层 yolo"), ("calls 7/8", "调用 7/8"), ("callsign", "callsign"), ("By me", "By me")],
)
def test_a_lane_has_a_chinese_kind_and_its_own_name(lane: str, chinese: str) -> None:
    assert Texts.of_language("zh").lane(lane) == chinese
