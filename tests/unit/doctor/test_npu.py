"""Checks of the NPU, each with a board on which it is good, bad, and not to be known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profagent.doctor.finding import Mark
from profagent.doctor.npu import npu_checks, npu_errors, npu_stack, profiling_tasks, umap_nodes, umask
from profagent.link.translate import Examination, JobFacts, NpuFacts, NpuProcess, ProcessFacts, UmapNode
from tests.unit.doctor.facts import BOARD, PROCESS, ROOT, UMAP

SILENT = Examination(unknown=tuple((source, "it did not answer") for source in ("npu", "processes", "umap")))


def test_a_board_in_good_order_has_nothing_to_mend() -> None:
    findings = list(npu_checks(BOARD, simulated=False))
    assert {finding.mark for finding in findings} == {Mark.GOOD}
    assert len({finding.check for finding in findings}) == len(findings) == 5
    assert not any(finding.remedy for finding in findings)


def test_a_board_that_tells_nothing_leaves_all_unknown() -> None:
    for board in (SILENT, Examination()):
        findings = list(npu_checks(board, simulated=False))
        assert {finding.mark for finding in findings} == {Mark.UNKNOWN}
    assert npu_stack(SILENT, simulated=False).evidence == "it did not answer"


@pytest.mark.parametrize(
    "npu",
    [
        NpuFacts(has_other_device=True),
        NpuFacts(has_other_libraries=True),
        NpuFacts(modules=("ot_pqp",)),
    ],
)
def test_the_other_stack_is_named(npu: NpuFacts) -> None:
    finding = npu_stack(replace(BOARD, npu=npu), simulated=False)
    assert finding.mark is Mark.BAD
    assert "other NPU stack (ot_pqp" in finding.evidence
    assert finding.remedy


def test_no_stack_at_all_is_bad_but_on_a_simulated_board() -> None:
    bare = replace(BOARD, npu=NpuFacts())
    assert npu_stack(bare, simulated=False).mark is Mark.BAD
    assert "load" in npu_stack(bare, simulated=False).remedy
    assert npu_stack(bare, simulated=True).mark is Mark.UNKNOWN


def test_signs_of_both_stacks_are_told_where_the_right_device_is_there() -> None:
    both = NpuFacts(has_device=True, has_other_libraries=True)
    finding = npu_stack(replace(BOARD, npu=both), simulated=False)
    assert finding.mark is Mark.GOOD
    assert "/opt/lib/npu" in finding.evidence


def tasks(processes: int, open_jobs: int, *, are_all_seen: bool = True) -> Examination:
    seen = tuple(replace(PROCESS, pid=pid) for pid in range(7, 7 + processes))
    return replace(
        BOARD,
        processes=ProcessFacts(seen, processes, are_all_seen),
        roots=(replace(ROOT, open_jobs=open_jobs),),
    )


@pytest.mark.parametrize(
    ("board", "mark"),
    [
        (tasks(0, 0), Mark.GOOD),
        (tasks(1, 1), Mark.GOOD),
        (tasks(1, 2), Mark.GOOD),
        (tasks(2, 2), Mark.BAD),
        (tasks(2, 1), Mark.UNKNOWN),
        (tasks(0, 0, are_all_seen=False), Mark.UNKNOWN),
    ],
)
def test_a_second_profiling_task(board: Examination, mark: Mark) -> None:
    finding = profiling_tasks(board)
    assert finding.mark is mark
    assert ("kill 8" in finding.remedy) == (mark is Mark.BAD)


def test_nodes_that_are_absent_or_closed() -> None:
    assert umap_nodes(replace(BOARD, umap=(UmapNode("svp_nnn", text=UMAP),))).mark is Mark.GOOD
    assert umap_nodes(replace(BOARD, umap=(UmapNode("sys"),))).mark is Mark.UNKNOWN
    closed = umap_nodes(replace(BOARD, umap=(UmapNode("svp_npu", error="Permission denied"),)))
    assert closed.mark is Mark.BAD
    assert "svp_npu: Permission denied" in closed.evidence


def test_errors_that_the_driver_counts() -> None:
    assert npu_errors(BOARD.umap).mark is Mark.GOOD
    lines = UMAP.splitlines()
    lines[-1] = lines[-1].replace("0 ", "3 ", 1)
    finding = npu_errors((UmapNode("svp_npu", text="\n".join(lines)),))
    assert finding.mark is Mark.BAD
    assert "timeout_err_cnt 3" in finding.evidence
    assert "unverified" in finding.evidence
    assert "reboot" in finding.remedy
    assert npu_errors((UmapNode("svp_npu", text="nothing of the kind"),)).mark is Mark.UNKNOWN


@pytest.mark.parametrize(
    ("text", "mark"),
    [("0027", Mark.GOOD), ("0077", Mark.GOOD), ("0022", Mark.BAD), ("0007", Mark.BAD), ("?", Mark.BAD)],
)
def test_the_umask_of_a_program(text: str, mark: Mark) -> None:
    board = replace(BOARD, processes=ProcessFacts((NpuProcess(7, "main", 0, text),), 1))
    finding = umask(board)
    assert finding.mark is mark
    assert ("umask 0027" in finding.remedy) == (mark is Mark.BAD)


@pytest.mark.parametrize(
    ("mode", "mark"), [(0o750, Mark.GOOD), (0o700, Mark.GOOD), (0o755, Mark.BAD), (0o770, Mark.BAD), (0, Mark.UNKNOWN)]
)
def test_without_a_program_the_modes_of_jobs_tell_its_umask(mode: int, mark: Mark) -> None:
    """A kernel that prints no umask, and no program at all; a mode of 0 is one that could not be read."""
    jobs = (replace(ROOT, newest=(JobFacts("/opt/JOB", mode),)),)
    for processes in (ProcessFacts(), ProcessFacts((replace(PROCESS, umask=""),), 1)):
        assert umask(replace(BOARD, processes=processes, roots=jobs)).mark is mark
