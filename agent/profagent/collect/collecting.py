"""The work of `collect`: upload a project to a board, run its program there with profiling, and record its JOBs."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent.boards.tunnel import OverSsh, access_to
from profagent.cli.running import interrupted_by
from profagent.collect.board_run import BoardRun, patient_ssh
from profagent.collect.explain import LOST, Cause, causes, failure
from profagent.collect.look import aftermath, find_place, jobs_in, prepare, written_after
from profagent.collect.project import project_labels, upload_project
from profagent.errors import ProfagentError, UnreachableError
from profagent.export.summary import export_summary
from profagent.export.timeline import export_timeline
from profagent.files import make_directory
from profagent.formats.counter_maps import BUILT_IN, CounterMaps
from profagent.formats.names import is_job_name
from profagent.importing.importing import import_job
from profagent.link.addresses import full_address, is_local
from profagent.link.channel import connected
from profagent.link.credentials import Access, own_consumer
from profagent.record.beginnings import ProgramJobs
from profagent.record.options import RecordOptions
from profagent.record.record import record
from profagent.store.job_folder import own_folder, write_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from profagent.aclconfig.edit import ProfilerSettings
    from profagent.collect.board_run import PatientSsh, RunEnd
    from profagent.collect.look import Place, PreparedRun
    from profagent.link.boards_file import BoardEntry
    from profagent.link.messages import Profiling
    from profagent.ssh.connection import Asker
    from profagent.ssh.remote import Remote
    from profagent.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """Options of a collect: the program, the board, and the destinations of JOBs.

    `board` is the name for links and people, `target` that for SSH. Without a project nothing is uploaded. `config`
    is the vendor's file with a password, which is never uploaded. Without an `output` the workspace
    alone has the JOBs.
    """

    board: str
    target: str
    asker: Asker
    main: str
    profiler: ProfilerSettings
    workspace: Workspace
    remote_dir: str
    output: Path | None = None
    entry: BoardEntry | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    project: Path | None = None
    config: Path | None = None
    acl_json: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    maps: CounterMaps = BUILT_IN
    bundle: Path | None = None
    exports: bool = False
    releases: bool = False


@dataclass(frozen=True, slots=True)
class Collected:
    """Result of a collect. `summary` is the session's, None if nothing was to be recorded."""

    status: int
    jobs: tuple[Path, ...]
    causes: tuple[Cause, ...]
    summary: dict[str, Any] | None
    is_lost: bool = False
    """True if the end of the program is unknown; its status is 1 then."""

    @property
    def exit_code(self) -> int:
        """Exit status of the program; if that is 0, the exit code of the recording."""
        if self.status or self.summary is None:
            return self.status
        return int(self.summary["exit_code"])


@dataclass(frozen=True, slots=True)
class _CollectRecording:
    """Recording of the JOBs that the program makes, which runs beside it."""

    made: ProgramJobs
    captured: asyncio.Task[dict[str, Any]]
    ending: asyncio.Event


@dataclass(frozen=True, slots=True)
class Collecting:
    """One run. `show` is called with the program's output. `stop` ends the program, and its JOBs are fetched."""

    options: CollectOptions
    show: Callable[[bytes, bool], None]
    tell: Callable[[str], None]
    on_progress: Callable[[int, int], None]
    stop: asyncio.Event

    async def collect(self) -> Collected:
        """Run the program and record its JOBs.

        Raises UsageError, FormatError, ProfagentError, UnreachableError, RefusedError, StoreError.
        """
        options = self.options
        if options.profiler.records and options.output is not None:
            # An output that cannot be written must fail before the run, and not after it.
            await asyncio.to_thread(make_directory, options.output)
        async with AsyncExitStack() as stack:
            # A stop in this block cancels it and leaves nothing on the board; after the start, `_followed` ends the
            # program.
            async with interrupted_by(self.stop, "the program was started"):
                ssh = await stack.enter_async_context(patient_ssh(options.target, options.asker, self.tell))
                place = await find_place(ssh.remote, options.remote_dir, options.main)
                run = BoardRun(ssh, place, self.show)
                async with run.held():
                    await self._upload(ssh.remote, place.directory)
                    profiler = replace(options.profiler, output=place.output)
                    ready = await prepare(ssh.remote, place, options.acl_json, profiler, self.tell)
                    recording = None
                    # The recording must see the directory before the program can make a JOB in it.
                    if profiler.records:
                        recording = await stack.enter_async_context(self._recording(ssh, ready))
                        recording.made.begin()
                    await run.start(options.arguments, options.environment, ready.acl_json, ready.text)
            end = await self._followed(run, recording)
            if not end.why:
                self.tell(f"{place.main} has ended with {end.status}")
            # The run's files stay on the board until the result is complete: they tell when the program ended.
            done = await self._finish(ssh, ready, end, recording)
            await run.leave(end)
        return done

    async def _upload(self, remote: Remote, directory: str) -> None:
        project = self.options.project
        if project is None:
            return
        left_out = [path for path in (self.options.output, self.options.config) if path is not None]
        brought = await upload_project(remote, project, directory, left_out, self.on_progress)
        self.tell(
            f"{project}: {len(brought.sent)} of {brought.total} names sent ({brought.sent_bytes} bytes),"
            f" {len(brought.removed)} removed in {directory}"
        )

    @asynccontextmanager
    async def _recording(self, ssh: PatientSsh, ready: PreparedRun) -> AsyncIterator[_CollectRecording]:
        options = self.options
        found = await project_labels(options.project, options.main, ready.main.digest)
        async with self._access(ssh, ready.place) as access:
            made, ending = ProgramJobs(ready.place.output, ready.before, ready.profiling), asyncio.Event()
            wanted = RecordOptions(
                (options.board,),
                options.workspace,
                new=True,
                labels={**found, **options.labels},
                maps=options.maps,
                access=access,
                source="collect",
                made=made,
            )
            captured = asyncio.create_task(record(wanted, self.tell, ending))
            linking = asyncio.create_task(made.ready())
            try:
                # The program must not start before the recording follows its directory. A recording that failed raises
                # here.
                await asyncio.wait([captured, linking], return_when=asyncio.FIRST_COMPLETED)
                if captured.done():
                    await captured
                yield _CollectRecording(made, captured, ending)
            finally:
                linking.cancel()
                captured.cancel()
                await asyncio.wait([captured, linking])
                # Its error was raised above, or another one is on its way: asyncio must not warn that nobody asked for
                # it.
                if not captured.cancelled():
                    captured.exception()

    @asynccontextmanager
    async def _access(self, ssh: PatientSsh, place: Place) -> AsyncIterator[Access]:
        """Give access to the installed daemon if it serves the directory, else to a temporary one.

        With `releases`, the daemon must delete the files that this host has.
        """
        board = self.options.board
        async with AsyncExitStack() as stack:
            access = await self._installed(stack, ssh, place)
            if access is None:
                release = ("--retain", "delivered", "--retain-for", own_consumer()) if self.options.releases else ()
                settings = ("--state", f"{place.own}/state", *release)
                over = OverSsh((place.output,), self.options.bundle, settings, is_own=True, asker=self.options.asker)
                access = await stack.enter_async_context(access_to([board], Access(), over, self.tell, self.stop))
            yield access

    async def _installed(self, stack: AsyncExitStack, ssh: PatientSsh, place: Place) -> Access | None:
        """Return access to the installed daemon, or None if none serves as needed.

        A board with an address is reached directly, others through a tunnel.
        """
        name, entry = self.options.board, self.options.entry
        address = full_address("127.0.0.1" if entry is None else entry.address)
        try:
            if entry is not None and not is_local(address):
                access = Access(known={name: entry.known})
            elif await ssh.remote.answers(address):
                over = OverSsh(asker=self.options.asker)
                access = await stack.enter_async_context(access_to([name], Access(), over, self.tell, self.stop))
            else:
                return None
            async with connected(name, access) as channel:
                board = await channel.describe()
        except UnreachableError as error:
            self.tell(f"the daemon that runs there is not used: {error}")
            return None
        retention = board.retention
        deletes = retention is not None and retention.policy == "delivered" and own_consumer() in retention.retain_for
        is_below = any(f"{place.output}/".startswith(f"{root.rstrip('/')}/") for root in board.roots)
        return access if is_below and (deletes or not self.options.releases) else None

    async def _followed(self, run: BoardRun, recording: _CollectRecording | None) -> RunEnd:
        following = asyncio.create_task(run.followed())
        stopping = asyncio.create_task(self.stop.wait())
        try:
            reasons = [following, stopping, *([recording.captured] if recording else [])]
            await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                self.tell("ending the program; again to leave at once")
                await run.stop()
            return await following
        finally:
            for task in (following, stopping):
                task.cancel()
            await asyncio.wait([following, stopping])

    async def _has_arrived(self, ssh: PatientSsh, ready: PreparedRun, made: ProgramJobs) -> bool:
        async def names(command: str) -> list[str]:
            """Return the names of the JOBs whose paths a command prints, without those from before the run."""
            ran = await ssh.persist(lambda remote: remote.run(command))
            found = [posixpath.basename(path) for path in ran.text.splitlines() if path not in ready.before]
            return [name for name in found if is_job_name(name)]

        # A stop that ended the program must not cut the waiting for its JOBs short as well.
        hurried = asyncio.Event() if self.stop.is_set() else self.stop
        own = await names(jobs_in(ready.place.output))
        return await made.settled(own, hurried, self.tell, lambda: names(written_after(ready.place)))

    async def _finish(
        self, ssh: PatientSsh, ready: PreparedRun, end: RunEnd, recording: _CollectRecording | None
    ) -> Collected:
        summary, jobs, files, growing = None, [], {}, []
        if recording is not None:
            is_whole = await self._has_arrived(ssh, ready, recording.made)
            recording.ending.set()
            summary = await recording.captured
            growing, names = sorted(recording.made.growing), list(summary["jobs"])
            mirror = Path(summary["mirror"])
            jobs = [mirror / name for name in names]
            if (output := self.options.output) is not None:
                jobs = [await asyncio.to_thread(_deliver, job, output) for job in jobs]
            # The sizes are taken before the exports add files.
            files = {job.name: await asyncio.to_thread(_file_sizes, job) for job in jobs}
            if self.options.exports:
                for job in jobs:
                    await _export_job(job, self.options.maps, ready.profiling, summary["sdk_version"])
            # If there are several JOBs, one may belong to another program: none is deleted.
            if self.options.releases and is_whole and summary["complete"] and len(names) == 1:
                command = f"cd {shlex.quote(ready.place.output)} && rm -rf {shlex.quote(names[0])}"
                await ssh.persist(lambda remote: remote.run(command))
        after = await ssh.persist(lambda remote: aftermath(remote, ready, end, files, growing))
        failed = failure(after)
        explanations = (*([failed] if failed else []), *causes(after))
        return Collected(end.status, tuple(jobs), explanations, summary, is_lost=end.why == LOST)


def _deliver(mirror: Path, output: Path) -> Path:
    """Copy a JOB below `output`, completely or not at all; it replaces a JOB of that name. Raises ProfagentError."""
    target, part = output / mirror.name, output / f".{mirror.name}.part"
    make_directory(output)
    try:
        shutil.rmtree(part, ignore_errors=True)
        # The copy gets its name when it is complete, so no reader sees a part of a JOB.
        shutil.copytree(mirror, part, symlinks=True)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise ProfagentError(
            f"cannot write {target}: {error.strerror or error}",
            hint=f"the JOB is safe in {mirror}; make room, or name another --output",
        ) from error
    return target


async def _export_job(job: Path, maps: CounterMaps, profiling: Profiling, sdk: str) -> None:
    """Write what the vendor's `--all` makes in a JOB directory: database, timelines, summaries. Raises StoreError."""
    imported = await import_job(job, maps, profiling=profiling, sdk=sdk)
    await export_timeline(imported.database, own_folder(job, "timeline"), job=job.name)
    await export_summary(imported.database, own_folder(job, "summary"), job=job.name)
    await asyncio.to_thread(write_log, job, [f"collect: {imported.files} files in {imported.elapsed_s:.1f} s"])


def _file_sizes(job: Path) -> Mapping[str, int]:
    return {path.relative_to(job).as_posix(): path.lstat().st_size for path in job.rglob("*") if not path.is_dir()}
