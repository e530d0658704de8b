"""Sources of data on the host: one `Source`, beside its decoder, answers all questions of other modules about it.

A new source is a module with a `Source` and a line of SOURCES. Its rows are then counted, and shown on the screen, in a
replay, in traces, in the report, by Prometheus and in Parquet files. Logs of an unknown source are mirrored and
counted, and the ledger has a note.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache

from profagent import ledger
from profagent.formats.names import LogKind, is_job_name
from profagent.ingest.changes import ContentLedger, SourceRows
from profagent.ingest.decoder import Decoder
from profagent.limits import NAMED_LOGS
from profagent.link.messages import JOB_SOURCE

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from profagent.ingest.changes import Change
    from profagent.ledger import Entry

# Module and name of each source by its name on the wire; a source is loaded when it is first needed.
SOURCES = {
    JOB_SOURCE: "profagent.ingest.decode:SOURCE",
    "marks": "profagent.ingest.marks:SOURCE",
    "ops": "profagent.ingest.ops:SOURCE",
    "metrics": "profagent.ingest.metrics:SOURCE",
}
# Sources that no board sends: an import alone fills their tables.
IMPORTED = ("profagent.ascend.source:SOURCE",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEvents:
    """Slices and instants for traces and the report. Each field but `noun` is SQL over the columns of the view."""

    noun: str
    """the events in a sentence, as `subscribed operators`"""
    process: str
    track: str
    order: str
    """the order of tracks"""
    name: str
    category: str
    lane: str
    """the title of the lane in the report, which has slices alone"""
    start_us: str = "start_us"
    end_us: str = "end_us"
    start_rest_ns: str = "0"
    """nanoseconds beyond `start_us`, which then is a whole number, where it has no room for them"""
    end_rest_ns: str = "0"
    duration_us: str = "end_us - start_us"
    is_instant: str = "0"
    apart: str = "NULL"
    """slices of a track with another number here never share a row"""
    attributes: str = "'{}'"
    """a JSON object of arguments"""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """further arguments by name; NULL is left out"""
    executes: str = "NULL"
    """the JOB, model and id, as a JSON array, of which a slice executes an inference; NULL for other slices"""
    is_async: str = "0"
    """True for a slice that may end before the inference that it executes begins"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCounters:
    """Counters that change by themselves. Each field but `is_object` is SQL over the columns of the view."""

    process: str
    """the title of their group in a trace"""
    name: str = "name"
    unit: str = "unit"
    time_us: str = "time_us"
    rest_ns: str = "0"
    """nanoseconds beyond `time_us`, as of DrawnEvents"""
    value: str = "value"
    is_object: bool = False
    """True where a value is a JSON object: its numbers are drawn as one counter, which only traces have"""
    order: str = "NULL"
    """the order of rows, where that is not the view's"""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """View that the schema of a source creates.

    Columns are texts, except those in `_us`, which are microseconds and may have fractions, and those named here.
    """

    name: str
    whole: frozenset[str] = frozenset()
    """columns of integers, beside `session`"""
    fractions: frozenset[str] = frozenset()
    """columns of numbers with fractions"""
    unsigned: frozenset[str] = frozenset()
    """columns of integers up to 2^64 - 1, which the database has as texts where they are above 2^63 - 1"""
    mixed: frozenset[str] = frozenset()
    """columns of texts, where the database has numbers as well"""
    in_bytes: frozenset[str] = frozenset()
    """columns of bytes whose names do not tell it"""
    counted_as: str = ""
    """the rows in a line of counts, as `ops`; empty: not counted there"""
    is_own: bool = True
    """False for what the board measures by itself, whether a program runs or not"""
    unit: LogKind | None = None
    """the unit whose records these are: there may be millions, which are read by columns"""
    events: DrawnEvents | None = None
    counters: DrawnCounters | None = None


class DatedTable(NamedTuple):
    """Table whose rows came one after the other; `time_us` is SQL over its columns.

    `names` is a table of the same log whose rows explain the others' numbers: they come first.
    """

    name: str
    time_us: str
    names: str = ""


class CounterValue(NamedTuple):
    """Value of a counter. `series` is its name without the parts that each start of a program changes."""

    time_us: int
    name: str
    unit: str
    value: float
    series: str


class Span(NamedTuple):
    """Span of a program, in nanoseconds of the board's clock."""

    name: str
    begin_ns: int
    end_ns: int


class Instant(NamedTuple):
    """Instant of a program."""

    time_us: int
    text: str


class Marked(NamedTuple):
    """Mark or span of a program; `number` counts marks, `frame` and `captured_ns` are None where it gave none."""

    process: int
    thread: int
    lane: int
    is_mark: bool
    name: str
    begin_ns: int
    end_ns: int
    number: int = 0
    frame: int | None = None
    captured_ns: int | None = None


class Occurrence(NamedTuple):
    """Event among many similar ones, of which the rate is of interest."""

    start_us: int
    end_us: int


class Seen(NamedTuple):
    """Content of rows for an observer: the screen, its lines, Prometheus."""

    samples: Sequence[CounterValue] = ()
    spans: Sequence[Span] = ()
    instants: Sequence[Instant] = ()
    occurrences: Sequence[Occurrence] = ()
    framed: Sequence[Marked] = ()


class Headline(NamedTuple):
    """Figure of the board's line: the first known counter of these names.

    A name that ends with a dot stands for all names that begin so, of which the highest value is taken. `shown` is the
    figure in the line, with `{}` for the value in the format `value`.
    """

    counters: Sequence[str]
    shown: str
    value: str = "{:g}"

    def known(self, values: Mapping[str, float]) -> float | None:
        """Return the figure, given the values of counters; None where none of its counters is known."""
        for name in self.counters:
            if name.endswith("."):
                found = max((value for each, value in values.items() if each.startswith(name)), default=None)
            else:
                found = values.get(name)
            if found is not None:
                return found
        return None

    def text(self, value: float | None, unknown: str) -> str:
        """Return the text in the line for a value; `unknown` stands for one that is not known."""
        return self.shown.format(unknown if value is None else self.value.format(value))


class Reckoned(NamedTuple):
    """Log with the ledger's entries that follow from rows of several logs: session, JOB and entry of each."""

    log: int
    entries: Sequence[tuple[int, int, Entry]]


class Gathered(NamedTuple):
    """Events that the tables of a source have as texts, drawn by traces and the report.

    `gather` copies those of a session into temporary tables, on which the `views` are; it returns how many have no
    time.
    """

    gather: Callable[[sqlite3.Connection, int], int]
    views: Sequence[View]


NOTHING = Seen()
Names = Mapping[int, tuple[Any, ...]]  # the rows of a log's table of names, by number


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Answers of a source to all questions of other modules.

    `schema` is SQL that may run each time that a database is opened for writing. Each table begins with the columns
    `log` and `session`; a trigger of the schema empties it when `gc` deletes the row of `log`, or sets its generation
    to 0. `see` returns the content of a table's rows, given the names of their log. `headlines` are figures of the
    board's line and of its event, by their names there. `prominent` are parts of names of counters that people look at
    first. `reckon`, of a source beside JOBs, yields the entries of the ledger that follow from rows of several logs of
    a board, for each log whose entries have changed; its last argument is True when nothing more comes.
    """

    decoder: type[Decoder] = Decoder
    schema: str = ""
    views: Sequence[View] = ()
    dated: Sequence[DatedTable] = ()
    see: Callable[[Sequence[tuple[Any, ...]], Names], Seen] = lambda _rows, _names: NOTHING
    headlines: Mapping[str, Headline] = field(default_factory=dict)
    prominent: Sequence[str] = ()
    reckon: Callable[[sqlite3.Connection, int, bool], Iterable[Reckoned]] | None = None
    gathered: Gathered | None = None


def sources() -> list[Source]:
    """Return all sources: those that boards send, then those of imports."""
    return [*map(pkgutil.resolve_name, (*SOURCES.values(), *IMPORTED))]


def views() -> list[View]:
    """Return the views of all sources."""
    return [view for source in sources() for view in source.views]


def drawn_views(session: int, connection: sqlite3.Connection) -> tuple[list[View], int]:
    """Return all views that may have something to draw for a session, and how many events have no time.

    Views of gathered events exist on this connection only.
    """
    gathered = [source.gathered for source in sources() if source.gathered is not None]
    unplaced = sum(each.gather(connection, session) for each in gathered)
    return [*(view for each in gathered for view in each.views), *views()], unplaced


def schemas() -> list[str]:
    """Return the SQL of all sources that have some."""
    return [source.schema for source in sources() if source.schema]


def source_named(collection: str) -> str:
    """Return the name of a collection's source, by the collection's name; empty where no source here decodes it."""
    if is_job_name(collection):
        return JOB_SOURCE
    kind = collection.partition("-")[0]
    return kind.lower() if kind.isupper() and kind.lower() in SOURCES and kind.lower() != JOB_SOURCE else ""


def is_job(collection: str) -> bool:
    """Return True if a collection counts as a JOB: its name belongs to no other source."""
    return source_named(collection) in {"", JOB_SOURCE}


def decoder_of(source: str) -> type[Decoder]:
    """Return the decoder of a source; for an unknown source, the decoder that counts bytes."""
    place = SOURCES.get(source)
    if place is None:
        return Decoder
    found: Source = pkgutil.resolve_name(place)
    return found.decoder


def reckoners(
    collections: Iterable[str] | None = None,
) -> list[Callable[[sqlite3.Connection, int, bool], Iterable[Reckoned]]]:
    """Return `Source.reckon` of the sources that have it: of these collections, or of all."""
    names = SOURCES.keys() if collections is None else {*map(source_named, collections)} & SOURCES.keys()
    found: list[Source] = [pkgutil.resolve_name(SOURCES[name]) for name in sorted(names)]
    return [source.reckon for source in found if source.reckon is not None]


def without_rows(source: str, changes: Iterable[Change]) -> list[Change]:
    """Return changes without the rows of a source's own tables, but with rows that name what comes later."""
    # Names stay: without them a later capture of the same log could not read its rows.
    names = decoder_of(source).names_table
    return [each for each in changes if not isinstance(each, SourceRows) or each.anew or each.table == names]


def no_decoder(source: str) -> ContentLedger:
    """Return the note about a collection of an unknown source."""
    detail = f"no decoder for the source {source!r}: its logs are kept, not read"
    return ContentLedger(None, (ledger.entry(ledger.NO_DECODER, detail),))


class RowReader:
    """Reader of the rows of all sources as they come. It remembers the names with which logs begin."""

    def __init__(self) -> None:
        found = [(source, table) for source in sources() for table in source.dated]
        # Sources by their tables, and the tables of names.
        self._sources = {table.name: source for source, table in found}
        self._names_tables = {table.names for _, table in found if table.names}
        # Rows of names by collection and path.
        self._names: LRUCache[tuple[str, str], dict[int, tuple[Any, ...]]] = LRUCache(NAMED_LOGS)

    def read(self, collection: str, change: SourceRows) -> Seen | None:
        """Return the content of rows; None for names, and for rows that follow from all others of their log."""
        place = collection, change.path
        if change.table in self._names_tables:
            known = {} if change.anew else self._names.get(place, {})
            self._names[place] = known | {row[0]: row[1:] for row in change.rows}
            return None
        source = self._sources.get(change.table)
        return None if source is None or change.anew else source.see(change.rows, self._names.get(place, {}))


def headlines() -> dict[str, Headline]:
    """Return the figures of the board's line, by their names in its event."""
    return {name: headline for source in sources() for name, headline in source.headlines.items()}
