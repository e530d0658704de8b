"""Checks of the NPU and of roots, each with a board on which it is good, bad, and not to be known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profagent.doctor.board import npu_checks, roots_checks
from profagent.doctor.finding import Finding, Mark
from profagent.link.translate import (
    Examination,
    InotifyFacts,
    JobFacts,
    Mount,
    NpuFacts,
    NpuProcess,
    ProcessFacts,
    RootFacts,
    UmapNode,
)
from tests.unit.doctor.facts import BOARD, PROCESS, ROOT, ROOT_PATH, UMAP

SILENT = Examination(unknown=tuple((source, "it did not answer") for source in ("npu", "processes", "umap")))
GOOD, BAD, UNKNOWN = Mark.GOOD, Mark.BAD, Mark.UNKNOWN


def found(check: str, board: Examination, *, simulated: bool = False) -> Finding:
    """What is found of a check."""
    findings = [*npu_checks(board, simulated=simulated), *roots_checks(board, (ROOT_PATH,))]
    return next(finding for finding in findings if finding.check == check)


def test_a_board_in_good_order_has_nothing_to_mend_and_a_silent_one_is_not_known() -> None:
    findings = [*npu_checks(BOARD, simulated=False), *roots_checks(BOARD, (ROOT_PATH,))]
    assert {finding.mark for finding in findings} == {GOOD}
    assert len({finding.check for finding in findings}) == len(findings) == 9
    for board in (SILENT, Examination()):
        assert {finding.mark for finding in npu_checks(board, simulated=False)} == {UNKNOWN}


@pytest.mark.parametrize(
    ("npu", "mark", "told"),
    [
        (NpuFacts(has_other_device=True), BAD, "other NPU stack (ot_pqp"),
        (NpuFacts(modules=("ot_pqp",)), BAD, "other NPU stack (ot_pqp"),
        (NpuFacts(), BAD, "/dev/svp_npu is missing"),
        (NpuFacts(has_device=True, has_other_libraries=True), GOOD, "/opt/lib/npu"),
    ],
)
def test_the_stack(npu: NpuFacts, mark: Mark, told: str) -> None:
    finding = found("npu-stack", replace(BOARD, npu=npu))
    assert (finding.mark, bool(finding.remedy)) == (mark, mark is BAD)
    assert told in finding.evidence
    if npu == NpuFacts():
        assert found("npu-stack", replace(BOARD, npu=npu), simulated=True).mark is UNKNOWN


@pytest.mark.parametrize(
    ("processes", "open_jobs", "are_all_seen", "mark"),
    [(0, 0, True, GOOD), (1, 2, True, GOOD), (2, 2, True, BAD), (2, 1, True, UNKNOWN), (0, 0, False, UNKNOWN)],
)
def test_a_second_profiling_task(processes: int, open_jobs: int, are_all_seen: bool, mark: Mark) -> None:
    seen = tuple(replace(PROCESS, pid=pid) for pid in range(7, 7 + processes))
    facts = ProcessFacts(seen, processes, are_all_seen)
    finding = found("npu-tasks", replace(BOARD, processes=facts, roots=(replace(ROOT, open_jobs=open_jobs),)))
    assert finding.mark is mark
    assert ("kill 8" in finding.remedy) == (mark is BAD)


def test_errors_that_the_driver_counts() -> None:
    assert found("npu-errors", replace(BOARD, umap=(UmapNode("svp_nnn", text=UMAP),))).mark is GOOD
    assert found("npu-errors", replace(BOARD, umap=(UmapNode("sys"),))).mark is UNKNOWN
    closed = found("npu-errors", replace(BOARD, umap=(UmapNode("svp_npu", error="Permission denied"),)))
    assert closed.mark is BAD
    assert "svp_npu cannot be read: Permission denied" in closed.evidence
    lines = UMAP.splitlines()
    lines[-1] = lines[-1].replace("0 ", "3 ", 1)
    finding = found("npu-errors", replace(BOARD, umap=(UmapNode("svp_npu", text="\n".join(lines)),)))
    assert finding.mark is BAD
    assert "timeout_err_cnt 3" in finding.evidence
    assert "reboot" in finding.remedy
    assert found("npu-errors", replace(BOARD, umap=(UmapNode("svp_npu", text="of no kind"),))).mark is UNKNOWN
    newer = replace(BOARD, umap=(UmapNode("svp_nnn", text=" hw_err_cnt aacpu_err_cnt\n 0 2\n"),))
    assert found("npu-errors", newer).evidence.startswith("hw_err_cnt 0, aacpu_err_cnt 2")


@pytest.mark.parametrize(("text", "mark"), [("0027", GOOD), ("0077", GOOD), ("0022", BAD), ("0007", BAD), ("?", BAD)])
def test_the_umask_of_a_program(text: str, mark: Mark) -> None:
    finding = found("umask", replace(BOARD, processes=ProcessFacts((NpuProcess(7, "main", 0, text),), 1)))
    assert finding.mark is mark
    assert ("umask 0027" in finding.remedy) == (mark is BAD)


@pytest.mark.parametrize(
    ("root", "named"),
    [
        (RootFacts(ROOT_PATH, error="No such file or directory"), "mkdir -p /opt/app/profiling"),
        (replace(ROOT, unreadable=(("/opt/app/x y", "Permission denied"),)), "ls -ld '/opt/app/x y'"),
        (replace(ROOT, newest=(JobFacts("/opt/app/JOB", error="Permission denied"),)), "ls -ld /opt/app/JOB"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_do(root: RootFacts, named: str) -> None:
    finding = found("root", replace(BOARD, roots=(root,)))
    assert finding.mark is BAD
    assert named in finding.remedy


def test_room_and_how_to_have_the_daemon_make_it() -> None:
    full = found("space", replace(BOARD, roots=(replace(ROOT, free_bytes=1_000_000),)))
    assert full.mark is BAD
    assert "in /etc/profagent/profagentd.toml retain = 'delivered'" in full.remedy
    assert "start the daemon with --retain delivered" in full.remedy
    assert "inodes" in found("space", replace(BOARD, roots=(replace(ROOT, has_inodes=False),))).evidence


@pytest.mark.parametrize(
    ("mount", "mark"),
    [
        (Mount("/root/app/profiling", "nfs", "192.0.2.9:/x"), BAD),
        (Mount("/opt/app", "nfs4", "192.0.2.9:/x"), BAD),
        (Mount("/opt/ap", "nfs", "192.0.2.9:/x"), UNKNOWN),
        (Mount("/mnt", "fuse.sshfs", "x"), GOOD),
    ],
)
def test_mounts_that_were_left_behind(mount: Mount, mark: Mark) -> None:
    finding = found("mounts", replace(BOARD, remote_mounts=(mount,)))
    assert finding.mark is mark
    assert (f"umount {mount.point}" in finding.remedy) == (mark is not GOOD)
    assert found("mounts", Examination(unknown=(("mounts", "no"),))).mark is UNKNOWN


@pytest.mark.parametrize(
    ("limits", "mark"),
    [
        (InotifyFacts(8192, 128, 16384, 5), GOOD),
        (InotifyFacts(100, 128, 16384, 5), BAD),
        (InotifyFacts(8192, 128, 16384, 8000), BAD),
        (InotifyFacts(8192, 0, 16384, 5), BAD),
        (None, UNKNOWN),
    ],
)
def test_limits_of_inotify(limits: InotifyFacts | None, mark: Mark) -> None:
    finding = found("inotify", replace(BOARD, inotify=limits))
    assert finding.mark is mark
    assert ("sysctl -w" in finding.remedy) == (mark is BAD)
