"""`collect`: bring a project to a board, run its program there with profiling, and record what it makes."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent.boards.tunnel import OverSsh, reached
from profagent.cli.running import interrupted_by
from profagent.collect.board_run import BoardRun, patient_ssh
from profagent.collect.explain import LOST, Cause, causes, failure
from profagent.collect.look import aftermath, jobs_in, placed, prepared, written_after
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
from profagent.record.beginnings import MadeJobs
from profagent.record.options import RecordOptions
from profagent.record.record import record
from profagent.store.job_folder import own_folder, write_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from profagent.aclconfig.edit import ProfilerSettings
    from profagent.collect.board_run import PatientSsh, RunEnd
    from profagent.collect.look import Place, Prepared
    from profagent.link.boards_file import BoardEntry
    from profagent.link.messages import Profiling
    from profagent.ssh.connection import Asker
    from profagent.ssh.remote import Remote
    from profagent.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """What to run, on which board, and where what it makes goes.

    `board` is what links and people call it, `target` what `ssh` does. Without a project nothing is uploaded. `config`
    is the vendor's file, with a password: it is not.
    """

    board: str
    target: str
    asker: Asker
    main: str
    profiler: ProfilerSettings
    output: Path
    workspace: Workspace
    remote_dir: str
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
    """What came of it. `summary` is the session's, None where nothing was to be recorded."""

    status: int
    jobs: tuple[Path, ...]
    causes: tuple[Cause, ...]
    summary: dict[str, Any] | None
    is_lost: bool = False
    """Whether nobody knows how the program ended; its status is 1 then."""

    @property
    def exit_code(self) -> int:
        """The program's; where that is 0: what `record` would say."""
        if self.status or self.summary is None:
            return self.status
        return int(self.summary["exit_code"])


@dataclass(frozen=True, slots=True)
class _Recording:
    """A capture of what the program makes, which goes on beside it."""

    made: MadeJobs
    captured: asyncio.Task[dict[str, Any]]
    ending: asyncio.Event


@dataclass(frozen=True, slots=True)
class Collecting:
    """One run. `show` is given the program's output. At `stop` the program is ended, and what it made fetched."""

    options: CollectOptions
    show: Callable[[bytes, bool], None]
    tell: Callable[[str], None]
    on_progress: Callable[[int, int], None]
    stop: asyncio.Event

    async def collect(self) -> Collected:
        """Run and record. UsageError, FormatError, ProfagentError, UnreachableError, RefusedError, StoreError."""
        options = self.options
        if options.profiler.records:
            # Not only when there is something to write.
            await asyncio.to_thread(make_directory, options.output)
        async with AsyncExitStack() as stack:
            async with interrupted_by(self.stop, "the program was started"):
                ssh = await stack.enter_async_context(patient_ssh(options.target, options.asker, self.tell))
                place = await placed(ssh.remote, options.remote_dir, options.main)
                run = BoardRun(ssh, place, self.show)
                async with run.held():
                    await self._upload(ssh.remote, place.directory)
                    asked = replace(options.profiler, output=place.output)
                    ready = await prepared(ssh.remote, place, options.acl_json, asked, self.tell)
                    recording = None
                    if asked.records:
                        recording = await stack.enter_async_context(self._recorded(ssh, ready))
                        recording.made.begin()
                    await run.start(options.arguments, options.environment, ready.acl_json, ready.text)
            end = await self._followed(run, recording)
            if not end.why:
                self.tell(f"{place.main} has ended with {end.status}")
            done = await self._kept(ssh, ready, end, recording)
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
    async def _recorded(self, ssh: PatientSsh, ready: Prepared) -> AsyncIterator[_Recording]:
        """What the program makes is recorded for as long as the context, or until it is told to end."""
        options = self.options
        found = await project_labels(options.project, options.main, ready.main.digest)
        async with self._served(ssh, ready.place) as access:
            made, ending = MadeJobs(ready.place.output, ready.before, ready.profiling), asyncio.Event()
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
                await asyncio.wait([captured, linking], return_when=asyncio.FIRST_COMPLETED)
                if captured.done():
                    await captured
                yield _Recording(made, captured, ending)
            finally:
                linking.cancel()
                captured.cancel()
                await asyncio.wait([captured, linking])
                # What ended it was raised, or something worse was.
                if not captured.cancelled():
                    captured.exception()

    @asynccontextmanager
    async def _served(self, ssh: PatientSsh, place: Place) -> AsyncIterator[Access]:
        """How to reach the installed daemon, where it serves the directory, else a temporary one.

        With `releases` it is one that deletes what this host has.
        """
        board = self.options.board
        async with AsyncExitStack() as stack:
            access = await self._installed(stack, ssh, place)
            if access is None:
                release = ("--retain", "delivered", "--retain-for", own_consumer()) if self.options.releases else ()
                settings = ("--state", f"{place.own}/state", *release)
                over = OverSsh((place.output,), self.options.bundle, settings, is_own=True, asker=self.options.asker)
                access = await stack.enter_async_context(reached([board], Access(), over, self.tell, self.stop))
            yield access

    async def _installed(self, stack: AsyncExitStack, ssh: PatientSsh, place: Place) -> Access | None:
        """Directly to a board that has an address, else through a tunnel; None where none serves as it is needed."""
        name, entry = self.options.board, self.options.entry
        address = full_address("127.0.0.1" if entry is None else entry.address)
        try:
            if entry is not None and not is_local(address):
                access = Access(known={name: entry.known})
            elif await ssh.remote.answers(address):
                over = OverSsh(asker=self.options.asker)
                access = await stack.enter_async_context(reached([name], Access(), over, self.tell, self.stop))
            else:
                return None
            async with connected(name, access) as channel:
                board = await channel.describe()
        except UnreachableError as error:
            self.tell(f"the daemon that runs there is not used: {error}")
            return None
        kept = board.retention
        deletes = kept is not None and kept.policy == "delivered" and own_consumer() in kept.retain_for
        is_below = any(f"{place.output}/".startswith(f"{root.rstrip('/')}/") for root in board.roots)
        return access if is_below and (deletes or not self.options.releases) else None

    async def _followed(self, run: BoardRun, recording: _Recording | None) -> RunEnd:
        """Wait until the program has ended; end it when that is asked for, or when nothing records it any more."""
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

    async def _has_come(self, ssh: PatientSsh, ready: Prepared, made: MadeJobs) -> bool:
        """Wait until what the program made has come; whether it has."""

        async def names(command: str) -> list[str]:
            """Of JOBs whose paths a command prints, but for those that stood there before."""
            ran = await ssh.persist(lambda remote: remote.run(command))
            found = [posixpath.basename(path) for path in ran.text.splitlines() if path not in ready.before]
            return [name for name in found if is_job_name(name)]

        hurried = asyncio.Event() if self.stop.is_set() else self.stop
        own = await names(jobs_in(ready.place.output))
        return await made.settled(own, hurried, self.tell, lambda: names(written_after(ready.place)))

    async def _kept(self, ssh: PatientSsh, ready: Prepared, end: RunEnd, recording: _Recording | None) -> Collected:
        """Bring JOBs to where they were asked for, release those on the board, and say what is odd."""
        summary, jobs, files, growing = None, [], {}, []
        if recording is not None:
            is_whole = await self._has_come(ssh, ready, recording.made)
            recording.ending.set()
            summary = await recording.captured
            growing, names = sorted(recording.made.growing), list(summary["jobs"])
            mirror = Path(summary["mirror"])
            jobs = [await asyncio.to_thread(_deliver, mirror / name, self.options.output) for name in names]
            # Before exports add to them.
            files = {job.name: await asyncio.to_thread(_job_files, job) for job in jobs}
            if self.options.exports:
                for job in jobs:
                    await _export_job(job, self.options.maps, ready.profiling, summary["sdk_version"])
            # Of several, one may be another program's.
            if self.options.releases and is_whole and summary["complete"] and len(names) == 1:
                command = f"cd {shlex.quote(ready.place.output)} && rm -rf {shlex.quote(names[0])}"
                await ssh.persist(lambda remote: remote.run(command))
        after = await ssh.persist(lambda remote: aftermath(remote, ready, end, files, growing))
        failed = failure(after)
        odd = (*([failed] if failed else []), *causes(after))
        return Collected(end.status, tuple(jobs), odd, summary, is_lost=end.why == LOST)


def _deliver(mirror: Path, output: Path) -> Path:
    """Copy a JOB below `output`, whole or not at all; one of that name gives way to it. Raises ProfagentError."""
    target, part = output / mirror.name, output / f".{mirror.name}.part"
    make_directory(output)
    try:
        shutil.rmtree(part, ignore_errors=True)
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
    """What the vendor's `--all` makes in a JOB directory: its database, timelines and summaries. StoreError."""
    imported = await import_job(job, maps, profiling=profiling, sdk=sdk)
    await export_timeline(imported.database, own_folder(job, "timeline"), job=job.name)
    await export_summary(imported.database, own_folder(job, "summary"), job=job.name)
    await asyncio.to_thread(write_log, job, [f"collect: {imported.files} files in {imported.elapsed_s:.1f} s"])


def _job_files(job: Path) -> Mapping[str, int]:
    """Sizes by path inside the JOB."""
    return {path.relative_to(job).as_posix(): path.lstat().st_size for path in job.rglob("*") if not path.is_dir()}
