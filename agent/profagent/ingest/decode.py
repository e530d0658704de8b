"""One JOB's logs become changes: which file means what, in whatever order they come.

What a log's rows are follows from its bytes, its `.done` and its model's tables alone, so the order does not matter:
when one of them comes late, or the state of a log was forgotten, its rows are written once more.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from profagent.errors import FormatError, StoreError
from profagent.formats.done import parse_done
from profagent.formats.info_json import parse_info_json
from profagent.formats.layers import LayerTable, parse_layer_info
from profagent.formats.names import LogKind, LogName, parse_log_name
from profagent.formats.net_info import parse_net_info
from profagent.ingest.assess import assess, orphan_done
from profagent.ingest.changes import (
    ContentLedger,
    Entry,
    FrequencyKnown,
    InferenceTimed,
    LayersKnown,
    LinkLedger,
    LogAdvanced,
    LogReset,
    Redecoded,
    SegmentRecords,
    SimulatedKnown,
)
from profagent.ingest.datalog import DataLog
from profagent.ingest.joins import Joins, layer_info_path

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from profagent.formats.countermap import CounterMap
    from profagent.formats.done import Done
    from profagent.ingest.changes import Change
    from profagent.ingest.joins import JobFiles

DONE_SUFFIX = ".done"
# The only device that the runtime records.
DEVICE_INFO = "info.json.0"
# The simulated board puts this file into the JOBs that it makes; the runtime never does.
SIMULATED_MARKER = "simulated"
REMEMBERED_LOGS = 1024


class JobDecoder:
    """Decodes the logs of one JOB. Bytes are in `files` before they are given to it."""

    def __init__(
        self,
        files: JobFiles,
        counter_map: CounterMap | None = None,
        *,
        marked_map: CounterMap | None = None,
        remembered_logs: int = REMEMBERED_LOGS,
    ) -> None:
        """`marked_map` is for a JOB that turns out to be simulated, where no other map was given."""
        self._files = files
        self._marked_map = marked_map
        self._is_marked = False
        if counter_map is None and marked_map is not None and files.read(SIMULATED_MARKER) is not None:
            counter_map = marked_map
        self._counter_map = counter_map
        self._remembered_logs = remembered_logs
        self._logs: OrderedDict[str, DataLog] = OrderedDict()
        self._joins = Joins(files)

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        """A data log goes on from `offset`; from 0 its earlier rows are void."""
        name = parse_log_name(path)
        if offset == 0:
            yield LogReset(path)
            self._logs.pop(path, None)
        if name is not None and name.is_data:
            yield from self._resumed(path, name, offset)
            if self._logs[path].done is not None:
                yield ContentLedger(path + DONE_SUFFIX, ())
        yield LogAdvanced(path, generation, offset)

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """Bytes of a data log at `offset`."""
        yield LogAdvanced(path, generation, offset + len(data))
        name = parse_log_name(path)
        if name is None or not name.is_data:
            return
        yield from self._resumed(path, name, offset)
        yield from self._appended(self._logs[path], data)
        yield self._assessed(self._logs[path])

    def complete(self, path: str, generation: int, offset: int, digest: bytes | None) -> Iterator[Change]:
        """The board vouches for a data log: it has stopped changing and its `.done` parses."""
        name = parse_log_name(path)
        if name is not None and name.is_data:
            yield from self._resumed(path, name, offset)
            self._logs[path].settled = True
            yield from self._split_as_announced(path)
            yield self._assessed(self._logs[path])
        yield LogAdvanced(path, generation, offset, complete=True, digest=digest)

    def has_done(self, path: str) -> bool:
        """Whether a `.done` that parses has been seen for a data log in use."""
        return path in self._logs and self._logs[path].done is not None

    def snapshot(
        self, path: str, generation: int, data: bytes, digest: bytes, *, size: int | None = None
    ) -> Iterator[Change]:
        """A file that came whole; `size` where `data` is only its beginning. Raises UnsupportedBoardError."""
        name = parse_log_name(path)
        if path == SIMULATED_MARKER:
            yield from self._marked()
        elif name is None:
            yield ContentLedger(path, (Entry("note", "foreign-file", "not a file of the runtime: kept, not read"),))
        else:
            yield from self._read(path, name, data)
        yield LogAdvanced(path, generation, len(data) if size is None else size, complete=True, digest=digest)

    def end(self, unsettled: Iterable[str], orphans: Iterable[str]) -> Iterator[Change]:
        """The JOB has ended: assess data logs that never got complete, and `.done` files without data."""
        for path in unsettled:
            name = parse_log_name(path)
            if name is not None and name.is_data:
                yield from self._resumed(path, name, None)
                yield from self._split_as_announced(path)
                yield self._assessed(self._logs[path], ended=True)
        for path in orphans:
            done = self._done_of(path.removesuffix(DONE_SUFFIX))
            if done is not None:
                yield ContentLedger(path, (orphan_done(done.file_len),))
        if self._files.read(DEVICE_INFO) is None:
            detail = f"there is no {DEVICE_INFO}, which tells the NPU's clock: times of layers are not known"
            yield LinkLedger(None, Entry("note", "no-frequency", detail))

    def _marked(self) -> Iterator[Change]:
        """The JOB is simulated, which tells its counter map where no other was given."""
        if not self._is_marked and self._marked_map is not None and self._counter_map in (None, self._marked_map):
            self._counter_map = self._marked_map
            yield from self._redecoded_all("")
        self._is_marked = True
        yield SimulatedKnown(None if self._counter_map is None else self._counter_map.name)

    def _read(self, path: str, name: LogName, data: bytes) -> Iterator[Change]:
        known: list[Change] = []
        entries: tuple[Entry, ...] = ()
        done = None
        try:
            if name.is_done:
                done = parse_done(data, name.kind, path)
            elif name.kind is LogKind.INFO_JSON:
                known = [FrequencyKnown(parse_info_json(data, path).frequency_mhz)]
            elif name.kind is LogKind.LAYER_INFO:
                known = [LayersKnown(name.model or "", name.model_id or 0, parse_layer_info(data, path))]
            elif name.kind is LogKind.NET_INFO:
                parse_net_info(data, path)
        except FormatError as error:
            entries = (Entry("note", "malformed", str(error), error.offset, error.offset),)
        yield from known
        yield ContentLedger(path, entries)
        if name.is_done:
            yield from self._done(path.removesuffix(DONE_SUFFIX), done)
        elif name.kind in (LogKind.LAYER_INFO, LogKind.NET_INFO):
            yield from self._new_tables(name)

    def _done(self, data_path: str, done: Done | None) -> Iterator[Change]:
        """The `.done` of a data log came, or came anew; None where it cannot be read."""
        name = parse_log_name(data_path)
        assert name is not None, "a .done is named after its data"
        yield from self._recovered(data_path, name)
        log = self._logs[data_path]
        before, log.done = log.done, done
        if name.kind is LogKind.AICORE and _batches(before) != _batches(done):
            log = yield from self._redecoded(log)
        else:
            yield from self._timed(log)
        yield from self._split_as_announced(data_path)
        if log.facts.size:
            yield self._assessed(self._logs[data_path])

    def _new_tables(self, name: LogName) -> Iterator[Change]:
        """A model's layers are known, or known better: records that came before are joined again."""
        disagreements = self._joins.disagreements(name)
        if disagreements is not None:
            entries = tuple(Entry("note", "layer-counts", text) for text in disagreements)
            yield ContentLedger(layer_info_path(name), entries)
        elif name.kind is LogKind.LAYER_INFO:
            yield LayersKnown(name.model or "", name.model_id or 0, LayerTable((), ()))
        if self._joins.renew(name):
            yield from self._redecoded_all(f".{name.model}.")

    def _redecoded_all(self, of_model: str) -> Iterator[Change]:
        """Every aicore and aicpu log whose path holds `of_model`, once more."""
        for path in self._files.names():
            name = parse_log_name(path) if of_model in path else None
            if name is None or not name.is_data or name.kind is LogKind.ACL_API:
                continue
            log = self._logs.get(path)
            if log is None:
                yield from self._recovered(path, name)
            else:
                yield from self._redecoded(log, last_stretch_record=log.last_stretch_record)
            yield self._assessed(self._logs[path])

    def _resumed(self, path: str, name: LogName, offset: int | None) -> Iterator[Change]:
        """See to it that the log's state at `offset`, or at its end, is there.

        What the rows of a forgotten log were decoded with is not known any more: they are written again.
        """
        log = self._logs.get(path)
        if log is not None and offset in (None, log.facts.size):
            self._logs.move_to_end(path)
            return
        log = DataLog(path, name)
        log.done = self._done_of(path)
        if offset != 0:
            yield from self._decoded_anew(log, self._kept_bytes(path, offset))
        self._remember(log)

    def _recovered(self, path: str, name: LogName) -> Iterator[Change]:
        """See to it that the log's state at its end is there; one that was forgotten was most likely complete."""
        if path in self._logs:
            return
        yield from self._resumed(path, name, None)
        self._logs[path].settled = self._logs[path].facts.size > 0
        yield from self._split_as_announced(path)

    def _kept_bytes(self, path: str, offset: int | None) -> bytes:
        data = self._files.read(path, offset) or b""
        if offset is not None and len(data) != offset:
            raise StoreError(
                f"the mirror lost bytes of {path}: {len(data)} of {offset} are there",
                hint="start the capture again: it fetches what is missing",
            )
        return data

    def _remember(self, log: DataLog) -> None:
        self._logs[log.path] = log
        self._logs.move_to_end(log.path)
        if len(self._logs) > self._remembered_logs:
            self._logs.popitem(last=False)

    def _split_as_announced(self, path: str) -> Iterator[Change]:
        """Where the `.done`'s length shows another start of the last inference than the rule found, it is right."""
        log = self._logs[path]
        record = log.announced_stretch_record()
        if log.name.kind is LogKind.ACL_API or record == log.last_stretch_record:
            return
        if log.last_stretch_record is not None:
            log = yield from self._redecoded(log)
        if record not in (None, log.facts.last_stretch_start // log.facts.record_bytes):
            yield from self._redecoded(log, last_stretch_record=record)

    def _redecoded(self, log: DataLog, *, last_stretch_record: int | None = None) -> Generator[Change, None, DataLog]:
        """All rows of a log once more; returns its new state."""
        anew = DataLog(log.path, log.name, last_stretch_record=last_stretch_record)
        anew.done = log.done
        yield from self._decoded_anew(anew, self._kept_bytes(log.path, log.facts.size))
        anew.settled = log.settled
        self._remember(anew)
        return anew

    def _decoded_anew(self, log: DataLog, data: bytes) -> Iterator[Change]:
        """Decode all bytes of a log whose rows, if any, were written before."""
        records = log.append(data, self._joins.of(log.name), self._counter_map) if data else None
        if log.name.kind is LogKind.ACL_API or not data:
            return
        assert records is None or isinstance(records, SegmentRecords), "calls have no segments"
        yield Redecoded(log.path, records)
        yield from self._timed(log)

    def _appended(self, log: DataLog, data: bytes) -> Iterator[Change]:
        had_records, stretch = log.records > 0, log.last_stretch
        records = log.append(data, self._joins.of(log.name), self._counter_map)
        if records is None:
            return
        yield records
        if log.done is None or (had_records and stretch == log.last_stretch):
            return
        if had_records and log.name.kind is LogKind.AICORE:
            yield InferenceTimed(log.name, stretch, None)
        yield from self._timed(log)

    @staticmethod
    def _timed(log: DataLog) -> Iterator[Change]:
        """The `.done` speaks about the last inference of its file only."""
        if log.name.kind is LogKind.AICORE and log.records:
            yield InferenceTimed(log.name, log.last_stretch, log.done)

    @staticmethod
    def _assessed(log: DataLog, *, ended: bool = False) -> Change:
        return ContentLedger(log.path, assess(log.facts, log.done, settled=log.settled, ended=ended))

    def _done_of(self, data_path: str) -> Done | None:
        name = parse_log_name(data_path + DONE_SUFFIX)
        data = self._files.read(data_path + DONE_SUFFIX)
        if name is None or data is None:
            return None
        try:
            return parse_done(data, name.kind, data_path + DONE_SUFFIX)
        except FormatError:
            return None


def _batches(done: Done | None) -> tuple[int, ...]:
    return () if done is None else done.online_batch_num
