"""Checks of the NPU and of roots, each with a board on which it is good, bad, and not to be known."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profagent.doctor import host
from profagent.doctor.acl_json import acl_json_section
from profagent.doctor.board import npu_checks, roots_checks
from profagent.doctor.finding import Finding, FindingMark, Section
from profagent.doctor.host import KnownIdentities, clock, identities, workspace_checks
from profagent.importing.importing import import_into
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
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from tests.daemon.privileges import public_directory, without_privileges
from tests.fakes.dumps import dump, write_files
from tests.fakes.job_copy import JOB
from tests.fakes.small_job import SMALL_JOB
from tests.unit.doctor.facts import BOARD, PROCESS, ROOT, ROOT_PATH, UMAP

SILENT = Examination(unknown=tuple((source, "it did not answer") for source in ("npu", "processes", "umap")))
GOOD, BAD, UNKNOWN = FindingMark.GOOD, FindingMark.BAD, FindingMark.UNKNOWN


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
def test_the_stack(npu: NpuFacts, mark: FindingMark, told: str) -> None:
    finding = found("npu-stack", replace(BOARD, npu=npu))
    assert (finding.mark, bool(finding.remedy)) == (mark, mark is BAD)
    assert told in finding.evidence
    if npu == NpuFacts():
        assert found("npu-stack", replace(BOARD, npu=npu), simulated=True).mark is UNKNOWN


@pytest.mark.parametrize(
    ("processes", "open_jobs", "are_all_seen", "mark"),
    [(0, 0, True, GOOD), (1, 2, True, GOOD), (2, 2, True, BAD), (2, 1, True, UNKNOWN), (0, 0, False, UNKNOWN)],
)
def test_a_second_profiling_task(processes: int, open_jobs: int, are_all_seen: bool, mark: FindingMark) -> None:
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
def test_the_umask_of_a_program(text: str, mark: FindingMark) -> None:
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


def test_a_memory_card_is_told_and_its_modes_say_nothing_of_a_umask() -> None:
    card = replace(ROOT, file_system="vfat", newest=(JobFacts("/opt/app/JOB", 0o777),))
    board = replace(BOARD, processes=ProcessFacts((), 0), roots=(card,))
    assert found("file-system", board).mark is UNKNOWN
    assert "is on vfat: names ignore case" in found("file-system", board).evidence
    assert found("umask", board).mark is UNKNOWN
    assert found("umask", replace(board, roots=(replace(card, file_system="ext4"),))).mark is BAD


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
def test_mounts_that_were_left_behind(mount: Mount, mark: FindingMark) -> None:
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
def test_limits_of_inotify(limits: InotifyFacts | None, mark: FindingMark) -> None:
    finding = found("inotify", replace(BOARD, inotify=limits))
    assert finding.mark is mark
    assert ("sysctl -w" in finding.remedy) == (mark is BAD)


# Checks of this host and of the way to a board

MAIN = "from profagent.cli.main import main; main()"
NOW_US = 1_800_000_000_000_000


def make_database(file: Path) -> None:
    async def make() -> None:
        async with Store(file):
            pass

    asyncio.run(make())


@pytest.mark.parametrize(
    ("boards", "told"),
    [
        ([("a", "1:1", "u-1"), ("b", "2:1", "", "u-2")], [(FindingMark.GOOD, "own identity: 2")]),
        ([("a", "1:1", "u-1"), ("b", "2:1", "", "u-1")], [(FindingMark.BAD, "a and b have the same identity: u-1")]),
        ([("a", "1:1", "u-1"), ("1:1", "1:1", "", "u-1")], [(FindingMark.GOOD, "own identity: 1")]),
        (
            [("a", "1:1", "u-1", "u-2")],
            [(FindingMark.BAD, "u-2 answers at 1:1"), (FindingMark.GOOD, "own identity: 1")],
        ),
        (
            [("a", "1:1"), ("b", "2:1", "u-2")],
            [(FindingMark.UNKNOWN, "a: neither"), (FindingMark.GOOD, "own identity: 1")],
        ),
    ],
)
def test_identities(boards: list[tuple[str, ...]], told: list[tuple[FindingMark, str]]) -> None:
    found = list(identities([KnownIdentities(*each) for each in boards]))
    assert [each.mark for each in found] == [mark for mark, _ in told]
    assert all(text in each.evidence for each, (_, text) in zip(found, told, strict=True))


@pytest.mark.parametrize(
    ("offset_us", "uncertainty_us", "board_us", "mark"),
    [
        (0, 500, NOW_US, FindingMark.GOOD),
        (1_200_000, 500, NOW_US, FindingMark.BAD),
        (1_200_000, 400_000, NOW_US, FindingMark.UNKNOWN),
        # An image's own date; a link as slow as this could tell nothing more.
        (-NOW_US, NOW_US, 1_600_000_000_000_000, FindingMark.BAD),
        (None, 0, NOW_US, FindingMark.UNKNOWN),
    ],
)
def test_the_boards_clock(offset_us: int | None, uncertainty_us: int, board_us: int, mark: FindingMark) -> None:
    finding = clock(offset_us, uncertainty_us, board_us)
    assert finding.mark is mark
    assert ("date -u -s" in finding.remedy) == (mark is FindingMark.BAD)


def marks(workspace: Workspace) -> dict[str, FindingMark]:
    return {finding.check: finding.mark for finding in workspace_checks(workspace)}


def test_a_workspace_with_a_database_and_one_that_is_yet_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert marks(Workspace(tmp_path / "a" / "b")) == dict.fromkeys(("workspace", "host-space"), FindingMark.GOOD)
    assert list(tmp_path.iterdir()) == []
    make_database(Workspace(tmp_path).database)
    assert marks(Workspace(tmp_path)) == dict.fromkeys(("workspace", "database", "host-space"), FindingMark.GOOD)
    monkeypatch.setattr(host, "LEAST_FREE_BYTES", 1 << 60)
    assert marks(Workspace(tmp_path))["host-space"] is FindingMark.BAD


@pytest.mark.parametrize("first_page", [0, 5])
def test_a_damaged_database_is_made_anew_by_what_is_told(tmp_path: Path, first_page: int) -> None:
    workspace = Workspace(tmp_path / "a workspace")
    job = write_files(tmp_path / JOB, SMALL_JOB)
    asyncio.run(import_into(job, workspace, asyncio.Event(), board="euler-1"))
    before = dump(workspace.database)["op_records"]
    with workspace.database.open("r+b") as file:
        for page in range(first_page, workspace.database.stat().st_size // 4096, 3):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    (found,) = (each for each in workspace_checks(workspace) if each.check == "database")
    assert f"{workspace.database} is damaged: " in found.evidence
    told = found.remedy.replace("profagent import", f'"{sys.executable}" -c "{MAIN}" import')
    subprocess.run(["sh", "-c", told], check=False, capture_output=True, timeout=60)
    assert dump(tmp_path / "a workspace.new" / "profagent.db")["op_records"] == before


def test_a_workspace_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert marks(Workspace(tmp_path / "file" / "ws")) == {"workspace": FindingMark.BAD}
    with public_directory() as directory, without_privileges():
        (found,) = workspace_checks(Workspace(directory / "ws"))
        assert f"{directory}: Permission denied" in found.evidence


# Checks of acl.json, each against what the runtime library did with such a file, and the text that mends it

RIGHT = {
    "switch": "on",
    "output": "/opt/app/profiling",
    "interval": "1",
    "acl_api": "on",
    "aicpu": "on",
    "aacpu": "on",
    "aic_metrics": "ArithmeticUtilization",
    "aac_metrics": "ArithmeticUtilization",
}


def text(profiler: object = None, /, **others: object) -> bytes:
    return json.dumps({"profiler": RIGHT if profiler is None else profiler, **others}).encode()


def without(*keys: str, **others: object) -> bytes:
    return text({key: value for key, value in RIGHT.items() if key not in keys} | others)


def looked_at(data: bytes, **told: Any) -> Section:
    return acl_json_section("acl.json", data, **{"output": "directory", **told})


def bad(section: Section) -> list[str]:
    return [finding.check for finding in section.findings if finding.mark is FindingMark.BAD]


def unknown(section: Section) -> list[str]:
    return [finding.check for finding in section.findings if finding.mark is FindingMark.UNKNOWN]


@pytest.mark.parametrize(
    "data",
    [
        text(),
        text().replace(b'"}', b'",}'),
        without(interval=" 7"),
        without("acl_api", "aicpu", "aacpu"),
        without("aac_metrics", "aacpu"),
        text(dump={"dump_list": [], "dump_switch": "off"}),
    ],
)
def test_files_with_which_the_runtime_records(data: bytes) -> None:
    section = looked_at(data)
    assert {finding.mark for finding in section.findings} == {FindingMark.GOOD}


@pytest.mark.parametrize(
    ("data", "check", "evidence"),
    [
        (b"[]", "acl-json", "not an object"),
        (without(interval=5), "acl-json", "profiler.interval = 5"),
        (text(graph={"fast": [True]}), "acl-json", "graph.fast[] = True"),
        (without("switch"), "acl-switch", "there is no switch"),
        (without(switch="off"), "acl-switch", "148047"),
        (without(switch="ON"), "acl-switch", "'ON'"),
        (without("aic_metrics", "aicpu", "acl_api"), "acl-items", "'aac_metrics' alone"),
        (without("aicpu"), "acl-items", "'aacpu' alone"),
        (without(aic_metrics="arithmeticutilization"), "acl-items", "exactly 'ArithmeticUtilization'"),
        (without(aic_metrics="PipeUtilization"), "acl-items", "'PipeUtilization'"),
        (without(acl_api="On"), "acl-items", "'On'"),
        (text({"switch": "on", "output": "/opt/a"}), "acl-items", "no item"),
        (without(interval=0), "acl-interval", "0, and must be a string"),
        (without(interval="10000"), "acl-interval", "'10000'"),
        (without(interval="-1"), "acl-interval", "'-1'"),
        (without("output"), "acl-output", "crashes"),
        (text(dump={"dump_list": [{"model_name": "m"}], "dump_path": "/opt/dump"}), "acl-dump", "both"),
        (without("switch", Switch="on"), "acl-keys", "'Switch' (meant: 'switch'?)"),
        (without("aic_metrics", aicMetric="x"), "acl-keys", "'aicMetric' (meant: 'aic_metrics'?)"),
        (json.dumps({"Profiler": RIGHT}).encode(), "acl-switch", "'Profiler'"),
    ],
)
def test_files_with_which_it_does_not(data: bytes, check: str, evidence: str) -> None:
    section = looked_at(data)
    (found,) = (finding for finding in section.findings if finding.check == check)
    assert found.mark is FindingMark.BAD
    assert evidence in found.evidence
    assert found.remedy


@pytest.mark.parametrize(
    ("data", "check"),
    [
        (without(interval="0"), "acl-interval"),
        (without("interval"), "acl-interval"),
        (without("aic_metrics", "aac_metrics"), "acl-items"),
        (b"{}", "acl-switch"),
        (text("on"), "acl-switch"),
    ],
)
def test_what_is_right_only_if_it_is_wanted_is_not_known(data: bytes, check: str) -> None:
    section = looked_at(data)
    assert bad(section) == []
    assert unknown(section) == [check]


def test_an_output_that_the_daemon_does_not_look_into() -> None:
    for roots, is_found in ((["/opt/app"], True), (["/opt/app/profiling/"], True), (["/opt/ap"], False), (["/"], True)):
        section = looked_at(text(), roots=roots)
        assert ("acl-output" not in bad(section)) == is_found
        assert is_found or "--root /opt/app/profiling" in section.findings[-1].remedy


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"profiler": {}} // ours', "line 1 column 18"),
        ('{\n"profiler": {"switch": "on",\n "output": /opt/x}}', "line 3 column 12"),
        ('\ufeff{"profiler": {}}', "BOM"),
        ("[" * 5000, "recursion"),
        ("", "line 1 column 1"),
    ],
)
def test_what_is_no_json_is_named_with_its_line_and_column(text: str, where: str) -> None:
    section = looked_at(text.encode())
    (found,) = section.findings
    assert (found.check, found.mark) == ("acl-json", FindingMark.BAD)
    assert where in found.evidence
