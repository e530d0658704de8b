"""What a night comes to."""

from __future__ import annotations

import json
import re
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import pytest

from profagent.errors import UsageError
from profagent.export.formats import FORMATS
from profagent.nightly.cli import mail, tell_night
from profagent.nightly.night import (
    BoardOutcome,
    Compared,
    Night,
    NightlyRecipients,
    NightlyRecord,
    NightVerdict,
    Reports,
    Slower,
    each_board,
    example,
    junit_cases,
    read_settings,
    report_lines,
)
from profagent.nightly.page import past_nights, report_name, write_beside
from profagent.report.html_page import style
from profagent.stats.trend import BoardTrend


@pytest.mark.parametrize(
    "to",
    [
        NightlyRecipients(webhook="http://lab:http/x"),
        NightlyRecipients(webhook="http://a lab/"),
        NightlyRecipients(webhook="http://"),
        NightlyRecipients(command=["/none/such"]),
        NightlyRecipients(command=["a\0b"]),
        NightlyRecipients(mail=["a@lab"], sendmail=["/none/such"]),
    ],
)
def test_whom_nobody_can_tell_is_a_remark(to: NightlyRecipients) -> None:
    (remark,) = tell_night(Night("now", []), to)
    assert re.search("was not (told|sent): ", remark)


BOARD = '[[boards]]\nname = "lab1"\n'
RECORD = BOARD + 'record = { for = "10m" }\n'


def test_the_example_is_read_and_its_comments_tell_the_defaults() -> None:
    text = example(None)
    settings = read_settings(text, "nightly.toml")
    assert all(f'"{form}"' in text for form in (*FORMATS, *get_args(Reports)))
    said = text.replace("# workspace", "workspace")
    for key in (
        "schedule",
        "time_limit",
        "attempts",
        "wait",
        "exports",
        "baseline",
        "webhook",
        "command",
        "labels",
        "reports",
        "mail",
        "mail_from",
        "sendmail",
    ):
        said = said.replace(f"# {key} =", f"{key} =")
    told = read_settings(said.replace("# [tell]", "[tell]"), "nightly.toml")
    assert (told.time_limit, told.attempts, told.wait) == (settings.time_limit, settings.attempts, settings.wait)
    assert told.schedule == settings.schedule
    assert (told.exports, told.baseline, told.tell, told.boards) == (
        settings.exports,
        settings.baseline,
        settings.tell,
        settings.boards,
    )


def test_every_commented_key_of_the_example_is_one() -> None:
    """Uncommented, the whole of it is read: no key is only in the comments."""
    lines = [line.removeprefix("# ") if _is_setting(line) else line for line in example(None).splitlines()]
    settings = read_settings("\n".join(lines), "nightly.toml")
    assert [board.name for board in settings.boards] == ["lab1", "lab2"]
    assert settings.boards[1].collect is not None
    assert settings.retention.keep_last == 14


def _is_setting(line: str) -> bool:
    return line.startswith("# [") or (line.startswith("# ") and " = " in line.partition("  #")[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "boards"),
        ("boards = []", "there are no boards"),
        (RECORD + "recrod = 3\n", "recrod"),
        (BOARD, "needs either record or collect"),
        (RECORD + 'collect = { main = "x" }\n', "needs either record or collect"),
        (RECORD + RECORD, "lab1 is there twice"),
        (RECORD + 'group = "rack3"\n', "needs either a name or a group"),
        (BOARD + "record = {}\n", "has no end"),
        ("attempts = 0\n" + RECORD, "attempts is less than 1"),
        ('attempts = "3"\n' + RECORD, "$.attempts"),
        ('exports = ["pdf"]\n' + RECORD, "exports: 'pdf' is none of timeline, summary, "),
        ('reports = ["pdf"]\n' + RECORD, "$.reports"),
        (RECORD + '[tell]\nmail = ["lab"]\n', "'lab' is no mail address"),
        (RECORD + '[tell]\nmail = ["a@lab"]\nsendmail = []\n', "mail needs sendmail"),
        (RECORD + '[tell]\nwebhook = "file:///etc/passwd"\n', "webhook is no http"),
        ("x = [", "nightly.toml"),
        ("x = " + "[" * 100_000, "nightly.toml"),
    ],
)
def test_what_cannot_be_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_settings(text, "nightly.toml")
    assert said in str(raised.value)
    assert "nightly init" in raised.value.hint


def test_a_group_stands_for_its_boards_but_for_those_with_settings_of_their_own() -> None:
    text = RECORD + '[[boards]]\ngroup = "rack3"\nlabels = { place = "lab" }\nrecord = { for = "2s" }\n'
    own, other = each_board(read_settings(text, "nightly.toml").boards, {"rack3": ["lab2", "lab1"]}.__getitem__)
    assert (own.name, own.labels, other.name, other.labels) == ("lab1", {}, "lab2", {"place": "lab"})
    assert other.record == NightlyRecord(for_="2s")


AS_BEFORE = Compared("baseline release", 1)
SLOW = Compared("baseline release", 1, (Slower("layer.median>+5%", "layer conv2", 6.04),), ("other SDK",))
UNTOLD = Compared("x", 1, undecided=("layer[conv22].median>+5%: not in both runs: layer conv22",))
FEW = Compared("x", 1, can_tell=False)
THINNED = Compared("x", 1, can_tell=False, undecided=("a flight recorder keeps too few inferences",))
TREND = BoardTrend("lab1", "lab1", "net", None)
GOOD = BoardOutcome("fine", 2, compared=[AS_BEFORE])
SLOWER = BoardOutcome("slow", 3, compared=[SLOW, SLOW])
AWAY = BoardOutcome("gone", is_away=True, problems=["cannot reach it"])
INCOMPLETE = BoardOutcome("torn", 4, is_incomplete=True, problems=["data is missing"], compared=[AS_BEFORE])
FAILED = BoardOutcome("broken", problems=["it crashed"])
NEW = BoardOutcome("new", 5)


@pytest.mark.parametrize(
    ("outcome", "verdict", "code"),
    [
        (GOOD, NightVerdict.GOOD, 0),
        (NEW, NightVerdict.UNDECIDED, 0),
        (BoardOutcome("few", 1, compared=[FEW]), NightVerdict.UNDECIDED, 0),
        (BoardOutcome("none", 1, compared=[Compared("x", 1, problem="it is gone")]), NightVerdict.UNDECIDED, 0),
        (
            BoardOutcome("half", 1, compared=[AS_BEFORE, Compared("x", 1, problem="it is gone")]),
            NightVerdict.UNDECIDED,
            0,
        ),
        (BoardOutcome("odd", 1, compared=[UNTOLD]), NightVerdict.UNDECIDED, 0),
        (BoardOutcome("thinned", 1, compared=[THINNED]), NightVerdict.UNDECIDED, 0),
        (BoardOutcome("thinned", 1, compared=[THINNED], trends=[TREND]), NightVerdict.GOOD, 0),
        (
            BoardOutcome("few", 1, compared=[Compared("x", 1, can_tell=False)], trends=[TREND]),
            NightVerdict.UNDECIDED,
            0,
        ),
        (INCOMPLETE, NightVerdict.INCOMPLETE, 4),
        (AWAY, NightVerdict.AWAY, 3),
        (FAILED, NightVerdict.FAILED, 1),
        (SLOWER, NightVerdict.SLOWER, 1),
        (BoardOutcome("both", 1, is_incomplete=True, problems=["x"], compared=[SLOW]), NightVerdict.SLOWER, 1),
    ],
)
def test_a_board(outcome: BoardOutcome, verdict: NightVerdict, code: int) -> None:
    assert outcome.verdict is verdict
    assert Night("now", [GOOD, outcome]).exit_code == code


def test_the_headlines_name_what_is_not_good_and_nothing_else() -> None:
    night = Night("now", [GOOD, AWAY, SLOWER, INCOMPLETE, FAILED, NEW])
    assert night.headlines() == [
        "SLOWER: slow: layer conv2 +6.0 %",
        "FAILED: broken: it crashed",
        "AWAY: gone",
        "INCOMPLETE: torn: data is missing",
        "UNDECIDED: new",
    ]
    assert Night("now", [GOOD]).headlines() == ["GOOD: all boards"]
    assert night.document()["verdict"] == "slower"


def test_the_report() -> None:
    text = "\n".join(report_lines(Night("now", [GOOD, SLOWER, AWAY], ["let go of session 1"]), as_markdown=False))
    assert text == (
        "SLOWER: slow: layer conv2 +6.0 %\nAWAY: gone\n\n"
        "fine: good\n  session 2, 0 attempts, 0 s\n  as baseline release (session 1)\n"
        "slow: slower\n  session 3, 0 attempts, 0 s\n"
        + 2
        * (
            "  beside baseline release (session 1): layer conv2 +6.0 %, and layer.median>+5% holds\n"
            "  differs from baseline release (session 1): other SDK\n"
        )
        + "gone: away\n  no session, 0 attempts, 0 s\n  cannot reach it\nlet go of session 1"
    )


def test_no_name_breaks_markdown() -> None:
    slow = Compared("baseline `a`", 1, (Slower("layer[a|b_*].median>+5%", "layer a|b_*", 6.04),))
    night = Night("now", [BoardOutcome("<b>_1\n", 2, compared=[slow])], ["cannot remove a_b"])
    assert list(report_lines(night, as_markdown=True)) == [
        "**SLOWER: &lt;b&gt;\\_1\N{REPLACEMENT CHARACTER}: layer a\\|b\\_\\* +6.0 %**  ",
        "",
        "### &lt;b&gt;\\_1\N{REPLACEMENT CHARACTER}: slower",
        "- session 2, 0 attempts, 0 s",
        "- beside baseline \\`a\\` (session 1): layer a\\|b\\_\\* +6.0 %, and layer[a\\|b\\_\\*].median&gt;+5% holds",
        "cannot remove a\\_b",
    ]


def test_test_cases_fail_where_something_is_slower_or_went_wrong() -> None:
    cases = dict(junit_cases(Night("now", [GOOD, SLOWER, AWAY, NEW])))
    assert cases["fine"] is cases["new"] is None
    assert "layer conv2 +6.0 %" in str(cases["slow"])
    assert cases["gone"] == "cannot reach it"


def written(folder: Path, night: Night) -> str:
    page = write_beside(folder, night, ["page", "junit"])
    assert page is not None
    (folder / f"{night.run}.json").write_text(json.dumps(night.document()))
    return page.read_text("utf-8")


def test_the_page_of_a_night_links_to_the_nights_before_and_to_reports(tmp_path: Path) -> None:
    (tmp_path / "2026-11-20.json").write_text('{"run": "2026-11-20", "verdict": "good"}')  # it has no page
    (tmp_path / "odd.json").write_text("[")
    first = written(tmp_path, Night("2026-11-21", [GOOD]))
    assert re.findall('href="(.*?)"', first) == ["2026-11-20.json"]
    (tmp_path / report_name("2026-11-22", SLOWER)).write_text("")
    second = written(tmp_path, Night("2026-11-22", [GOOD, SLOWER, BoardOutcome("<b>\x1b", 5)], ["a & b"]))
    assert re.findall('href="(.*?)"', second) == ["2026-11-22-session-3.html", "2026-11-21.html", "2026-11-20.json"]
    assert [past.verdict for past in past_nights(tmp_path)] == ["slower", "good", "good"]
    assert "SLOWER: slow: layer conv2 +6.0 %" in second
    assert "&lt;b&gt;\N{REPLACEMENT CHARACTER}" in second
    assert "a &amp; b" in second
    suite = ET.parse(tmp_path / "2026-11-22.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert write_beside(tmp_path, Night("2026-11-23", [GOOD]), []) is None
    assert not (tmp_path / "2026-11-23.xml").exists()


def test_the_page_of_a_night_looks_as_reports_do(tmp_path: Path) -> None:
    written(tmp_path, Night("2026-11-21", [GOOD, AWAY]))
    page = written(tmp_path, Night("2026-11-22", [SLOWER, NEW]))
    assert style() in page
    badges = [("high", "slower"), ("low", "undecided"), ("medium", "away")]
    assert re.findall('<span class="badge (.*?)">(.*?)</span>', page) == badges
    assert '<td class="text">fine: good, gone: away</td>' in page


def test_a_mail_has_the_verdict_the_report_and_the_page(tmp_path: Path) -> None:
    night = Night("2026-11-22", [GOOD, BoardOutcome("lab\nBcc: x@y", problems=["überall"])])
    (tmp_path / "2026-11-21.json").write_text('{"run": "2026-11-21", "verdict": "good"}')
    page = write_beside(tmp_path, night, ["page"])
    to = NightlyRecipients(mail=["a@lab", "b@lab"], mail_from="night@lab")
    found = message_from_bytes(bytes(mail(night, to, page)), policy=default)
    assert (found["To"], found["From"], found["Bcc"]) == ("a@lab, b@lab", "night@lab", None)
    assert found["Subject"].startswith("profagent: FAILED: lab")
    body = found.get_body()
    assert body is not None
    assert "überall" in body.get_content()
    (attached,) = found.iter_attachments()
    assert (attached.get_filename(), attached.get_content_type()) == ("2026-11-22.html", "text/html")
    assert page is not None
    assert "2026-11-21" in attached.get_content()
    assert ("href" in page.read_text("utf-8"), "href" in attached.get_content()) == (True, False)
    assert str(page) in body.get_content()
