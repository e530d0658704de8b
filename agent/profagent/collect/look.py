"""Looking at a board before a program runs there, and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.aclconfig.edit import DEFAULTS, edited_acl_json, has_dump
from profagent.aclconfig.files import BoardAclFile
from profagent.collect.explain import Aftermath
from profagent.collect.place import Place
from profagent.collect.program import LARGEST_BYTES, read_main, runs_on
from profagent.collect.run_steps import facts_after, jobs_in, looked, made_output, program_bytes, settled
from profagent.doctor.board import plain_path
from profagent.doctor.finding import Mark
from profagent.errors import ProfagentError, UsageError
from profagent.link.messages import Profiling

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from profagent.aclconfig.edit import Profiler
    from profagent.collect.board_run import RunEnd
    from profagent.collect.program import Main
    from profagent.ssh.remote import Remote

__all__ = ["Prepared", "aftermath", "placed", "prepared"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program that can be started: its acl.json, what that is to say, and the JOBs (paths) that stood before."""

    place: Place
    main: Main
    asked: Profiler
    acl_json: str
    text: str
    before: frozenset[str]

    @property
    def told(self) -> Profiling:
        """The same as a daemon tells it that finds the file."""
        asked = self.asked
        return Profiling(
            self.acl_json, str(asked.interval), asked.aacpu or "", asked.acl_api or "", asked.aac_metrics or ""
        )


async def placed(remote: Remote, directory: str, main: str) -> tuple[Place, str]:
    """Where things are, in a directory that is made; and the board's machine. Raises UsageError, ProfagentError."""
    path, machine = (await remote.must(settled(directory))).text.splitlines()[-2:]
    return Place.of(path, main), machine


async def prepared(
    remote: Remote, place: Place, machine: str, acl_json: str | None, asked: Profiler, tell: Callable[[str], None]
) -> Prepared:
    """Look at the program, its acl.json and the directory for JOBs, which is made. UsageError, ProfagentError."""
    what, *found = (await remote.must(looked(place))).text.splitlines()
    main = await _main(remote, place, what, machine)
    path = place.acl_json(acl_json) if acl_json else found[0] if found else f"{place.main_directory}/acl.json"
    file = BoardAclFile(remote, path, path)
    data = await file.read()
    if data is None:
        tell(f"{path} is not there, and is made for this run")
    if asked.records and has_dump(data or b""):
        tell(f"{path} speaks of a Dump, which excludes profiling: it is left out for this run")
    text = edited_acl_json(data or b"", asked, path, without_dump=asked.records)
    for remark in _remarks(place, asked):
        tell(remark)
    ran = await remote.run(made_output(place))
    if ran.status != 0:
        raise ProfagentError(
            f"cannot use {place.output} on {remote.host}: {ran.complaint}",
            hint="log in as a user who may write there, or name another --remote-dir",
        )
    before = frozenset((await remote.must(jobs_in(place.output, place.main_directory))).text.splitlines())
    return Prepared(place, main, asked, path, text, before)


def _remarks(place: Place, asked: Profiler) -> list[str]:
    remarks = []
    finding = plain_path(place.output)
    if finding.mark is Mark.BAD:
        remarks.append(f"{finding.evidence}; take another --remote-dir if nothing comes")
    if asked.records and asked.interval == DEFAULTS.interval:
        remarks.append("interval 0: only the first inference after each load of a model is recorded; see --interval")
    if not asked.records:
        remarks.append("nothing is switched on: the program runs without profiling")
    return remarks


async def _main(remote: Remote, place: Place, what: str, machine: str) -> Main:
    if what in ("missing", "directory"):
        raise UsageError(
            f"there is no program {place.main} on {remote.host}" + (": a directory" if what == "directory" else ""),
            hint="-m is relative to --project, or an absolute path of the board",
        )
    if what == "closed":
        raise ProfagentError(f"{place.main} is not executable", hint="chmod +x it in the project, and collect again")
    data = (await remote.must(program_bytes(place, LARGEST_BYTES))).stdout
    main = read_main(data, is_whole=len(data) < LARGEST_BYTES)
    if not runs_on(main, machine):
        raise ProfagentError(
            f"{place.main} is built for {main.machine}, and {remote.host} is {machine}",
            hint="build it with the board's toolchain",
        )
    return main


async def aftermath(
    remote: Remote, ready: Prepared, end: RunEnd, jobs: Mapping[str, Mapping[str, int]], growing: Collection[str]
) -> Aftermath:
    """What there is on the board after the program; `jobs` is what has come, some still grow. UnreachableError."""
    told = [line.partition("=")[::2] for line in (await remote.run(facts_after(ready.place))).text.splitlines()]
    made = [value for key, value in told if key == "job" and value not in ready.before]
    free = [value for key, value in told if key == "free_kib"]
    return Aftermath(
        ready.place,
        ready.acl_json,
        ready.asked,
        ready.main,
        end.status,
        end.why,
        end.complaint,
        jobs,
        growing=tuple(growing),
        elsewhere=tuple(made),
        has_npu=("npu", "yes") in told,
        users=tuple(value for key, value in told if key == "user"),
        free_kib=int(free[0]) if free else None,
    )
