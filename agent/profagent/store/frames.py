"""Frames of a program: its spans, calls and NPU segments joined by frame, and cut into stages and waits.

A frame is what one process marked with one value of the attribute `frame`, from its first begin to its last end. Its
outermost spans are its stages. Each instant of it belongs to exactly one part, so that the parts sum to the frame:

    a stage   the latest begun of those that run; in an execute call its segments on the NPU and the CPU, and the rest
    a wait    `wait for MODEL`: another call's segment occupies the NPU; `wait before NAME`: no stage runs, NAME follows

Without numbers, the outermost spans of a thread are joined by order: the frame ends where its first stage comes again.
Without spans, the same is done with the execute calls.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from profagent.ingest.marks import FRAME_MARKS, MARKED_FRAMES, NUMBER_RUNS
from profagent.ingest.source import Marked
from profagent.limits import LARGEST_AGE_S, OPEN_FRAMES, ROWS_PER_PAGE
from profagent.store.database import fetched, fetched_one, pages
from profagent.store.npu_work import npu_work_of
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    import aiosqlite

    from profagent.store.database import Running
    from profagent.store.npu_work import NpuWork

JoinedBy = Literal["number", "spans", "calls"]
# Numbers of frames may be out of order by this much: workers take a frame each.
RACE = 64
# Begins and ends of calls are cut to µs.
ROUNDING_NS = NS_PER_US


class FramePart(NamedTuple):
    """Part of a frame, a stage or a wait; times are ns of the board's clock."""

    name: str
    is_wait: bool
    begin_ns: int
    end_ns: int

    @property
    def us(self) -> float:
        """Duration in µs."""
        return (self.end_ns - self.begin_ns) / NS_PER_US


@dataclass(frozen=True, slots=True)
class Frame:
    """Frame of a process: its parts follow each other without a gap; times are ns of the board's clock.

    `stream` tells apart what numbers frames in a process: a thread where they are joined by order, else how often the
    numbers began anew. `missing` is how many numbers the program left out before this one; `lost` how many are not
    here while marks were lost, so that nobody knows. `inferences` are the numbers of its sampled inferences, and
    `undivided` how many of its calls have none: what these did is not known. A frame that is known by one mark alone
    has no parts.
    """

    process: int
    stream: int
    number: int
    begin_ns: int
    end_ns: int
    parts: tuple[FramePart, ...]
    captured_ns: int | None = None
    inferences: tuple[int, ...] = ()
    missing: int = 0
    lost: int = 0
    undivided: int = 0

    @property
    def us(self) -> float:
        """Latency in µs: from the first begin to the last end."""
        return (self.end_ns - self.begin_ns) / NS_PER_US

    @property
    def age_us(self) -> float | None:
        """Time from the capture to the frame's end, in µs; None where the capture is not known."""
        if self.captured_ns is None or not 0 <= self.end_ns - self.captured_ns <= LARGEST_AGE_S * 1e9:
            return None
        return (self.end_ns - self.captured_ns) / NS_PER_US

    def times(self) -> dict[tuple[str, bool], float]:
        """Return the time of each part in µs, by its name and whether it is a wait, in the order of their begins."""
        sums: dict[tuple[str, bool], int] = {}
        for part in self.parts:
            key = (part.name, part.is_wait)
            sums[key] = sums.get(key, 0) + part.end_ns - part.begin_ns
        return {key: ns / NS_PER_US for key, ns in sums.items()}


class PartInterval(NamedTuple):
    """Claim of a part to a time; of those that run, the one with the smallest `rank` has it."""

    begin_ns: int
    end_ns: int
    name: str
    is_wait: bool
    rank: tuple[int, ...]


def parts_of(begin_ns: int, end_ns: int, intervals: Iterable[PartInterval]) -> tuple[FramePart, ...]:
    """Return the parts of a time in their order, without a gap: where no interval runs, a wait before the next one."""
    waiting = sorted(intervals)
    # Between two neighbouring times nothing begins or ends, so that one part has all of it.
    times = {time for each in waiting for time in each[:2] if begin_ns < time < end_ns}
    # Those that have begun, the one that has the time first; ended ones are dropped when they come first.
    running: list[tuple[tuple[int, ...], int, PartInterval]] = []
    found: list[FramePart] = []
    taken = 0
    for start, stop in pairwise(sorted({begin_ns, end_ns, *times})):
        while taken < len(waiting) and waiting[taken].begin_ns <= start:
            heapq.heappush(running, (waiting[taken].rank, taken, waiting[taken]))
            taken += 1
        while running and running[0][2].end_ns <= start:
            heapq.heappop(running)
        if running:
            name, is_wait = running[0][2].name, running[0][2].is_wait
        else:
            name, is_wait = _wait_before(waiting, taken), True
        # Another interval's begin or end does not cut the part that goes on.
        if found and found[-1].name == name and found[-1].is_wait == is_wait:
            found[-1] = found[-1]._replace(end_ns=stop)
        else:
            found.append(FramePart(name, is_wait, start, stop))
    return tuple(found)


def _wait_before(waiting: Sequence[PartInterval], place: int) -> str:
    """Return the name of a wait for the interval at a place: of those that begin at once, for the outermost."""
    if place >= len(waiting):
        return "wait before the end"
    begins = takewhile(lambda each: each.begin_ns == waiting[place].begin_ns, waiting[place:])
    return f"wait before {max(begins, key=lambda each: each.rank[1:]).name}"


class _Span(NamedTuple):
    """Span of a frame; `depth` is how many of the frame's spans enclose it in its thread."""

    marked: Marked
    depth: int
    frame: _OpenFrame


@dataclass(slots=True, eq=False)
class _OpenFrame:
    process: int
    stream: int
    number: int
    spans: list[_Span] = field(default_factory=list)
    marks: list[Marked] = field(default_factory=list)
    calls: list[tuple[int, _Span | None]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Names of its spans and marks."""

    @property
    def all_marked(self) -> list[Marked]:
        return [each.marked for each in self.spans] or self.marks

    @property
    def begin_ns(self) -> int:
        return min(each.begin_ns for each in self.all_marked)

    @property
    def end_ns(self) -> int:
        return max(each.end_ns for each in self.all_marked)

    @property
    def marks_between(self) -> tuple[int, int]:
        """Smallest and largest number of its marks."""
        numbers = [each.number for each in (*self.marks, *(span.marked for span in self.spans))]
        return min(numbers), max(numbers)

    @property
    def captured_ns(self) -> int | None:
        # A program that gives no time may mark the capture: a mark before the first span, as no stage has begun then.
        told = [each.captured_ns for each in (*self.marks, *(span.marked for span in self.spans))]
        known = [each for each in told if each is not None]
        before = [each.begin_ns for each in self.marks if self.spans and each.begin_ns < self.begin_ns]
        return min(known or before, default=None)

    def parts(self, work: NpuWork) -> tuple[FramePart, ...]:
        begin, end = self.begin_ns, self.end_ns
        intervals = [
            PartInterval(span.marked.begin_ns, span.marked.end_ns, span.marked.name, False, (-span.marked.begin_ns, 0))
            for span in self._stages(begin, end)
        ]
        if not self.spans:
            intervals += [PartInterval(each.begin_ns, each.end_ns, each.name, False, (0, 0)) for each in self.marks]
        for call, span in self.calls:
            # A call is of its span's time alone, even where rounding lets it reach beyond.
            low = max(int(work.calls.begin_ns[call]), begin if span is None else span.marked.begin_ns)
            high = min(int(work.calls.end_ns[call]), end if span is None else span.marked.end_ns)
            intervals.append(PartInterval(low, high, f"call {work.name(call)}", False, (-low, -1)))
            # A call in no span, as an asynchronous one, goes on while later stages wait for it.
            rank = -low if span is not None else -end
            for place, found in enumerate(work.stretches(call)):
                # Of two stretches at once the later one of the list is smaller in rank, and has the time.
                start, stop = max(found.begin_ns, low), min(found.end_ns, high)
                intervals.append(PartInterval(start, stop, found.name, found.is_wait, (rank, -2, -place)))
        # What is over before it begins, for the rounding of a call, claims nothing.
        return parts_of(begin, end, [each for each in intervals if each.begin_ns < each.end_ns or not self.spans])

    def _stages(self, begin: int, end: int) -> Iterator[_Span]:
        """Yield the outermost spans, and those directly within one that covers the whole frame."""
        outermost = [span for span in self.spans if span.depth == 0]
        is_cover = len(outermost) == 1 and (outermost[0].marked.begin_ns, outermost[0].marked.end_ns) == (begin, end)
        return (span for span in self.spans if span.depth <= is_cover)


class _Process:
    """Frames of one process that are open, and its calls that belong to none yet."""

    def __init__(self, process: int, work: NpuWork, lost: Sequence[tuple[int, int]], *, is_numbered: bool) -> None:
        self._process, self._work, self._lost, self._is_numbered = process, work, lost, is_numbered
        (self._calls,) = (work.calls.process == process).nonzero()
        # The earliest begin of a call and of those behind it: no span that ended before it is needed any more.
        begins = work.calls.begin_ns[self._calls]
        self._earliest = np.minimum.accumulate(begins[::-1])[::-1] if len(begins) else begins
        self._ends = work.calls.end_ns[self._calls]
        # How many of the calls have found their span, or have none; those that have none.
        self._placed = 0
        self._unplaced: list[int] = []
        # Spans that may enclose a later span or call.
        self._active: list[_Span] = []
        self._frames: dict[tuple[int, int], _OpenFrame] = {}
        self._order: list[tuple[int, int]] = []
        self._stream = 0
        self._latest: dict[str, int] = {}
        # By order: the frame of each thread that goes on.
        self._of_thread: dict[int, _OpenFrame] = {}
        # Of the two latest streams the number of the frame that was closed last, and the first of its marks.
        self._closed: dict[int, tuple[int, int]] = {}

    def take(self, marked: Marked) -> Iterator[Frame]:
        """Add a mark or span, and yield the frames that are complete."""
        self._place_calls(marked.begin_ns)
        parent = None if marked.is_mark else self._parent(marked)
        frame = self._frame_of(marked, parent)
        if frame is None:
            return
        frame.names.add(marked.name)
        if marked.is_mark:
            frame.marks.append(marked)
        else:
            depth = parent.depth + 1 if parent is not None and parent.frame is frame else 0
            frame.spans.append(_Span(marked, depth, frame))
            self._active.append(frame.spans[-1])
        # By order, the next frame of a thread completes the one before; by number, threads may work at several frames.
        if not self._is_numbered and (marked.thread, frame.number - 1) in self._frames:
            yield self._close((marked.thread, frame.number - 1))
        while self._is_numbered and len(self._frames) > OPEN_FRAMES:
            yield self._close(heapq.heappop(self._order))

    def settle(self, before_ns: int) -> Iterator[Frame]:
        """Yield the frames that ended before a time, up to the first that did not."""
        while self._order and self._frames[self._order[0]].end_ns < before_ns:
            yield self._close(heapq.heappop(self._order))

    def end(self) -> Iterator[Frame]:
        """Yield the frames that were open."""
        if len(self._ends):
            self._place_calls(int(self._ends[-1]))
        for key in sorted(self._frames):
            yield self._close(key)

    def _parent(self, marked: Marked) -> _Span | None:
        """Return the innermost span of the same thread and task that encloses this one."""
        # Fields 1 and 2 are thread and lane: spans of another thread or task never enclose.
        around = [
            span
            for span in self._active
            if span.marked[1:3] == marked[1:3]
            and span.marked.begin_ns <= marked.begin_ns
            and marked.end_ns <= span.marked.end_ns
        ]
        return max(around, key=lambda span: span.depth, default=None)

    def _frame_of(self, marked: Marked, parent: _Span | None) -> _OpenFrame | None:
        if not self._is_numbered:
            return None if marked.is_mark else self._ordered(marked) if parent is None else parent.frame
        if marked.frame is not None:
            return self._numbered(marked.name, marked.frame)
        return None if parent is None else parent.frame

    def _ordered(self, marked: Marked) -> _OpenFrame:
        """Return the thread's frame that goes on, a new one where its first stage comes again."""
        frame = self._of_thread.get(marked.thread)
        if frame is None or frame.spans[0].marked.name == marked.name:
            number = 1 if frame is None else frame.number + 1
            frame = self._of_thread[marked.thread] = self._opened(marked.thread, number)
        return frame

    def _numbered(self, name: str, number: int) -> _OpenFrame:
        frame = self._frames.get((self._stream, number))
        # A stage that the frame has not had yet is of this frame; one that it had may be of a program that began anew.
        if frame is not None and name not in frame.names:
            return frame
        before = self._frames.get((self._stream - 1, number))
        newest = max(self._latest.values(), default=number)
        if before is not None and name not in before.names and number > newest:
            return before  # the end of a frame from before the numbers began anew
        back = self._latest.get(name, number) - number
        # A program that began anew repeats the first stage of a frame, or goes further back than workers may race.
        is_again = frame is not None and back > 0 and name == frame.all_marked[0].name
        if is_again or back > RACE:
            self._stream, frame = self._stream + 1, None
            self._latest.clear()
        self._latest[name] = max(number, self._latest.get(name, number))
        return frame or self._opened(self._stream, number)

    def _opened(self, stream: int, number: int) -> _OpenFrame:
        frame = self._frames[stream, number] = _OpenFrame(self._process, stream, number)
        if self._is_numbered:
            heapq.heappush(self._order, (stream, number))
        return frame

    def _place_calls(self, now_ns: int) -> None:
        """Give the calls that have ended to the spans around them: all spans that began before were taken."""
        # A call is placed once a mark has come that began after its end: marks come by their begins.
        until = self._placed
        if self._placed < len(self._ends) and self._ends[self._placed] <= now_ns:
            until = int(np.searchsorted(self._ends, now_ns, side="right"))
        for call in self._calls[self._placed : until].tolist():
            span = self._around(call)
            if span is None:
                self._unplaced.append(call)
            else:
                span.frame.calls.append((call, span))
        self._placed = until
        needed = now_ns if self._placed >= len(self._ends) else min(now_ns, int(self._earliest[self._placed]))
        if any(span.marked.end_ns < needed for span in self._active):
            self._active = [span for span in self._active if span.marked.end_ns >= needed]

    def _around(self, call: int) -> _Span | None:
        """Return the span that a call belongs to: of its own thread, else of the process; the one that ended first.

        Of those that ended together it is the one that began last, and of these the innermost.
        """
        calls = self._work.calls
        # The span's own times are exact: without a tolerance, a call cut to µs would begin before its span.
        begin, end = int(calls.begin_ns[call]) + ROUNDING_NS, int(calls.end_ns[call])
        around = [
            span for span in self._active if span.marked.begin_ns < begin and end < span.marked.end_ns + ROUNDING_NS
        ]
        own = [span for span in around if span.marked.thread == int(calls.thread[call])]
        return min(
            own or around, key=lambda span: (span.marked.end_ns, -span.marked.begin_ns, -span.depth), default=None
        )

    def _close(self, key: tuple[int, int]) -> Frame:
        frame = self._frames.pop(key)
        begin, end = frame.begin_ns, frame.end_ns
        self._take_unplaced(frame, begin, end)
        missing, lost = self._missing(frame)
        of_calls = [self._work.inferences(call) for call, _ in frame.calls]
        inferences = sorted({number for each in of_calls for number in each})
        return Frame(
            frame.process,
            frame.stream,
            frame.number,
            begin,
            end,
            frame.parts(self._work),
            frame.captured_ns,
            tuple(inferences),
            missing,
            lost,
            sum(not each for each in of_calls),
        )

    def _take_unplaced(self, frame: _OpenFrame, begin: int, end: int) -> None:
        calls, rest = self._work.calls, []
        for call in self._unplaced:
            if begin <= calls.begin_ns[call] and calls.end_ns[call] <= end:
                frame.calls.append((call, None))
            elif calls.end_ns[call] >= begin:  # those before the frame can be of no later one
                rest.append(call)
        self._unplaced = rest

    def _missing(self, frame: _OpenFrame) -> tuple[int, int]:
        """Return how many numbers the program left out before a frame, and how many may have been lost."""
        if not self._is_numbered:
            return 0, 0
        number, begin = self._closed.get(frame.stream, (frame.number - 1, 0))
        first, last = frame.marks_between
        self._closed[frame.stream] = max(number, frame.number), first
        self._closed.pop(frame.stream - 2, None)
        # Workers may finish frames out of order: a frame behind the newest closed one leaves none out.
        absent = max(frame.number - number - 1, 0)
        is_lost = absent > 0 and any(low < last and begin < high for low, high in self._lost)
        return (0, absent) if is_lost else (absent, 0)


class FrameJoin:
    """Join of a session's marks, calls and segments to frames. Marks come in the order of their begins.

    `lost` has for each process the numbers of marks between which some were lost.
    """

    def __init__(
        self, work: NpuWork, joined_by: JoinedBy, lost: Mapping[int, Sequence[tuple[int, int]]] | None = None
    ) -> None:
        self._work, self._is_numbered, self._lost = work, joined_by == "number", lost or {}
        self._processes: dict[int, _Process] = {}

    def take(self, marked: Marked) -> Iterator[Frame]:
        """Add a mark, span or range; yield the frames that are complete."""
        process = self._processes.get(marked.process)
        if process is None:
            lost = self._lost.get(marked.process, ())
            process = _Process(marked.process, self._work, lost, is_numbered=self._is_numbered)
            self._processes[marked.process] = process
        return process.take(marked)

    def settle(self, before_ns: int) -> Iterator[Frame]:
        """Yield the numbered frames that ended before a time, those of a process up to the first that did not."""
        for process in self._processes.values():
            yield from process.settle(before_ns)

    def end(self) -> Iterator[Frame]:
        """Yield the frames that were open."""
        for process in self._processes.values():
            yield from process.end()


@dataclass(frozen=True, slots=True)
class SessionFrames:
    """Frames of a session, which `pages` reads; `joined_by` says how they were found."""

    joined_by: JoinedBy
    work: NpuWork
    _connection: Running
    _session: int

    async def pages(self) -> AsyncIterator[list[Frame]]:
        """Yield the frames in pages, those of a process in the order of their numbers. Raises StoreError."""
        runs = await fetched(self._connection, NUMBER_RUNS, (self._session,))
        join = FrameJoin(self.work, self.joined_by, lost_numbers(runs))
        async for rows in self._marked():
            if found := [frame for row in rows for frame in join.take(row)]:
                yield found
        if found := [*join.end()]:
            yield found

    async def _marked(self) -> AsyncIterator[list[Marked]]:
        if self.joined_by == "calls":
            calls = self.work.calls
            order = np.argsort(calls.begin_ns, kind="stable")
            for first in range(0, len(order), ROWS_PER_PAGE):
                yield [_of_call(self.work, call) for call in order[first : first + ROWS_PER_PAGE].tolist()]
            return
        async for rows in pages(self._connection, FRAME_MARKS, (self._session,)):
            yield [Marked._make(row) for row in rows]


def _of_call(work: NpuWork, call: int) -> Marked:
    calls = work.calls
    own = (int(column[call]) for column in (calls.begin_ns, calls.end_ns))
    return Marked(int(calls.process[call]), int(calls.thread[call]), 0, False, f"execute {work.name(call)}", *own)


async def has_numbered_frames(connection: aiosqlite.Connection, session: int) -> bool:
    """Return True if a program of the session numbered its frames."""
    is_numbered, _ = await fetched_one(connection, MARKED_FRAMES, (session,))
    return bool(is_numbered)


async def frames_of(connection: Running, session: int) -> SessionFrames:
    """Return the frames of a session, to be read by `pages`.

    Its calls and segments are held meanwhile, as columns; of its marks a page, and the open frames.
    """
    is_numbered, has_spans = await fetched_one(connection, MARKED_FRAMES, (session,))
    joined_by: JoinedBy = "number" if is_numbered else "spans" if has_spans else "calls"
    return SessionFrames(joined_by, await npu_work_of(connection, session), connection, session)


def lost_numbers(runs: Iterable[tuple[int, ...]]) -> dict[int, list[tuple[int, int]]]:
    """Return for each process the ranges of numbers in which marks are missing.

    `runs` are process, writer, first and last number, how many are missing between them, and before and between them.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for (process, _), of_writer in groupby(runs, itemgetter(0, 1)):
        before = -1
        for _, _, first, last, missing, dropped in of_writer:
            if dropped:
                found.setdefault(process, []).append((before if before < first else -1, last if missing else first))
            before = last
    return found
