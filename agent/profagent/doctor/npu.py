"""Checks of the NPU: which stack, who uses it, what its nodes say, and with which rights programs write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.doctor.daemon_settings import RIGHTS
from profagent.doctor.finding import bad, good, unknown
from profagent.formats.board_files import parse_umap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.doctor.finding import Finding
    from profagent.link.examination import Examination, JobFacts, NpuProcess, UmapNode

# Who is neither the owner nor of the group gets nothing, and the group writes nothing (manual, constraints of use).
WANTED_UMASK = 0o027
NPU_NODES = ("svp_npu", "svp_nnn")
ERROR_COLUMNS = ("timeout_err_cnt", "hw_err_cnt", "aicpu_err_cnt")
_LOOK = "on the board: ls -l /dev/svp_npu /dev/pqp; lsmod"


def npu_checks(examination: Examination, *, simulated: bool) -> Iterator[Finding]:
    """All of them."""
    yield npu_stack(examination, simulated=simulated)
    yield profiling_tasks(examination)
    yield umap_nodes(examination)
    yield npu_errors(examination.umap)
    yield umask(examination)


def npu_stack(examination: Examination, *, simulated: bool) -> Finding:
    """The board must run the stack of `svp_acl` (format page 9)."""
    check, npu = "npu-stack", examination.npu
    if npu is None:
        return unknown(check, examination.why_unknown("npu") or "the board does not tell", _LOOK)
    modules = f"; modules {', '.join(npu.modules)}" if npu.modules else ""
    others = [
        sign
        for sign, is_there in (
            ("/dev/pqp", npu.has_other_device),
            ("/opt/lib/npu", npu.has_other_libraries),
            *((module, "pqp" in module) for module in npu.modules),
        )
        if is_there
    ]
    if npu.has_device:
        beside = f"; signs of the other stack: {', '.join(others)}" if others else ""
        return good(check, f"/dev/svp_npu is there{modules}{beside}")
    if simulated:
        return unknown(check, "the board is simulated: it has no NPU")
    if others:
        return bad(
            check,
            f"/dev/svp_npu is missing, and {', '.join(others)} is there: this is the other NPU stack (ot_pqp,"
            " libascendcl), where svp_acl profiling does not exist",
            "use an image with the svp_npu driver; which of the two is loaded, the SDK's load script decides",
        )
    return bad(check, f"/dev/svp_npu is missing{modules}", f"load the SDK's svp_npu driver; {_LOOK}")


def profiling_tasks(examination: Examination) -> Finding:
    """The manual forbids several profiling tasks on a device at a time."""
    check, processes = "npu-tasks", examination.processes
    if processes is None:
        return unknown(check, examination.why_unknown("processes") or "the board does not tell")
    open_jobs = sum(root.open_jobs for root in examination.roots)
    named = ", ".join(f"{each.name} (pid {each.pid})" for each in processes.with_npu)
    told = f"the NPU is open in {named or 'no process'} ({processes.count}); open JOBs: {open_jobs}"
    if processes.count > 1 and open_jobs > 1:
        others = " ".join(str(each.pid) for each in processes.with_npu[1:])
        return bad(
            check,
            f"{told}: the manual allows one profiling task on a device at a time",
            f"end all but one, e.g. on the board: kill {others}",
        )
    if processes.count > 1:
        return unknown(check, f"{told}; that more than one of them profiles cannot be seen")
    if not processes.are_all_seen:
        return unknown(
            check,
            f"{told}; the daemon may not look into every process",
            RIGHTS,
        )
    return good(check, told)


def umap_nodes(examination: Examination) -> Finding:
    """The SDK's nodes; that one is absent is normal, not every image loads every module."""
    check, nodes = "umap-nodes", examination.umap
    if why := examination.why_unknown("umap"):
        return unknown(check, why)
    failed = [node for node in nodes if node.error]
    if failed:
        told = ", ".join(f"{node.name}: {node.error}" for node in failed)
        return bad(check, f"/proc/umap cannot be read: {told}", f"on the board: ls -l /proc/umap; {RIGHTS}")
    names = [node.name for node in nodes]
    if not set(names) & set(NPU_NODES):
        return unknown(check, f"no {' or '.join(NPU_NODES)} below /proc/umap; there are: {', '.join(names) or 'none'}")
    return good(check, f"/proc/umap has {', '.join(names)}")


def npu_errors(nodes: Sequence[UmapNode]) -> Finding:
    """What the driver counts; that the counters mean what their names say was never tried on a board."""
    check = "npu-errors"
    text = next((node.text for node in nodes if node.name in NPU_NODES and node.text), "")
    columns = parse_umap(text)
    counters = {name: columns[name] for name in ERROR_COLUMNS if name in columns}
    if not counters:
        return unknown(check, "the NPU's node has no counters of errors")
    counted = {
        name: max((int(value) for value in values if value.isdecimal()), default=0) for name, values in counters.items()
    }
    told = ", ".join(f"{name} {count}" for name, count in counted.items())
    if any(counted.values()):
        return bad(
            check,
            f"{told} (meaning unverified)",
            "after a time-out of the NPU only a restart of the board helps: reboot",
        )
    return good(check, told)


def umask(examination: Examination) -> Finding:
    """The umask of programs that profile; without one that runs, what the modes of JOBs tell of it."""
    processes = examination.processes.with_npu if examination.processes else ()
    told = [process for process in processes if process.umask]
    if told:
        return _umask_of_processes(told)
    jobs = [job for root in examination.roots for job in root.newest if job.mode]
    return _umask_of_jobs(jobs)


def _umask_of_processes(processes: Sequence[NpuProcess]) -> Finding:
    shown = ", ".join(f"{each.name} (pid {each.pid}) {each.umask}" for each in processes)
    lax = [each for each in processes if ~_octal(each.umask) & WANTED_UMASK]
    if lax:
        return bad("umask", f"{shown}: the manual wants at least 0027", "start the program after: umask 0027")
    return good("umask", shown)


def _umask_of_jobs(jobs: Sequence[JobFacts]) -> Finding:
    if not jobs:
        return unknown("umask", "no program has the NPU open, and there is no JOB: nothing tells the program's umask")
    lax = [job for job in jobs if job.mode & WANTED_UMASK]
    if lax:
        return bad(
            "umask",
            f"{lax[0].directory} has mode {lax[0].mode:04o} ({len(lax)} of the newest {len(jobs)} JOBs are so): it was"
            " written with a umask below 0027, which the manual wants",
            "start the program after: umask 0027",
        )
    return good("umask", f"the newest {len(jobs)} JOBs have modes of a umask of 0027 or more")


def _octal(text: str) -> int:
    try:
        return int(text, 8)
    except ValueError:
        return 0
