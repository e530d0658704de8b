"""Paths of a run on a board, and the state of the board before and after the program."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.aclconfig.edit import DEFAULTS, AclJsonFile, edited_acl_json, has_dump
from profagent.collect.explain import LEAST_FREE_KIB, Aftermath
from profagent.collect.project import OWN
from profagent.doctor.board import plain_path
from profagent.doctor.finding import FindingMark
from profagent.errors import ProfagentError, UsageError
from profagent.limits import LARGEST_PROGRAM_BYTES
from profagent.link.messages import Profiling

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from profagent.aclconfig.edit import ProfilerSettings
    from profagent.collect.board_run import RunEnd
    from profagent.ssh.remote import Remote

# Path of a JSON file in a program's strings.
_ACL_JSON = re.compile(rb"[\x21-\x7e]{0,200}\.json(?![\x21-\x7e])")


class Place:
    """Paths of a program and its run; `directory` is the project's, as the board's kernel resolves it."""

    def __init__(self, directory: str, main: str) -> None:
        """Derive all paths; `main` is relative to the directory, or absolute. Raises UsageError."""
        self.directory = directory
        self.main = posixpath.normpath(posixpath.join(directory, main))
        if not main.startswith("/") and not self.main.startswith(f"{directory}/"):
            raise UsageError(
                f"-m {main} leads to a place outside the project", hint="name it relative to --project, or absolutely"
            )
        # Directories in which the program starts, JOBs appear, profagent has its files, and the current run has its
        # files.
        self.main_directory = posixpath.dirname(self.main)
        self.output, self.own, self.run = f"{directory}/profiling", f"{directory}/{OWN}", f"{directory}/{OWN}/run"

    @property
    def acl_candidates(self) -> tuple[str, ...]:
        """Paths at which programs of the SDK have their acl.json."""
        above = posixpath.dirname(self.main_directory)
        folders = (self.main_directory, above, self.directory)
        return tuple(dict.fromkeys(f"{each}/{name}" for each in folders for name in ("acl.json", "src/acl.json")))

    def acl_json(self, given: str) -> str:
        """Return the path of a file that is named relative to the project, or absolutely."""
        return posixpath.normpath(posixpath.join(self.directory, given))


@dataclass(frozen=True, slots=True)
class MainProgram:
    """Findings in a program's file: svp_acl_prof_init, names of JSON files, and its SHA-256 if it was read whole."""

    has_own_profiling: bool
    acl_paths: tuple[str, ...]
    digest: str = ""


def read_main(data: bytes) -> MainProgram:
    """Return the findings in a program's first LARGEST_PROGRAM_BYTES."""
    paths = dict.fromkeys(found.decode("ascii") for found in _ACL_JSON.findall(data))
    digest = hashlib.sha256(data).hexdigest() if len(data) < LARGEST_PROGRAM_BYTES else ""
    return MainProgram(b"svp_acl_prof_init\0" in data, tuple(paths), digest)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """Program that can be started: its acl.json with the text for the run, and the paths of JOBs from before.

    `settings` are the settings of the profiler.
    """

    place: Place
    main: MainProgram
    settings: ProfilerSettings
    acl_json: str
    text: str
    before: frozenset[str]

    @property
    def profiling(self) -> Profiling:
        """Profiling settings in the form in which a daemon that finds the file reports them."""
        return Profiling(self.acl_json, str(self.settings.interval))


async def find_place(remote: Remote, directory: str, main: str) -> Place:
    """Return the paths of a run in a directory, which is created. Raises UsageError, ProfagentError."""
    # The board's shell knows the home directory; the rest of the name is quoted.
    home = directory.startswith("~/")
    name = f'"$HOME"/{shlex.quote(directory[2:])}' if home else shlex.quote(directory)
    ran = await remote.must(f"mkdir -p {name} && cd {name} && pwd -P")
    return Place(ran.text.splitlines()[-1], main)


async def prepare(
    remote: Remote, place: Place, acl_json: str | None, settings: ProfilerSettings, tell: Callable[[str], None]
) -> PreparedRun:
    """Inspect the program and its acl.json, and create the directory for JOBs. Raises UsageError, ProfagentError."""
    main = await _main(remote, place)
    path = place.acl_json(acl_json) if acl_json else await _found_acl_json(remote, place)
    data = await AclJsonFile(path, path, remote).read()
    text = edited_acl_json(data or b"", settings, path, without_dump=settings.records)
    for remark in _remarks(place, settings, path, data):
        tell(remark)
    output = shlex.quote(place.output)
    # The umask is the one in the manual.
    ran = await remote.run(f"(umask 027; mkdir -p {output}) && [ -w {output} ]")
    if ran.status != 0:
        raise ProfagentError(
            f"cannot use {place.output} on {remote.host}: {ran.complaint}",
            hint="log in as a user who may write there, or name another --remote-dir",
        )
    # JOBs from before the run are told from its own by this list.
    before = frozenset((await remote.must(jobs_in(place.output, place.main_directory))).text.splitlines())
    return PreparedRun(place, main, settings, path, text, before)


async def _found_acl_json(remote: Remote, place: Place) -> str:
    candidates = shlex.join(place.acl_candidates)
    ran = await remote.must(f'for each in {candidates}; do [ ! -e "$each" ] || {{ echo "$each"; break; }}; done')
    return ran.text or f"{place.main_directory}/acl.json"


def _remarks(place: Place, settings: ProfilerSettings, path: str, data: bytes | None) -> list[str]:
    remarks = []
    finding = plain_path(place.output)
    if data is None:
        remarks.append(f"{path} is not there, and is made for this run")
    if settings.records and has_dump(data or b""):
        remarks.append(f"{path} speaks of a Dump, which excludes profiling: it is left out for this run")
    if finding.mark is FindingMark.BAD:
        remarks.append(f"{finding.evidence}; take another --remote-dir if nothing comes")
    if settings.records and settings.interval == DEFAULTS.interval:
        remarks.append("interval 0: only the first inference after each load of a model is recorded; see --interval")
    if not settings.records:
        remarks.append("nothing is switched on: the program runs without profiling")
    return remarks


async def _main(remote: Remote, place: Place) -> MainProgram:
    name = shlex.quote(place.main)
    head = f"dd if={name} bs=1024 count={LARGEST_PROGRAM_BYTES // 1024} 2>/dev/null"
    ran = await remote.run(f"[ -f {name} ] || exit 3; [ -x {name} ] || exit 4; {head}")
    if ran.status == 3:
        raise UsageError(
            f"there is no program {place.main} on {remote.host}",
            hint="-m is relative to --project, or an absolute path of the board",
        )
    if ran.status != 0:
        raise ProfagentError(f"{place.main} is not executable", hint="chmod +x it in the project, and collect again")
    return read_main(ran.stdout)


def jobs_in(*directories: str) -> str:
    """Return a command that prints the paths of the JOBs in these directories."""
    paths = " ".join(f"{shlex.quote(directory)}/JOB*" for directory in directories)
    return f'for each in {paths}; do [ ! -d "$each" ] || echo "$each"; done'


def written_after(place: Place) -> str:
    """Return a command that prints the paths of JOBs in which a file was written after the end of the program."""
    since = shlex.quote(f"{place.run}/status")
    return f"""for each in {shlex.quote(place.output)}/JOB*; do
    [ -z "$(find "$each" -type f -newer {since} 2>/dev/null | head -n 1)" ] || echo "$each"
done"""


async def aftermath(
    remote: Remote, ready: PreparedRun, end: RunEnd, jobs: Mapping[str, Mapping[str, int]], growing: Collection[str]
) -> Aftermath:
    """Return the state of the board after the program; `jobs` have arrived, `growing` are still written.

    Raises UnreachableError.
    """
    place = ready.place
    script = f"""[ ! -e /dev/svp_npu ] || echo npu=yes
{jobs_in(place.main_directory, place.output)} | sed 's/^/job=/'
df -Pk {shlex.quote(place.output)} | tail -n 1 | sed -n 's/.* \\([0-9][0-9]*\\)  *[0-9][0-9]*% .*/free_kib=\\1/p'
for each in /proc/[0-9]*/fd; do
    case $(ls -l "$each" 2>/dev/null) in
    */dev/svp_npu*) echo "user=$(cat "${{each%/fd}}/comm" 2>/dev/null) ${{each%/fd}}" ;;
    esac
done"""
    lines = [line.partition("=")[::2] for line in (await remote.run(script)).text.splitlines()]
    free = [value for key, value in lines if key == "free_kib"]
    return Aftermath(
        place,
        ready.acl_json,
        ready.settings,
        ready.main,
        end.status,
        end.why,
        end.complaint,
        jobs,
        growing=tuple(growing),
        elsewhere=tuple(value for key, value in lines if key == "job" and value not in ready.before),
        has_npu=("npu", "yes") in lines,
        users=tuple(value for key, value in lines if key == "user"),
        free_kib=int(free[0]) if free else LEAST_FREE_KIB,
    )
