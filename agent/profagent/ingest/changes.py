"""Changes: the meaning of the bytes of a collection's logs for the rows of the database.

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
    """Progress of a log: its bytes up to `offset` are committed with this batch; a complete log has its `digest`."""

    path: str
    generation: int
    offset: int
    complete: bool = False
    digest: bytes | None = None


class NamesAnnounced(Struct, frozen=True):
    """Logs of which the board has announced only the names.

    Every log that was made before them was announced before, or is among them.
    """

    paths: Sequence[str]


class LogJudged(Struct, frozen=True):
    """Judgement on an aicore or aicpu log: how many of its inferences are complete, and a fault at its end, if any."""

    path: str
    whole: int
    fault: str


class LogReset(Struct, frozen=True):
    """Start of another generation of a log, which voids the log's rows."""

    path: str


class LogRemoved(Struct, frozen=True):
    """Removal of a log from the board; its copy stays."""

    path: str


class FrequencyKnown(Struct, frozen=True):
    """NPU clock from `info.json`, in MHz."""

    mhz: int


class ProfilingKnown(Struct, frozen=True):
    """Settings of the JOB's program: the sampling `interval`, None where unreadable, and the path of its file."""

    interval: int | None
    acl_json: str


class PassedOver(Struct, frozen=True):
    """Decision to skip a log of an inference: it gets no rows of its content."""

    path: str


class SimulatedKnown(Struct, frozen=True):
    """Marker file of the simulated board; `counter_map` and `digest` are those of the map for its records."""

    counter_map: str | None
    digest: str | None


class LayersKnown(Struct, frozen=True):
    """Layer table of a model."""

    model: str
    model_id: int
    table: LayerTable


class SegmentRecords(Struct, frozen=True):
    """Consecutive records of one aicore or aicpu log, the only one of `unit`, with their layers."""

    path: str
    name: LogName
    unit: Unit


class Redecoded(Struct, frozen=True):
    """Replacement of all rows of an aicore or aicpu log, from bytes that were decoded before.

    Its records stay with the sessions that fetched them. `records` is None where the log has no complete record.
    """

    path: str
    records: SegmentRecords | None


class PlainLogs(Struct, frozen=True):
    """Inferences that came complete, decoded together without an object for each: the way of most logs.

    Stands behind the other changes of its batch. Before it, only the names of the files were known.

    Attributes:
        groups: Files of each inference.
        units: Records of each unit that any of the inferences uses, with their layers.
        places: By unit, the index of the group of each of its logs, ascending.
        entries: By unit, the ledger's entries by index of the log, for logs that have any.
    """

    groups: Sequence[Group]
    units: Mapping[LogKind, Unit]
    places: Mapping[LogKind, NDArray[np.intp]]
    entries: Mapping[LogKind, Mapping[int, Sequence[Entry]]]

    def as_changes(self) -> Iterator[Change]:
        """Yield the same content as changes of one log after the other."""
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
    """Consecutive records of an acl_api log; `number` is the place of each in the file."""

    path: str
    name: LogName
    number: NDArray[np.int64]
    records: NDArray[Any]


class SourceRows(Struct, frozen=True):
    """Rows of a log for a table of its source's schema, without the columns `log` and `session`.

    With `anew` they replace all rows that the log had; else a row replaces one with the same key.
    """

    path: str
    table: str
    rows: Sequence[tuple[Any, ...]]
    anew: bool = False


class InferenceTimed(Struct, frozen=True):
    """Content of an aicore `.done`, for one load of its data; `done` None withdraws an earlier one."""

    name: LogName
    load: int
    done: Done | None


class ContentLedger(Struct, frozen=True):
    """All entries of the ledger that follow from a log's bytes; they replace those stored before.

    With `path` None they follow from the JOB's files together.
    """

    path: str | None
    entries: tuple[Entry, ...]


class LinkLedger(Struct, frozen=True):
    """Entry about the transfer, which is added to the ledger. `path` None: it is about the whole JOB."""

    path: str | None
    entry: Entry


class RecordedLoss(Struct, frozen=True):
    """Loss that the board's daemon keeps and sends on every stream, with its newest figures; None is unknown.

    `number` identifies it on its board. `job` is empty for a loss of the whole board. Times are the board's wall clock.
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
        """Values for JSON, with the column names of the view `kept_losses`."""
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
    | RecordedLoss
)


class JobChanges(Struct, frozen=True):
    """Changes of one JOB, to be applied in their order. `state` None leaves the JOB's state as it is.

    `caught_up`: everything that the JOB held when it reached the state has come. An empty `job` stands for the board
    itself, which can only have LinkLedger and RecordedLoss.
    """

    job: str
    directory: str
    changes: Sequence[Change]
    state: str | None = None
    caught_up: bool = False


def loss_change(job: str, path: str | None, loss: Loss) -> tuple[str, Change]:
    """Return the change for a Loss of the wire, and its JOB: a kept loss belongs to the board itself."""
    if loss.id:
        return "", _recorded(loss)
    return job, LinkLedger(path, loss_entry(loss.reason, loss.detail, loss.lost_bytes))


def _recorded(loss: Loss) -> RecordedLoss:
    """Return the change for a kept loss. A figure of 0 means unknown on the wire."""
    reason, detail = display_text(loss.reason)[:LONGEST_REASON], display_text(loss.detail)[:LONGEST_DETAIL]
    # Cut before the entry is made: the texts come from a board, and are compared with stored ones.
    entry = loss_entry(reason, detail, loss.lost_bytes)
    return RecordedLoss(
        loss.id,
        entry,
        loss.job_name if is_collection_name(loss.job_name) else "",
        lost_logs=loss.lost_logs or None,
        lost_bytes=loss.lost_bytes or None,
        from_us=loss.from_wall_us or None,
        to_us=loss.to_wall_us or None,
    )
