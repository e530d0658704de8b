"""Timelines: a JSON array of events, alone or as `traceEvents`, read piece by piece.

Memory does not grow with the file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from profagent.ascend.csv_rows import times_ns
from profagent.ascend.families import families
from profagent.ascend.kernels import NS_PER_US, Called, Kernels
from profagent.errors import ResultError
from profagent.store.database import LARGEST_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagent.ascend.draft import Draft

PIECE_BYTES = 1 << 20
_BETWEEN = b" \t\r\n,"
# No event comes near it: what is longer is no timeline.
LONGEST_EVENT_BYTES = 64 << 20
_ARRAY = re.compile(rb'\s*(?:\[|\{(?:.{0,65536}?,)?\s*"traceEvents"\s*:\s*\[)', re.DOTALL)
_STEP = re.compile(r"ProfilerStep#(\d+)")
_CALLING_PROCESSES = frozenset({"CANN", "AscendCL", "GE", "Runtime", "Task Scheduler"})
# By category of a step's event: its part's name, none for the whole.
_PARTS = {"Iteration Time": "", "FP_BP Time": "FP to BP", "Iteration Refresh": "Iteration Refresh"}
# A process whose name comes later is known by what its tasks tell.
_WITH_TASKS = (None, "Ascend Hardware")


class Arguments(msgspec.Struct, rename=None):
    """Those of an event's `args` that tell what it is."""

    name: Any = None
    task_type: Any = msgspec.field(default=None, name="Task Type")
    stream: Any = msgspec.field(default=None, name="Stream Id")
    physical_stream: Any = msgspec.field(default=None, name="Physic Stream Id")
    model: Any = msgspec.field(default=None, name="Model Id")
    iteration: Any = msgspec.field(default=None, name="Iteration ID")
    data_aug: Any = msgspec.field(default=None, name="Data_aug Bound(us)")


class Event(msgspec.Struct):
    """An event as far as it is understood; the file's own text of it is kept beside."""

    name: str = ""
    ph: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    cat: str = ""
    args: Arguments | None = None


_EVENTS: Final = msgspec.json.Decoder(list[Event])
# Where an event has another shape than all others: nothing of it is understood, and it is kept.
_ANY: Final = msgspec.json.Decoder(list[Any])


def is_timeline(beginning: bytes) -> bool:
    """Whether a file that begins so is an array of events, or has one."""
    found = _ARRAY.match(beginning)
    if found is None:
        return False
    rest = beginning[found.end() :].lstrip()
    return rest[:1] == b"]" or (rest[:1] == b"{" and b'"ph"' in rest[:65536])


def pieces(file: Path) -> Iterator[tuple[str, list[Event]]]:
    """Whole events as they stand in the file, a JSON array of about PIECE_BYTES at a time, and decoded.

    Raises ResultError at what is damaged, after what came before.
    """
    line = 1
    with file.open("rb") as data:
        held = data.read(PIECE_BYTES)
        start = _ARRAY.match(held)
        if start is None:
            raise ResultError(file, 1, "it has no array of events")
        line += held[: start.end()].count(b"\n")
        held = held[start.end() :]
        while True:
            more = data.read(PIECE_BYTES)
            # The comma before an event may come with the piece behind it.
            bare = held.lstrip(_BETWEEN)
            line += held[: len(held) - len(bare)].count(b"\n")
            held = bare
            cut, events = _whole_events(held, is_last=not more)
            if cut:
                yield f"[{_text(file, line, held[:cut])}]", events
                line += held[:cut].count(b"\n")
                held = held[cut:]
            if not more:
                _require_end(file, line, held)
                return
            if not cut and len(held) > LONGEST_EVENT_BYTES:
                raise ResultError(file, line, "what begins here is no event: it has no end")
            held += more


def import_timeline(draft: Draft, log: int, file: Path, *, wants: Sequence[str]) -> int:
    """Bring the events into the draft; returns how many. `wants` is which of kernels, steps and calls to make of them.

    Raises ResultError as `pieces`.
    """
    meaning = _Meaning(draft, log, wants)
    count = 0
    try:
        for text, events in pieces(file):
            draft.add_block(log, count + 1, len(events), text)
            meaning.take(events)
            count += len(events)
    finally:
        meaning.end()
        family = families().of_events(meaning.processes.values(), meaning.categories, file.name)
        draft.end_file(log, "timeline", "other" if family is None else family.name, (), count)
    return count


class _Meaning:
    """What of a timeline becomes kernels, steps and calls."""

    def __init__(self, draft: Draft, log: int, wants: Sequence[str]) -> None:
        self.processes: dict[Any, str] = {}
        self.categories: set[str] = set()
        self._draft, self._log, self._wants = draft, log, wants
        self._calls: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        self._steps: dict[str, dict[str, float]] = defaultdict(dict)

    def take(self, events: Sequence[Event]) -> None:
        """Further events."""
        tasks: list[Event] = []
        for event in events:
            if event.cat:
                self.categories.add(event.cat)
            if event.ph == "X":
                process = self.processes.get(event.pid)
                if event.args is not None and event.args.task_type is not None and process in _WITH_TASKS:
                    tasks.append(event)
                elif process in _CALLING_PROCESSES or (process is None and "@" in event.name):
                    self._take_call(event.name, process, event.dur)
                else:
                    self._take_step(event)
            elif event.args is not None:
                self._take_other(event, event.args)
        if tasks and "kernels" in self._wants:
            self._draft.add_kernels(self._log, _kernels(tasks))

    def _take_step(self, event: Event) -> None:
        if event.cat in _PARTS and event.args is not None:
            self._steps[f"step {event.args.iteration}"][_PARTS[event.cat]] = _us(event.dur)
        elif event.name.startswith("ProfilerStep#") and (found := _STEP.match(event.name)):
            self._steps[f"step {found[1]}"][""] = _us(event.dur)

    def _take_other(self, event: Event, about: Arguments) -> None:
        if event.ph == "M" and event.name == "process_name":
            self.processes[event.pid] = str(about.name)
        elif about.data_aug is not None and event.cat == "Data_aug Bound":
            self._steps[f"step {event.name.split()[-1]}"]["Data Aug Bound"] = _us(about.data_aug)

    def _take_call(self, full_name: str, process: str | None, duration: Any) -> None:
        level, at, name = full_name.rpartition("@")
        known = self._calls[name, level if at else str(process)]
        duration_us = _us(duration)
        known[0] += 1
        known[1] += duration_us
        known[2] = max(known[2], duration_us)

    def end(self) -> None:
        """All has come."""
        if "steps" in self._wants:
            for step, parts in self._steps.items():
                self._draft.add_step(step, parts)
        if "calls" in self._wants:
            for (name, level), (count, total, most) in self._calls.items():
                self._draft.add_calls(Called(name, level, int(count), total, total / count, most))


def _kernels(tasks: Sequence[Event]) -> Kernels:
    """Tasks of the device; where no stream is told it is the row that they are shown in."""
    about = [task.args or Arguments() for task in tasks]
    streams = [each.physical_stream if each.stream is None else each.stream for each in about]
    nothing = ("",) * len(tasks)
    return Kernels(
        [task.name for task in tasks],
        [str(each.task_type) for each in about],
        _times_ns([task.ts for task in tasks]),
        _times_ns([task.dur for task in tasks]),
        nothing,
        [str(task.tid if stream is None else stream) for task, stream in zip(tasks, streams, strict=True)],
        ["" if each.model is None else str(each.model) for each in about],
        nothing,
    )


def _whole_events(held: bytes, *, is_last: bool) -> tuple[int, list[Event]]:
    """How many bytes at the beginning are whole events, and these. A cut inside of a text or a list does not decode."""
    if is_last:
        end = held.rfind(b"]")
        while end >= 0:
            if (events := _decoded(held[:end])) is not None:
                return (end, events) if held[:end].strip() else (0, [])
            end = held.rfind(b"]", 0, end)
    for cut in _cuts(held):
        if (events := _decoded(held[:cut])) is not None:
            return cut, events
    return 0, []


def _cuts(held: bytes) -> Iterator[int]:
    """Places behind what may be an event, last first; after some tries what is left must be longer."""
    end = len(held)
    for _ in range(64):
        comma = held.rfind(b"}", 0, end)
        if comma < 0:
            return
        yield comma + 1
        end = comma


def _text(file: Path, line: int, events: bytes) -> str:
    try:
        return events.decode()
    except UnicodeDecodeError as error:
        raise ResultError(
            file, line + events[: error.start].count(b"\n"), "it is not UTF-8: save it as UTF-8"
        ) from error


def _decoded(text: bytes) -> list[Event] | None:
    try:
        return _EVENTS.decode(b"[" + text + b"]")
    except msgspec.ValidationError:
        try:
            return [Event() for _ in _ANY.decode(b"[" + text + b"]")]
        except msgspec.DecodeError:
            return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _require_end(file: Path, line: int, held: bytes) -> None:
    if held.strip()[:1] != b"]":
        raise ResultError(file, line + held.count(b"\n"), "the array of events ends in the middle of an event")


def _us(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _times_ns(values: Sequence[Any]) -> list[int]:
    """Whole nanoseconds of times in µs: of texts every digit counts. -1 where one is not known."""
    if all(isinstance(value, str) for value in values):
        return times_ns(values, NS_PER_US)
    return [_ns(value) for value in values]


def _ns(value: Any) -> int:
    if isinstance(value, (int, float)) and abs(value) < LARGEST_INTEGER // NS_PER_US:
        return round(value * NS_PER_US)
    return times_ns([str(value)], NS_PER_US)[0]
