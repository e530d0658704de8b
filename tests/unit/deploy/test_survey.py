"""What a board says of itself: the real script in real shells, and answers of boards that are not at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from profagent.deploy.survey import BoardFacts, read_survey, survey_script
from profagent.deploy.units import Layout
from profagent.errors import ProfagentError
from tests.board.deployed import mounted

EULER = """machine=aarch64
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


def asked(layout: Layout, *shell: str, files: tuple[str, ...] = ()) -> BoardFacts:
    script = survey_script(layout, files)
    ran = subprocess.run([*shell, "-s"], input=script, check=True, capture_output=True, text=True)
    assert ran.stderr == ""
    return read_survey(ran.stdout)


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
    marks = read_survey(f"{EULER}{told}").marks
    assert marks[:3] == ("mac:00:11:22:33:44:55", "mac:ac:de:48:00:11:22", "serial:0042")
    assert len(marks) == 4
    assert marks[3].startswith("machine-id:")
    assert "3d1219" not in marks[3]
    assert read_survey(EULER).marks == ()


def test_this_machines_own_interfaces_are_found(tmp_path: Path) -> None:
    facts = asked(Layout(str(tmp_path / "b")), *own_network(tmp_path), "sh")
    assert [mark for mark in facts.marks if mark.startswith("mac:")] == ["mac:00:11:22:33:44:05"]


def test_a_login_banner_is_passed_over() -> None:
    banner = "+------+\n| Hi!  |\n+------+\n"
    assert read_survey(f"{banner}{EULER}file=/a\n|one\n|\n").files == {"/a": "one\n"}


def test_another_answer_is_no_survey() -> None:
    with pytest.raises(ProfagentError, match="does not answer as expected"):
        read_survey("Welcome!\n")
