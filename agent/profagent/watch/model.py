"""Model behind the screen: the figures of one board, updated by events, bounded in memory, independent of a terminal.

Views that it returns are immutable.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from cachetools import LRUCache

from profagent.formats.figure_states import FigureState
from profagent.formats.names import model_text
from profagent.formats.records import api_name
from profagent.limits import (
    SHOWN_CALLS,
    SHOWN_EVENTS,
    SHOWN_FRAMES,
    SHOWN_METRICS,
    SHOWN_MODELS,
    SHOWN_SPAN_NAMES,
    SHOWN_VALUES,
)
from profagent.units import US_PER_S
from profagent.watch.layers import ModelLayers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from profagent.link.messages import Board
    from profagent.store.events import Event
    from profagent.store.frames import Frame

# Events that a paused screen drops. Ledger, job and link events still arrive: a pause must not hide a loss.
PAUSED = frozenset({"inference", "latency", "calls", "board"})


class LinkState(Enum):
    """State of the link to a board."""

    CONNECTING = "connecting"
    LINKED = "linked"
    AWAY = "away"
    REPLAYED = "replay"
    ENDED = "ended"


class Header(NamedTuple):
    """Figures that are always visible for a board; None means not known. `board` is the name that the user gave."""

    board: str
    hostname: str
    link: LinkState
    link_text: str
    is_simulated: bool
    age_s: float | None
    sampled: int
    due: int | None
    losses: int
    notes: int
    inferences: int
    daemon_cpu: float | None
    session: int | None
    likely: tuple[str, ...]

    @property
    def who(self) -> str:
        """Board's name, followed by its own hostname if that differs."""
        return self.board if self.hostname in {"", self.board} else f"{self.board} ({self.hostname})"


class CallLine(NamedTuple):
    """Calls of one function by one thread, times in µs; None if no call has a known begin."""

    name: str
    thread: int
    number: int
    last_us: float | None
    median_us: float | None
    max_us: float | None


class SeriesLine(NamedTuple):
    """Series of one metric, span or subscription: its newest values, oldest first, and the count of all its values."""

    name: str
    unit: str
    values: tuple[float, ...]
    number: int


class EventLine(NamedTuple):
    """Event for the event pane: its time in µs by the board's clock, its kind, its text, and how often it came."""

    time_us: int
    kind: str
    text: str
    number: int


class FramesLine(NamedTuple):
    """Figures of the newest frames, times in µs: `times_us` oldest first, None where not known.

    `largest` is the part that takes the most of their time, with its share of it. `missing` and `lost` count numbers
    that the program left out, and those of which marks were lost, among these frames.
    """

    times_us: tuple[float, ...]
    number: int
    per_s: float | None
    age_us: float | None
    missing: int
    lost: int
    largest: tuple[str, float] | None


class _CallTimes:
    def __init__(self) -> None:
        self.count = 0
        self.times_us: deque[float] = deque(maxlen=SHOWN_VALUES)


class _MetricValues:
    def __init__(self, unit: str) -> None:
        self.unit, self.count = unit, 0
        self.values: deque[float] = deque(maxlen=SHOWN_VALUES)


class BoardModel:
    """Model of one watched or replayed board.

    `now_us` is the host's wall clock; `summary` returns the totals of everything that was shown.
    """

    def __init__(self, name: str, now_us: Callable[[], int], link: LinkState = LinkState.CONNECTING) -> None:
        self.name = name
        # Version of the figures: it grows with every change, so that the screen draws only after one.
        self.version = 0
        self.summary: Callable[[], Mapping[str, Any]] = lambda: {
            "sampling": {},
            "ledger": {},
            "left_out_records": 0,
            "inferences": 0,
        }
        # Share of the time in which the board was followed; None means not known.
        self.covered: Callable[[], float | None] = lambda: None
        # Session into which the board is saved at present; None if it is not saved.
        self.session: int | None = None
        # While paused, figures do not change: inferences, calls and metrics are dropped, and inferences counted.
        self.is_paused = False
        self.passed_over = 0
        # Lines of the alarms that are on, by objective and name.
        self.alarms: dict[tuple[str, str], str] = {}
        # Counters that the counter map is not certain of.
        self.likely: tuple[str, ...] = ()
        self._now_us = now_us
        # Board's clock minus this host's, in µs; None before the first link.
        self._offset_us: int | None = None
        # Hostname that the board reports; empty before the first link.
        # Identity of the board, empty before the first link.
        self.identity = ""
        self._hostname = ""
        # State of the link, and its explanation.
        self._link, self._link_text = link, ""
        # True once any message or event was simulated; it never becomes False again.
        self._is_simulated = False
        # Time of the newest record in µs by the board's clock; it never goes back.
        self._newest_us = 0
        # Processor time of the daemon in percent, from the last board event.
        self._daemon_cpu: float | None = None
        # Figures by model, by function and thread, and by series; the bounds keep hostile names from filling memory.
        self._models: LRUCache[str, ModelLayers] = LRUCache(SHOWN_MODELS)
        self._calls: LRUCache[tuple[int, int], _CallTimes] = LRUCache(SHOWN_CALLS)
        self._series: dict[str, LRUCache[str, _MetricValues]] = {
            "metrics": LRUCache(SHOWN_METRICS),
            "ranges": LRUCache(SHOWN_SPAN_NAMES),
        }
        # The newest frames, and how many there were in all.
        self._frames: deque[Frame] = deque(maxlen=SHOWN_FRAMES)
        self._frame_count = 0
        # Event lines, newest last; a repeated event is one line with a count.
        self._events: LRUCache[object, EventLine] = LRUCache(SHOWN_EVENTS)
        # Number of all notes: the key of a line that has no `about`.
        self._noted = 0

    def take(self, event: Event) -> None:
        """Update the figures with an event of Composer or LiveBoard; while paused, drop these and count inferences."""
        if self.is_paused and event["event"] in PAUSED:
            self.passed_over += event["event"] == "inference"
            return
        self.version += 1
        self._is_simulated |= event["simulated"]
        match event["event"]:
            case "inference":
                self._take_inference(event)
            case "latency":
                self.layers(model_text(event["model"], event["model_id"])).renew(event["times"])
            case "calls":
                self._take_calls(event)
            case "board":
                self._take_board(event)
            case "ledger":
                where = event["log"] or event["job"] or "board"
                self.note(event["grade"], f"{where}: {event['reason']}: {event['detail']} (count {event['count']})")
            case "slo":
                self._take_alarm(event)
            case "kept_loss":
                self.note("loss", f"{event['job'] or 'the board'}: {event['reason']}: {event['detail']}")
            case "job":
                self.note("job", f"{event['job']} is {event['state']}")

    def linked(self, board: Board) -> None:
        """Enter the state LINKED and set the clock offset, as if the message had needed no time to arrive."""
        self.version += 1
        self.identity, self._hostname = board.identity, board.hostname
        self._is_simulated = self._is_simulated or board.simulated
        self.compared(board.clocks.wall_us - self._now_us())
        self.enter(LinkState.LINKED, "")
        self.note("link", f"linked to {self.header().who}")

    def replays(self, board: str, session: str, speed: float) -> None:
        """Enter the state REPLAYED for a stored session of a board, at a multiple of its recorded pace."""
        self.name = board
        self.enter(LinkState.REPLAYED, f"of {session}, speed {speed:g}")

    def compared(self, offset_us: int) -> None:
        """Set the offset in µs by which the board's clock is ahead of this host's."""
        self._offset_us = offset_us

    def enter(self, state: LinkState, text: str) -> None:
        """Set the state of the link and the text that explains it."""
        self.version += 1
        self._link, self._link_text = state, text

    def note(self, kind: str, text: str, time_us: int | None = None, *, about: object = None) -> None:
        """Add an event line; one with an equal `about` replaces the earlier line, moves to the end and counts up."""
        self.version += 1
        self._noted += 1
        key = about or self._noted
        known = self._events.pop(key, None)  # a repeated event moves to the end
        number = 1 if known is None else known.number + 1
        at_us = self.board_us() if time_us is None else time_us
        self._events[key] = EventLine(at_us, kind, text, number)

    def board_us(self) -> int:
        """Return the board's time in µs; of a replay, the time of the newest record."""
        if self._link in {LinkState.REPLAYED, LinkState.ENDED}:
            return self._newest_us
        return self._now_us() + (self._offset_us or 0)

    def header(self) -> Header:
        """Return the figures that are always visible."""
        found = self.summary()
        sampling, ledger = found["sampling"], found["ledger"]
        is_live = self._link in {LinkState.LINKED, LinkState.AWAY} and self._newest_us and self._offset_us is not None
        return Header(
            self.name,
            self._hostname,
            self._link,
            self._link_text,
            self._is_simulated,
            max(0.0, (self.board_us() - self._newest_us) / US_PER_S) if is_live else None,
            sampling.get("sampled", 0),
            sampling.get("due"),
            ledger.get("loss", 0),
            # The layers pane already shows the records that the runtime left out.
            ledger.get("note", 0) - found["left_out_records"],
            found["inferences"],
            self._daemon_cpu,
            self.session,
            self.likely,
        )

    def models(self) -> list[str]:
        """Return the names of the models that ran, sorted."""
        return sorted(self._models)

    def layers(self, model: str) -> ModelLayers:
        """Return the layers of a model; an empty ModelLayers if the model has not run."""
        return self._models.get(model) or ModelLayers()

    def calls(self) -> tuple[CallLine, ...]:
        """Return a line for each function and thread, the largest total time first."""
        lines = []
        for (api, thread), calls in self._calls.items():
            times = np.array(calls.times_us)
            known = (float(times[-1]), float(np.median(times)), float(times.max())) if len(times) else (None,) * 3
            lines.append(CallLine(api_name(api), thread, calls.count, *known))
        return tuple(sorted(lines, key=lambda line: -(line.median_us or 0.0) * line.number))

    def series(self, what: str) -> tuple[SeriesLine, ...]:
        """Return the series of `metrics` or of `ranges`, sorted by name."""
        found = self._series[what].items()
        return tuple(SeriesLine(name, each.unit, tuple(each.values), each.count) for name, each in sorted(found))

    def frames(self) -> FramesLine:
        """Return the figures of the newest frames of all programs."""
        frames, sums = self._frames, dict[str, float]()
        for frame in frames:
            for (name, _), us in frame.times().items():
                sums[name] = sums.get(name, 0.0) + us
        whole = sum(sums.values())
        largest = max(sums, key=lambda name: sums[name], default="")
        ends = [frame.end_ns for frame in frames]
        lasted_s = (max(ends) - min(ends)) / 1e9 if ends else 0.0
        return FramesLine(
            tuple(frame.us for frame in frames if frame.parts),
            self._frame_count,
            (len(ends) - 1) / lasted_s if lasted_s > 0 else None,
            frames[-1].age_us if frames else None,
            sum(frame.missing for frame in frames),
            sum(frame.lost for frame in frames),
            (largest, sums[largest] / whole) if whole else None,
        )

    def events(self, number: int) -> tuple[EventLine, ...]:
        """Return at most `number` of the newest event lines, the newest last."""
        return tuple(self._events.values())[-number:] if number > 0 else ()

    def _take_inference(self, event: Event) -> None:
        if event["figures"] == FigureState.PENDING:
            return
        who = model_text(event["model"], event["model_id"])
        for entry in event["ledger"]:
            text = f"{entry['reason']} ({entry['count']}) in {who} inference {event['current_pic_count']}"
            self.note(entry["grade"], text, event["end_us"], about=(who, entry["reason"]))
        if event["figures"] != FigureState.FINAL:
            text = f"{event['why']}: {who} inference {event['current_pic_count']}"
            self.note("note", text, about=(who, event["why"]))
            return
        layers = self._models.get(who)
        if layers is None:
            layers = self._models[who] = ModelLayers()
        self._note_time(event["end_us"])
        layers.take(event["layers"], event["times"])

    def _take_alarm(self, event: Event) -> None:
        key = event["objective"], event["name"]
        self.note("alarm", event["text"].removeprefix("ALARM "))
        if event["alarm"]:
            self.alarms[key] = event["text"]
        else:
            self.alarms.pop(key, None)

    def _take_calls(self, event: Event) -> None:
        records = event["calls"]
        keys = records["api"].astype(np.int64) << 32 | records["tid"].astype(np.int64) & 0xFFFFFFFF
        for key in np.unique(keys).tolist():
            chosen = records[keys == key]
            calls = self._calls.setdefault((key >> 32, key & 0xFFFFFFFF), _CallTimes())
            calls.count += len(chosen)
            known = chosen[chosen["begin_us"] > 0][-SHOWN_VALUES:]
            calls.times_us.extend((known["end_us"].astype(float) - known["begin_us"].astype(float)).tolist())
        self._note_time(int(records["end_us"].max()))

    def _take_board(self, event: Event) -> None:
        self._daemon_cpu = event["daemon_cpu"]
        for name, (value, unit) in event["metrics"].items():
            self._put("metrics", name, unit, value, 1)
        for span in event["spans"]:
            self._put("ranges", span["name"], "us", span["mean_us"], span["count"])
        for ops in event["ops"]:
            if ops["per_s"] is not None:
                self._put("ranges", f"{ops['source']} ops", "/s", ops["per_s"], ops["count"])
        self._frames.extend(event["frames"])
        self._frame_count += len(event["frames"])
        for mark in event["marks"]:
            self.note("mark", mark.text, mark.time_us)
        self._note_time(event["time_us"])

    def _put(self, what: str, name: str, unit: str, value: float, count: int) -> None:
        values = self._series[what].get(name)
        if values is None:
            values = self._series[what][name] = _MetricValues(unit)
        values.values.append(value)
        values.count += count

    def _note_time(self, time_us: int | None) -> None:
        self._newest_us = max(self._newest_us, time_us or 0)
