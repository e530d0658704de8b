"""Events of a capture while it comes: of each inference when its figures are known, and when that takes long.

What is known of an inference is what its rows say once they are committed. An entry of the ledger comes with its
inference, or alone where that was told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cachetools import LRUCache

from profagent.formats.figure_states import FigureState
from profagent.formats.names import SIMULATED_MARKER, InferenceKey, LogKind, display_text, parse_log_name
from profagent.ingest.changes import (
    ContentLedger,
    KeptLoss,
    LayersKnown,
    LinkLedger,
    LogAdvanced,
    LogRemoved,
    NamesAnnounced,
    PlainLogs,
    Redecoded,
    SegmentRecords,
    SimulatedKnown,
    files_of,
)
from profagent.ledger import SEQUENCE_GAP
from profagent.limits import MOST_HELD_INFERENCES, OPEN_INFERENCES, PATIENCE_S, SHOWN_ENTRIES, TOLD_INFERENCES
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
# The files of an inference; an inference in them by its load as well.
_Files = tuple[str, InferenceKey]


class _Told(NamedTuple):
    """The state in which an inference was told last, and its records of both units that are counted."""

    state: str
    records: tuple[int, int] = (0, 0)


class _Held(NamedTuple):
    """An inference whose figures are known, while something else is awaited that its line needs."""

    columns: InferenceColumns
    place: int
    since_s: float


class LiveComposer(Composer):
    """Composes the events of a capture, batch after batch. Options as of Composer."""

    def __init__(self, *, with_records: bool = False, with_layers: bool = False) -> None:
        super().__init__(with_records=with_records, with_layers=with_layers)
        self._told: LRUCache[tuple[_Files, int], _Told] = LRUCache(TOLD_INFERENCES)
        # Files of inferences that were not told, and since when.
        self._open: LRUCache[_Files, float] = LRUCache(OPEN_INFERENCES)
        self._held: dict[tuple[_Files, int], _Held] = {}
        # What was announced and has not come: tables by their model, and the marker of a simulated JOB.
        self._awaited: LRUCache[tuple[str, Model | None], None] = LRUCache(SHOWN_ENTRIES)
        # What was told of the ledger by JOB, log and whether it follows from the log's bytes, then by reason.
        self._shown: LRUCache[tuple[str, str | None, bool], dict[str, Entry]] = LRUCache(SHOWN_ENTRIES)
        # Of inferences, the entries that were told alone.
        self._alone: LRUCache[_Files, list[Entry]] = LRUCache(SHOWN_ENTRIES)
        # Of inferences that were not told, what came of the ledger: also of a log that has no records.
        self._withheld: LRUCache[_Files, list[Entry]] = LRUCache(SHOWN_ENTRIES)

    def told(self, applied: Applied, now_s: float) -> Iterator[Event]:
        """Tell of what a batch brought, whose columns were read; `now_s` is a clock that never goes back."""
        batch, job = applied.batch, applied.batch.job
        tables: dict[Model, LayerTable] = {}
        for change in batch.changes:
            self.samples.take(job, change)
            self._know(job, change, now_s)
            if isinstance(change, LayersKnown):
                tables[display_text(change.model), change.model_id] = change.table
            if not isinstance(change, LinkLedger | KeptLoss):
                yield from self._change(job, change)
        if is_over(batch):
            for key in [each for each in self._awaited if each[0] == job]:
                del self._awaited[key]
        for path, entry, of_bytes in self._entries_in(batch):
            yield from self._tell_entry(job, path, entry, of_bytes=of_bytes)
        for columns in applied.columns:
            yield from self._tell(columns, now_s)
        yield from self._release(job, tables)
        for change in batch.changes:
            if isinstance(change, KeptLoss) and self._is_new(("", f"{change.number}", False), change.entry):
                yield {"event": "kept_loss", **change.fields, "simulated": self.simulated}
        yield from self._ended(batch)

    def pass_over(self, applied: Applied, now_s: float) -> None:
        """Take a batch that nobody is to see: it is not counted."""
        counted = self.inferences, self.records, self.ledger, self.left_out
        self.records, self.ledger = dict(self.records), dict(self.ledger)
        for _ in self.told(applied, now_s):
            pass
        self.inferences, self.records, self.ledger, self.left_out = counted

    def waits(self, now_s: float) -> bool:
        """Return True if something waits for long and was not told as waiting."""
        return any(now_s - since_s >= PATIENCE_S for since_s in self._open.values())

    def waited(self, pending: InferenceColumns, now_s: float) -> Iterator[Event]:
        """Tell, once, of inferences that have waited for long; `pending` are those whose figures are not known."""
        held = [each for each in self._held.values() if now_s - each.since_s >= PATIENCE_S]
        for each in held:
            row = each.columns.rows[each.place]
            rows = [*each.columns.rows]
            rows[each.place] = row._replace(figures=FigureState.PENDING, why=self._awaits(row))
            yield from self._tell_waiting(replace(each.columns, rows=rows), [each.place])
        due = [
            place for place, row in enumerate(pending.rows) if now_s - self._open.get(_files(row), now_s) >= PATIENCE_S
        ]
        yield from self._tell_waiting(pending, due)
        # What has no row yet has nothing to show.
        for files in [files for files, since_s in self._open.items() if now_s - since_s >= PATIENCE_S]:
            self._open[files] = float("inf")

    def _tell_waiting(self, columns: InferenceColumns, places: Iterable[int]) -> Iterator[Event]:
        new = [place for place in places if _key(columns.rows[place]) not in self._told]
        for place in new:
            self._told[_key(columns.rows[place])] = _Told(FigureState.PENDING)
        yield from self.ran(columns, [None] * len(columns.rows), new)

    def _know(self, job: str, change: Change, now_s: float) -> None:
        """Take what decides when something is told."""
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
            # Another file stands in its place: what was told is not about it.
            name = parse_log_name(change.path)
            if name is not None and name.is_data and name.kind in _UNITS:
                files, load = _files_of(job, name), 0
                while self._told.pop((files, load), None) is not None:
                    load += 1

    def _begin(self, files: _Files, load: int, now_s: float) -> None:
        told = self._told.get((files, load))
        if told is None or told.state == FigureState.PENDING:
            self._open.setdefault(files, now_s)

    def _tell(self, columns: InferenceColumns, now_s: float) -> Iterator[Event]:
        """Tell of inferences whose figures are known, unless they were told so, or wait for names of layers."""
        counts = [unit.counts(len(columns.rows)) for unit in columns.units]
        new: dict[int, tuple[_Files, int]] = {}
        for place, row in enumerate(columns.rows):
            key = _key(row)
            before = self._told.get(key)
            # A final one is pending while its model, which was loaded again, adds to the same logs.
            if before is not None and (before.state == row.figures or (before.state, row.figures) == _GOES_ON):
                continue
            if row.figures == FigureState.PENDING:
                self._open.setdefault(key[0], now_s)
            elif row.figures == FigureState.FINAL and self._awaits(row):
                self._held[key] = _Held(columns, place, now_s)
                self._open.setdefault(key[0], now_s)
            else:
                new[place] = key
        while len(self._held) > MOST_HELD_INFERENCES:
            key = next(iter(self._held))
            yield from self._tell_held(key)
        yield from self._tell_known(columns, new, counts)

    def _tell_known(
        self, columns: InferenceColumns, keys: Mapping[int, tuple[_Files, int]], counts: Sequence[NDArray[np.int64]]
    ) -> Iterator[Event]:
        if not keys:
            return
        for key in keys.values():
            self._held.pop(key, None)
            self._open.pop(key[0], None)
            self._uncount(key)
        yield from self.ran(columns, figures_of(columns, self.slowest), [*keys])
        for place, key in keys.items():
            of_units = int(counts[0][place]), int(counts[1][place])
            self._told[key] = _Told(columns.rows[place].figures, of_units)

    def _uncount(self, key: tuple[_Files, int]) -> None:
        """What was told as partial is told once more: it is counted once."""
        told = self._told.get(key)
        if told is not None and told.state != FigureState.PENDING:
            self.inferences -= 1
            for unit, count in zip(_UNITS, told.records, strict=True):
                self.records[unit] -= count

    def _awaits(self, row: InferenceFacts) -> str:
        """Return what the line of an inference waits for, if anything."""
        if (row.job, None) in self._awaited:
            return AWAITED_MARKER
        return AWAITED_TABLE if (row.job, (row.model_name, row.model_id)) in self._awaited else ""

    def _release(self, job: str, tables: dict[Model, LayerTable]) -> Iterator[Event]:
        """Tell of inferences for which nothing is awaited any more."""
        for key, held in list(self._held.items()):
            row = held.columns.rows[held.place]
            if row.job == job and key in self._held and not self._awaits(row):
                yield from self._tell_held(key, tables.get((row.model_name, row.model_id)))

    def _tell_held(self, key: tuple[_Files, int], table: LayerTable | None = None) -> Iterator[Event]:
        columns, place, _ = self._held[key]
        if table is not None:
            columns = replace(columns, tables={**columns.tables, columns.rows[place].model: table})
        counts = [unit.counts(len(columns.rows)) for unit in columns.units]
        yield from self._tell_known(columns, {place: key}, counts)

    def _told_records(self, row: InferenceFacts) -> tuple[int, int]:
        told = self._told.get(_key(row))
        return (0, 0) if told is None else told.records

    def _entries_in(self, batch: JobChanges) -> Iterator[tuple[str | None, Entry, bool]]:
        """Yield the ledger's entries in a batch: the log, what is said, and whether it follows from the log's bytes."""
        for change in batch.changes:
            match change:
                case PlainLogs():
                    self._count_plain(batch.job, change)
                case ContentLedger():
                    self._take_back(batch.job, change)
                    yield from ((change.path, entry, True) for entry in change.entries)
                case LinkLedger():
                    yield change.path, change.entry, False

    def _tell_entry(self, job: str, path: str | None, entry: Entry, *, of_bytes: bool) -> Iterator[Event]:
        """Tell of an entry that was not told, unless it comes or came with its inference."""
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
        """Return what of the ledger is told with an inference: what was not told alone. It was counted."""
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
        """Count what the ledger says of inferences that came whole: it comes with these."""
        for kind, of_logs in change.entries.items():
            for log, entries in of_logs.items():
                data, _ = files_of(change.groups[change.places[kind][log]], kind)
                for entry in entries:
                    self._is_new((job, data.path, True), entry)

    def _take_back(self, job: str, change: ContentLedger) -> None:
        """Count no longer what the bytes of a log do not show any more, as layers without a name."""
        known = self._shown.get((job, change.path, True), {})
        reasons = {entry.reason for entry in change.entries}
        for reason in [each for each in known if each not in reasons]:
            self._count(known[reason], -known.pop(reason).count)

    def _is_new(self, key: tuple[str, str | None, bool], entry: Entry) -> bool:
        """Return True if an entry was not told as it is; it counts from now on."""
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
