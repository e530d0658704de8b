"""One JOB's logs become changes: which file means what, in whatever order they come.

What a log's rows are follows from its bytes, its `.done` and its model's tables alone, so the order does not matter:
when one of them comes late, or the state of a log was forgotten, its rows are written once more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from profagent.errors import FormatError
from profagent.formats.board_files import parse_done, parse_info_json
from profagent.formats.model_info import LayerTable, parse_layer_info, parse_net_info
from profagent.formats.names import DEVICE_INFO, DONE_SUFFIX, SIMULATED_MARKER, LogKind, LogName, parse_log_name
from profagent.formats.sampling import step_of
from profagent.ingest import reasons
from profagent.ingest.changes import (
    ContentLedger,
    Entry,
    FrequencyKnown,
    LayersKnown,
    LogAdvanced,
    LogJudged,
    LogReset,
    PassedOver,
    SimulatedKnown,
)
from profagent.ingest.datalog import assess, orphan_done
from profagent.ingest.decoder import Decoder, small_file
from profagent.ingest.feed import decode_groups
from profagent.ingest.states import LogStates, done_of, layer_info_path
from profagent.limits import REMEMBERED_LOGS, REPORTED_TABLES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from profagent.formats.board_files import Done
    from profagent.formats.countermap import CounterMap
    from profagent.formats.sampling import Keeping
    from profagent.ingest.changes import Change
    from profagent.ingest.datalog import DataLog
    from profagent.ingest.decoder import JobFiles
    from profagent.ingest.feed import Group

NO_FREQUENCY = reasons.entry(
    reasons.NO_FREQUENCY, f"there is no {DEVICE_INFO}, which tells the NPU's clock: times of layers are not known"
)


class JobDecoder(Decoder):
    """Decodes the logs of one JOB."""

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
        """`marked_map` is for a JOB that turns out to be simulated, where no other map was given.

        `keeping` chooses inferences, by steps of the board's `interval`, None where that is not known.
        """
        super().__init__(files)
        self._keeping = keeping
        self._interval = interval
        self._marked_map = marked_map
        self._is_marked = False
        # Files of which this decoder has told what they say of records.
        self._reported: set[str] = set()
        if counter_map is None and marked_map is not None and files.read(SIMULATED_MARKER) is not None:
            counter_map = marked_map
        self._logs = LogStates(files, counter_map, remembered_logs)

    def keeps(self, path: str) -> bool:
        """Whether a log gets rows, which its name alone tells: any other was passed over on purpose."""
        if self._keeping is None:
            return True
        name = parse_log_name(path)
        inference = None if name is None else name.inference
        return inference is None or self._keeping.keeps(step_of(inference, self._interval))

    def begin_stream(self) -> None:
        """A stream begins: what was told in an earlier one may have changed."""
        self._logs.renewed.clear()

    def expect(self, paths: Iterable[str]) -> None:
        """The board announces logs that are not held whole: a `.done` counts once the board has told it after that."""
        for path in filter(self.keeps, paths):
            name = parse_log_name(path)
            if name is not None and name.is_data and name.kind is not LogKind.ACL_API:
                self._logs.expect(path)

    def confirm(self, path: str) -> Iterator[Change]:
        """A small file is as it was held: a `.done` is not an earlier one."""
        data = path.removesuffix(DONE_SUFFIX)
        name = parse_log_name(data)
        if name is not None and path != data and self.keeps(path) and self._logs.confirm(data):
            log = yield from self._logs.at(data, name, None)
            log = yield from self._logs.judged(log)
            yield self._assessed(log)

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        """A data log goes on from `offset`; from 0 its earlier rows are void."""
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

    def read_ahead(self, beginnings: Iterable[tuple[str, bytes]]) -> None:
        """Read the first bytes of data logs, given by path, that are about to come: many at a time cost less."""
        named = ((parse_log_name(path), path, data) for path, data in beginnings if self.keeps(path))
        aicore = ((path, data) for name, path, data in named if name is not None and name.kind is LogKind.AICORE)
        self._logs.ahead.read(aicore, self._logs.counter_map)

    def inferences(self, groups: Sequence[Group]) -> tuple[list[Change], Sequence[Group]]:
        """As of Decoder. Nothing of them is remembered: whatever comes later of a log has it built again."""
        changes: list[Change] = []
        for name in {(group.name.model, group.name.model_id): group.name for group in groups}.values():
            changes += self._recall(name)
        plain, odd = decode_groups(groups, self._logs.joins, self._logs.counter_map)
        for group in () if plain is None else plain.groups:
            self._logs.arrived(group.aicore.path)
            if group.aicpu is not None:
                self._logs.arrived(group.aicpu.path)
        return changes if plain is None else [*changes, plain], odd

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """Bytes of a data log at `offset`."""
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
        """The board vouches for a data log: it has stopped changing and its `.done` parses."""
        name = parse_log_name(path)
        if name is not None and name.is_data and self.keeps(path):
            log = yield from self._logs.at(path, name, offset)
            yield from self._ended(log)
        yield LogAdvanced(path, generation, offset, complete=True, digest=digest)

    def whole(self, path: str, generation: int, data: bytes, digest: bytes) -> Iterator[Change]:
        """A data log that came whole: as if it began, grew and was complete, and judged but once."""
        name = parse_log_name(path)
        if name is None or not name.is_data or not self.keeps(path):
            yield from super().whole(path, generation, data, digest)
            return
        yield LogReset(path)
        self._logs.forget(path)
        log = yield from self._begun(path, name, generation, 0)
        # Before its rows: those of a log without bytes are passed over.
        yield LogAdvanced(path, generation, len(data), complete=True, digest=digest)
        if data:
            yield from self._logs.grow(log, data)
        yield from self._ended(log)

    def snapshot(
        self, path: str, generation: int, data: bytes, digest: bytes, *, size: int | None = None
    ) -> Iterator[Change]:
        """A file that came whole; `size` where `data` is only its beginning. Raises UnsupportedBoardError."""
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

    def settle(self) -> Iterator[Change]:
        """All has come of the logs in use that will: those that went on are judged by the `.done` that there is."""
        for path in self._logs.open_paths:
            name = parse_log_name(path)
            assert name is not None, "only data goes on"
            log = yield from self._logs.at(path, name, None)
            self._logs.settle(path)
            yield from self._logs.judged(log)

    def end(self, unsettled: Iterable[str], orphans: Iterable[str]) -> Iterator[Change]:
        """The JOB has ended: assess data logs that never got complete, and `.done` files without data."""
        for path in filter(self.keeps, unsettled):
            name = parse_log_name(path)
            if name is not None and name.is_data:
                log = yield from self._logs.at(path, name, None)
                self._logs.settle(path)
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
            # The `.done` that is there may be of what was before.
            yield from self._gone_on(path, name)
        self._logs.growing.add(path)
        log = yield from self._logs.at(path, name, offset)
        if log.done is not None:
            yield ContentLedger(path + DONE_SUFFIX, ())
        return log

    def _ended(self, log: DataLog) -> Iterator[Change]:
        log.settled = True
        self._logs.growing.discard(log.path)
        log = yield from self._logs.judged(log)
        yield self._assessed(log)

    def _gone_on(self, path: str, name: LogName) -> Iterator[Change]:
        """Bytes follow: a complete log is judged anew when all of it is here, they may be of its last inference."""
        if self._logs.goes_on(path) and name.kind is not LogKind.ACL_API:
            yield LogJudged(path, 0, "")

    def _marked(self) -> Iterator[Change]:
        """The JOB is simulated, which tells its counter map where no other was given."""
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
        """What files that came before this decoder was made tell of a log's records."""
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
            self._reported.clear()  # what is told once more changes nothing
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
            entries = (reasons.entry(reasons.MALFORMED, str(error), error.offset, error.offset),)
        yield from known
        yield ContentLedger(path, entries)
        if name.is_done:
            yield from self._done(path.removesuffix(DONE_SUFFIX), done, is_rewritten=is_rewritten)
        elif name.kind in (LogKind.LAYER_INFO, LogKind.NET_INFO):
            yield from self._new_tables(name)

    def _done(self, data_path: str, done: Done | None, *, is_rewritten: bool) -> Iterator[Change]:
        """The `.done` of a data log came, or came anew; None where it cannot be read."""
        name = parse_log_name(data_path)
        assert name is not None, "a .done is named after its data"
        was_known = self._logs.known(data_path) is not None
        log = yield from self._logs.at_end(data_path, name)
        before, log.done = log.done, done
        is_changed = before not in (None, done) if was_known else is_rewritten
        is_early = self._logs.renew_done(data_path, is_rewritten=is_changed)
        if is_early and log.facts.size and name.kind is not LogKind.ACL_API:
            yield LogJudged(data_path, 0, "")
        if name.kind is LogKind.AICORE and _batches(before) != _batches(done):
            log = yield from self._logs.redecode(log)
        elif done is None:
            yield from self._logs.timed(log)
        log = yield from self._logs.judged(log)
        if log.facts.size or log.settled:
            yield self._assessed(log)

    def _new_tables(self, name: LogName) -> Iterator[Change]:
        """A model's layers are known, or known better: records that came before are joined again."""
        disagreements = self._logs.joins.disagreements(name)
        if disagreements is not None:
            entries = tuple(reasons.entry(reasons.LAYER_COUNTS, text) for text in disagreements)
            yield ContentLedger(layer_info_path(name), entries)
        elif name.kind is LogKind.LAYER_INFO:
            yield LayersKnown(name.model or "", name.model_id or 0, LayerTable((), ()))
        if self._logs.joins.renew(name):
            yield from self._redecoded(f".{name.model}.")

    def _redecoded(self, of_model: str) -> Iterator[Change]:
        """Every aicore and aicpu log whose path holds `of_model`, once more."""
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
        is_done_empty = ended and log.done is None and self.files.read(log.path + DONE_SUFFIX, 1) == b""
        entries = assess(log.facts, log.done, settled=log.settled, ended=ended, is_done_empty=is_done_empty)
        return ContentLedger(log.path, entries)


def _known(path: str, name: LogName, data: bytes) -> list[Change]:
    """What a small file says of records. Raises FormatError, UnsupportedBoardError."""
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
    return ContentLedger(path, (reasons.entry(reasons.FOREIGN_FILE, "not a file of the runtime: kept, not read"),))
