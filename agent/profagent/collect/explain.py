"""Explanation of a run that failed or recorded less than expected: the likely cause, and the remedy."""

from __future__ import annotations

import posixpath
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profagent.doctor.finding import FindingMark
from profagent.doctor.job import job_data
from profagent.formats.names import LogKind, parse_log_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagent.aclconfig.edit import ProfilerSettings
    from profagent.collect.look import MainProgram, Place

# Reasons for the end of a run: its host was away for too long, or the reason is unknown.
ABANDONED, LOST = "abandoned", "lost"
SIGNALLED = 128
LEAST_FREE_KIB = 1024
# Remedies by words in the messages of shells and loaders about a program that they cannot run.
_REMEDIES = {
    "exec format error": "build it, and what it starts, with the board's toolchain",
    "permission denied": "chmod +x it in the project; on the board: mount (a file system may be noexec)",
    "shared librar": "put it beside the program and name its directory: --env LD_LIBRARY_PATH=DIR (a login over SSH"
    " reads no /etc/profile)",
    "not found": "bring what is missing; of a program that is there its loader is: build it for the board's C library"
    " (glibc or musl), or see its first line (#!)",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Likely cause, and a remedy."""

    text: str
    remedy: str


_DISK_FULL = Cause("the board's disk is full", "make room there (`df`), or let --release empty it as the JOB comes")


@dataclass(frozen=True, slots=True)
class Aftermath:
    """State of the board after the program has ended. `jobs` has sizes by path for each JOB that has arrived."""

    place: Place
    acl_json: str
    settings: ProfilerSettings
    main: MainProgram
    status: int
    why: str
    complaint: str
    jobs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    growing: tuple[str, ...] = ()
    """JOBs that were written to after the end of the program."""
    elsewhere: tuple[str, ...] = ()
    has_npu: bool = True
    users: tuple[str, ...] = ()
    """Processes that have the NPU open."""
    free_kib: int = LEAST_FREE_KIB

    @property
    def is_full(self) -> bool:
        """True if the board's disk is full."""
        return self.free_kib < LEAST_FREE_KIB


def failure(after: Aftermath) -> Cause | None:
    """Return why a program failed, as far as its status and its last output tell; None for status 0."""
    if after.status == 0:
        return None
    if after.why:
        return _cause_of_end(after)
    if "no space left on device" in after.complaint.lower() or after.is_full:
        return _DISK_FULL
    name, number = after.place.main, after.status - SIGNALLED
    if number in set(signal.Signals):
        remedy = "the records up to then are kept; on the board, `dmesg` shows whether memory ran out"
        return Cause(f"{name} was ended by signal {signal.Signals(number).name}", remedy)
    # Shells end with these if they cannot run a program, or do not find it.
    if after.status in (126, 127):
        for sign, remedy in _REMEDIES.items():
            if sign in after.complaint.lower():
                last = after.complaint.strip().splitlines()[-1]
                return Cause(f"{name} cannot be run, or what it starts: {last}", remedy)
    return Cause(f"{name} ended with {after.status}", "its own output above says why")


def causes(after: Aftermath) -> Iterator[Cause]:
    """Yield likely causes why less was recorded than expected."""
    # Any other reason is why the program was not started at all.
    was_started = after.why in ("", ABANDONED, LOST)
    if not after.settings.records or not was_started:
        return
    if after.status == 0 and after.is_full:
        yield _DISK_FULL
    if after.jobs:
        yield from _causes_of_several(after)
        for job, files in after.jobs.items():
            yield from _causes_in_job(after, job, files)
    else:
        yield from _causes_without_job(after)


def _cause_of_end(after: Aftermath) -> Cause:
    if after.why == LOST:
        return Cause(
            f"nobody knows how {after.place.main} ended: the board was restarted, or the keeper of the run was killed",
            "run it again; on the board, uptime and dmesg tell which it was",
        )
    if after.why == ABANDONED:
        return Cause("the program was ended: this host was away for too long", "keep the link up, and run it again")
    return Cause(
        f"the program was not started, for {after.acl_json} cannot be written: {after.why}",
        "name another with --acl-json, or log in as a user who may write there",
    )


def _causes_in_job(after: Aftermath, job: str, files: Mapping[str, int]) -> Iterator[Cause]:
    for finding in job_data(files):
        if finding.mark is FindingMark.BAD:
            yield Cause(f"{job}: {finding.evidence}", finding.remedy)
        elif finding.mark is FindingMark.UNKNOWN and after.settings.interval == 0:
            yield Cause(
                f"{job}: interval 0 records only the first inference after each load of a model",
                "for every inference: --interval 1",
            )
    if _is_unfinished(files):
        yield Cause(
            f"{job} was not finished: the program did not unload its models and call svp_acl_finalize. What it"
            " recorded last is lost, by the manual up to 1 s and 2 MB",
            "call svp_acl_mdl_unload and svp_acl_finalize before the end, also on SIGTERM",
        )


def _is_unfinished(files: Mapping[str, int]) -> bool:
    names = {path: name for path in files if (name := parse_log_name(path)) is not None}
    calls = [path for path, name in names.items() if name.kind is LogKind.ACL_API and not name.is_done]
    return any(files[path] and f"{path}.done" not in files for path in calls)


def _causes_of_several(after: Aftermath) -> Iterator[Cause]:
    if len(after.jobs) > 1:
        yield Cause(
            f"{', '.join(after.jobs)} were made in {after.place.output} while the program ran: which of them are its"
            " own cannot be told",
            "see that no other program writes there, and collect again",
        )
    for job in after.growing:
        yield Cause(
            f"{job} was written to after the program had ended: it is another program's, or of one left running",
            "see that no other program writes there, and that this one waits for what it starts",
        )
    if len(after.users) > 1:
        why = f"{', '.join(after.users)} have the NPU open: by the manual figures are wrong when several tasks profile"
        yield Cause(why, "profile one process at a time")


def _causes_without_job(after: Aftermath) -> Iterator[Cause]:
    made = [path for path in after.elsewhere if not path.startswith(f"{after.place.output}/")]
    if made:
        yield Cause(
            f"a JOB was made elsewhere: {made[0]}: the program reads another acl.json than {after.acl_json}, or could"
            " not open the output directory",
            "name the acl.json that it reads with --acl-json",
        )
        return
    yield _cause_in_program(after)
    if not after.has_npu:
        yield Cause(
            "there is no /dev/svp_npu: no SDK's driver is loaded, or the board runs the other NPU stack (ot_pqp)",
            "load the svp_npu driver; profagent doctor tells more",
        )


def _cause_in_program(after: Aftermath) -> Cause:
    """Return why the program did not record with the acl.json, from the paths and functions that its file names."""
    # The file of a program names many paths: that of a configuration for svp_acl_init is told by its name.
    paths = [path for path in after.main.acl_paths if "acl" in posixpath.basename(path)]
    found = [posixpath.normpath(posixpath.join(after.place.main_directory, path)) for path in paths]
    if after.main.has_own_profiling:
        text = "the program names svp_acl_prof_init, which fails with 148047 while acl.json says anything of profiling"
        remedy = "use one of the two: run the program beside `profagent record`, or remove the call"
    elif paths and after.acl_json not in found:
        text = f"the program names {', '.join(paths)}, which is {found[0]}, not {after.acl_json}"
        remedy = f"--acl-json {found[0]}"
    else:
        text = "the program did not come as far as svp_acl_init, called that without a path, or it failed"
        remedy = "see its own output; pass svp_acl_init the path of the acl.json, and name that with --acl-json"
    return Cause(f"nothing was recorded: {text}", remedy)
