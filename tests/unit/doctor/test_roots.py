"""Checks of roots, mounts and inotify, each good, bad, and not to be known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profagent.doctor.finding import Mark
from profagent.doctor.roots import free_space, inotify, network_mounts, plain_path, readable, roots_checks
from profagent.link.translate import DaemonFacts, Examination, InotifyFacts, JobFacts, Mount, RootFacts
from tests.unit.doctor.facts import BOARD, ROOT, ROOT_PATH, SERVICE


def marks(board: Examination, *roots: str) -> dict[str, Mark]:
    return {finding.check: finding.mark for finding in roots_checks(board, roots or (ROOT_PATH,))}


def test_roots_in_good_order() -> None:
    assert marks(BOARD) == dict.fromkeys(("root", "path", "space", "mounts", "inotify"), Mark.GOOD)


def test_a_root_that_does_not_answer_is_not_known_and_the_others_are() -> None:
    board = replace(BOARD, unknown=(("root /mnt/share", "it did not answer within 3 s"),))
    findings = list(roots_checks(board, (ROOT_PATH, "/mnt/share")))
    (silent,) = (finding for finding in findings if finding.mark is Mark.UNKNOWN)
    assert silent.check == "root"
    assert "/mnt/share: it did not answer" in silent.evidence
    assert [finding.mark for finding in findings if ROOT_PATH in finding.evidence] == [Mark.GOOD] * 3


@pytest.mark.parametrize(
    ("root", "named"),
    [
        (RootFacts(ROOT_PATH, error="No such file or directory"), "mkdir -p /opt/app/profiling"),
        (RootFacts(ROOT_PATH, error="Permission denied"), "ls -ld /opt/app/profiling"),
        (replace(ROOT, unreadable=(("/opt/app/x y", "Permission denied"),)), "ls -ld '/opt/app/x y'"),
        (replace(ROOT, newest=(JobFacts("/opt/app/JOB", error="Permission denied"),)), "ls -ld /opt/app/JOB"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_do(root: RootFacts, named: str) -> None:
    finding = readable(root, BOARD)
    assert finding.mark is Mark.BAD
    assert named in finding.remedy


def test_a_daemon_without_the_right_to_read_is_told_of_it() -> None:
    root = RootFacts(ROOT_PATH, error="Permission denied")
    for capabilities, is_told in ((0, True), (1 << 2, False)):
        board = replace(BOARD, daemon=DaemonFacts(1000, capabilities))
        assert ("give it CAP_DAC_READ_SEARCH" in readable(root, board).remedy) == is_told


@pytest.mark.parametrize("path", ["/opt/app_1/Profiling", "/a"])
def test_paths_of_the_manuals_alphabet(path: str) -> None:
    assert plain_path(path).mark is Mark.GOOD


@pytest.mark.parametrize(("path", "odd"), [("/opt/my-app", "'-'"), ("/opt/a.b c", "' .'"), ("/opt/应用", "'应用'")])
def test_paths_outside_the_manuals_alphabet(path: str, odd: str) -> None:
    finding = plain_path(path)
    assert finding.mark is Mark.BAD
    assert odd in finding.evidence or odd[::-1] in finding.evidence
    assert "unverified" in finding.evidence


def test_free_space() -> None:
    assert [each.mark for each in free_space(ROOT)] == [Mark.GOOD]
    assert [each.mark for each in free_space(replace(ROOT, free_bytes=1_000_000))] == [Mark.BAD]
    (inodes,) = free_space(replace(ROOT, has_inodes=False))
    assert (inodes.mark, "inodes" in inodes.evidence) == (Mark.BAD, True)
    assert list(free_space(RootFacts(ROOT_PATH, error="no"))) == []


def test_retention_is_given_in_the_way_in_which_the_daemon_was_started() -> None:
    full = replace(ROOT, free_bytes=1_000_000)
    (service,) = free_space(full, SERVICE)
    assert "in /etc/profagent/profagentd.toml retain = 'delivered'" in service.remedy
    assert "kill -HUP 77" in service.remedy
    (by_hand,) = free_space(full, BOARD.daemon)
    assert "start the daemon with --retain delivered" in by_hand.remedy


@pytest.mark.parametrize(
    ("mount", "mark"),
    [
        (Mount("/root/app/profiling", "nfs", "192.0.2.9:/x"), Mark.BAD),
        (Mount("/opt/app", "nfs4", "192.0.2.9:/x"), Mark.BAD),
        (Mount("/opt/ap", "nfs", "192.0.2.9:/x"), Mark.UNKNOWN),
        (Mount("/", "nfs", "192.0.2.9:/x"), Mark.BAD),
        (Mount("/mnt", "fuse.sshfs", "x"), Mark.GOOD),
    ],
)
def test_mounts_that_were_left_behind(mount: Mount, mark: Mark) -> None:
    (finding,) = network_mounts(replace(BOARD, remote_mounts=(mount,)), (ROOT_PATH,))
    assert finding.mark is mark
    assert (f"umount {mount.point}" in finding.remedy) == (mark is not Mark.GOOD)


def test_mounts_of_a_board_that_does_not_tell() -> None:
    (finding,) = network_mounts(Examination(unknown=(("mounts", "no"),)), ())
    assert finding.mark is Mark.UNKNOWN


@pytest.mark.parametrize(
    ("limits", "mark"),
    [
        (InotifyFacts(8192, 128, 16384, 5), Mark.GOOD),
        (InotifyFacts(100, 128, 16384, 5), Mark.BAD),
        (InotifyFacts(8192, 128, 16384, 8000), Mark.BAD),
        (InotifyFacts(8192, 0, 16384, 5), Mark.BAD),
        (None, Mark.UNKNOWN),
    ],
)
def test_limits_of_inotify(limits: InotifyFacts | None, mark: Mark) -> None:
    finding = inotify(replace(BOARD, inotify=limits))
    assert finding.mark is mark
    assert ("sysctl -w" in finding.remedy) == (mark is Mark.BAD)
