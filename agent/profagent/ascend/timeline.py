"""Timelines: JSON arrays of events, alone or as `traceEvents`, read piece by piece.

Memory does not grow with the file.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import msgspec

from profagent import ledger
from profagent.ascend.families import families
from profagent.ascend.kernels import WITH_TASKS, CallTotals, Kernels, TextColumn
from profagent.ascend.texts import NulBytes, decoded_events, event_times_ns
from profagent.errors import ResultError
from profagent.limits import LONGEST_EVENT_BYTES, LONGEST_OPENING_BYTES, TIMELINE_PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.ascend.draft import Draft
    from profagent.ledger import Entry

_BETWEEN = b" \t\r\n,"
# Each of several joined files keeps its byte order mark.
_BETWEEN_ARRAYS = _BETWEEN + BOM_UTF8
_ARRAY = re.compile(rb'\s*(?:\[|\{(?:.{0,65536}?,)??\s*"traceEvents"\s*:\s*\[)', re.DOTALL)
# Beginning of another array of events in an object that had one.
_ARRAY_AGAIN = re.compile(rb',\s*"traceEvents"\s*:\s*\[')
_STEP = re.compile(r"ProfilerStep#(\d+)")
# Name of a thread with a model's steps. In the form with a bracket, the lowest bits of the process are the device, and
# nothing else has it.
_MODEL = re.compile(r"Model ID(\)?):(\d+)")
_DEVICE = re.compile(r"NPU (\d+)")
_DEVICE_BITS = 0b11111
# Types of tasks that only wait for other tasks, or signal their end.
_NO_KERNELS = ("EVENT_", "NOTIFY_")
_CALLING_PROCESSES = frozenset({"CANN", "AscendCL", "GE", "Runtime", "Task Scheduler"})


class Arguments(msgspec.Struct, rename=None):
    """Members of an event's `args` that determine its meaning."""

    name: Any = None
    labels: Any = None
    task_type: Any = msgspec.field(default=None, name="Task Type")
    stream: Any = msgspec.field(default=None, name="Stream Id")
    physical_stream: Any = msgspec.field(default=None, name="Physic Stream Id")
    model: Any = msgspec.field(default=None, name="Model Id")
    iteration: Any = msgspec.field(default=None, name="Iteration ID")
    data_aug: Any = msgspec.field(default=None, name="Data_aug Bound(us)")


class Event(msgspec.Struct):
    """Event as far as it is understood; the text of the file is stored besides."""

    name: str = ""
    ph: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    cat: str = ""
    args: Arguments | None = None


_EVENTS: Final = msgspec.json.Decoder(list[Event])
# Stands for an event of another shape, which is stored as text and has no meaning.
_ODD: Final = Event()
_ANY: Final = msgspec.json.Decoder(list[Any])
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MALFORMED = re.compile(r"malformed: (.*) \(byte (\d+)\)")


def is_timeline(beginning: bytes) -> bool:
    """Return True if a file that begins with these bytes is an array of events, or contains one."""
    found = _ARRAY.match(beginning)
    if found is None:
        return False
    rest = beginning[found.end() :].lstrip()
    # The first event may be longer than the bytes that were read.
    is_long = b'"args"' in rest and not _whole_events(rest)[0]
    return rest[:1] == b"]" or (rest[:1] == b"{" and (b'"ph"' in rest or is_long))


class _TextPlace(NamedTuple):
    """Place in a file; columns and the offset count bytes."""

    line: int = 1
    column: int = 1
    offset: int = 0

    def behind(self, text: bytes) -> _TextPlace:
        """Return the place after a text that begins here."""
        lines, size = text.count(b"\n"), len(text)
        column = size - text.rfind(b"\n") if lines else self.column + size
        return _TextPlace(self.line + lines, column, self.offset + size)


class _TimelineText:
    """Text of a file from `place` on, as far as it was read; `is_whole` is True at the end of the file.

    NUL bytes, which JSON cannot have, are read as spaces.
    """

    def __init__(self, data: BinaryIO) -> None:
        self._data = data
        # Bytes that were read and not dropped; `place` is the place of the first one.
        self.held = b""
        self.place = _TextPlace()
        self.is_whole = False
        self.nuls = NulBytes()

    def read(self) -> None:
        """Append another piece of the file to `held`."""
        more = self._data.read(TIMELINE_PIECE_BYTES)
        self.is_whole = not more
        self.held += self.nuls.without(more, self.place.offset + len(self.held), b" ")

    def drop(self, size: int) -> None:
        """Remove this number of bytes from the beginning of `held`."""
        self.place, self.held = self.place.behind(self.held[:size]), self.held[size:]

    def strip(self, between: bytes) -> None:
        """Remove the bytes between two events, or between two arrays of events."""
        self.drop(len(self.held) - len(self.held.lstrip(between)))


class EventPieces:
    """Events of a file, from all arrays that stand one after another in it.

    An iteration yields whole events: their text as a JSON array of about TIMELINE_PIECE_BYTES, and the decoded
    events. It raises ResultError at a damage, after the events before that. Afterwards `arrays` is the number of
    arrays, `members` has the names of other members of objects with events, and `nuls` counts NUL bytes.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._text: _TimelineText
        self.arrays = 0
        self.members: dict[str, None] = {}
        self.nuls = NulBytes()

    def __iter__(self) -> Iterator[tuple[str, list[Event]]]:
        """Yield the pieces of the file from its beginning."""
        with self._file.open("rb") as data:
            self._text = _TimelineText(data)
            self.nuls = self._text.nuls
            while (is_in_object := self._open_array()) is not None:
                self.arrays += 1
                yield from self._events()
                while is_in_object and self._open_further_array():
                    self.arrays += 1
                    yield from self._events()

    def _open_array(self) -> bool | None:
        """Drop everything up to the events of the next array.

        Returns True if an object contains the array, False if not, and None at the end of the file.
        """
        text = self._text
        text.strip(_BETWEEN_ARRAYS)
        while len(text.held) < LONGEST_OPENING_BYTES and not text.is_whole:
            text.read()
            text.strip(_BETWEEN_ARRAYS)
        start = _ARRAY.match(text.held)
        if start is not None:
            is_in_object = start[0].startswith(b"{")
            if is_in_object:
                self._note_members(start[0] + b"]}")
            text.drop(start.end())
            return is_in_object
        if text.held or not self.arrays:
            follows = "what follows the end of its events is no array of events"
            raise self._damage(_EventsEnd(0, follows if self.arrays else "it has no array of events"), 0)
        return None

    def _events(self) -> Iterator[tuple[str, list[Event]]]:
        text = self._text
        while True:
            # The comma before an event may arrive with the next piece only.
            text.strip(_BETWEEN)
            cut, events_text, events = _whole_events(text.held)
            end = None if cut else _end_of_events(text.held)
            if end is not None:
                cut, events_text, events = _whole_events(text.held[: end.at])
            elif not cut and text.is_whole:
                end = _EventsEnd(len(text.held), "the file is cut off in the middle of its events")
            elif not cut and len(text.held) > LONGEST_EVENT_BYTES:
                end = _EventsEnd(0, "what begins here is no event: it has no end")
            if cut:
                yield f"[{events_text}]", events
            if end is not None and end.damage:
                raise self._damage(end, cut)
            text.drop(cut if end is None else end.at)
            if end is not None:
                return
            text.read()

    def _open_further_array(self) -> bool:
        """Drop the rest of an object up to further events, and return True if it has any.

        Returns False at the end of the object.
        """
        text, begin = self._text, b'{"":0'
        while True:
            for found in _ARRAY_AGAIN.finditer(text.held):
                before = begin + text.held[: found.start()] + b"}"
                if _end_of_object(before) == (len(before), ""):
                    self._note_members(before)
                    text.drop(found.end())
                    return True
            size, damage = _end_of_object(begin + text.held)
            if damage == _CUT_OFF and not text.is_whole and len(text.held) <= LONGEST_EVENT_BYTES:
                text.read()
                continue
            if damage:
                raise self._damage(_EventsEnd(size - len(begin), damage), size - len(begin))
            self._note_members(begin + text.held[: size - len(begin)])
            text.drop(size - len(begin))
            return False

    def _note_members(self, of_object: bytes) -> None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            self.members |= dict.fromkeys(_MEMBERS.decode(of_object))

    def _damage(self, end: _EventsEnd, read: int) -> ResultError:
        """Return the error for a damage at `end`, where `read` bytes of the held text could be read."""
        line, column, _ = self._text.place.behind(self._text.held[: end.at])
        size, offset = self._file.stat().st_size, self._text.place.offset + read
        what = f"column {column}: {end.damage}: {size - offset:,} bytes from byte {offset:,} on are not read"
        return ResultError(self._file, line, what, unread=(offset, size, max(size - offset, 1)))


def import_timeline(draft: Draft, log: int, file: Path, *, wants: Sequence[str]) -> None:
    """Add the events of a timeline to the draft. `wants` names the figures to make: kernels, steps or calls.

    Raises ResultError as `EventPieces` does.
    """
    meaning, pieces = _TimelineFigures(draft, log, wants), EventPieces(file)
    count = 0
    try:
        for text, events in pieces:
            draft.add_block(log, count + 1, len(events), text)
            count += len(events)
            meaning.take(events)
    finally:
        meaning.end()
        for entry in _entries(meaning, pieces, count):
            draft.note(log, entry)
        family = families().of_events(meaning.processes.values(), meaning.categories, file.name)
        draft.end_file(log, "timeline", None if family is None else family.name, (), count)


def _entries(meaning: _TimelineFigures, pieces: EventPieces, count: int) -> Iterator[Entry]:
    if meaning.odd:
        what = f"{meaning.odd:,} of {count:,} events, which are kept: they have a shape that no known tool writes"
        yield ledger.entry(ledger.NOT_COUNTED, what, count=meaning.odd)
    members = [name for name in pieces.members if name not in ("", "traceEvents")]
    if members:
        what = f"what it has beside its events is not taken: {', '.join(members)}"
        yield ledger.entry(ledger.NOT_COUNTED, what, count=len(members))
    if pieces.arrays > 1:
        what = f"{pieces.arrays} arrays of events stand one behind another: all are read"
        yield ledger.entry(ledger.JOINED_RESULT, what, count=pieces.arrays)
    yield from pieces.nuls.entries()


class _TimelineFigures:
    """Kernels, steps and calls that the events of a timeline stand for."""

    def __init__(self, draft: Draft, log: int, wants: Sequence[str]) -> None:
        # Names of processes by their number, categories of events, and the number of events that no known tool writes.
        self.processes: dict[Any, str] = {}
        self.categories: set[str] = set()
        self.odd = 0
        self._draft, self._log, self._wants = draft, log, wants
        # Number, total time and longest time of calls, by name and process.
        self._calls: dict[tuple[str, str | None], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        # Model whose steps a thread shows, by process and thread; device of each process.
        self._models: dict[tuple[Any, Any], str] = {}
        self._devices: dict[Any, str] = {}
        # Times of the parts of each step in µs, by process, thread, model and number, for example
        # {"": 852.0, "Computing": 812.0, "Free": 40.0}, where "" is the whole step.
        self._steps: dict[tuple[Any, Any, str, str], dict[str, float]] = defaultdict(dict)
        # Part of a step by the category of the events that show it, as the families' documents call both.
        self._parts = {alias: name for name, aliases in families().steps.items() for alias in aliases}

    def take(self, events: Sequence[Event]) -> None:
        """Add events to the figures."""
        tasks: list[Event] = []
        calls: dict[tuple[str, str | None], list[Any]] = defaultdict(list)
        self.categories.update({event.cat for event in events})
        for event in events:
            args = event.args
            if event.ph == "X":
                process = self.processes.get(event.pid)
                if args is not None and args.task_type is not None and process in WITH_TASKS:
                    if not str(args.task_type).startswith(_NO_KERNELS):
                        tasks.append(event)
                elif process in _CALLING_PROCESSES or (process is None and "@" in event.name):
                    calls[event.name, process].append(event.dur)
                else:
                    self._take_step(event)
            elif args is not None:
                self._take_other(event, args)
            elif event is _ODD:
                self.odd += 1
        if tasks and "kernels" in self._wants:
            self._draft.add_kernels(self._log, _kernels(tasks, self._devices))
        for call, durations in calls.items():
            self._take_calls(call, durations)

    def _take_step(self, event: Event) -> None:
        if event.cat in self._parts and event.args is not None and event.args.iteration is not None:
            self._step(event, str(event.args.iteration))[self._parts[event.cat]] = _us(event.dur)
        elif event.name.startswith("ProfilerStep#") and (found := _STEP.match(event.name)):
            # Other threads show the step as well, but no longer than its own thread does.
            parts = self._steps[None, None, "", found[1]]
            parts[""] = max(parts.get("", 0.0), _us(event.dur))

    def _step(self, event: Event, number: str) -> dict[str, float]:
        # A thread may show the steps of another model later, so the model of this time is part of the key.
        return self._steps[event.pid, event.tid, self._models.get((event.pid, event.tid), ""), number]

    def _take_other(self, event: Event, about: Arguments) -> None:
        if event.ph == "M" and event.name == "process_name":
            self.processes[event.pid] = str(about.name)
        elif event.ph == "M" and event.name == "thread_name" and (found := _MODEL.search(str(about.name))):
            self._models[event.pid, event.tid] = found[2]
            if found[1] and isinstance(event.pid, int):
                self._devices.setdefault(event.pid, str(event.pid & _DEVICE_BITS))
        elif event.ph == "M" and event.name == "process_labels" and (found := _DEVICE.fullmatch(str(about.labels))):
            self._devices[event.pid] = found[1]
        elif about.data_aug is not None and event.cat == "Data_aug Bound":
            self._step(event, event.name.split()[-1])["Data Aug Bound"] = _us(about.data_aug)

    def _take_calls(self, call: tuple[str, str | None], durations: Sequence[Any]) -> None:
        if not {*map(type, durations)} <= {int, float}:
            durations = [_us(duration) for duration in durations]
        known = self._calls[call]
        known[0] += len(durations)
        known[1] += sum(durations)
        known[2] = max(known[2], *durations)

    def end(self) -> None:
        """Add the steps and calls to the draft: all events were taken."""
        if "steps" in self._wants:
            for (pid, tid, model, step), parts in self._steps.items():
                of = model or self._models.get((pid, tid), "")
                self._draft.add_step(self._log, step, parts, of, self._devices.get(pid, ""))
        if "calls" in self._wants:
            for (full_name, process), (count, total, most) in self._calls.items():
                level, at, name = full_name.rpartition("@")
                called = CallTotals(name, level if at else str(process), int(count), total, total / count, most)
                self._draft.add_calls(called)


def _kernels(tasks: Sequence[Event], devices: Mapping[Any, str]) -> Kernels:
    """Return tasks of devices as kernels; without a stream, the row that shows a task stands for it."""
    about = [task.args or Arguments() for task in tasks]
    streams = [each.physical_stream if each.stream is None else each.stream for each in about]
    return Kernels(
        TextColumn.of([task.name for task in tasks]),
        TextColumn.of([str(each.task_type) for each in about]),
        event_times_ns([task.ts for task in tasks]),
        event_times_ns([task.dur for task in tasks]),
        TextColumn.of([devices.get(task.pid, "") for task in tasks]),
        TextColumn.of(
            [str(task.tid if stream is None else stream) for task, stream in zip(tasks, streams, strict=True)]
        ),
        TextColumn.of(["" if each.model is None else str(each.model) for each in about]),
        TextColumn.same("", len(tasks)),
    )


def _whole_events(held: bytes) -> tuple[int, str, list[Event]]:
    for cut in _cuts(held):
        try:
            return cut, held[:cut].decode(), decoded_events(b"[%b]" % held[:cut], _EVENTS, _ODD)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # The bracket was inside a text or a list: the next cut is further to the front.
            continue
    return 0, "", []


def _cuts(held: bytes) -> Iterator[int]:
    end = len(held)
    # After this many tries, the beginning of the text is likely to be one long event.
    for _ in range(64):
        comma = held.rfind(b"}", 0, end)
        if comma < 0:
            return
        yield comma + 1
        end = comma


class _EventsEnd(NamedTuple):
    """Place after which no further event can be; `damage` is empty at the regular end of the array."""

    at: int
    damage: str = ""


def _end_of_events(held: bytes) -> _EventsEnd | None:
    """Return the end of the events, or None if more of the file may have further ones."""
    end = None
    try:
        held.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            end = _EventsEnd(error.start, "it is not UTF-8: save it as UTF-8")
            held = held[: error.start]
    try:
        _ANY.decode(b"[" + held)
    except msgspec.DecodeError as error:
        found = _MALFORMED.search(str(error))
        at = len(held) if found is None else int(found[2]) - 1
        if found is not None and found[1] == "trailing characters":
            # msgspec counts the bytes of trailing characters from 1.
            return _EventsEnd(at - 1)
        # A number that is cut off at the end of the text is reported as malformed, too.
        return end if found is None or at == len(held) else _EventsEnd(at, f"it is no JSON any more: {found[1]}")
    return _EventsEnd(len(held))


_CUT_OFF = "the file is cut off behind its events"


def _end_of_object(text: bytes) -> tuple[int, str]:
    """Return the length of the object that the text begins with, or the place and description of its damage."""
    try:
        _MEMBERS.decode(text)
    except msgspec.DecodeError as error:
        found = _MALFORMED.search(str(error))
        if found is None or int(found[2]) == len(text):
            return len(text), _CUT_OFF
        if found[1] == "trailing characters":
            return int(found[2]) - 1, ""
        return int(found[2]), f"what follows its events is no JSON: {found[1]}"
    except UnicodeDecodeError:
        return len(text), "what follows its events is not UTF-8"
    return len(text), ""


def _us(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
