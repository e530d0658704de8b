"""Decoder of a JOB: changes for each of its files, in whatever order they come.

The rows of a log follow from its bytes, its `.done` and its model's tables alone, so the order does not matter. When
one of them comes late, or the state of a log was forgotten, the rows are written once more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cachetools import LRUCache

from profagent import ledger
from profagent.errors import FormatError
from profagent.formats.board_files import parse_done, parse_info_json
from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.join import LayerJoin
from profagent.formats.model_info import LayerTable, parse_layer_info, parse_net_info
from profagent.formats.names import DEVICE_INFO, DONE_SUFFIX, SIMULATED_MARKER, LogKind, LogName, parse_log_name
from profagent.formats.sampling import step_of
from profagent.ingest.changes import (
    ContentLedger,
    FrequencyKnown,
    LayersKnown,
    LogAdvanced,
    LogJudged,
    LogReset,
    PassedOver,
    SimulatedKnown,
)
from profagent.ingest.decoder import Decoder, small_file
from profagent.ingest.feed import decode_groups
from profagent.ingest.logs import DataLogs, LogEvent, assess, done_of, orphan_done
from profagent.ingest.source import DrawnEvents, Source, View
from profagent.limits import REMEMBERED_LOGS, REMEMBERED_MODELS, REPORTED_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from profagent.formats.board_files import Done
    from profagent.formats.countermap import CounterMap
    from profagent.formats.model_info import Net, Run
    from profagent.formats.sampling import Keeping
    from profagent.ingest.changes import Change
    from profagent.ingest.decoder import JobFiles
    from profagent.ingest.feed import Group
    from profagent.ingest.logs import DataLog
    from profagent.ledger import Entry

T = TypeVar("T")
NO_FREQUENCY = ledger.entry(
    ledger.NO_FREQUENCY, f"there is no {DEVICE_INFO}, which tells the NPU's clock: times of layers are not known"
)


class _InfoFiles(NamedTuple):
    """Readable `.info` files of a model. `is_reported`: they came after the joins were made."""

    layers: LayerTable | None
    nets: tuple[Net, ...]
    join: LayerJoin | None
    is_reported: bool = False


class Joins:
    """Joins of a JOB's models with their layers; only those in use are remembered."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        # By model name and id; a forgotten model is read from its files again.
        self._known: LRUCache[tuple[str, int], _InfoFiles] = LRUCache(REMEMBERED_MODELS)

    def of(self, name: LogName) -> LayerJoin | None:
        """Return the join of a log's model; None where neither of the model's files can be read."""
        return self._model(name).join

    def runs(self, name: LogName) -> Sequence[Run]:
        """Return the runs of layers of a log's model; none where its table cannot be read."""
        layers = self._model(name).layers
        return () if layers is None else layers.runs

    def renew(self, name: LogName) -> bool:
        """Read a model's files again after one of them came. Return True if records may have other layers now."""
        before, model = self._known.get(_key(name)), self._load(name)
        self._known[_key(name)] = model._replace(is_reported=True)
        # Before the first report, rows may have been joined with an earlier version of the files.
        return before is None or not before.is_reported or before[:2] != model[:2]

    def disagreements(self, name: LogName) -> list[str] | None:
        """Return how a model's two files disagree; None where its layer table cannot be read."""
        model = self._load(name)
        if model.layers is None:
            return None
        return LayerJoin(model.layers, model.nets).disagreements() if model.nets else []

    def _model(self, name: LogName) -> _InfoFiles:
        model = self._known[_key(name)] = self._known.get(_key(name)) or self._load(name)
        return model

    def _load(self, name: LogName) -> _InfoFiles:
        layers = self._parsed(parse_layer_info, layer_info_path(name))
        nets = self._parsed(parse_net_info, f"data/{name.model}.{name.model_id}.net.info")
        return _InfoFiles(layers, nets or (), LayerJoin(layers, nets or ()) if layers is not None or nets else None)

    def _parsed(self, parse: Callable[[bytes, str], T], path: str) -> T | None:
        data = small_file(self._files, path)
        try:
            return None if data is None else parse(data, path)
        except FormatError:
            return None


def layer_info_path(name: LogName) -> str:
    """Return the path of the layer table that names a log's records."""
    return f"data/{name.model}.{name.model_id}.layer.info"


def _key(name: LogName) -> tuple[str, int]:
    return (name.model or "", name.model_id or 0)


class JobDecoder(Decoder):
    """Decoder of the logs of one JOB."""

    def __init__(
        self,
        files: JobFiles,
        counter_map: CounterMap | None = None,
        *,
        marked_map: CounterMap | None = None,
        remembered_logs: int = REMEMBERED_LOGS,
        keeping: Keeping | None = None,
        interval: int | None = None,
        **_chosen: Any,
    ) -> None:
        """Set the choices of the command; `marked_map` decodes a JOB that turns out to be simulated.

        `keeping` chooses inferences, in steps of the board's `interval`, None where that is unknown.
        """
        super().__init__(files)
        # Choice of inferences, None for all; with the interval it decides by a log's name alone.
        self._keeping = keeping
        self._interval = interval
        self._marked_map = marked_map
        # True once the JOB's marker of the simulated board has come.
        self._is_marked = False
        # Files whose changes this decoder has yielded: of files from an earlier capture it yields them before the first
        # record that needs them.
        self._reported: set[str] = set()
        if counter_map is None and marked_map is not None and files.read(SIMULATED_MARKER) is not None:
            counter_map = marked_map
        # Layers of records by model, and decoding states of logs; both are caches over `files`.
        self._joins = Joins(files)
        self._logs = DataLogs(files, self._joins, counter_map, remembered_logs)

    def keeps(self, path: str) -> bool:
        """Return True if a log gets rows, which its name alone decides; any other is passed over on purpose."""
        if self._keeping is None:
            return True
        name = parse_log_name(path)
        inference = None if name is None else name.inference
        return inference is None or self._keeping.keeps(step_of(inference, self._interval))

    def begin_stream(self) -> None:
        """Note that a stream begins: what an earlier one announced may have changed."""
        self._logs.states.begin_stream()

    def expect(self, paths: Iterable[str]) -> None:
        """Note that the board announces incomplete logs: a `.done` counts once the board sends it in this stream."""
        for path in paths:
            name = None if path.endswith(DONE_SUFFIX) else parse_log_name(path)
            if name is not None and name.is_data and name.kind is not LogKind.ACL_API and self.keeps(path):
                self._logs.states.note(path, LogEvent.ANNOUNCED)

    def confirm(self, path: str) -> Iterator[Change]:
        """Yield the changes that follow when the board confirms a stored `.done`: it is not of an earlier load."""
        data = path.removesuffix(DONE_SUFFIX)
        name = parse_log_name(data)
        if name is None or path == data or not self.keeps(path):
            return
        # The state moves even if nothing is judged: from now on the `.done` counts for this stream.
        before = self._logs.states.note(data, LogEvent.DONE_CAME)
        if before.is_stale and done_of(self.files, data) is not None:
            log = yield from self._logs.at(data, name, None)
            log = yield from self._logs.judged(log)
            yield self._assessed(log)

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        """Yield the changes for a data log that continues at `offset`; 0 voids its earlier rows."""
        name = parse_log_name(path)
        if offset == 0:
            yield LogReset(path)
            self._logs.forget(path)
        if not self.keeps(path):
            yield PassedOver(path)
        elif name is None:
            yield _foreign(path)
        elif name.is_data:
            yield from self._begun(path, name, generation, offset)
        yield LogAdvanced(path, generation, offset)

    def inferences(self, groups: Sequence[Group]) -> tuple[list[Change], Sequence[Group]]:
        """Decode inferences that came complete.

        Their decoding states are dropped; later bytes have them built again.
        """
        changes: list[Change] = []
        for name in {(group.name.model, group.name.model_id): group.name for group in groups}.values():
            changes += self._recall(name)
        plain, odd = decode_groups(groups, self._joins, self._logs.counter_map)
        for group in () if plain is None else plain.groups:
            for data in group.files[::2]:
                self._logs.states.note(data.path, LogEvent.CAME_WHOLE)
        return changes if plain is None else [*changes, plain], odd

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """Yield the changes for bytes of a data log at `offset`."""
        yield LogAdvanced(path, generation, offset + len(data))
        if not self.keeps(path):
            yield PassedOver(path)
            return
        name = parse_log_name(path)
        if name is None or not name.is_data:
            return
        yield from self._gone_on(path, name)
        log = yield from self._logs.at(path, name, offset)
        yield from self._logs.grow(log, data)
        yield self._assessed(log)

    def complete(self, path: str, generation: int, offset: int, digest: bytes | None) -> Iterator[Change]:
        """Yield the changes for a data log whose size and digest the board has confirmed."""
        name = parse_log_name(path)
        if name is not None and name.is_data and self.keeps(path):
            log = yield from self._logs.at(path, name, offset)
            yield from self._ended(log)
        yield LogAdvanced(path, generation, offset, complete=True, digest=digest)

    def whole(self, path: str, generation: int, data: bytes, digest: bytes) -> Iterator[Change]:
        """Yield the changes for a data log that came complete. It is judged only once."""
        name = parse_log_name(path)
        if name is None or not name.is_data or not self.keeps(path):
            yield from super().whole(path, generation, data, digest)
            return
        yield LogReset(path)
        self._logs.forget(path)
        log = yield from self._begun(path, name, generation, 0)
        # Before its rows: the store skips the rows of a log that has no bytes.
        yield LogAdvanced(path, generation, len(data), complete=True, digest=digest)
        if data:
            yield from self._logs.grow(log, data)
        yield from self._ended(log)

    def snapshot(
        self, path: str, generation: int, data: bytes, digest: bytes, *, size: int | None = None
    ) -> Iterator[Change]:
        """Yield the changes for a complete snapshot; `size` where `data` is only its beginning.

        Raises UnsupportedBoardError.
        """
        name = parse_log_name(path)
        if path == SIMULATED_MARKER:
            self._note_reported(path)
            yield from self._marked()
        elif name is None:
            yield _foreign(path)
        elif not self.keeps(path):
            yield PassedOver(path)
        else:
            is_whole = size in (None, len(data))
            yield from self._read(path, name, data, is_whole=is_whole, is_rewritten=generation > 1)
        if path == DEVICE_INFO:
            yield ContentLedger(None, ())
        yield LogAdvanced(path, generation, len(data) if size is None else size, complete=True, digest=digest)

    def end(self, unsettled: Iterable[str], orphans: Iterable[str]) -> Iterator[Change]:
        """Yield the assessment of an ended JOB's incomplete data logs, and of `.done` files without data."""
        for path in filter(self.keeps, unsettled):
            name = parse_log_name(path)
            if name is not None and name.is_data:
                log = yield from self._logs.at(path, name, None)
                self._logs.states.note(path, LogEvent.SETTLED)
                log = yield from self._logs.judged(log)
                yield self._assessed(log, ended=True)
        for path in filter(self.keeps, orphans):
            done = done_of(self.files, path.removesuffix(DONE_SUFFIX))
            if done is not None:
                yield ContentLedger(path, (orphan_done(done.file_len),))
        yield ContentLedger(None, () if self.files.read(DEVICE_INFO, 0) is not None else (NO_FREQUENCY,))

    def _begun(self, path: str, name: LogName, generation: int, offset: int) -> Generator[Change, None, DataLog]:
        yield from self._recall(name)
        if offset or generation > 1:
            # The `.done` that is here may belong to the earlier bytes.
            yield from self._gone_on(path, name)
        else:
            self._logs.states.note(path, LogEvent.BEGUN)
        log = yield from self._logs.at(path, name, offset)
        if log.done is not None:
            yield ContentLedger(path + DONE_SUFFIX, ())
        return log

    def _ended(self, log: DataLog) -> Iterator[Change]:
        self._logs.states.note(log.path, LogEvent.COMPLETED)
        log = yield from self._logs.judged(log)
        yield self._assessed(log)

    def _gone_on(self, path: str, name: LogName) -> Iterator[Change]:
        # A complete log that grows is no longer judged: the new bytes may belong to its last inference.
        before = self._logs.states.note(path, LogEvent.WENT_ON)
        if not before.is_growing and name.kind is not LogKind.ACL_API:
            yield LogJudged(path, 0, "")

    def _marked(self) -> Iterator[Change]:
        logs = self._logs
        if not self._is_marked and self._marked_map is not None and logs.counter_map in (None, self._marked_map):
            logs.counter_map = self._marked_map
            yield from self._redecoded("")
        self._is_marked = True
        yield self._simulated()

    def _simulated(self) -> Change:
        known = self._logs.counter_map
        return SimulatedKnown(None, None) if known is None else SimulatedKnown(known.name, known.fingerprint)

    def _recall(self, name: LogName) -> Iterator[Change]:
        if SIMULATED_MARKER not in self._reported:
            self._note_reported(SIMULATED_MARKER)
            if self.files.read(SIMULATED_MARKER, 0) is not None:
                yield self._simulated()
        for path in (DEVICE_INFO, layer_info_path(name)):
            known = parse_log_name(path)
            if path not in self._reported and known is not None:
                self._note_reported(path)
                data = small_file(self.files, path)
                with suppress(FormatError):
                    yield from () if data is None else _known(path, known, data)

    def _note_reported(self, path: str) -> None:
        if len(self._reported) >= REPORTED_TABLES:
            self._reported.clear()  # reporting a file once more changes nothing
        self._reported.add(path)

    def _read(self, path: str, name: LogName, data: bytes, *, is_whole: bool, is_rewritten: bool) -> Iterator[Change]:
        known: list[Change] = []
        entries: tuple[Entry, ...] = ()
        done = None
        try:
            _check_whole(path, data, is_whole=is_whole)
            if name.is_done:
                done = parse_done(data, name.kind, path)
            else:
                known = _known(path, name, data)
                self._note_reported(path)
        except FormatError as error:
            entries = (ledger.entry(ledger.MALFORMED, str(error), error.offset, error.offset),)
        yield from known
        yield ContentLedger(path, entries)
        if name.is_done:
            yield from self._done(path.removesuffix(DONE_SUFFIX), done, is_rewritten=is_rewritten)
        elif name.kind in (LogKind.LAYER_INFO, LogKind.NET_INFO):
            yield from self._new_tables(name)

    def _done(self, data_path: str, done: Done | None, *, is_rewritten: bool) -> Iterator[Change]:
        """Yield the changes for the `.done` of a data log that came, or came again; None if it is unreadable."""
        name = parse_log_name(data_path)
        assert name is not None, "a .done is named after its data"
        was_known = self._logs.known(data_path) is not None
        log = yield from self._logs.at_end(data_path, name)
        before, log.done = log.done, done
        is_changed = before not in (None, done) if was_known else is_rewritten
        stood = self._logs.states.note(data_path, LogEvent.DONE_REWRITTEN if is_changed else LogEvent.DONE_CAME)
        # A changed `.done` of a complete log announces bytes of a new load: until they come, nothing is complete.
        is_early = is_changed and not stood.is_open
        if is_early and log.facts.size and name.kind is not LogKind.ACL_API:
            yield LogJudged(data_path, 0, "")
        if name.kind is LogKind.AICORE and _batches(before) != _batches(done):
            log = yield from self._logs.redecode(log)
        elif done is None:
            yield from self._logs.timed(log)
        log = yield from self._logs.judged(log)
        if log.facts.size or self._logs.is_complete(log):
            yield self._assessed(log)

    def _new_tables(self, name: LogName) -> Iterator[Change]:
        disagreements = self._joins.disagreements(name)
        if disagreements is not None:
            entries = tuple(ledger.entry(ledger.LAYER_COUNTS, text) for text in disagreements)
            yield ContentLedger(layer_info_path(name), entries)
        elif name.kind is LogKind.LAYER_INFO:
            yield LayersKnown(name.model or "", name.model_id or 0, LayerTable((), ()))
        # Only if layers may differ: each log of the model is read from the mirror and decoded again.
        if self._joins.renew(name):
            yield from self._redecoded(f".{name.model}.")

    def _redecoded(self, of_model: str) -> Iterator[Change]:
        for path in filter(self.keeps, self.files.names()):
            name = parse_log_name(path) if of_model in path else None
            if name is None or not name.is_data or name.kind is LogKind.ACL_API:
                continue
            log = self._logs.known(path)
            if log is None:
                log = yield from self._logs.at_end(path, name)
            else:
                log = yield from self._logs.redecode(log, last_load_record=log.last_load_record)
            yield self._assessed(log)

    def _assessed(self, log: DataLog, *, ended: bool = False) -> Change:
        # Looked up only at the end: while the JOB runs, an empty `.done` is one that is being written.
        is_done_empty = ended and log.done is None and self.files.read(log.path + DONE_SUFFIX, 1) == b""
        is_complete = self._logs.is_complete(log)
        entries = assess(log.facts, log.done, settled=is_complete, ended=ended, is_done_empty=is_done_empty)
        return ContentLedger(log.path, entries)


def _known(path: str, name: LogName, data: bytes) -> list[Change]:
    """Return the changes of a small file for records. Raises FormatError, UnsupportedBoardError."""
    match name.kind:
        case LogKind.INFO_JSON:
            return [FrequencyKnown(parse_info_json(data, path))]
        case LogKind.LAYER_INFO:
            return [LayersKnown(name.model or "", name.model_id or 0, parse_layer_info(data, path))]
        case LogKind.NET_INFO:
            parse_net_info(data, path)
    return []


def _batches(done: Done | None) -> tuple[int, ...]:
    return () if done is None else done.online_batch_num


def _check_whole(path: str, data: bytes, *, is_whole: bool) -> None:
    if not is_whole:
        raise FormatError(path, len(data), "the end of a small file", "more")


def _foreign(path: str) -> Change:
    return ContentLedger(path, (ledger.entry(ledger.FOREIGN_FILE, "not a file of the runtime: kept, not read"),))


_INFERENCE = frozenset({"device_id", "model_id", "stream_id", "batch_num", "input_pic_num"})
_RECORD = _INFERENCE | {"segment", "sequence", "layer_index", "layer_id"}
_COUNT = frozenset({"current_pic_count"})
# The schema of the database has these views.
SOURCE = Source(
    decoder=JobDecoder,
    views=(
        View(
            name="inferences",
            whole=_INFERENCE | {"load", "cache_hit", "cache_miss", "complete", "inference"},
            unsigned=_COUNT,
        ),
        View(
            name="op_records",
            whole=_RECORD | {"ticks"},
            fractions=frozenset(COUNTER_NAMES),
            unsigned=_COUNT,
            unit=LogKind.AICORE,
        ),
        View(name="aicpu_records", whole=_RECORD, unsigned=_COUNT, unit=LogKind.AICPU),
        View(
            name="api_records",
            whole=frozenset({"model_id", "pid", "tid"}),
            events=DrawnEvents(
                noun="API calls",
                process="'process ' || pid",
                track="'thread ' || tid || ' calls'",
                order="pid, tid",
                name="name",
                category="'call'",
                lane="'calls ' || pid || '/' || tid",
                # A call that ends before it begins has no place.
                start_us="iif(duration_us >= 0, begin_us, NULL)",
                duration_us="duration_us",
                arguments={"type": "type"},
                executes="iif(name LIKE 'svp_acl_mdl_execute%', json_array(job, model, model_id), NULL)",
                is_async="name LIKE '%async'",
            ),
        ),
    ),
)
