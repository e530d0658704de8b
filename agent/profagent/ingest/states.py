"""The decoding states of a JOB's data logs in use, their models' layers, and the rows of a log written once more.

The state of any other log is built again from its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cachetools import LRUCache

from profagent.errors import FormatError
from profagent.formats.board_files import parse_done
from profagent.formats.join import LayerJoin
from profagent.formats.model_info import parse_layer_info, parse_net_info
from profagent.formats.names import DONE_SUFFIX, LogKind, LogName, parse_log_name
from profagent.formats.records import AICORE_DTYPE, PASS_BYTES, Progress, Unit, read_unit
from profagent.ingest.changes import InferenceTimed, LogJudged, Redecoded, SegmentRecords
from profagent.ingest.datalog import DataLog
from profagent.ingest.decoder import check_size, small_file
from profagent.ingest.reasons import checked_path
from profagent.limits import REMEMBERED_MODELS
from profagent.link.messages import Chunk, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from profagent.formats.board_files import Done
    from profagent.formats.countermap import CounterMap
    from profagent.formats.model_info import LayerTable, Net, Run
    from profagent.ingest.changes import Change
    from profagent.ingest.decoder import JobFiles
    from profagent.link.messages import Received

T = TypeVar("T")


class _Model(NamedTuple):
    """A model's `.info` files as far as they can be read; `is_reported`: they came after the joins were made."""

    layers: LayerTable | None
    nets: tuple[Net, ...]
    join: LayerJoin | None
    is_reported: bool = False


class Joins:
    """The joins of a JOB's models; only those in use are remembered."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self._known: LRUCache[tuple[str, int], _Model] = LRUCache(REMEMBERED_MODELS)

    def of(self, name: LogName) -> LayerJoin | None:
        """The join of a log's model; None where neither of its files can be read."""
        return self._model(name).join

    def runs(self, name: LogName) -> Sequence[Run]:
        """The runs of layers that a log's records are of; none where the model's table cannot be read."""
        layers = self._model(name).layers
        return () if layers is None else layers.runs

    def renew(self, name: LogName) -> bool:
        """Read a model's files again, one of which came; whether its records may have other layers now."""
        before, model = self._known.get(_key(name)), self._load(name)
        self._known[_key(name)] = model._replace(is_reported=True)
        # Until they were told, rows may have been joined with earlier ones.
        return before is None or not before.is_reported or before[:2] != model[:2]

    def disagreements(self, name: LogName) -> list[str] | None:
        """What the model's two files do not agree about; None where its layer table cannot be read."""
        model = self._load(name)
        if model.layers is None:
            return None
        return LayerJoin(model.layers, model.nets).disagreements() if model.nets else []

    def _model(self, name: LogName) -> _Model:
        model = self._known[_key(name)] = self._known.get(_key(name)) or self._load(name)
        return model

    def _load(self, name: LogName) -> _Model:
        layers = self._parsed(parse_layer_info, layer_info_path(name))
        nets = self._parsed(parse_net_info, f"data/{name.model}.{name.model_id}.net.info")
        return _Model(layers, nets or (), LayerJoin(layers, nets or ()) if layers is not None or nets else None)

    def _parsed(self, parse: Callable[[bytes, str], T], path: str) -> T | None:
        data = small_file(self._files, path)
        try:
            return None if data is None else parse(data, path)
        except FormatError:
            return None


def layer_info_path(name: LogName) -> str:
    """The path of the layer table that names a log's records."""
    return f"data/{name.model}.{name.model_id}.layer.info"


def done_of(files: JobFiles, data_path: str) -> Done | None:
    """What the `.done` of a data log says; None where there is none that can be read."""
    path = data_path + DONE_SUFFIX
    name, data = parse_log_name(path), small_file(files, path)
    if name is None or data is None:
        return None
    try:
        return parse_done(data, name.kind, path)
    except FormatError:
        return None


def _key(name: LogName) -> tuple[str, int]:
    return (name.model or "", name.model_id or 0)


class Ahead:
    """What was read ahead, until it is taken or the next is read."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[bytes, Unit]] = {}
        self._counter_map: CounterMap | None = None

    def read(self, beginnings: Iterable[tuple[str, bytes]], counter_map: CounterMap | None) -> None:
        """Read the first bytes of logs, given by path; what was read before and not taken is dropped."""
        self._read, self._counter_map = {}, counter_map
        whole = ((path, data) for path, data in beginnings if len(data) >= AICORE_DTYPE.itemsize)
        for group in _groups(whole):
            unit = read_unit(LogKind.AICORE, [data for _, data in group], Progress.new(len(group)), counter_map)
            self._read.update((path, (data, unit.one(log))) for log, (path, data) in enumerate(group))

    def take(self, path: str, data: bytes, counter_map: CounterMap | None) -> Unit | None:
        """How these very bytes, as a log's first, were read with this map; None where they were not."""
        known, unit = self._read.pop(path, (None, None))
        return unit if known is data and counter_map is self._counter_map else None


def beginnings(events: Iterable[Received]) -> dict[str, list[tuple[str, bytes]]]:
    """The first bytes of data logs, given by path, that come with these events: by collection, for `read_ahead`."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    for received in events:
        log, event = received.log, received.event
        if log is None or log.snapshot or not isinstance(event, Started | Chunk):
            continue
        if event.data and not event.offset:
            found.setdefault(received.job, []).append((checked_path(log.path), event.data))
    return found


def _groups(beginnings: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    group: list[tuple[str, bytes]] = []
    size = 0
    for path, data in beginnings:
        group.append((path, data))
        size += len(data)
        if size >= PASS_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


# A multiple of a call's bytes.
CALLS_BLOCK_BYTES = 4 << 20


class LogStates:
    """At most `most` states of segments' logs, and as many of calls'.

    Those of calls are kept apart: they are few, go on as long as their model is loaded, and grow without bound.
    Methods that yield changes return the log's state, which may be a new object.
    """

    def __init__(self, files: JobFiles, counter_map: CounterMap | None, most: int) -> None:
        self.joins = Joins(files)
        self.counter_map = counter_map
        self.ahead = Ahead()
        # Logs of records that have begun, or gone on, since the board vouched for them: of these nothing is judged.
        self.growing: set[str] = set()
        # Logs whose `.done`, if one is there, may be an earlier one until it comes anew: they went on after they were
        # complete, or are announced.
        self.stale: set[str] = set()
        # Logs whose `.done` the board has told in this stream, and that were not judged by it yet.
        self.renewed: set[str] = set()
        self._files = files
        self._logs: LRUCache[str, DataLog] = LRUCache(most)
        self._calls: LRUCache[str, DataLog] = LRUCache(most)

    def known(self, path: str) -> DataLog | None:
        """The state of a log in use."""
        return self._logs.get(path) or self._calls.get(path)

    def forget(self, path: str) -> None:
        """The log's bytes are void."""
        self._logs.pop(path, None)
        self._calls.pop(path, None)

    def at(self, path: str, name: LogName, offset: int | None) -> Generator[Change, None, DataLog]:
        """The log's state at `offset`, or at its end where that is None.

        What the rows of a forgotten log were decoded with is not known any more: they are written again.
        """
        log = self.known(path)
        if log is None or offset not in (None, log.facts.size):
            log = DataLog(path, name)
            log.done = done_of(self._files, path)
            if name.kind is LogKind.ACL_API:
                self._recount(log, offset)
            elif offset != 0:
                yield from self._decoded(log, self._bytes(path, offset))
            self._remember(log)
        return log

    def at_end(self, path: str, name: LogName) -> Generator[Change, None, DataLog]:
        """The log's state at its end; one that was forgotten was most likely complete."""
        log = self.known(path)
        if log is None:
            log = yield from self.at(path, name, None)
            log.settled = self._files.read(path, 0) is not None
            log = yield from self.split_as_announced(log)
        return log

    def grow(self, log: DataLog, data: bytes) -> Iterator[Change]:
        """Take the log's next bytes."""
        had_records, load = log.records > 0, log.last_load
        read = self.ahead.take(log.path, data, self.counter_map) if log.is_fresh else None
        records = log.append(data, self.joins.of(log.name), self.counter_map, read)
        if records is None:
            return
        yield records
        if log.done is not None and had_records and load != log.last_load and log.name.kind is LogKind.AICORE:
            yield InferenceTimed(log.name, load, None)

    def redecode(self, log: DataLog, *, last_load_record: int | None = None) -> Generator[Change, None, DataLog]:
        """All rows of a log once more."""
        anew = DataLog(log.path, log.name, last_load_record=last_load_record)
        anew.done = log.done
        yield from self._decoded(anew, self._bytes(log.path, log.facts.size))
        anew.settled = log.settled
        self._remember(anew)
        return anew

    def split_as_announced(self, log: DataLog) -> Generator[Change, None, DataLog]:
        """Where the `.done`'s length shows another start of the last inference than the rule found, it is right."""
        record = log.announced_load_record()
        if log.name.kind is LogKind.ACL_API or record == log.last_load_record:
            return log
        if log.last_load_record is not None:
            log = yield from self.redecode(log)
            record = log.announced_load_record()
        if record not in (None, log.facts.last_load_start // log.facts.record_bytes):
            log = yield from self.redecode(log, last_load_record=record)
        return log

    def timed(self, log: DataLog) -> Iterator[Change]:
        """The `.done` speaks about the last inference of its file only; while that grows, nobody knows which it is."""
        is_open = log.done is not None and (log.path in self.growing or log.path in self.stale)
        if log.name.kind is LogKind.AICORE and log.records and not is_open:
            yield InferenceTimed(log.name, log.last_load, log.done)

    def judged(self, log: DataLog) -> Generator[Change, None, DataLog]:
        """What a log is once all of it and its `.done` are here: its inferences, their times, if they are whole."""
        is_open = log.path in self.growing or log.path in self.stale
        if is_open or log.done is None or log.name.kind is LogKind.ACL_API:
            return log
        if not log.facts.size and self._files.read(log.path, 0) is None:
            return log  # a `.done` without data
        self.renewed.discard(log.path)
        log = yield from self.split_as_announced(log)
        yield from self.timed(log)
        yield LogJudged(log.path, *log.judge())
        return log

    def expect(self, path: str) -> None:
        """A log is announced: a `.done` that may be there from before counts once the board tells it again."""
        self.growing.add(path)
        if path not in self.renewed:
            self.stale.add(path)

    def confirm(self, path: str) -> bool:
        """The `.done` of a log is told once more, as it was; whether it can be read, and that was not known."""
        was_stale = path in self.stale and done_of(self._files, path) is not None
        self.stale.discard(path)
        self.renewed.add(path)
        return was_stale

    def goes_on(self, path: str) -> bool:
        """Bytes of a log come: whether it was complete, and whatever is known of its end is over."""
        was_complete = path not in self.growing
        if was_complete:
            self.growing.add(path)
            self.stale.add(path)
        return was_complete

    @property
    def open_paths(self) -> list[str]:
        """Logs of which more was to come: of their bytes, or their `.done` anew."""
        return sorted(self.growing | self.stale)

    def settle(self, path: str) -> None:
        """All that there is of a log and of its `.done` has come."""
        self.growing.discard(path)
        self.stale.discard(path)

    def arrived(self, path: str) -> None:
        """A log came whole, with its `.done`."""
        self.settle(path)
        self.renewed.discard(path)

    def renew_done(self, path: str, *, is_rewritten: bool) -> bool:
        """The `.done` of a log comes: whether it speaks of bytes that are still to come.

        A model that was loaded again adds to its log, and then writes the `.done` anew (format page 2.2). So one that
        is written anew while its log stands as it was is early.
        """
        self.renewed.add(path)
        is_early = is_rewritten and path not in self.stale and path not in self.growing
        if is_early:
            self.growing.add(path)
        self.stale.discard(path)
        return is_early

    def _decoded(self, log: DataLog, data: bytes) -> Iterator[Change]:
        """Decode all bytes of a log whose rows, if any, were written before."""
        records = log.append(data, self.joins.of(log.name), self.counter_map) if data else None
        if not data:
            return
        assert records is None or isinstance(records, SegmentRecords), "calls have no segments"
        yield Redecoded(log.path, records)
        yield from self.timed(log)

    def _recount(self, log: DataLog, size: int | None) -> None:
        """Find again what the bytes of a log of calls have shown; its rows are always the same."""
        while size is None or log.facts.size < size:
            left = CALLS_BLOCK_BYTES if size is None else min(CALLS_BLOCK_BYTES, size - log.facts.size)
            data = self._files.read(log.path, left, start=log.facts.size)
            if not data:
                break
            log.append(data, None, None)
        check_size(log.path, log.facts.size, size)

    def _bytes(self, path: str, size: int | None) -> bytes:
        data = self._files.read(path, size) or b""
        check_size(path, len(data), size)
        return data

    def _remember(self, log: DataLog) -> None:
        alike = self._calls if log.name.kind is LogKind.ACL_API else self._logs
        alike[log.path] = log
