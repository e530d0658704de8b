"""Checks of a board with what its daemon sees: the NPU, the programs that use it, the roots of JOBs, inotify."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from profagent.doctor.finding import bad, good, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.doctor.finding import Finding
    from profagent.link.translate import DaemonFacts, Examination, Mount, RootFacts

# The manual's constraints of use: others get no access, and the group may not write.
WANTED_UMASK = 0o027
NPU_NODES = ("svp_npu", "svp_nnn")
ERROR_COLUMNS = ("timeout_err_cnt", "hw_err_cnt", "aicpu_err_cnt", "aacpu_err_cnt")
# Enough for a minute of a large model at 15 inferences a second.
LEAST_FREE_BYTES = 64_000_000
# Enough for a root of a few programs; every JOB takes two more watches.
LEAST_WATCHES = 1024
# The manual's constraints of use allow letters, digits and underscores in paths.
PLAIN_PATH = re.compile(r"[A-Za-z0-9_/]+")
# File systems of memory cards: they have no modes of their own and no links.
CARDS = ("vfat", "msdos", "exfat")
CAP_DAC_READ_SEARCH = 1 << 2
RIGHTS = "give it CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE, as systemd/profagentd.service does, or have it run as root"
_NOT_SAID = "the board does not report it"


def daemon_remedy(keys: str, arguments: str) -> str:
    """Return a remedy that sets the daemon's `keys` in its file, or `arguments` for one started by hand."""
    return (
        f"on the board: in /etc/profagent/profagentd.toml {keys}, and restart the service; by hand: start the daemon"
        f" with {arguments}"
    )


def npu_checks(examination: Examination, *, simulated: bool) -> Iterator[Finding]:
    """Yield the findings about the NPU: driver stack, programs, error counters, and the umask of programs."""
    yield _stack(examination, simulated=simulated)
    yield _tasks(examination)
    yield _npu_errors(examination)
    yield _umask(examination)


def _stack(examination: Examination, *, simulated: bool) -> Finding:
    check, npu = "npu-stack", examination.npu
    look = "on the board: ls -l /dev/svp_npu /dev/pqp; lsmod"
    if npu is None:
        return unknown(check, examination.why_unknown("npu") or _NOT_SAID, look)
    modules = f"; modules {', '.join(npu.modules)}" if npu.modules else ""
    # Both stacks may be installed; only the device node tells which one is loaded.
    others = [module for module in npu.modules if "pqp" in module]
    others += ["/dev/pqp"] * npu.has_other_device + ["/opt/lib/npu"] * npu.has_other_libraries
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
            "use an image with the svp_npu driver; the SDK's load script decides which of the two is loaded",
        )
    return bad(check, f"/dev/svp_npu is missing{modules}", f"load the SDK's svp_npu driver; {look}")


def _tasks(examination: Examination) -> Finding:
    check, processes = "npu-tasks", examination.processes
    if processes is None:
        return unknown(check, examination.why_unknown("processes") or _NOT_SAID)
    open_jobs = sum(root.open_jobs for root in examination.roots)
    named = ", ".join(f"{each.name} (pid {each.pid})" for each in processes.with_npu)
    evidence = f"the NPU is open in {named or 'no process'} ({processes.count}); open JOBs: {open_jobs}"
    # A process does not say that it profiles: several processes and several open JOBs together are the evidence.
    if processes.count > 1 and open_jobs > 1:
        others = " ".join(str(each.pid) for each in processes.with_npu[1:])
        remedy = f"end all but one, e.g. on the board: kill {others}"
        return bad(check, f"{evidence}: the manual allows one profiling task on a device at a time", remedy)
    if processes.count > 1:
        return unknown(check, f"{evidence}; this check cannot see whether more than one of them profiles")
    if not processes.are_all_seen:
        return unknown(check, f"{evidence}; the daemon has no right to inspect every process", RIGHTS)
    return good(check, evidence)


def _npu_errors(examination: Examination) -> Finding:
    check = "npu-errors"
    node = next((node for node in examination.umap if node.name in NPU_NODES), None)
    if node is None:
        return unknown(check, examination.why_unknown("umap") or f"no {' or '.join(NPU_NODES)} below /proc/umap")
    if node.error:
        remedy = f"on the board: ls -l /proc/umap; {RIGHTS}"
        return bad(check, f"/proc/umap/{node.name} cannot be read: {node.error}", remedy)
    counted = _error_counts(node.text)
    if not counted:
        return unknown(check, "the NPU's node has no counters of errors")
    evidence = ", ".join(f"{name} {count}" for name, count in counted.items())
    if any(counted.values()):
        return bad(check, f"{evidence} (meaning unverified)")
    return good(check, evidence)


def _error_counts(text: str) -> dict[str, int]:
    """Return the largest value in each column of errors.

    A table is a line of titles, followed by lines with as many values.
    """
    found: dict[str, int] = {}
    titles: list[str] = []
    for words in map(str.split, text.splitlines()):
        if {*ERROR_COLUMNS} & {*words}:
            titles = words
        elif len(words) != len(titles):
            titles = []
        for title, value in zip(titles, words, strict=False):
            if title in ERROR_COLUMNS and value.isdecimal():
                found[title] = max(found.get(title, 0), int(value))
    return found


def _umask(examination: Examination) -> Finding:
    """Return a finding about the umask of programs that profile.

    If none runs, the modes of the newest JOBs are the evidence.
    """
    check = "umask"
    processes = examination.processes.with_npu if examination.processes else ()
    masks = {f"{each.name} (pid {each.pid}) {each.umask}": each.umask for each in processes if each.umask}
    if masks:
        shown = ", ".join(masks)
        if any(~_octal(umask) & WANTED_UMASK for umask in masks.values()):
            return bad(check, f"{shown}: the manual wants at least 0027")
        return good(check, shown)
    # A memory card has no modes of its own: they are options of its mount.
    roots = [root for root in examination.roots if root.file_system not in CARDS]
    jobs = [job for root in roots for job in root.newest if job.mode]
    if not jobs:
        return unknown(check, "no program has the NPU open, and there is no JOB, so the program's umask is not known")
    lax = [job for job in jobs if job.mode & WANTED_UMASK]
    if lax:
        evidence = f"{lax[0].directory} has mode {lax[0].mode:04o} ({len(lax)} of the newest {len(jobs)} JOBs are so)"
        return bad(check, f"{evidence}: it was written with a umask below 0027, which the manual wants")
    return good(check, f"the newest {len(jobs)} JOBs have modes of a umask of 0027 or more")


def _octal(text: str) -> int:
    return int(text, 8) if re.fullmatch("[0-7]+", text) else 0


_METRICS = "metrics "


def roots_checks(examination: Examination, roots: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings about roots: readable, plain names, free space, file system, mounts; and about inotify.

    `roots` are those that the daemon reports.
    """
    by_path = {root.path: root for root in examination.roots}
    for path in roots:
        # The daemon gives up on a root whose file system does not answer, so some may be missing.
        root = by_path.get(path)
        if root is None:
            why = examination.why_unknown(f"root {path}") or _NOT_SAID
            yield unknown(
                "root",
                f"{path}: {why}",
                "check whether it is a mount whose server cannot be reached; on the board: mount",
            )
            continue
        yield _readable(root, examination.daemon)
        yield plain_path(path)
        if not root.error:
            yield _space(root)
            yield from _file_system(root)
    yield from _mounts(examination, roots)
    yield _inotify(examination)


def metrics_checks(examination: Examination) -> Iterator[Finding]:
    """Yield one finding that lists the metrics that the board cannot measure; nothing if it measures all."""
    lacking = [(source, why) for source, why in examination.unknown if source.startswith(_METRICS)]
    if lacking:
        missing = "; ".join(f"no {source.removeprefix(_METRICS)} ({why})" for source, why in lacking)
        yield unknown("metrics", missing)


def plain_path(path: str) -> Finding:
    """Return a finding about a path's characters: the manual allows letters, digits and underscores."""
    if PLAIN_PATH.fullmatch(path):
        return good("path", f"{path} has only letters, digits and _")
    odd = "".join(sorted(each for each in set(path) if not PLAIN_PATH.fullmatch(each)))
    return bad(
        "path",
        f"{path} has {odd!r}: the manual allows only letters, digits and _; the runtime's behaviour is unverified",
    )


def _readable(root: RootFacts, daemon: DaemonFacts | None) -> Finding:
    closed = [(root.path, root.error)] if root.error else []
    closed += [*root.unreadable, *((job.directory, job.error) for job in root.newest if job.error)]
    if not closed:
        return good("root", f"{root.path} can be read; JOBs: {root.jobs}, open: {root.open_jobs}")
    path, why = closed[0]
    more = f", and {len(closed) - 1} more" if len(closed) > 1 else ""
    if "denied" not in why.lower():
        remedy = f"on the board: mkdir -p {shlex.quote(path)}; or name another root"
    elif daemon is not None and daemon.uid != 0 and not daemon.capabilities & CAP_DAC_READ_SEARCH:
        remedy = f"the daemon's user may not read it: {RIGHTS}"
    else:
        remedy = f"on the board: ls -ld {shlex.quote(path)}"
    return bad("root", f"{path}: {why}{more}", remedy)


def _space(root: RootFacts) -> Finding:
    evidence = f"{root.path}: {root.free_bytes / 1e6:,.0f} of {root.total_bytes / 1e6:,.0f} MB are free"
    keys = "retain = 'delivered' and retain_for = ['record-HOST']"
    retain = daemon_remedy(keys, "--retain delivered --retain-for record-HOST")
    remedy = (
        f"delete JOBs that are on the host, or have the daemon do it (docs/howto/free-the-boards-disk.md): {retain}"
    )
    if not root.has_inodes:
        return bad("space", f"{root.path}: no inodes are left", remedy)
    if root.free_bytes < LEAST_FREE_BYTES:
        return bad("space", f"{evidence}; data for which there is no room is lost", remedy)
    return good("space", evidence)


def _file_system(root: RootFacts) -> Iterator[Finding]:
    if root.file_system in CARDS:
        evidence = (
            f"{root.path} is on {root.file_system}: names ignore case, times are in steps of 2 s, there are no links,"
            " and the mount sets all modes; captures from such a file system are untested"
        )
        yield unknown("file-system", evidence)


def _mounts(examination: Examination, roots: Sequence[str]) -> Iterator[Finding]:
    if why := examination.why_unknown("mounts"):
        yield unknown("mounts", why)
        return
    shares = [mount for mount in examination.remote_mounts if re.fullmatch(r"nfs\d?", mount.file_system)]
    yield from (_mount(mount, roots) for mount in shares)
    if not shares:
        yield good("mounts", "no NFS is mounted")


def _mount(mount: Mount, roots: Sequence[str]) -> Finding:
    evidence = f"{mount.source} is mounted at {mount.point}"
    point = mount.point.rstrip("/")
    remedy = f"on the board: umount {shlex.quote(mount.point)}"
    if any(f"{root}/".startswith(f"{point}/") for root in roots):
        why = f"{evidence}, and a root is on it: profagent needs no mount, and the daemon sees changes on it late"
        return bad("mounts", why, remedy)
    if point.rpartition("/")[2] == "profiling":
        return bad("mounts", f"{evidence}: by its name, the vendor's collect left it behind", remedy)
    return unknown("mounts", f"{evidence}; this check cannot know whether you still need it", remedy)


def _inotify(examination: Examination) -> Finding:
    check, limits = "inotify", examination.inotify
    if limits is None:
        why = examination.why_unknown("inotify") or _NOT_SAID
        return unknown(check, f"{why}: without inotify the daemon scans the roots instead")
    evidence = f"the daemon has {limits.watches} of {limits.max_user_watches} watches"
    if limits.max_user_watches < LEAST_WATCHES or limits.watches >= 0.9 * limits.max_user_watches:
        remedy = "on the board: sysctl -w fs.inotify.max_user_watches=65536"
        return bad(check, f"{evidence}: JOBs without a watch are scanned, which costs more processor time", remedy)
    if limits.max_user_instances < 1:
        return bad(check, "no instances are allowed", "on the board: sysctl -w fs.inotify.max_user_instances=128")
    return good(check, f"{evidence}; {limits.max_queued_events} events may wait")
