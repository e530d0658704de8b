"""The aicore records of a JOB directory as they stand in its files, with the names of their layers; no database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from profagent.errors import FormatError
from profagent.formats.board_files import parse_info_json
from profagent.formats.done import parse_done
from profagent.formats.model_info import parse_layer_info
from profagent.formats.names import LogKind, LogName, parse_log_name, path_beside
from profagent.formats.records import AICORE_DTYPE, view_records
from profagent.formats.segments import Splitter
from profagent.ingest.decode import DEVICE_INFO
from profagent.ingest.joins import Joins, layer_info_path, small_file
from profagent.ingest.local import list_job
from profagent.ingest.states import DONE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from profagent.formats.join import LayerJoin
    from profagent.formats.records import Records

__all__ = ["InferenceRecords", "JobRecords"]


@dataclass(frozen=True, slots=True)
class InferenceRecords:
    """One inference: records of AICORE_DTYPE in the order they ran, and each one's layer, None where not known."""

    log: LogName
    records: Records
    layer_names: tuple[str | None, ...]


class JobRecords:
    """The files of a JOB directory. Raises UsageError, UnsupportedBoardError when it is none of ours."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        listing = list_job(directory)
        self._files = frozenset(listing.files)
        self._joins = Joins(self)
        self._runs: dict[str, tuple[str, ...]] = {}
        self.is_simulated = listing.is_simulated

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """At most `size` bytes of a file from `start` on; None when there is none, or it cannot be read."""
        if path not in self._files:
            return None
        try:
            with (self._directory / path).open("rb") as file:
                file.seek(start)
                return file.read() if size is None else file.read(size)
        except OSError:
            return None

    @property
    def paths(self) -> list[str]:
        """The paths of all its files."""
        return sorted(self._files)

    def names(self) -> list[str]:
        """Nothing: tables of layers are read when they are asked for."""
        return []

    @property
    def frequency_mhz(self) -> int | None:
        """The NPU's clock; None where the JOB does not tell it."""
        data = small_file(self, DEVICE_INFO)
        try:
            return None if data is None else parse_info_json(data, DEVICE_INFO).frequency_mhz
        except FormatError:
            return None

    @property
    def inferences(self) -> list[tuple[str, LogName]]:
        """The paths of aicore logs, and what they are called."""
        named = ((path, parse_log_name(path)) for path in sorted(self._files))
        return [(path, name) for path, name in named if name and name.kind is LogKind.AICORE and name.is_data]

    def join(self, name: LogName) -> LayerJoin | None:
        """The layers of a log's model; None where its tables cannot be read."""
        return self._joins.of(name)

    def cpu_log(self, path: str) -> str | None:
        """The aicpu log of the inference that an aicore log is of; None where there is none."""
        beside = path_beside(path)
        return beside if beside in self._files else None

    def of(self, path: str, name: LogName) -> Iterator[InferenceRecords]:
        """The inferences of one log: more than one where the model was loaded again."""
        records = view_records(self.read(path) or b"", AICORE_DTYPE)
        if not len(records):
            return
        layers = self._layer_names(path, name, records)
        stretch = Splitter().feed(records["sequence"], records["net"]).stretch
        for number in np.unique(stretch).tolist():
            chosen = np.flatnonzero(stretch == number)
            yield InferenceRecords(name, records[chosen], tuple(layers[each] for each in chosen.tolist()))

    def _layer_names(self, path: str, name: LogName, records: Records) -> list[str | None]:
        join, runs = self._joins.of(name), self._runs_of(layer_info_path(name))
        if join is None or not runs:
            return [None] * len(records)
        index = np.full(len(records), -1, np.int32)
        for net in np.unique(records["net"]).tolist():
            chosen = records["net"] == net
            batch, pictures = name.batch_num or 0, name.input_pic_num or 0
            sequence = records["sequence"][chosen]
            index[chosen] = join.layer_index(net, sequence, batch, pictures, self._online_batches(path))
        return [runs[each] if each >= 0 else None for each in index.tolist()]

    def _runs_of(self, table_path: str) -> tuple[str, ...]:
        """The names of a model's runs of layers; none where its table cannot be read."""
        if table_path not in self._runs:
            data = small_file(self, table_path)
            try:
                table = None if data is None else parse_layer_info(data, table_path)
            except FormatError:
                table = None
            self._runs[table_path] = () if table is None else tuple(run.name for run in table.runs)
        return self._runs[table_path]

    def _online_batches(self, path: str) -> tuple[int, ...]:
        data = small_file(self, path + DONE_SUFFIX)
        try:
            return () if data is None else tuple(parse_done(data, LogKind.AICORE, path + DONE_SUFFIX).online_batch_num)
        except FormatError:
            return ()
