"""Events of a capture in progress: of each inference when its figures are known, or when that takes long.

An inference's figures are those of its rows once these are committed. An entry of the ledger comes with its inference,
or alone if it came after it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cachetools import LRUCache

from profagent.formats.figure_states import FigureState
from profagent.formats.names import SIMULATED_MARKER, InferenceKey, LogKind, display_text, parse_log_name
from profagent.ingest.changes import (
    ContentLedger,
    LayersKnown,
    LinkLedger,
    LogAdvanced,
    LogRemoved,
    NamesAnnounced,
    PlainLogs,
    RecordedLoss,
    Redecoded,
    SegmentRecords,
    SimulatedKnown,
    files_of,
)
from profagent.ledger import SEQUENCE_GAP
from profagent.limits import MOST_HELD_INFERENCES, OPEN_INFERENCES, PATIENCE_S, REMEMBERED_EMITTED, SHOWN_ENTRIES
from profagent.store.events import Composer, Event, is_over, model_of
from profagent.store.figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from profagent.formats.model_info import LayerTable
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Change, JobChanges
    from profagent.ingest.live_samples import Model
    from profagent.ledger import Entry
    from profagent.store.inference_columns import InferenceColumns, InferenceFacts
    from profagent.store.writer import Applied

AWAITED_TABLE = "the table of layers has not come yet"
AWAITED_MARKER = "whether the board is simulated is not known yet"
_UNITS = (LogKind.AICORE, LogKind.AICPU)
_GOES_ON = (FigureState.FINAL, FigureState.PENDING)
# The JOB and the name fields that an inference's files share. With the number of its load it identifies the inference.
_Files = tuple[str, InferenceKey]


class _Emitted(NamedTuple):
    """State of an inference in its last event, and the records of both units that were counted."""

    state: str
    records: tuple[int, int] = (0, 0)


class _Held(NamedTuple):
    """Inference with known figures whose event waits for something else, as the names of layers."""

    columns: InferenceColumns
    place: int
    since_s: float


class LiveComposer(Composer):
    """Composer of the events of a capture, batch after batch. Options as of Composer."""

    def __init__(self, *, with_records: bool = False, with_layers: bool = False) -> None:
        super().__init__(with_records=with_records, with_layers=with_layers)
        # Last event of each inference; a forgotten one may have a second event.
        self._emitted: LRUCache[tuple[_Files, int], _Emitted] = LRUCache(REMEMBERED_EMITTED)
        # Inferences without an event, and the time from which each has waited; infinite after the event that it waits.
        self._open: LRUCache[_Files, float] = LRUCache(OPEN_INFERENCES)
        # Inferences with known figures that wait for a table or a marker, oldest first.
        self._held: dict[tuple[_Files, int], _Held] = {}
        # Announced files that have not come: a table by its model, the marker of a simulated JOB by None.
        self._awaited: LRUCache[tuple[str, Model | None], None] = LRUCache(SHOWN_ENTRIES)
        # Entries that were counted: by JOB, log and whether the entry follows from the log's bytes; then by reason.
        self._shown: LRUCache[tuple[str, str | None, bool], dict[str, Entry]] = LRUCache(SHOWN_ENTRIES)
        # Entries of inferences that had events of their own, and so are not repeated with the inference.
        self._alone: LRUCache[_Files, list[Entry]] = LRUCache(SHOWN_ENTRIES)
        # Entries that wait for the event of their inference, also those of a log without records.
        self._withheld: LRUCache[_Files, list[Entry]] = LRUCache(SHOWN_ENTRIES)

    def batch_events(self, applied: Applied, now_s: float) -> Iterator[Event]:
        """Yield the events of a committed batch; `now_s` is a monotonic clock."""
        batch, job = applied.batch, applied.batch.job
        tables: dict[Model, LayerTable] = {}
        for change in batch.changes:
            self.samples.take(job, change)
            self._note_change(job, change, now_s)
            if isinstance(change, LayersKnown):
                tables[display_text(change.model), change.model_id] = change.table
            if not isinstance(change, LinkLedger | RecordedLoss):
                yield from self._change(job, change)
        if is_over(batch):
            for key in [each for each in self._awaited if each[0] == job]:
                del self._awaited[key]
        for path, entry, of_bytes in self._entries_in(batch):
            yield from self._emit_entry(job, path, entry, of_bytes=of_bytes)
        for columns in applied.columns:
            yield from self._emit_columns(columns, now_s)
        yield from self._release(job, tables)
        for change in batch.changes:
            if isinstance(change, RecordedLoss) and self._is_new(("", f"{change.number}", False), change.entry):
                yield {"event": "kept_loss", **change.fields, "simulated": self.simulated}
        yield from self._ended(batch)

    def pass_over(self, applied: Applied, now_s: float) -> None:
        """Take a batch without events: nothing of it is counted, and it is known from now on."""
        counted = self.inferences, self.records, self.ledger, self.left_out
        self.records, self.ledger = dict(self.records), dict(self.ledger)
        for _ in self.batch_events(applied, now_s):
            pass
        self.inferences, self.records, self.ledger, self.left_out = counted

    def has_overdue(self, now_s: float) -> bool:
        """Return True if an inference has waited for PATIENCE_S without an event that says so."""
        return any(now_s - since_s >= PATIENCE_S for since_s in self._open.values())

    def overdue_events(self, pending: InferenceColumns, now_s: float) -> Iterator[Event]:
        """Yield one pending event for each inference that has waited for PATIENCE_S.

        `pending` are those whose figures are not known.
        """
        held = [each for each in self._held.values() if now_s - each.since_s >= PATIENCE_S]
        for each in held:
            row = each.columns.rows[each.place]
            rows = [*each.columns.rows]
            rows[each.place] = row._replace(figures=FigureState.PENDING, why=self._awaits(row))
            yield from self._emit_waiting(replace(each.columns, rows=rows), [each.place])
        due = [
            place for place, row in enumerate(pending.rows) if now_s - self._open.get(_files(row), now_s) >= PATIENCE_S
        ]
        yield from self._emit_waiting(pending, due)
        # Files without a row have nothing to show, but must not count as waiting again.
        for files in [files for files, since_s in self._open.items() if now_s - since_s >= PATIENCE_S]:
            self._open[files] = float("inf")

    def _emit_waiting(self, columns: InferenceColumns, places: Iterable[int]) -> Iterator[Event]:
        new = [place for place in places if _key(columns.rows[place]) not in self._emitted]
        for place in new:
            self._emitted[_key(columns.rows[place])] = _Emitted(FigureState.PENDING)
        yield from self.inference_events(columns, [None] * len(columns.rows), new)

    def _note_change(self, job: str, change: Change, now_s: float) -> None:
        match change:
            case SegmentRecords() | Redecoded():
                records = change.records if isinstance(change, Redecoded) else change
                if records is not None:
                    self._begin(_files_of(job, records.name), int(records.unit.seg_load[-1]), now_s)
            case NamesAnnounced():
                for path in change.paths:
                    self._announce(job, path)
            case LogAdvanced():
                self._advance(job, change)
            case LogRemoved():
                name = parse_log_name(change.path)
                if name is not None and name.kind is LogKind.LAYER_INFO:
                    self._awaited.pop((job, model_of(name)), None)
            case LayersKnown():
                self._awaited.pop((job, (display_text(change.model), change.model_id)), None)
            case SimulatedKnown():
                self.simulated = True

    def _announce(self, job: str, path: str) -> None:
        name = parse_log_name(path)
        if path == SIMULATED_MARKER and not self.simulated:
            self._awaited[job, None] = None
        elif name is not None and name.kind is LogKind.LAYER_INFO:
            self._awaited[job, model_of(name)] = None

    def _advance(self, job: str, change: LogAdvanced) -> None:
        if change.path == SIMULATED_MARKER:
            self._awaited.pop((job, None), None)
        elif change.offset == 0 and change.generation > 1:
            # Another file has the log's name now: earlier events were not about it.
            name = parse_log_name(change.path)
            if name is not None and name.is_data and name.kind in _UNITS:
                files, load = _files_of(job, name), 0
                while self._emitted.pop((files, load), None) is not None:
                    load += 1

    def _begin(self, files: _Files, load: int, now_s: float) -> None:
        emitted = self._emitted.get((files, load))
        if emitted is None or emitted.state == FigureState.PENDING:
            self._open.setdefault(files, now_s)

    def _emit_columns(self, columns: InferenceColumns, now_s: float) -> Iterator[Event]:
        counts = [unit.counts(len(columns.rows)) for unit in columns.units]
        new: dict[int, tuple[_Files, int]] = {}
        for place, row in enumerate(columns.rows):
            key = _key(row)
            before = self._emitted.get(key)
            # A final inference becomes pending while its model, loaded again, adds to the same logs; it has no second
            # event.
            if before is not None and (before.state == row.figures or (before.state, row.figures) == _GOES_ON):
                continue
            if row.figures == FigureState.PENDING:
                self._open.setdefault(key[0], now_s)
            elif row.figures == FigureState.FINAL and self._awaits(row):
                self._held[key] = _Held(columns, place, now_s)
                self._open.setdefault(key[0], now_s)
            else:
                new[place] = key
        # Beyond the bound the oldest goes out as it is: a table that never comes must not fill the memory.
        while len(self._held) > MOST_HELD_INFERENCES:
            key = next(iter(self._held))
            yield from self._emit_held(key)
        yield from self._emit_known(columns, new, counts)

    def _emit_known(
        self, columns: InferenceColumns, keys: Mapping[int, tuple[_Files, int]], counts: Sequence[NDArray[np.int64]]
    ) -> Iterator[Event]:
        if not keys:
            return
        for key in keys.values():
            self._held.pop(key, None)
            self._open.pop(key[0], None)
            self._uncount(key)
        yield from self.inference_events(columns, figures_of(columns, self.slowest), [*keys])
        for place, key in keys.items():
            of_units = int(counts[0][place]), int(counts[1][place])
            self._emitted[key] = _Emitted(columns.rows[place].figures, of_units)

    def _uncount(self, key: tuple[_Files, int]) -> None:
        """Remove an inference from the totals before its second event: it was partial before."""
        emitted = self._emitted.get(key)
        if emitted is not None and emitted.state != FigureState.PENDING:
            self.inferences -= 1
            for unit, count in zip(_UNITS, emitted.records, strict=True):
                self.records[unit] -= count

    def _awaits(self, row: InferenceFacts) -> str:
        if (row.job, None) in self._awaited:
            return AWAITED_MARKER
        return AWAITED_TABLE if (row.job, (row.model_name, row.model_id)) in self._awaited else ""

    def _release(self, job: str, tables: dict[Model, LayerTable]) -> Iterator[Event]:
        for key, held in list(self._held.items()):
            row = held.columns.rows[held.place]
            if row.job == job and key in self._held and not self._awaits(row):
                yield from self._emit_held(key, tables.get((row.model_name, row.model_id)))

    def _emit_held(self, key: tuple[_Files, int], table: LayerTable | None = None) -> Iterator[Event]:
        columns, place, _ = self._held[key]
        if table is not None:
            columns = replace(columns, tables={**columns.tables, columns.rows[place].model: table})
        counts = [unit.counts(len(columns.rows)) for unit in columns.units]
        yield from self._emit_known(columns, {place: key}, counts)

    def _emitted_records(self, row: InferenceFacts) -> tuple[int, int]:
        emitted = self._emitted.get(_key(row))
        return (0, 0) if emitted is None else emitted.records

    def _entries_in(self, batch: JobChanges) -> Iterator[tuple[str | None, Entry, bool]]:
        """Yield the entries of a batch: the log, the entry, and whether it follows from the log's bytes."""
        for change in batch.changes:
            match change:
                case PlainLogs():
                    self._count_plain(batch.job, change)
                case ContentLedger():
                    self._take_back(batch.job, change)
                    yield from ((change.path, entry, True) for entry in change.entries)
                case LinkLedger():
                    yield change.path, change.entry, False

    def _emit_entry(self, job: str, path: str | None, entry: Entry, *, of_bytes: bool) -> Iterator[Event]:
        if not self._is_new((job, path, of_bytes), entry) or entry.reason == SEQUENCE_GAP:
            return
        name = None if path is None else parse_log_name(path)
        if name is not None and name.kind in _UNITS and name.inference is not None:
            files = _files_of(job, name)
            if files in self._open:
                self._withheld.setdefault(files, []).append(entry)
                return
            self._alone.setdefault(files, []).append(entry)
        yield self._entry_event(job, path, entry)

    def _entries(self, row: InferenceFacts, entries: Sequence[Entry]) -> Iterable[Entry]:
        if not self._alone and not self._withheld:
            return entries
        alone = {_short(entry) for entry in self._alone.get(_files(row), ())}
        known = {_short(entry) for entry in entries}
        withheld = self._withheld.pop(_files(row), ())
        return [
            *(entry for entry in entries if _short(entry) not in alone),
            *(entry for entry in withheld if _short(entry) not in known),
        ]

    def _count_plain(self, job: str, change: PlainLogs) -> None:
        for kind, of_logs in change.entries.items():
            for log, entries in of_logs.items():
                data, _ = files_of(change.groups[change.places[kind][log]], kind)
                for entry in entries:
                    self._is_new((job, data.path, True), entry)

    def _take_back(self, job: str, change: ContentLedger) -> None:
        """Remove from the totals what a log's bytes no longer show, as layers without a name."""
        known = self._shown.get((job, change.path, True), {})
        reasons = {entry.reason for entry in change.entries}
        for reason in [each for each in known if each not in reasons]:
            self._count(known[reason], -known.pop(reason).count)

    def _is_new(self, key: tuple[str, str | None, bool], entry: Entry) -> bool:
        shown = self._shown[key] = self._shown.get(key, {})
        known = shown.get(entry.reason)
        if known == entry:
            return False
        shown[entry.reason] = entry
        self._count(entry, entry.count - (0 if known is None else known.count))
        return True


def _files_of(job: str, name: LogName) -> _Files:
    assert name.inference is not None, "only files of inferences have records of units"
    return job, name.inference._replace(model=display_text(name.model or ""))


def _files(row: InferenceFacts) -> _Files:
    key = InferenceKey(
        row.device_id,
        row.model_name,
        row.model_id,
        row.stream_id,
        row.batch_num,
        row.input_pic_num,
        row.current_pic_count,
    )
    return row.job, key


def _short(entry: Entry) -> tuple[str, int]:
    return entry.reason, entry.count


def _key(row: InferenceFacts) -> tuple[_Files, int]:
    return _files(row), row.load
