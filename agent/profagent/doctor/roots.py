"""Checks of where JOBs are written: readable, named as the manual allows, with room, not on a network; and inotify."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from profagent.doctor.daemon_settings import RIGHTS, given
from profagent.doctor.finding import bad, good, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.doctor.finding import Finding
    from profagent.link.translate import DaemonFacts, Examination, Mount, RootFacts

# A minute of a large model at 15 inferences a second.
LEAST_FREE_BYTES = 64_000_000
# A root of some programs has that many directories; each JOB takes two watches more.
LEAST_WATCHES = 1024
# The manual's constraints of use: letters, digits and underscores.
PLAIN_PATH = re.compile(r"[A-Za-z0-9_/]+")
CAP_DAC_READ_SEARCH = 1 << 2
_NFS = re.compile(r"nfs\d?")


def roots_checks(examination: Examination, roots: Sequence[str]) -> Iterator[Finding]:
    """All of them; `roots` are those that the daemon says it has."""
    told = {root.path: root for root in examination.roots}
    for path in roots:
        root = told.get(path)
        if root is None:
            why = examination.why_unknown(f"root {path}") or "the board does not tell"
            yield unknown("root", f"{path}: {why}", "is it a mount whose server is away? on the board: mount")
            continue
        yield readable(root, examination)
        yield plain_path(path)
        yield from free_space(root, examination.daemon)
    yield from network_mounts(examination, roots)
    yield inotify(examination)


def readable(root: RootFacts, examination: Examination) -> Finding:
    """The daemon can list the root, what is below it, and its newest JOBs."""
    check = "root"
    if root.error:
        return bad(check, f"{root.path}: {root.error}", _reading_remedy(root.path, root.error, examination))
    closed = [*root.unreadable, *((job.directory, job.error) for job in root.newest if job.error)]
    if closed:
        path, why = closed[0]
        more = f", and {len(closed) - 1} more" if len(closed) > 1 else ""
        return bad(check, f"{path}: {why}{more}", _reading_remedy(path, why, examination))
    return good(check, f"{root.path} can be read; JOBs: {root.jobs}, open: {root.open_jobs}")


def plain_path(path: str) -> Finding:
    """The manual allows letters, digits and underscores in paths of profiling."""
    if PLAIN_PATH.fullmatch(path):
        return good("path", f"{path} has letters, digits and _ alone")
    odd = "".join(sorted(set(path) - set("/") - set(re.findall(r"[A-Za-z0-9_]", path))))
    return bad(
        "path",
        f"{path} has {odd!r}: the manual allows letters, digits and _ alone; what the runtime does then is unverified",
        "choose another `output` in acl.json, and a root above it: letters, digits and _",
    )


def free_space(root: RootFacts, daemon: DaemonFacts | None = None) -> Iterator[Finding]:
    """A root that can be read has room for what is yet to come."""
    if root.error:
        return
    told = f"{root.path}: {root.free_bytes / 1e6:,.0f} of {root.total_bytes / 1e6:,.0f} MB are free"
    retain = given(
        daemon,
        "retain = 'delivered' and retain_for = ['record-HOST']",
        "--retain delivered --retain-for record-HOST",
    )
    remedy = (
        f"delete JOBs that are on the host, or have the daemon do it (docs/howto/free-the-boards-disk.md): {retain}"
    )
    if not root.has_inodes:
        yield bad("space", f"{root.path}: no inodes are left", remedy)
    elif root.free_bytes < LEAST_FREE_BYTES:
        yield bad("space", f"{told}; what finds no room is lost", remedy)
    else:
        yield good("space", told)


def network_mounts(examination: Examination, roots: Sequence[str]) -> Iterator[Finding]:
    """Mounts that the vendor's tool has left behind: nothing is mounted for profagent."""
    check = "mounts"
    if why := examination.why_unknown("mounts"):
        yield unknown(check, why)
        return
    shares = [mount for mount in examination.remote_mounts if _NFS.fullmatch(mount.file_system)]
    for mount in shares:
        yield _mount_finding(mount, roots)
    if not shares:
        yield good(check, "no NFS is mounted")


def inotify(examination: Examination) -> Finding:
    """The kernel must let the daemon watch directories."""
    check, limits = "inotify", examination.inotify
    if limits is None:
        why = examination.why_unknown("inotify") or "the board does not tell"
        return unknown(check, f"{why}: a kernel without inotify is served too, by looking")
    told = f"the daemon has {limits.watches} of {limits.max_user_watches} watches"
    if limits.max_user_watches < LEAST_WATCHES or limits.watches >= 0.9 * limits.max_user_watches:
        return bad(
            check,
            f"{told}: JOBs that find none are looked at, which costs more",
            "on the board: sysctl -w fs.inotify.max_user_watches=65536",
        )
    if limits.max_user_instances < 1:
        return bad(check, "no instances are allowed", "on the board: sysctl -w fs.inotify.max_user_instances=128")
    return good(check, f"{told}; {limits.max_queued_events} notices may wait")


def _mount_finding(mount: Mount, roots: Sequence[str]) -> Finding:
    told = f"{mount.source} is mounted at {mount.point}"
    is_root = any(f"{root}/".startswith(f"{mount.point.rstrip('/')}/") for root in roots)
    is_vendors = mount.point.rstrip("/").rpartition("/")[2] == "profiling"
    remedy = f"on the board: umount {shlex.quote(mount.point)}"
    if is_root:
        return bad(
            "mounts", f"{told}, and a root is on it: profagent needs no mount, and sees changes there late", remedy
        )
    if is_vendors:
        return bad("mounts", f"{told}: left behind by the vendor's collect, by its name", remedy)
    return unknown("mounts", f"{told}; whether it is still wanted cannot be known", remedy)


def _reading_remedy(path: str, why: str, examination: Examination) -> str:
    if "denied" not in why.lower():
        return f"on the board: mkdir -p {shlex.quote(path)}; or name another root"
    daemon = examination.daemon
    if daemon is not None and daemon.uid != 0 and not daemon.capabilities & CAP_DAC_READ_SEARCH:
        return f"the daemon's user may not read it: {RIGHTS}"
    return f"on the board: ls -ld {shlex.quote(path)}"
