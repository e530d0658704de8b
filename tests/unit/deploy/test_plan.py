"""What is done on which board, and what is said when it cannot be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from profagent.deploy.board import board_name, check_room, choose_init, is_deployed
from profagent.deploy.daemon_tree import BoardPython, choose_python
from profagent.deploy.survey import BoardFacts, fact_lines, read_survey
from profagent.deploy.units import Layout, service
from profagent.errors import ProfagentError, UsageError
from tests.unit.deploy.test_survey import EULER as SAID

USUAL = Layout()
EULER = read_survey(SAID)
AIFLY = replace(
    EULER,
    python=BoardPython("aarch64", "/usr/bin/python3", (3, 10), (2, 35)),
    init="systemd",
    systemd=249,
    clock=datetime(2026, 1, 1, 12, 0, 9, tzinfo=UTC),
)


def test_a_python_of_the_board_will_do() -> None:
    assert choose_python(AIFLY, "auto", None) == choose_python(AIFLY, "system", None) == "system"
    assert choose_python(AIFLY, "auto", "aarch64") == "system"
    assert choose_python(AIFLY, "bundled", "aarch64") == "bundled"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (EULER, r"has no Python 3\.9 or later"),
        (replace(AIFLY, lacks=("ssl", "libstdc++.so.6")), r"Python 3\.10 without ssl and libstdc\+\+\.so\.6"),
        (
            replace(AIFLY, libc="glibc 2.12", python=BoardPython("aarch64", "python3", (3, 9), (2, 12))),
            r"glibc 2\.12, for which there are no wheels",
        ),
    ],
    ids=["none", "incomplete", "old glibc"],
)
def test_where_it_will_not_what_it_lacks_is_named(facts: BoardFacts, why: str) -> None:
    for wish in ("auto", "system"):
        with pytest.raises(ProfagentError, match=why) as refused:
            choose_python(facts, wish, None)
        assert "profagent bundle --arch aarch64 --libraries DIR -o" in refused.value.hint
    assert choose_python(facts, "auto", "aarch64") == "bundled"


def test_what_was_deployed_stays_with_its_init_system() -> None:
    deployed = replace(AIFLY, files={"/etc/init.d/profagentd": ""})
    assert choose_init(deployed, "auto", USUAL) == "initd"
    with pytest.raises(UsageError, match="was deployed with --init initd"):
        choose_init(deployed, "systemd", USUAL)


def test_an_init_system_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="does not run systemd"):
        choose_init(EULER, "systemd", USUAL)
    with pytest.raises(UsageError, match="app may not install a service") as error:
        choose_init(replace(AIFLY, uid=1000, user="app"), "auto", USUAL)
    assert "--init none" in error.value.hint
    assert choose_init(replace(AIFLY, uid=1000), "none", USUAL) == "none"


def test_room_is_looked_for_first() -> None:
    check_room(EULER, USUAL, 40 << 20)
    check_room(replace(EULER, free_bytes=None), USUAL, 60 << 20)
    with pytest.raises(ProfagentError, match=r"has 50\.0 MiB free, and 62\.0 MiB are needed"):
        check_room(EULER, USUAL, 60 << 20)
    with pytest.raises(ProfagentError, match="/opt on euler cannot be written to by root"):
        check_room(replace(EULER, is_writable=False), USUAL, 0)


def test_a_board_is_called_by_its_host_name() -> None:
    assert board_name(replace(EULER, hostname="euler.lab 3")) == "euler-lab-3"
    for name in ("", "(none)", "localhost"):
        with pytest.raises(UsageError, match="the board calls itself") as error:
            board_name(replace(EULER, hostname=name))
        assert "--name" in error.value.hint


def test_facts_are_told_with_what_is_odd() -> None:
    now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    assert list(fact_lines(AIFLY, now)) == [
        "board    euler: aarch64, Linux 4.19.90, glibc 2.29",
        "python   Python 3.10 (/usr/bin/python3)",
        "init     systemd 249; logged in as root",
        "disk     /opt: 50 MiB free",
        "clock    2026-01-01 12:00 UTC, +9 s from this host's",
        "npu      /dev/svp_npu",
    ]
    # What is installed does not run for that.
    assert "init     initd; logged in as root" in fact_lines(replace(AIFLY, init="initd"), now)
    odd = "\n".join(fact_lines(replace(EULER, npu=("pqp",), is_writable=False, free_bytes=None), now))
    for part in ("no Python 3.9", "N/A, cannot be written to", "1970-01-02 00:00 UTC: never set", "another stack"):
        assert part in odd


@pytest.mark.parametrize("init", ["systemd", "initd"])
def test_the_service_of_another_prefix_is_none_of_this_one(init: str) -> None:
    files = {path: text for path, (text, _) in service(init, USUAL, (), deletes=False).files.items()}
    facts = replace(AIFLY, files=files)
    assert is_deployed(facts, USUAL)
    assert not is_deployed(facts, Layout("/data"))


@pytest.mark.parametrize("ahead_s", [-2, 0, 1])
def test_a_clock_that_agrees_within_what_a_board_tells_is_not_called_off(ahead_s: int) -> None:
    now = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)
    told = list(fact_lines(replace(AIFLY, clock=now + timedelta(seconds=ahead_s)), now))
    assert "clock    2026-01-01 12:00 UTC, as this host's to within 2 s" in told
