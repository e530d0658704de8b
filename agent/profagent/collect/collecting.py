"""`collect`: bring a project to a board, run its program there with profiling, and record what it makes."""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
import re
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent.cli.running import interrupted_by
from profagent.collect.board_run import BoardRun
from profagent.collect.daemon import CollectDaemon
from profagent.collect.explain import LOST, Cause, causes, failure
from profagent.collect.look import aftermath, placed, prepared
from profagent.collect.patient_ssh import PatientSsh
from profagent.collect.project_upload import upload_project
from profagent.collect.results import deliver_job, export_job, job_files
from profagent.collect.run_steps import jobs_in, released, written_after
from profagent.deploy.layout import Layout
from profagent.files import make_directory
from profagent.formats.names import is_job_name
from profagent.link.credentials import own_consumer
from profagent.record.made_jobs import MadeJobs
from profagent.record.record import RecordOptions, exit_code_of, record
from profagent.store.counter_maps import BUILT_IN, CounterMaps

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from profagent.aclconfig.edit import Profiler
    from profagent.collect.board_run import RunEnd
    from profagent.collect.look import Prepared
    from profagent.collect.place import Place
    from profagent.link.boards_file import BoardEntry
    from profagent.ssh.passwords import Asker
    from profagent.store.workspace import Workspace


_DIGITS = 16
_GIT_S = 10.0
# Of a project with many models, which of them ran is not known.
_MOST_MODELS = 8
_ODD = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_NAME = 50


async def project_labels(project: Path | None, main: str, digest: str = "") -> dict[str, str]:
    """`git` (with `-dirty` where files differ), `main` and `model.NAME` (of SHA-256), as far as they are found.

    `digest` is the program's, where it was read on the board.
    """
    seen = {"main": digest[:_DIGITS]} if digest else {}
    if project is None:
        return seen
    digests = await asyncio.to_thread(_digests, project, main)
    revision = await _revision(project)
    return {**({"git": revision} if revision else {}), **digests, **seen}


def _digests(project: Path, main: str) -> dict[str, str]:
    models = sorted(project.rglob("*.om"))[: _MOST_MODELS + 1]
    files = {f"model.{_ODD.sub('_', model.stem)[:_LONGEST_NAME]}": model for model in models}
    program = {} if main.startswith("/") else {"main": project / main}
    wanted = {**program, **(files if len(models) <= _MOST_MODELS else {})}
    found: dict[str, str] = {}
    for label, file in wanted.items():
        with suppress(OSError), file.open("rb") as opened:
            found[label] = hashlib.file_digest(opened, "sha256").hexdigest()[:_DIGITS]
    return found


async def _revision(project: Path) -> str:
    """Empty without git, or where the project is in no repository."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "-C", str(project), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_GIT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("ascii", "replace").strip()


_STARTED = "the program was started"


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
    profiler: Profiler
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
    layout: Layout = field(default_factory=Layout.of)
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
        """The program's; where that is 0: what `record` would say; where that is 0, 1 without any record."""
        if self.status or self.summary is None:
            return self.status
        code = exit_code_of(self.summary) if self.jobs else 0
        return code or int(not any(self.summary["records"].values()))


async def collect(
    options: CollectOptions,
    show: Callable[[bytes, bool], None],
    tell: Callable[[str], None],
    on_progress: Callable[[int, int], None],
    stop: asyncio.Event,
) -> Collected:
    """Run and record; `show` is given the program's output. At `stop` the program is ended, and what it made fetched.

    Raises UsageError, FormatError, ProfagentError, UnreachableError, RefusedError, StoreError.
    """
    if options.profiler.records:
        # Not only when there is something to write.
        await asyncio.to_thread(make_directory, options.output)
    async with AsyncExitStack() as stack:
        async with interrupted_by(stop, _STARTED):
            ssh = await stack.enter_async_context(PatientSsh(options.target, options.asker, tell))
        return await _Collect(options, ssh, show, tell, on_progress, stop).run()


@dataclass(frozen=True, slots=True)
class _Ended:
    """What is there when the program is gone; `is_whole`: all that it made has come."""

    end: RunEnd
    summary: dict[str, Any] | None
    is_whole: bool
    growing: tuple[str, ...] = ()
    """JOBs that were written to when it was gone."""


class _Recording:
    """A capture of what the program makes, which goes on beside it."""

    def __init__(self, made: MadeJobs, captured: asyncio.Task[dict[str, Any]], ending: asyncio.Event) -> None:
        self.made = made
        self.captured = captured
        self._ending = ending

    async def end(self) -> dict[str, Any]:
        """The session's summary. Raises what ended the capture."""
        self._ending.set()
        return await self.captured


class _Collect:
    def __init__(
        self,
        options: CollectOptions,
        ssh: PatientSsh,
        show: Callable[[bytes, bool], None],
        tell: Callable[[str], None],
        on_progress: Callable[[int, int], None],
        stop: asyncio.Event,
    ) -> None:
        self._options = options
        self._ssh = ssh
        self._show = show
        self._tell = tell
        self._on_progress = on_progress
        self._stop = stop

    async def run(self) -> Collected:
        """As `collect`."""
        async with AsyncExitStack() as stack:
            async with interrupted_by(self._stop, _STARTED):
                place, machine = await placed(self._ssh.remote, self._options.remote_dir, self._options.main)
                run = BoardRun(self._ssh, place, self._show)
                async with run.held():
                    ready = await self._prepared(place, machine)
                    recording = None
                    if ready.asked.records:
                        recording = await stack.enter_async_context(self._recorded(ready))
                        recording.made.begin()
                    await run.start(self._options.arguments, self._options.environment, ready.acl_json, ready.text)
            end = await self._followed(run, recording)
            if not end.why:
                self._tell(f"{place.main} has ended with {end.status}")
            ended = await self._drained(ready, end, recording)
        done = await self._kept(ready, ended)
        await run.leave(end)
        return done

    async def _prepared(self, place: Place, machine: str) -> Prepared:
        """Bring the project, and look at what is there."""
        options = self._options
        if options.project is not None:
            left_out = [path for path in (options.output, options.config) if path is not None]
            brought = await upload_project(
                self._ssh.remote, options.project, place.directory, left_out, self._on_progress
            )
            self._tell(
                f"{options.project}: {len(brought.sent)} of {brought.total} names sent ({brought.sent_bytes} bytes),"
                f" {len(brought.removed)} removed in {place.directory}"
            )
        asked = replace(options.profiler, output=place.output)
        return await prepared(self._ssh.remote, place, machine, options.acl_json, asked, self._tell)

    @asynccontextmanager
    async def _recorded(self, ready: Prepared) -> AsyncIterator[_Recording]:
        """What the program makes is recorded for as long as the context, or until it is told to end."""
        options = self._options
        found = await project_labels(options.project, options.main, ready.main.digest)
        daemon = CollectDaemon(self._ssh, ready.place, options.board, options.entry, options.layout, options.asker)
        serving = daemon.serving(
            options.bundle, own_consumer(), releases=options.releases, tell=self._tell, stop=self._stop
        )
        async with serving as access:
            made, ending = MadeJobs(ready.place.output, ready.before, ready.told), asyncio.Event()
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
            captured = asyncio.create_task(record(wanted, self._tell, ending))
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

    async def _followed(self, run: BoardRun, recording: _Recording | None) -> RunEnd:
        """Wait until the program has ended; end it when that is asked for, or when nothing records it any more."""
        following = asyncio.create_task(run.followed())
        stopping = asyncio.create_task(self._stop.wait())
        reasons = [following, stopping, *([recording.captured] if recording else [])]
        try:
            await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                self._tell("ending the program; again to leave at once")
                await run.stop()
            return await following
        finally:
            for task in (following, stopping):
                task.cancel()
            await asyncio.wait([following, stopping])

    async def _drained(self, ready: Prepared, end: RunEnd, recording: _Recording | None) -> _Ended:
        """Wait until what the program made has come, and see what that is."""
        if recording is None:
            return _Ended(end, None, is_whole=False)
        names = await self._names(jobs_in(ready.place.output), ready)
        hurried = asyncio.Event() if self._stop.is_set() else self._stop
        is_whole = await recording.made.settled(
            names, hurried, self._tell, lambda: self._names(written_after(ready.place), ready)
        )
        return _Ended(end, await recording.end(), is_whole=is_whole, growing=tuple(sorted(recording.made.growing)))

    async def _names(self, command: str, ready: Prepared) -> list[str]:
        """Of JOBs whose paths a command prints, but for those that stood there before."""
        ran = await self._ssh.persist(lambda remote: remote.run(command))
        names = [posixpath.basename(path) for path in ran.text.splitlines() if path not in ready.before]
        return [name for name in names if is_job_name(name)]

    async def _kept(self, ready: Prepared, ended: _Ended) -> Collected:
        """Bring JOBs to where they were asked for, release those on the board, and say what is odd."""
        options, summary = self._options, ended.summary
        jobs: list[Path] = []
        if summary is not None:
            mirror = Path(summary["mirror"])
            jobs = [await asyncio.to_thread(deliver_job, mirror / name, options.output) for name in summary["jobs"]]
        files = {job.name: await asyncio.to_thread(job_files, job) for job in jobs}
        if options.exports:
            for job in jobs:
                await export_job(job, options.maps, ready.told, summary["sdk_version"] if summary else "")
        # Of several, one may be another program's.
        if options.releases and summary is not None and ended.is_whole and summary["complete"] and len(jobs) == 1:
            await self._ssh.persist(lambda remote: remote.run(released(ready.place.output, list(summary["jobs"]))))
        after = await self._ssh.persist(lambda remote: aftermath(remote, ready, ended.end, files, ended.growing))
        failed = failure(after)
        odd = (*([failed] if failed else []), *causes(after))
        return Collected(ended.end.status, tuple(jobs), odd, summary, is_lost=ended.end.why == LOST)
