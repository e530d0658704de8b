"""What the bytes of a collection's logs mean for its rows.

A path is a log's path inside its JOB directory, as `os.fsdecode` gives it. Times are board microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from profagent.formats.names import LogKind, display_text, is_collection_name
from profagent.ledger import Entry, loss_entry
from profagent.limits import LONGEST_DETAIL, LONGEST_REASON

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from profagent.formats.board_files import Done
    from profagent.formats.model_info import LayerTable
    from profagent.formats.names import LogName
    from profagent.formats.records import Unit
    from profagent.ingest.feed import Group, WholeFile
    from profagent.link.messages import Loss


class LogAdvanced(Struct, frozen=True):
    """The log's bytes up to `offset` are in this batch or were before; `digest` vouches for a complete log."""

    path: str
    generation: int
    offset: int
    complete: bool = False
    digest: bytes | None = None


class NamesAnnounced(Struct, frozen=True):
    """The board has told that there are such logs: all that was made before them was told before, or is told with them.

    Nothing is known of them but their names.
    """

    paths: Sequence[str]


class LogJudged(Struct, frozen=True):
    """How many of the inferences in an aicore or aicpu log are whole, and what is wrong with its end, if anything."""

    path: str
    whole: int
    fault: str


class LogReset(Struct, frozen=True):
    """The log's rows are void: another generation begins."""

    path: str


class LogRemoved(Struct, frozen=True):
    """The log is gone from the board; what was copied stays."""

    path: str


class FrequencyKnown(Struct, frozen=True):
    """The NPU's clock, from `info.json`."""

    mhz: int


class ProfilingKnown(Struct, frozen=True):
    """What the JOB's program was told to record: `interval`, None where it cannot be read, by a file of the board."""

    interval: int | None
    acl_json: str


class PassedOver(Struct, frozen=True):
    """A log of an inference is passed over on purpose: it has no rows of its content."""

    path: str


class SimulatedKnown(Struct, frozen=True):
    """The JOB carries the simulated board's marker file; `counter_map` names the map it is decoded with.

    `digest` is that map's.
    """

    counter_map: str | None
    digest: str | None


class LayersKnown(Struct, frozen=True):
    """The layer table of a model."""

    model: str
    model_id: int
    table: LayerTable


class SegmentRecords(Struct, frozen=True):
    """Consecutive records of an aicore or aicpu log, which is the only one of `unit`; their layers were looked up."""

    path: str
    name: LogName
    unit: Unit


class Redecoded(Struct, frozen=True):
    """All rows of an aicore or aicpu log once more, from bytes that were decoded before; the earlier ones are void.

    Its records stay with the sessions that fetched them. `records` is None where there is no whole one.
    """

    path: str
    records: SegmentRecords | None


class PlainLogs(Struct, frozen=True):
    """Inferences that came whole, decoded together: what most logs mean, without an object for each.

    Stands behind the other changes of its batch. Nothing was known of the files but their names.

    Attributes:
        groups: Files of each inference.
        units: Records of each unit that any of the inferences uses, with their layers.
        places: By unit, the index of the group of each of its logs, ascending.
        entries: By unit, what the ledger says of logs, by the index of the log; only of those that are odd.
    """

    groups: Sequence[Group]
    units: Mapping[LogKind, Unit]
    places: Mapping[LogKind, NDArray[np.intp]]
    entries: Mapping[LogKind, Mapping[int, Sequence[Entry]]]

    def as_changes(self) -> Iterator[Change]:
        """Return the same as changes of one log after the other."""
        for kind, unit in self.units.items():
            for log, place in enumerate(self.places[kind].tolist()):
                entries = tuple(self.entries[kind].get(log, ()))
                yield from _changes_of_log(self.groups[place], kind, unit.one(log), entries)


def files_of(group: Group, kind: LogKind) -> tuple[WholeFile, WholeFile]:
    """Return the log of a unit that an inference uses, and its `.done`."""
    data, done = (group.aicore, group.aicore_done) if kind is LogKind.AICORE else (group.aicpu, group.aicpu_done)
    assert data is not None, "the inference uses the unit"
    assert done is not None, "a log of a group has a .done"
    return data, done


def _changes_of_log(group: Group, kind: LogKind, unit: Unit, entries: tuple[Entry, ...]) -> Iterator[Change]:
    data, done = files_of(group, kind)
    yield LogReset(data.path)
    yield LogAdvanced(data.path, data.generation, len(data.data), complete=True, digest=data.digest)
    yield SegmentRecords(data.path, replace(group.name, kind=kind), unit)
    if kind is LogKind.AICORE:
        yield InferenceTimed(group.name, 0, done.done)
    yield LogJudged(data.path, 1, "")
    yield ContentLedger(data.path, entries)
    yield LogAdvanced(done.path, done.generation, len(done.data), complete=True, digest=done.digest)


class ApiRecords(Struct, frozen=True):
    """Consecutive records of an acl_api log; `number` is each one's place in the file."""

    path: str
    name: LogName
    number: NDArray[np.int64]
    records: NDArray[Any]


class SourceRows(Struct, frozen=True):
    """Rows of a log for a table that its source's schema made, behind the columns `log` and `session`.

    `anew`: those that the log had before are void; else one takes the place of one with the same key.
    """

    path: str
    table: str
    rows: Sequence[tuple[Any, ...]]
    anew: bool = False


class InferenceTimed(Struct, frozen=True):
    """The aicore `.done` speaks about this load of its data; `done` None takes back what an earlier one said."""

    name: LogName
    load: int
    done: Done | None


class ContentLedger(Struct, frozen=True):
    """Everything odd in a log's bytes as known now; it replaces what was said of this log before.

    `path` None: what follows from the JOB's files together.
    """

    path: str | None
    entries: tuple[Entry, ...]


class LinkLedger(Struct, frozen=True):
    """Something that happened on the way; it is added. `path` None: about the whole JOB."""

    path: str | None
    entry: Entry


class KeptLoss(Struct, frozen=True):
    """A loss that the board's daemon keeps and tells on every stream, with its newest figures; None is not known.

    `number` names it on its board. `job` is empty when it is about the whole board. Times are the board's wall clock.
    """

    number: int
    entry: Entry
    job: str = ""
    lost_logs: int | None = None
    lost_bytes: int | None = None
    from_us: int | None = None
    to_us: int | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Its values for JSON, named as the columns of the view `kept_losses`."""
        figures = {name: getattr(self, name) for name in ("lost_logs", "lost_bytes", "from_us", "to_us")}
        return {"job": self.job or None, "reason": self.entry.reason, "detail": self.entry.detail, **figures}


Change = (
    LogAdvanced
    | NamesAnnounced
    | LogJudged
    | LogReset
    | LogRemoved
    | FrequencyKnown
    | ProfilingKnown
    | PassedOver
    | SimulatedKnown
    | LayersKnown
    | SegmentRecords
    | Redecoded
    | PlainLogs
    | ApiRecords
    | SourceRows
    | InferenceTimed
    | ContentLedger
    | LinkLedger
    | KeptLoss
)


class JobChanges(Struct, frozen=True):
    """Changes of one JOB, in the order in which they are to be applied. `state` None leaves it as it is.

    `caught_up`: all that the JOB held when it reached that state has come. An empty `job` stands for the board itself,
    of which only a LinkLedger and a KeptLoss can speak.
    """

    job: str
    directory: str
    changes: Sequence[Change]
    state: str | None = None
    caught_up: bool = False


def loss_change(job: str, path: str | None, loss: Loss) -> tuple[str, Change]:
    """What a Loss of the wire means, and the JOB that it belongs to: a kept loss belongs to the board itself."""
    if loss.id:
        return "", _kept(loss)
    return job, LinkLedger(path, loss_entry(loss.reason, loss.detail, loss.lost_bytes))


def _kept(loss: Loss) -> KeptLoss:
    """A figure that is 0 is not known."""
    reason, detail = display_text(loss.reason)[:LONGEST_REASON], display_text(loss.detail)[:LONGEST_DETAIL]
    entry = loss_entry(reason, detail, loss.lost_bytes)
    return KeptLoss(
        loss.id,
        entry,
        loss.job_name if is_collection_name(loss.job_name) else "",
        lost_logs=loss.lost_logs or None,
        lost_bytes=loss.lost_bytes or None,
        from_us=loss.from_wall_us or None,
        to_us=loss.to_wall_us or None,
    )
