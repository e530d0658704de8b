"""Which logs the batch at hand writes into a board's mirrors: what a process that died may have left there."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from profagent.files import PRIVATE_FILE, make_private_folder
from profagent.ingest.obstacles import Translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from profagent.link.messages import Happened


class LeftLogs(NamedTuple):
    """Logs of one JOB that a batch was to write, and where the JOB stands on its board."""

    job: str
    directory: str
    paths: list[str]


class OpenBatch:
    """The file that names them, written before they are; what it says of a batch that was committed does no harm."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def begin(self, events: Iterable[Happened], directory: Callable[[str], str]) -> None:
        """These events are about to be written; `directory` of a JOB. Raises StoreError."""
        names = {(each.job, each.log.path) for each in events if each.log is not None}
        by_job: dict[str, LeftLogs] = {}
        for job, path in names:
            by_job.setdefault(job, LeftLogs(job, directory(job), [])).paths.append(os.fsdecode(path))
        with Translated(f"cannot write {self._file}", self._file.parent):
            make_private_folder(self._file.parent)
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
            with open(handle, "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor
                json.dump([*by_job.values()], file)

    def left(self) -> list[LeftLogs]:
        """What the latest batch was to write. Raises StoreError."""
        with Translated(f"cannot read {self._file}", self._file.parent):
            try:
                return [LeftLogs(*each) for each in json.loads(self._file.read_bytes())]
            except (FileNotFoundError, ValueError):
                # A process that died while it wrote the names had written nothing else.
                return []
