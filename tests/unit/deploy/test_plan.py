"""What is done on which board, and what is said when it cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from profagent.boards.layout import Layout
from profagent.boards.survey import BoardPython
from profagent.deploy.board import board_name, choose_init
from profagent.deploy.installed import InstalledFacts, fact_lines, installed_script, read_installed
from profagent.deploy.units import (
    check_owner,
    every_service_file,
    installed_init,
    owned_init,
    removal_request,
    service,
)
from profagent.errors import ProfagentError, UsageError
from tests.board.deployed import mounted

SAID = """machine=aarch64
kernel=4.19.90
hostname=euler
model=
user=root
uid=0
clock=86400
libc=glibc 2.29
python=
init=initd
kept=
before=
versions=
place=/opt
writable=yes
free_kib=51200
npu=svp_npu
"""
USUAL = Layout()
EULER = read_installed(SAID)
AIFLY = replace(
    EULER,
    python=BoardPython("aarch64", "/usr/bin/python3", (3, 10), (2, 35)),
    init="systemd",
    systemd=249,
    clock=datetime(2026, 1, 1, 12, 0, 9, tzinfo=UTC),
)


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
        with pytest.raises(UsageError, match="the board has the name") as error:
            board_name(replace(EULER, hostname=name))
        assert "--name" in error.value.hint


def test_facts_are_told_with_what_is_odd() -> None:
    now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    assert list(fact_lines(AIFLY, now)) == [
        "board    euler: aarch64, Linux 4.19.90, glibc 2.29",
        "system   N/A",
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


# What a board says of itself: the real script in real shells, and answers of boards that are not at hand


def own_network(folder: Path) -> list[str]:
    """Words with which a program sees these interfaces: its own, a virtual one, an adapter, one of a chance address."""
    interfaces = {"eth0": ("05", "0", "soc/eth0"), "lo": ("06", "0", ""), "usb0": ("07", "0", "usb1/1-1")}
    interfaces["eth1"] = ("08", "1", "soc/eth1")
    for name, (last, kind, device) in interfaces.items():
        place = folder / "net" / name
        place.mkdir(parents=True)
        (place / "address").write_text(f"00:11:22:33:44:{last}\n")
        (place / "addr_assign_type").write_text(f"{kind}\n")
        if device:
            (folder / "devices" / device).mkdir(parents=True)
            (place / "device").symlink_to(folder / "devices" / device)
    return mounted(f"mount --bind {folder}/net /sys/class/net")


def asked(layout: Layout, *shell: str, files: tuple[str, ...] = ()) -> InstalledFacts:
    script = installed_script(layout, files)
    ran = subprocess.run([*shell, "-s"], input=script, check=True, capture_output=True, text=True)
    assert ran.stderr == ""
    return read_installed(ran.stdout)


@pytest.mark.parametrize("shell", [("sh",), ("busybox", "sh"), ("bash", "--posix")], ids=lambda words: words[0])
def test_this_machine_is_seen_as_it_is(shell: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which(shell[0]) is None:
        pytest.fail(f"the tests need {shell[0]}")
    here = os.uname()
    (tmp_path / "b/etc/keys").mkdir(parents=True)
    (tmp_path / "b/etc/keys/board.key").write_text("secret")
    (tmp_path / "b/etc/profagentd.toml").write_text("# one\n\nlisten = '127.0.0.1:1'\n")
    for name in ("1-a", "1-00000000"):
        (tmp_path / "b/versions" / name).mkdir(parents=True)
    (tmp_path / "b/current").symlink_to("versions/1-a")
    (tmp_path / "b/previous").symlink_to("versions/1-00000000")
    layout = Layout(str(tmp_path / "b"))
    facts = asked(layout, *shell, files=(layout.config, layout.board_id))
    assert (facts.machine, facts.kernel, facts.hostname, facts.uid) == (
        here.machine,
        here.release,
        here.nodename,
        os.geteuid(),
    )
    assert facts.files == {layout.config: "# one\n\nlisten = '127.0.0.1:1'\n"}
    assert (facts.current, facts.previous, facts.has_key) == ("1-a", "1-00000000", True)
    assert set(facts.versions) == {"1-a", "1-00000000"}
    disk = os.statvfs(tmp_path)
    assert facts.free_bytes == pytest.approx(disk.f_bavail * disk.f_frsize, abs=1 << 30)
    assert facts.is_writable
    assert facts.clock is not None
    assert abs((facts.clock - datetime.now(UTC)).total_seconds()) < 600


def test_nothing_is_written_and_the_nearest_directory_is_found(tmp_path: Path) -> None:
    facts = asked(Layout(str(tmp_path / "not/yet/there")), "sh")
    assert facts.place == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_marks_are_of_this_machine_alone() -> None:
    told = "macs=00:11:22:33:44:55 AC:DE:48:00:11:22 02:fc:00:00:00:01 \nserial=0042\nmachine_id=3d1219\n"
    marks = read_installed(f"{SAID}{told}").marks
    assert marks[:3] == ("mac:00:11:22:33:44:55", "mac:ac:de:48:00:11:22", "serial:0042")
    assert len(marks) == 4
    assert marks[3].startswith("machine-id:")
    assert "3d1219" not in marks[3]
    assert read_installed(SAID).marks == ()


def test_this_machines_own_interfaces_are_found(tmp_path: Path) -> None:
    facts = asked(Layout(str(tmp_path / "b")), *own_network(tmp_path), "sh")
    assert [mark for mark in facts.marks if mark.startswith("mac:")] == ["mac:00:11:22:33:44:05"]


def test_a_login_banner_is_passed_over() -> None:
    banner = "+------+\n| Hi!  |\n+------+\n"
    assert read_installed(f"{banner}{SAID}file=/a\n|one\n|\n").files == {"/a": "one\n"}


def test_another_answer_is_no_survey() -> None:
    with pytest.raises(ProfagentError, match="printed an unexpected answer"):
        read_installed("Welcome!\n")


# A service's files: those of systemd/ with a board's paths in place of the usual ones

# Holds the usual prefix, which must not be replaced twice.
ELSEWHERE = Layout("/opt/profagent2")
UNITS = Path(__file__).parents[3] / "systemd"
UNIT = "/etc/systemd/system/profagentd.service"


def test_the_usual_files_are_those_of_the_checkout() -> None:
    found = service("systemd", USUAL, (), deletes=False).files
    assert found[UNIT] == ((UNITS / "profagentd.service").read_text(), 0o644)
    script = service("initd", USUAL, (), deletes=False).files
    assert script == {"/etc/init.d/profagentd": ((UNITS / "profagentd.init").read_text(), 0o755)}


@pytest.mark.parametrize("init", ["systemd", "initd", "none"])
def test_elsewhere_nothing_of_the_usual_paths_is_left(init: str) -> None:
    for text, _ in service(init, ELSEWHERE, (), deletes=False).files.values():
        for usual in ("/opt/profagent/", " /etc/profagent", "RUN=/var/run", "LOG=/var/log"):
            assert usual not in text
    unit = service("systemd", ELSEWHERE, (), deletes=False).files[UNIT][0]
    assert (
        "ExecStart=/opt/profagent2/current/bin/profagentd --config /opt/profagent2/etc/profagentd.toml"
        " --roots-d /opt/profagent2/etc/roots.d\n" in unit
    )
    script = service("none", ELSEWHERE, (), deletes=False).files["/opt/profagent2/profagentd.init"][0]
    assert "\nPREFIX=/opt/profagent2\n" in script
    assert "\nLOG=/opt/profagent2/profagentd.log\n" in script
    assert 'mkdir -p "$RUN" /opt/profagent2/state' in script


def test_only_who_deletes_may_write_where_jobs_are() -> None:
    drop_in = f"{UNIT}.d/retention.conf"
    deleting = service("systemd", USUAL, ("/a b", '/100%"'), deletes=True)
    assert 'ReadWritePaths="-/a b" "-/100%%\\""\n' in deleting.files[drop_in][0]
    keeping = service("systemd", USUAL, ("/a",), deletes=False)
    assert drop_in not in keeping.files
    assert keeping.unwanted == (drop_in,)


def test_a_service_is_known_by_its_files() -> None:
    for init in ("systemd", "initd", "none"):
        own = service(init, ELSEWHERE, (), deletes=True).files
        assert set(own) <= set(every_service_file(ELSEWHERE))
        texts = {path: text for path, (text, _) in own.items()}
        assert installed_init(ELSEWHERE, texts) == owned_init(ELSEWHERE, texts) == init
        assert owned_init(USUAL, texts) is None
        check_owner(ELSEWHERE, texts, "euler")
        if init != "none":
            with pytest.raises(UsageError, match="the service on euler starts the daemon below /opt/profagent2"):
                check_owner(USUAL, texts, "euler")
    assert installed_init(USUAL, {}) is None
    check_owner(USUAL, {}, "euler")


@pytest.mark.parametrize("root", ["/opt/profagent/versions/jobs", "/etc/profagent/x", "/var/lib/profagentd/jobs"])
def test_jobs_are_not_removed_with_the_rest(root: str) -> None:
    own = service("systemd", USUAL, (), deletes=False)
    with pytest.raises(UsageError, match=f"JOBs below {root} would be removed"):
        removal_request(USUAL, own, ("/root/jobs", root))
    assert removal_request(USUAL, own, ("/root/jobs", "/opt/profagent-jobs"))["act"] == "remove"


@pytest.mark.parametrize("prefix", ["relative", "/", "/a b", "/a'b", "/a/../b", "/a//b", "/a/"])
def test_a_prefix_is_plain(prefix: str) -> None:
    with pytest.raises(UsageError, match="--prefix"):
        Layout(prefix)
