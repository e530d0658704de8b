"""Writing the vendor's timelines and tables of a session, or of one JOB of it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from profagent.cli.progress import progress
from profagent.cli.provenance import provenance_of
from profagent.cli.table import ACL_STATISTIC, OP_STATISTIC, OP_SUMMARY, sheet_pieces
from profagent.export.tables import acl_statistic_rows, inference_tables, mean_tables
from profagent.export.trace import CallEvents, TaskEvents, trace_pieces
from profagent.files import make_directory, write_atomically, written_atomically
from profagent.formats.records import shown_mhz
from profagent.limits import LONGEST_STEM_BYTES
from profagent.store.database import reading
from profagent.store.queries import Scope, call_logs, calls, earliest_call_us, find_session, jobs_of, layers_of
from profagent.store.selection import Choice, InferenceRow, Selection
from profagent.store.sessions import require_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    import aiosqlite

    from profagent.cli.progress import Progress
    from profagent.cli.table import Cell, Column
    from profagent.export.trace import TraceEvent
    from profagent.store.queries import CallLog

METADATA_FILE = "metadata.json"
UNKNOWN_FIELD = "NA"
AGGREGATE = "aggregate"
DIGEST_HEX = 10
_REFUSED_CHARACTERS = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
NO_CHOICE = Choice()


class Exported(NamedTuple):
    """What was written for one JOB. `unplaced` counts records and calls whose place in time is not known.

    `not_final`: inferences whose figures are not known, by their state and reason.
    """

    job: str
    directory: Path
    files: tuple[str, ...]
    simulated: bool
    ledger: dict[str, dict[str, int]]
    not_final: list[dict[str, Any]]
    unplaced: int = 0


async def export_timeline(
    database: Path,
    directory: Path,
    *,
    session: int | None = None,
    job: str | None = None,
    choice: Choice = NO_CHOICE,
) -> list[Exported]:
    """Write Chrome traces: task_time for the chosen inferences, acl for all API calls.

    `session` None is the newest one. With `job` its files stand in `directory`; without, each JOB of the session has
    a folder of its name there. Raises UsageError, StoreError, and ProfagentError when a file cannot be written.
    """

    async def write(connection: aiosqlite.Connection, output: _Output) -> None:
        selection = await Selection.of(connection, output.scope, choice)
        known = (await selection.earliest_us(), await earliest_call_us(connection, output.scope))
        origin_us = min((time for time in known if time is not None), default=0)
        with progress("export", "inferences") as shown:
            await _write_tasks(connection, selection, output, origin_us, shown)
        await _write_calls(connection, output, origin_us)

    return await _export(database, directory, session, job, write)


async def export_summary(
    database: Path,
    directory: Path,
    *,
    session: int | None = None,
    job: str | None = None,
    choice: Choice = NO_CHOICE,
    sheet_format: str = "csv",
    aggregate: bool = False,
) -> list[Exported]:
    """Write the tables op_summary, op_statistic and acl_statistic; sessions, JOBs and errors as `export_timeline`.

    `aggregate`: one table for the mean of all chosen inferences of a model, and not one for each.
    """

    async def write(connection: aiosqlite.Connection, output: _Output) -> None:
        selection = await Selection.of(connection, output.scope, choice._replace(by_aicore=True))
        make_tables = mean_tables if aggregate else inference_tables
        total = len(await selection.groups()) if aggregate else await selection.count()
        mhz = shown_mhz(output.scope.job.frequency_mhz)
        with progress("export", "tables") as shown:
            async for row, op_summary, op_statistic in make_tables(connection, output.scope, selection):
                about = _about(row, is_aggregate=aggregate)
                name = op_summary_name(row, mhz, is_aggregate=aggregate)
                output.write_sheet(name, OP_SUMMARY, op_summary, sheet_format, about)
                name = op_statistic_name(row, is_aggregate=aggregate)
                output.write_sheet(name, OP_STATISTIC, op_statistic, sheet_format, about)
                shown(row.position + 1, total)
        for log in await call_logs(connection, output.scope):
            rows = await acl_statistic_rows(calls(connection, output.scope, log.log))
            name = acl_statistic_name(log.device_id, log.model_id)
            output.write_sheet(name, ACL_STATISTIC, rows, sheet_format, _about(log, is_aggregate=True))

    return await _export(database, directory, session, job, write)


class _Output:
    def __init__(self, provenance: dict[str, Any], scope: Scope, directory: Path) -> None:
        self.scope = scope
        self.provenance = provenance
        self.unplaced = 0
        self._directory = directory
        self._files: dict[str, dict[str, Any]] = {}  # what each is about
        make_directory(directory)

    def write_sheet(
        self,
        stem: str,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Cell]],
        sheet_format: str,
        about: dict[str, Any],
    ) -> None:
        """Write one table, under a name that no other has; none where there are no rows."""
        if rows:
            name = unique_name(stem, sheet_format, self._files)
            write_atomically(self._directory / name, sheet_pieces(columns, rows, sheet_format))
            self._files[name] = about

    async def stream(self, stem: str, pieces: AsyncIterator[bytes], about: dict[str, Any]) -> None:
        """Write one timeline; none where there are no pieces."""
        name = unique_name(stem, "json", self._files)
        first = await anext(pieces, None)
        if first is not None:
            with written_atomically(self._directory / name) as file:
                file.write(first)
                async for piece in pieces:
                    file.write(piece)
            self._files[name] = about

    def finish(self) -> Exported:
        """Write the metadata beside the files."""
        metadata = {**self.provenance, "unplaced": self.unplaced, "files": self._files}
        text = msgspec.json.format(msgspec.json.encode(metadata), indent=2)
        write_atomically(self._directory / METADATA_FILE, [text, b"\n"])
        facts = {name: self.provenance[name] for name in ("job", "simulated", "ledger", "not_final")}
        return Exported(directory=self._directory, files=tuple(self._files), unplaced=self.unplaced, **facts)


async def _export(
    database: Path,
    directory: Path,
    session_number: int | None,
    job_name: str | None,
    write: Callable[[aiosqlite.Connection, _Output], Awaitable[None]],
) -> list[Exported]:
    exported = []
    async with reading(database) as connection:
        session = await find_session(connection, session_number)
        await require_records(connection, session.session)
        for job in await jobs_of(connection, session.session, job_name):
            target = directory / Path(job.name).name if job_name is None else directory
            scope = Scope(session, job)
            output = _Output(await provenance_of(connection, scope), scope, target)
            await write(connection, output)
            exported.append(output.finish())
    return exported


async def _write_tasks(
    connection: aiosqlite.Connection, selection: Selection, output: _Output, origin_us: float, shown: Progress
) -> None:
    tasks, inferences = selection.tasks(), selection.inferences()
    following, total = await anext(inferences, None), await selection.count()
    for group in await selection.groups():
        layers = await layers_of(connection, group.model)
        title = _title(output.scope, f"NPU {group.device_id}, {group.model_name}")
        events = TaskEvents(group.device_id, origin_us, output.scope.job.frequency_mhz, layers, title)

        async def batches(group: int = group.group, events: TaskEvents = events) -> AsyncIterator[list[TraceEvent]]:
            nonlocal following
            while following is not None and following.group == group:
                yield list(events.of_inference(following, await tasks.at(following.position)))
                shown(following.position + 1, total)
                following = await anext(inferences, None)

        about = _about(group, is_aggregate=True)
        await _write_trace(output, task_time_name(group), batches(), events, origin_us, about)


async def _write_calls(connection: aiosqlite.Connection, output: _Output, origin_us: float) -> None:
    for log in await call_logs(connection, output.scope):
        events = CallEvents(origin_us, _title(output.scope, log.model_name))
        name = acl_name(log.device_id, log.model_name, log.model_id, log.batch_num)
        batches = (list(events.of_calls(page)) async for page in calls(connection, output.scope, log.log))
        await _write_trace(output, name, batches, events, origin_us, _about(log, is_aggregate=True))


async def _write_trace(
    output: _Output,
    name: str,
    batches: AsyncIterator[Sequence[TraceEvent]],
    events: TaskEvents | CallEvents,
    origin_us: float,
    about: dict[str, Any],
) -> None:
    """Write a timeline, unless nothing has a place in it."""
    await output.stream(
        name,
        trace_pieces(batches, lambda: {**output.provenance, "origin_us": origin_us, "unplaced": events.unplaced}),
        about,
    )
    output.unplaced += events.unplaced


def _about(row: InferenceRow | CallLog, *, is_aggregate: bool) -> dict[str, Any]:
    """Return what a file is about, where its name does not tell: its model, and its inference where it is of one."""
    model = {"device_id": row.device_id, "model": row.model_name, "model_id": row.model_id}
    if is_aggregate or not isinstance(row, InferenceRow):
        return {**model, "inference": None}
    fields = ("stream_id", "batch_num", "input_pic_num", "current_pic_count", "load")
    return {**model, "inference": {name: getattr(row, name) for name in fields}}


def _title(scope: Scope, text: str) -> str:
    return f"{text} (simulated)" if scope.session.simulated else text


def task_time_name(row: InferenceRow) -> str:
    """task_time_{device_id}.{model}.{model_id}.{batch_num}."""
    return _with_model(f"task_time_{row.device_id}.", row.model_name, f".{row.model_id}.{row.batch_num}")


def acl_name(device_id: int, model_name: str, model_id: int, batch_num: int) -> str:
    """acl_{device_id}.{model}.{model_id}.{batch_num}."""
    return _with_model(f"acl_{device_id}.", model_name, f".{model_id}.{batch_num}")


def op_summary_name(row: InferenceRow, frequency_mhz: int | None, *, is_aggregate: bool) -> str:
    """op_summary_{device_id}.{model}.{model_id}.{batch_num}.{pictures}.{icache_miss_rate}.{frequency}[.reload{n}].

    The pictures are `{input_pic_num}.{current_pic_count}`, and `aggregate` over several inferences.
    """
    pictures = AGGREGATE if is_aggregate else f"{row.input_pic_num}.{row.current_pic_count}"
    frequency = UNKNOWN_FIELD if frequency_mhz is None else frequency_mhz
    reload = f".reload{row.load}" if row.load and not is_aggregate else ""
    fields = f".{row.model_id}.{row.batch_num}.{pictures}.{icache_miss_rate(row)}.{frequency}{reload}"
    return _with_model(f"op_summary_{row.device_id}.", row.model_name, fields)


def op_statistic_name(row: InferenceRow, *, is_aggregate: bool) -> str:
    """op_statistic_{device_id}_{model_id}_{current_pic_count}_{iter_id}, the last two `aggregate` over several."""
    pictures = AGGREGATE if is_aggregate else f"{row.current_pic_count}_{row.iter_id}"
    return f"op_statistic_{row.device_id}_{row.model_id}_{pictures}"


def acl_statistic_name(device_id: int, model_id: int) -> str:
    """acl_statistic_{device_id}_{model_id}_0: calls are not told apart by inference."""
    return f"acl_statistic_{device_id}_{model_id}_0"


def icache_miss_rate(row: InferenceRow) -> str:
    """cache_miss / (cache_hit + cache_miss), from 0.0000 to 1.0000; NA where one is not known or both are 0."""
    hit, miss = row.cache_hit, row.cache_miss
    return UNKNOWN_FIELD if hit is None or miss is None or not hit + miss else f"{miss / (hit + miss):.4f}"


def unique_name(stem: str, extension: str, taken: Collection[str]) -> str:
    """The name `stem.extension`, or `stem.2.extension` and so on where it is taken."""
    name, number = f"{stem}.{extension}", 1
    while name in taken:
        number += 1
        name = f"{stem}.{number}.{extension}"
    return name


def _with_model(before: str, model_name: str, after: str) -> str:
    """Put the three together; a model's name that is too long ends in `~` and a digest of the whole."""
    # What some system refuses in a file name: exports are copied to others.
    name = _REFUSED_CHARACTERS.sub("_", model_name).encode()
    room = LONGEST_STEM_BYTES - len(before.encode()) - len(after.encode())
    if len(name) <= room:
        return f"{before}{name.decode()}{after}"
    digest = hashlib.blake2b(name, digest_size=DIGEST_HEX // 2).hexdigest()
    return f"{before}{name[: room - len(digest) - 1].decode(errors='ignore')}~{digest}{after}"
