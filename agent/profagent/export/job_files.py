"""Files that are written for each JOB of a session, into a folder of their own with their metadata."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from profagent.files import folder_written, write_new
from profagent.formats.names import display_text
from profagent.limits import LONGEST_STEM_BYTES
from profagent.store.database import reading
from profagent.store.queries import Scope, find_session, jobs_of
from profagent.store.selection import Choice, InferenceRow
from profagent.store.sessions import require_records
from profagent.tables.provenance import provenance_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from profagent.store.database import Running
    from profagent.store.queries import CallLog

METADATA_FILE = "metadata.json"
DIGEST_HEX = 10
_REFUSED_CHARACTERS = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
NO_CHOICE = Choice()


class ExportedJob(NamedTuple):
    """Files that were written for one JOB; `inference_files` of them are about inferences, the others about calls.

    `not_final` counts inferences whose figures are not final, by state and reason; `left_out` says what became of
    them. `unplaced` counts records and calls without a known place in time.
    """

    job: str
    directory: Path
    files: tuple[str, ...]
    simulated: bool
    ledger: dict[str, dict[str, int]]
    not_final: list[dict[str, Any]]
    inference_files: int
    left_out: str
    unplaced: int = 0

    def document(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        names = ("job", "directory", "files", "simulated", "ledger", "not_final", "unplaced")
        return {**{name: getattr(self, name) for name in names}, "directory": display_text(str(self.directory))}


class JobFileWriter:
    """Writer of the files of one JOB into a folder; `unplaced` counts records without a place in them."""

    def __init__(self, provenance: dict[str, Any], scope: Scope, folder: Path) -> None:
        self.scope = scope
        self.provenance = provenance
        self.unplaced = 0
        self._folder = folder
        # Number of files about inferences; the others are about calls.
        self._inference_files = 0
        # Subject of each file, by the file's name.
        self._files: dict[str, dict[str, Any]] = {}

    def title(self, text: str) -> str:
        """Return a title that marks simulated figures."""
        return f"{text} (simulated)" if self.scope.session.simulated else text

    def write(
        self, stem: str, extension: str, data: bytes, subject: InferenceRow | CallLog, *, is_aggregate: bool
    ) -> None:
        """Write a file under a name that no other file has. No data, no file."""
        if data:
            name = unique_name(stem, extension, self._files)
            write_new(f"{self._folder}/{name}", data)
            self._add(name, subject, is_aggregate=is_aggregate)

    async def stream(self, stem: str, pieces: AsyncIterator[bytes], subject: InferenceRow | CallLog) -> None:
        """Write a timeline of several inferences or calls piece by piece. No pieces, no file."""
        first = await anext(pieces, None)
        if first is not None:
            name = unique_name(stem, "json", self._files)
            with (self._folder / name).open("xb") as file:
                file.write(first)
                async for piece in pieces:
                    file.write(piece)
            self._add(name, subject, is_aggregate=True)

    def finish(self, directory: Path, left_out: str) -> ExportedJob:
        """Write the metadata beside the files, and return the result; `directory` is their final folder."""
        metadata = {**self.provenance, "unplaced": self.unplaced, "files": self._files}
        text = msgspec.json.format(msgspec.json.encode(metadata), indent=2)
        write_new(f"{self._folder}/{METADATA_FILE}", text + b"\n")
        facts = {name: self.provenance[name] for name in ("job", "simulated", "ledger", "not_final")}
        return ExportedJob(
            directory=directory,
            files=tuple(self._files),
            unplaced=self.unplaced,
            inference_files=self._inference_files,
            left_out=left_out,
            **facts,
        )

    def _add(self, name: str, subject: InferenceRow | CallLog, *, is_aggregate: bool) -> None:
        self._files[name] = _subject(subject, is_aggregate=is_aggregate)
        self._inference_files += isinstance(subject, InferenceRow)


async def export_jobs(
    database: Path,
    directory: Path,
    session: int | None,
    job: str | None,
    write: Callable[[Running, JobFileWriter], Awaitable[None]],
    left_out: str = "left out",
) -> list[ExportedJob]:
    """Call `write` for the files of each JOB of a session (None: the newest), and write their metadata.

    With `job` the files stand in `directory`; without, each JOB has a folder of its name there. `left_out` says
    what becomes of inferences without final figures. Raises UsageError, StoreError, and ProfagentError if a file
    cannot be written.
    """
    exported = []
    async with reading(database) as connection:
        found = await find_session(connection, session)
        await require_records(connection, found.session)
        for row in await jobs_of(connection, found.session, job):
            scope = Scope(found, row)
            target = directory / Path(row.name).name if job is None else directory
            provenance = await provenance_of(connection, scope)
            # The files replace those of an earlier export together, when all of them are written.
            with folder_written(target) as folder:
                files = JobFileWriter(provenance, scope, folder)
                await write(connection, files)
                exported.append(files.finish(target, left_out))
    return exported


def _subject(row: InferenceRow | CallLog, *, is_aggregate: bool) -> dict[str, Any]:
    model = {"device_id": row.device_id, "model": row.model_name, "model_id": row.model_id}
    if is_aggregate or not isinstance(row, InferenceRow):
        return {**model, "inference": None}
    fields = ("stream_id", "batch_num", "input_pic_num", "current_pic_count", "load")
    return {**model, "inference": {name: getattr(row, name) for name in fields}}


def unique_name(stem: str, extension: str, taken: Collection[str]) -> str:
    """Return the name `stem.extension`, or `stem.2.extension` and so on where it is taken."""
    name, number = f"{stem}.{extension}", 1
    while name in taken:
        number += 1
        name = f"{stem}.{number}.{extension}"
    return name


def name_with_model(before: str, model_name: str, after: str) -> str:
    """Return the three parts as one name; a model's name that is too long ends in `~` and a digest of the full name."""
    # Exports are copied to other systems, so characters that any of them refuses in a file name are replaced.
    name = _REFUSED_CHARACTERS.sub("_", model_name).encode()
    room = LONGEST_STEM_BYTES - len(before.encode()) - len(after.encode())
    if len(name) <= room:
        return f"{before}{name.decode()}{after}"
    # Two long names that begin alike must not share a file name.
    digest = hashlib.blake2b(name, digest_size=DIGEST_HEX // 2).hexdigest()
    return f"{before}{name[: room - len(digest) - 1].decode(errors='ignore')}~{digest}{after}"
