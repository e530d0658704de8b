"""What is done on which board, and what is said when it cannot be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from profagent.deploy.board import board_name, choose_init
from profagent.deploy.daemon_tree import BoardPython, DaemonTree, chosen_version, pack, unfit
from profagent.deploy.survey import BoardFacts, fact_lines, read_survey
from profagent.deploy.units import Layout
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
    assert unfit(AIFLY) is None


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
async def test_where_it_will_not_what_it_lacks_is_named(facts: BoardFacts, why: str) -> None:
    for wish in ("auto", "system"):
        with pytest.raises(ProfagentError, match=why) as refused:
            await chosen_version(facts, wish, None, None)
        assert "profagent bundle --arch aarch64 --libraries DIR -o" in refused.value.hint


async def test_a_bundle_is_taken_where_it_is_needed_and_fits(tmp_path: Path) -> None:
    made, other = (DaemonTree.of("1", "start", {}, machine=machine) for machine in ("aarch64", "x86_64"))
    (tmp_path / "bundle").write_bytes(pack(made))
    (tmp_path / "other").write_bytes(pack(other))
    assert await chosen_version(EULER, "auto", tmp_path / "bundle", None) == made
    assert await chosen_version(AIFLY, "bundled", tmp_path / "bundle", None) == made
    with pytest.raises(ProfagentError, match="the bundle is for x86_64, and euler is aarch64"):
        await chosen_version(EULER, "auto", tmp_path / "other", None)


def test_what_was_deployed_stays_with_its_init_system() -> None:
    deployed = replace(AIFLY, files={"/etc/init.d/profagentd": ""})
    assert choose_init(deployed, "auto", USUAL) == "initd"
    with pytest.raises(UsageError, match="was installed with --init initd"):
        choose_init(deployed, "systemd", USUAL)


def test_an_init_system_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="does not run systemd"):
        choose_init(EULER, "systemd", USUAL)
    with pytest.raises(UsageError, match="app may not install a service") as error:
        choose_init(replace(AIFLY, uid=1000, user="app"), "auto", USUAL)
    assert "--init none" in error.value.hint
    assert choose_init(replace(AIFLY, uid=1000), "none", USUAL) == "none"


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
