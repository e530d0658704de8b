"""Grouping of files: inferences that come complete are decoded together, everything else file by file.

A group is the files of one inference, all of them new and complete: the aicore log and its `.done`, and the aicpu log
and its `.done` if the inference has one. The names and sizes of the files promise that it is plain, so that its rows
follow from these files alone. Anything odd is no group and takes the general way, which handles every case. Everything
here is pure.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct

from profagent.errors import FormatError
from profagent.formats.board_files import parse_done
from profagent.formats.join import Joined, layers_of
from profagent.formats.names import DONE_SUFFIX, SIMULATED_MARKER, LogKind, LogName, display_text, parse_log_name
from profagent.formats.records import RECORD_BYTES, LogProgress, read_unit
from profagent.ingest.changes import PlainLogs, files_of
from profagent.ingest.logs import oddities
from profagent.limits import LARGEST_INTEGER, LARGEST_PLAIN_BYTES, MOST_NEW_LOGS
from profagent.link.messages import Chunk, Completed, Received, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from profagent.formats.board_files import Done
    from profagent.formats.countermap import CounterMap
    from profagent.formats.records import Unit
    from profagent.ingest.decode import Joins
    from profagent.ledger import Entry
    from profagent.link.messages import FollowedLog, LogEvent

# Places of an inference's files in the order of reading: each unit's data, then the `.done` that ends it.
AICORE, AICORE_DONE, AICPU, AICPU_DONE = range(4)
_PLACES = {"core": AICORE, "cpu": AICPU}
_WHOLE = (frozenset({AICORE, AICORE_DONE}), frozenset({AICORE, AICORE_DONE, AICPU, AICPU_DONE}))
_UNIT_FILE = re.compile(r"data/(?i:a[ai](core|cpu))(\..*?)(\.done)?", re.DOTALL)
_FIRST_KINDS = (LogKind.INFO_JSON, LogKind.NET_INFO, LogKind.LAYER_INFO)


class WholeFile(Struct):
    """Complete file. `digest` is the board's; `done` is the parsed content of a `.done`, None for any other file."""

    path: str
    generation: int
    data: bytes
    digest: bytes
    done: Done | None = None


class Group(Struct):
    """Files of one inference that may be plain; `name` is that of its aicore log."""

    name: LogName
    aicore: WholeFile
    aicore_done: WholeFile
    aicpu: WholeFile | None = None
    aicpu_done: WholeFile | None = None

    @property
    def files(self) -> list[WholeFile]:
        """Two or four files of the inference, in the order in which they are read."""
        every = (self.aicore, self.aicore_done, self.aicpu, self.aicpu_done)
        return [file for file in every if file is not None]


def group_of(name: LogName, files: Sequence[WholeFile]) -> Group | None:
    """Return the group of an inference's two or four files, in their order; None if one of them looks odd.

    `name` is that of the aicore log. Sets `done` of the `.done` files.
    """
    if name.current_pic_count is None or name.current_pic_count > LARGEST_INTEGER:
        return None
    for data, done, kind in zip(files[::2], files[1::2], (LogKind.AICORE, LogKind.AICPU), strict=False):
        if not _is_plain(data, done, kind):
            return None
    return Group(name, *files)


def _is_plain(data: WholeFile, done: WholeFile, kind: LogKind) -> bool:
    """Return True if a unit's data is as long as its own `.done` announces, and both names are plain text."""
    size = len(data.data)
    if (data.generation, done.generation) != (1, 1) or display_text(data.path) != data.path:
        return False
    if done.path != data.path + DONE_SUFFIX:
        return False
    if not 0 < size <= LARGEST_PLAIN_BYTES or size % RECORD_BYTES[kind] or len(done.data) > LARGEST_PLAIN_BYTES:
        return False
    try:
        done.done = parse_done(done.data, kind, done.path)
    except FormatError:
        return False
    return done.done.file_len == size


# A directory: the order in which its files are read


class Reading(NamedTuple):
    """Files of a directory that are read one after the other.

    `name` is that of an inference's aicore log if these are all of its files, so that they may be a group; else None.
    """

    paths: tuple[str, ...]
    name: LogName | None = None


def reading_order(paths: Iterable[str]) -> list[Reading]:
    """Return the files of a JOB in reading order: those that name and time records, others, then inferences.

    The files of an inference stand together, so that no figure of it is judged before all of them are read.
    """
    first: list[str] = []
    others: list[str] = []
    inferences: dict[str, list[tuple[int, str]]] = {}
    for path in sorted(paths):
        if (unit := _UNIT_FILE.fullmatch(path)) is not None:
            inferences.setdefault(unit[2], []).append((_place(unit), path))
        else:
            (first if _comes_first(path) else others).append(path)
    return [
        *(Reading((path,)) for path in (*first, *others)),
        *(_reading(rest, sorted(files)) for rest, files in inferences.items()),
    ]


def _reading(rest: str, files: Sequence[tuple[int, str]]) -> Reading:
    places = [place for place, _ in files]
    is_whole = len(set(places)) == len(places) and frozenset(places) in _WHOLE
    # The names of an inference's logs share all of their fields, so one is parsed for all.
    name = parse_log_name(f"data/aicore{rest}") if is_whole else None
    return Reading(tuple(path for _, path in files), name)


def _place(unit: re.Match[str]) -> int:
    return _PLACES[unit[1].lower()] + (unit[3] is not None)


def _comes_first(path: str) -> bool:
    name = parse_log_name(path)
    return path == SIMULATED_MARKER or (name is not None and name.kind in _FIRST_KINDS)


# A stream: which inferences came whole in one batch


class Arrival(NamedTuple):
    """Group that came complete, and an event for each of its files: a `Started` with the file's whole content.

    `received` has the order of `group.files`. To give up the group, pass these events to the general way.
    """

    group: Group
    received: tuple[Received, ...]


class _NewLog(NamedTuple):
    inference: tuple[str, str]  # JOB, and what the names of the inference's logs share
    place: int


class Feed:
    """Finder of inferences that come complete and new within one batch of a stream.

    A log is new if nothing of it was stored when it was announced. Handles belong to one stream.
    """

    def __init__(self, most: int = MOST_NEW_LOGS) -> None:
        """Set the largest number of new logs to remember."""
        self._most = most
        # By handle, announced new logs of units for which no event has come.
        self._new: dict[int, _NewLog] = {}
        # Inferences with an announced aicpu file, until their aicore log comes: without that file they are incomplete.
        self._on_cpu: set[tuple[str, str]] = set()

    def begin_stream(self) -> None:
        """Forget all logs, because a new stream has handles of its own."""
        self._new.clear()
        self._on_cpu.clear()

    def announce(self, log: FollowedLog, path: str, *, is_new: bool) -> None:
        """Note an announced log. `is_new`: nothing of it is stored, and it is to have rows."""
        self._new.pop(log.handle, None)
        unit = _UNIT_FILE.fullmatch(path)
        if unit is None:
            return
        inference, place = (log.job, unit[2]), _place(unit)
        if place in (AICPU, AICPU_DONE):
            self._on_cpu.add(inference)
        if is_new:
            # Forgetting is harmless: the logs then take the general way.
            if len(self._new) >= self._most:
                self._new.clear()
            self._new[log.handle] = _NewLog(inference, place)

    def take(
        self, events: Sequence[Received], *, is_plain_allowed: Callable[[str], bool] = lambda _job: True
    ) -> tuple[dict[str, list[Arrival]], list[Received]]:
        """Return the groups that came complete in a batch, by JOB, and the other events in their order.

        `is_plain_allowed` returns True for a JOB that may have groups. After its first event no log is new.
        """
        came: dict[tuple[str, str], dict[int, list[Received]]] = {}
        for received in events:
            known = None if received.log is None else self._new.get(received.log.handle)
            if known is not None:
                came.setdefault(known.inference, {}).setdefault(known.place, []).append(received)
        allowed = {job: is_plain_allowed(job) for job, _ in came}
        arrivals: dict[str, list[Arrival]] = {}
        taken: set[int] = set()
        for inference, files in came.items():
            arrival = self._arrival(inference, files) if allowed[inference[0]] else None
            if arrival is not None:
                arrivals.setdefault(inference[0], []).append(arrival)
                taken.update(received.event.handle for received in arrival.received)
            if AICORE in files:
                self._on_cpu.discard(inference)
        self._forget(came.values())
        return arrivals, [each for each in events if each.log is None or each.log.handle not in taken]

    def _arrival(self, inference: tuple[str, str], files: dict[int, list[Received]]) -> Arrival | None:
        if files.keys() not in _WHOLE or (AICPU not in files and inference in self._on_cpu):
            return None
        name = parse_log_name(f"data/aicore{inference[1]}")
        pieces = [join_pieces(files[place]) for place in sorted(files)]
        events = [each for each in pieces if each is not None]
        if name is None or len(events) < len(pieces):
            return None
        group = group_of(name, [_whole_file(each) for each in events])
        return None if group is None else Arrival(group, tuple(events))

    def _forget(self, came: Iterable[dict[int, list[Received]]]) -> None:
        for files in came:
            for received in files.values():
                for each in received:
                    self._new.pop(each.event.handle, None)


def join_pieces(pieces: Sequence[Received]) -> Received | None:
    """Join the events of one log into one with its whole content; None unless they are its first generation.

    They are one `Started` with a digest, or a `Started`, the `Chunk`s that follow it and a `Completed`.
    """
    first, last = pieces[0].event, pieces[-1].event
    if not isinstance(first, Started) or (first.generation, first.offset) != (1, 0):
        return None
    if len(pieces) == 1:
        return pieces[0] if first.digest else None
    if first.digest or not isinstance(last, Completed):
        return None
    data = _followed(first, [each.event for each in pieces[1:-1]])
    # Another handle is another log, whose name differs in spelling only.
    if data is None or (last.handle, last.generation, last.size) != (first.handle, 1, len(data)):
        return None
    whole = Started(first.handle, 1, 0, first.reason, data, last.digest)
    return Received(pieces[-1].job, pieces[-1].log, whole)


def _followed(first: Started, events: Sequence[LogEvent]) -> bytes | None:
    parts, size = [first.data], len(first.data)
    for event in events:
        if not isinstance(event, Chunk) or (event.handle, event.generation, event.offset) != (first.handle, 1, size):
            return None
        parts.append(event.data)
        size += len(event.data)
    return b"".join(parts)


def _whole_file(received: Received) -> WholeFile:
    log, event = received.log, received.event
    assert log is not None, "a log of an inference"
    assert isinstance(event, Started), "it came whole"
    return WholeFile(os.fsdecode(log.path), event.generation, event.data, event.digest)


# Groups as columns

_TIMES = ("begin_us", "end_us", "segment_start_us", "segment_end_us")


def decode_groups(
    groups: Sequence[Group], joins: Joins, counter_map: CounterMap | None
) -> tuple[PlainLogs | None, Sequence[Group]]:
    """Decode inferences that came complete; return the plain ones, and the groups that turn out not to be plain.

    A group is not plain if one of its logs has more than one load, or times that the database cannot hold. The first
    result is None where no group is plain.
    """
    places = {LogKind.AICORE: [*range(len(groups))]}
    places[LogKind.AICPU] = [place for place, group in enumerate(groups) if group.aicpu is not None]
    units = {kind: _unit([groups[place] for place in of], kind, counter_map) for kind, of in places.items() if of}
    odd = {places[kind][log] for kind, unit in units.items() for log in _odd_logs(unit)}
    if odd:
        # Records of odd groups are mixed with the others, so these are decoded once more. That is rare.
        plain, _ = decode_groups([group for place, group in enumerate(groups) if place not in odd], joins, counter_map)
        return plain, [groups[place] for place in sorted(odd)]
    if not groups:
        return None, ()
    entries: dict[LogKind, dict[int, list[Entry]]] = {}
    for kind, unit in units.items():
        unit.columns["layer_index"] = layers_of(unit, [_joined(groups[place], kind, joins) for place in places[kind]])
        entries[kind] = {log: [each.entry for each in found] for log, found in oddities(unit).items()}
    return PlainLogs(groups, units, {kind: np.array(places[kind], np.intp) for kind in units}, entries), ()


def _unit(groups: Sequence[Group], kind: LogKind, counter_map: CounterMap | None) -> Unit:
    return read_unit(
        kind, [files_of(group, kind)[0].data for group in groups], LogProgress.new(len(groups)), counter_map
    )


def _odd_logs(unit: Unit) -> set[int]:
    odd = {*(unit.after.loads > 1).nonzero()[0].tolist()}
    if unit.kind is LogKind.AICPU:
        is_late = np.any([unit.columns[name] > LARGEST_INTEGER for name in _TIMES], axis=0)
        odd.update(unit.seg_log[unit.segment[is_late]].tolist())
    return odd


def _joined(group: Group, kind: LogKind, joins: Joins) -> Joined:
    name, (_, done) = group.name, files_of(group, kind)
    online = done.done.online_batch_num if done.done is not None else ()
    return Joined(joins.of(name), name.batch_num or 0, name.input_pic_num or 0, online)
