"""One JOB's logs become changes: which file means what, in whatever order they come.

The state of a log can be built again from its bytes, so only logs in use are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from profagent.errors import FormatError
from profagent.formats.done import parse_done
from profagent.formats.info_json import parse_info_json
from profagent.formats.join import LayerJoin
from profagent.formats.layers import parse_layer_info
from profagent.formats.names import LogKind, LogName, parse_log_name
from profagent.formats.net_info import parse_net_info
from profagent.ingest.assess import assess, orphan_done
from profagent.ingest.changes import (
    ContentLedger,
    Entry,
    FrequencyKnown,
    InferenceTimed,
    LayersKnown,
    LogAdvanced,
    LogReset,
    SimulatedKnown,
)
from profagent.ingest.datalog import DataLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from profagent.formats.countermap import CounterMap
    from profagent.formats.done import Done
    from profagent.formats.layers import LayerTable
    from profagent.formats.net_info import Net
    from profagent.ingest.changes import Change

DONE_SUFFIX = ".done"
# The simulated board puts this file into the JOBs that it makes; the runtime never does.
SIMULATED_MARKER = "simulated"
REMEMBERED_LOGS = 1024


class JobFiles(Protocol):
    """Bytes of the JOB that were decoded before."""

    def read(self, path: str, size: int | None = None) -> bytes | None:
        """The first `size` bytes of a log, or all; None where they are not kept."""

    def names(self) -> list[str]:
        """Paths of the logs whose bytes were decoded before."""


class JobDecoder:
    """Decodes the logs of one JOB. Bytes are in `files` before they are given to it."""

    def __init__(
        self, files: JobFiles, counter_map: CounterMap | None = None, *, marked_map: CounterMap | None = None
    ) -> None:
        """`marked_map` is for a JOB that turns out to be simulated, where no other map was given."""
        self._files = files
        self._counter_map = counter_map
        self._marked_map = marked_map
        self._logs: OrderedDict[str, DataLog] = OrderedDict()
        self._joins: dict[tuple[str, int], LayerJoin | None] = {}

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        """A data log goes on from `offset`; from 0 its earlier rows are void."""
        name = parse_log_name(path)
        known = self._logs.pop(path, None)
        if offset == 0:
            yield LogReset(path)
        if name is not None and name.is_data:
            log = self._log(path, name, offset)
            if known is not None and known.facts.size > offset > 0:
                yield from self._redecoded(log)
        yield LogAdvanced(path, generation, offset)

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """Bytes of a data log at `offset`."""
        yield LogAdvanced(path, generation, offset + len(data))
        name = parse_log_name(path)
        if name is None or not name.is_data:
            return
        log = self._log(path, name, offset)
        stretch = log.last_stretch
        yield from self._decoded(log, data)
        if log.done is not None and name.kind is LogKind.AICORE and (stretch != log.last_stretch or offset == 0):
            yield from self._timed(log, stretch)
        yield from self._assessed(log)

    def complete(self, path: str, generation: int, offset: int, digest: bytes | None) -> Iterator[Change]:
        """The board vouches for a data log: it has stopped changing and its `.done` parses."""
        name = parse_log_name(path)
        if name is not None and name.is_data:
            log = self._log(path, name, offset)
            log.settled = True
            yield from self._split_as_announced(log)
            yield from self._assessed(self._logs[path])
            self._logs.pop(path)
        yield LogAdvanced(path, generation, offset, complete=True, digest=digest)

    def has_done(self, path: str) -> bool:
        """Whether a `.done` that parses has been seen for a data log in use."""
        return path in self._logs and self._logs[path].done is not None

    def snapshot(self, path: str, generation: int, data: bytes, digest: bytes) -> Iterator[Change]:
        """A small file, whole."""
        name = parse_log_name(path)
        if path == SIMULATED_MARKER:
            self._counter_map = self._counter_map or self._marked_map
            yield SimulatedKnown(None if self._counter_map is None else self._counter_map.name)
        elif name is None:
            yield ContentLedger(path, (Entry("note", "foreign-file", "not a file of the runtime: kept, not read"),))
        else:
            try:
                yield from self._read(path, name, data)
            except FormatError as error:
                yield ContentLedger(path, (Entry("note", "malformed", str(error), error.offset, error.offset),))
        yield LogAdvanced(path, generation, len(data), complete=True, digest=digest)

    def end(self, unsettled: Iterable[str], orphans: Iterable[str]) -> Iterator[Change]:
        """The JOB has ended: assess data logs that never got complete, and `.done` files without data."""
        for path in unsettled:
            name = parse_log_name(path)
            if name is not None and name.is_data:
                log = self._log(path, name, None)
                yield from self._split_as_announced(log)
                yield from self._assessed(self._logs[path], ended=True)
                self._logs.pop(path)
        for path in orphans:
            done = self._done_of(path.removesuffix(DONE_SUFFIX))
            if done is not None:
                yield ContentLedger(path, (orphan_done(done.file_len),))

    def _read(self, path: str, name: LogName, data: bytes) -> Iterator[Change]:
        if name.is_done:
            yield from self._done(path, name, data)
        elif name.kind is LogKind.INFO_JSON:
            yield FrequencyKnown(parse_info_json(data, path).frequency_mhz)
            yield ContentLedger(path, ())
        elif name.kind is LogKind.LAYER_INFO:
            table = parse_layer_info(data, path)
            yield LayersKnown(name.model or "", name.model_id or 0, table)
            yield from self._new_join(path, name)
        elif name.kind is LogKind.NET_INFO:
            parse_net_info(data, path)
            yield from self._new_join(path, name)
        else:
            yield ContentLedger(path, ())

    def _done(self, path: str, name: LogName, data: bytes) -> Iterator[Change]:
        done = parse_done(data, name.kind, path)
        yield ContentLedger(path, ())
        data_path = path.removesuffix(DONE_SUFFIX)
        data_name = parse_log_name(data_path)
        if data_name is None:
            return
        log = self._log(data_path, data_name, None)
        before, log.done = log.done, done
        if name.kind is not LogKind.AICORE or not log.facts.size:
            return
        if done.online_batch_num != (before.online_batch_num if before is not None else ()):
            yield from self._redecoded(log)
        yield InferenceTimed(log.name, self._logs[data_path].last_stretch, done)

    def _timed(self, log: DataLog, earlier_stretch: int) -> Iterator[Change]:
        """The `.done` speaks about the last inference of its file only."""
        if earlier_stretch != log.last_stretch:
            yield InferenceTimed(log.name, earlier_stretch, None)
        yield InferenceTimed(log.name, log.last_stretch, log.done)

    def _split_as_announced(self, log: DataLog) -> Iterator[Change]:
        """Where the `.done`'s length shows another start of the last inference than the rule found, it is right."""
        record = log.announced_stretch_record()
        found = log.facts.last_stretch_start // log.facts.record_bytes
        if record is not None and record != found and log.name.kind is not LogKind.ACL_API:
            yield from self._redecoded(log, last_stretch_record=record)

    def _redecoded(self, log: DataLog, *, last_stretch_record: int | None = None) -> Iterator[Change]:
        """All rows of a log once more, where its bytes are kept."""
        data = self._files.read(log.path, log.facts.size)
        if data is None or len(data) != log.facts.size:
            return
        anew = DataLog(log.path, log.name, last_stretch_record=last_stretch_record)
        anew.done = log.done
        self._logs[log.path] = anew
        yield LogReset(log.path)
        yield from self._decoded(anew, data)
        anew.settled = log.settled
        if log.name.kind is LogKind.AICORE and anew.done is not None:
            yield InferenceTimed(anew.name, anew.last_stretch, anew.done)

    def _decoded(self, log: DataLog, data: bytes) -> Iterator[Change]:
        records = log.append(data, self._join_of(log.name), self._counter_map)
        if records is not None:
            yield records

    def _assessed(self, log: DataLog, *, ended: bool = False) -> Iterator[Change]:
        yield ContentLedger(log.path, assess(log.facts, log.done, settled=log.settled, ended=ended))

    def _log(self, path: str, name: LogName, offset: int | None) -> DataLog:
        """The log's state at `offset`, or at its end where `offset` is None; built from kept bytes when forgotten."""
        log = self._logs.get(path)
        if log is None or (offset is not None and log.facts.size != offset):
            log = self._rebuilt(path, name, offset)
            self._logs[path] = log
            if len(self._logs) > REMEMBERED_LOGS:
                self._logs.popitem(last=False)
        self._logs.move_to_end(path)
        return log

    def _rebuilt(self, path: str, name: LogName, offset: int | None) -> DataLog:
        log = DataLog(path, name)
        log.done = self._done_of(path)
        if offset != 0:
            log.append(self._files.read(path, offset) or b"", self._join_of(name), None)
        return log

    def _done_of(self, data_path: str) -> Done | None:
        name = parse_log_name(data_path + DONE_SUFFIX)
        data = self._files.read(data_path + DONE_SUFFIX)
        if name is None or data is None:
            return None
        try:
            return parse_done(data, name.kind, data_path + DONE_SUFFIX)
        except FormatError:
            return None

    def _join_of(self, name: LogName) -> LayerJoin | None:
        key = (name.model or "", name.model_id or 0)
        if key not in self._joins:
            self._joins[key] = self._load_join(*key)
        return self._joins[key]

    def _load_join(self, model: str, model_id: int) -> LayerJoin | None:
        table, nets = self._layer_table(model, model_id), self._nets(model, model_id)
        return None if table is None and not nets else LayerJoin(table, nets)

    def _layer_table(self, model: str, model_id: int) -> LayerTable | None:
        path = f"data/{model}.{model_id}.layer.info"
        data = self._files.read(path)
        try:
            return None if data is None else parse_layer_info(data, path)
        except FormatError:
            return None

    def _nets(self, model: str, model_id: int) -> tuple[Net, ...]:
        path = f"data/{model}.{model_id}.net.info"
        data = self._files.read(path)
        try:
            return () if data is None else parse_net_info(data, path)
        except FormatError:
            return ()

    def _new_join(self, path: str, name: LogName) -> Iterator[Change]:
        """A model's layers are known, or known better: records that came before are joined again."""
        key = (name.model or "", name.model_id or 0)
        self._joins[key] = self._load_join(*key)
        yield ContentLedger(path, ())
        yield from self._compared_counts(*key)
        for data_path in self._files.names():
            data_name = parse_log_name(data_path)
            if data_name is not None and _is_segments_of(data_name, key):
                yield from self._redecoded(self._log(data_path, data_name, None))

    def _compared_counts(self, model: str, model_id: int) -> Iterator[Change]:
        """Where a model's layer table and its nets are both known: what they do not agree about."""
        table, nets = self._layer_table(model, model_id), self._nets(model, model_id)
        if table is not None and nets:
            disagreements = LayerJoin(table, nets).disagreements()
            entries = tuple(Entry("note", "layer-counts", text) for text in disagreements)
            yield ContentLedger(f"data/{model}.{model_id}.layer.info", entries)


def _is_segments_of(name: LogName, key: tuple[str, int]) -> bool:
    return name.is_data and name.kind is not LogKind.ACL_API and (name.model or "", name.model_id or 0) == key
