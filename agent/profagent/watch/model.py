"""The model behind the screen: figures of one board, kept up by events, bounded, and free of any terminal.

What it gives for a view does not change any more.
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
from profagent.limits import KEPT_CALLS, KEPT_EVENTS, KEPT_METRICS, KEPT_MODELS, KEPT_SPANS, KEPT_VALUES
from profagent.watch.layers import ModelLayers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from profagent.link.messages import Board
    from profagent.store.events import Event

# What a paused screen passes over.
PAUSED = frozenset({"inference", "latency", "calls", "board"})
US_PER_S = 1_000_000


class LinkState(Enum):
    """How a board is reached."""

    CONNECTING = "connecting"
    LINKED = "linked"
    AWAY = "away"
    REPLAYED = "replay"
    ENDED = "ended"


class Header(NamedTuple):
    """What is always to be seen of a board; None is not known. `board` is the name that the person gave."""

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
        """The board's name, and what it calls itself where that is another."""
        return self.board if self.hostname in {"", self.board} else f"{self.board} ({self.hostname})"


class CallLine(NamedTuple):
    """Calls of a function by a thread, times in µs; None where no begin was known."""

    name: str
    thread: int
    number: int
    last_us: float | None
    median_us: float | None
    max_us: float | None


class SeriesLine(NamedTuple):
    """A metric, a span or a subscription: its newest values, oldest first, and how many came in all."""

    name: str
    unit: str
    values: tuple[float, ...]
    number: int


class EventLine(NamedTuple):
    """Something that happened: when by the board's clock, of what kind, what, and how often."""

    time_us: int
    kind: str
    text: str
    number: int


class _Calls:
    def __init__(self) -> None:
        self.count = 0
        self.times_us: deque[float] = deque(maxlen=KEPT_VALUES)


class _Values:
    def __init__(self, unit: str) -> None:
        self.unit, self.count = unit, 0
        self.values: deque[float] = deque(maxlen=KEPT_VALUES)


class BoardModel:
    """One board, watched or replayed. `now_us` is the host's wall clock, `summary` tells what was shown in all."""

    def __init__(self, name: str, now_us: Callable[[], int], link: LinkState = LinkState.CONNECTING) -> None:
        self.name = name
        # The state that views were made of: it changes with whatever is taken.
        self.version = 0
        self.summary: Callable[[], Mapping[str, Any]] = lambda: {
            "sampling": {},
            "ledger": {},
            "left_out_records": 0,
            "inferences": 0,
        }
        # Which share of the time it was followed; None is not known.
        self.covered: Callable[[], float | None] = lambda: None
        self.session: int | None = None
        # Figures stand still: inferences, calls and metrics that come are passed over, and counted.
        self.is_paused = False
        self.passed_over = 0
        self.likely: tuple[str, ...] = ()
        self._now_us = now_us
        # The board's clock minus this host's.
        self._offset_us: int | None = None
        self._hostname = ""
        self._link, self._link_text = link, ""
        self._is_simulated = False
        self._newest_us = 0
        self._daemon_cpu: float | None = None
        self._models: LRUCache[str, ModelLayers] = LRUCache(KEPT_MODELS)
        self._calls: LRUCache[tuple[int, int], _Calls] = LRUCache(KEPT_CALLS)
        self._series: dict[str, LRUCache[str, _Values]] = {
            "metrics": LRUCache(KEPT_METRICS),
            "ranges": LRUCache(KEPT_SPANS),
        }
        # What is told again and again is one line, with how often.
        self._events: LRUCache[object, EventLine] = LRUCache(KEPT_EVENTS)
        self._noted = 0

    def take(self, event: Event) -> None:
        """An event of Composer or LiveBoard."""
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
            case "kept_loss":
                self.note("loss", f"{event['job'] or 'the board'}: {event['reason']}: {event['detail']}")
            case "job":
                self.note("job", f"{event['job']} is {event['state']}")

    def linked(self, board: Board) -> None:
        """The link stands; one way of the message is taken for no time."""
        self.version += 1
        self._hostname, self._is_simulated = board.hostname, self._is_simulated or board.simulated
        self.compared(board.clocks.wall_us - self._now_us())
        self.enter(LinkState.LINKED, "")
        self.note("link", f"linked to {self.header().who}")

    def replays(self, board: str, session: str, speed: float) -> None:
        """It is a stored session, at so many times its pace."""
        self.name = board
        self.enter(LinkState.REPLAYED, f"of {session}, speed {speed:g}")

    def compared(self, offset_us: int) -> None:
        """The board's clock is so far ahead of this host's."""
        self._offset_us = offset_us

    def enter(self, state: LinkState, text: str) -> None:
        """The link is in a state, for a reason."""
        self.version += 1
        self._link, self._link_text = state, text

    def note(self, kind: str, text: str, time_us: int | None = None, *, about: object = None) -> None:
        """Something to be seen among the events; what is `about` the same takes the place of what was."""
        self.version += 1
        self._noted += 1
        key = about or self._noted
        known = self._events.pop(key, None)  # what is told again is the newest
        number = 1 if known is None else known.number + 1
        at_us = self.board_us() if time_us is None else time_us
        self._events[key] = EventLine(at_us, kind, text, number)

    def board_us(self) -> int:
        """The board's time: of a replay that of the newest record."""
        if self._link in {LinkState.REPLAYED, LinkState.ENDED}:
            return self._newest_us
        return self._now_us() + (self._offset_us or 0)

    def header(self) -> Header:
        """What is always to be seen."""
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
            # Records that the runtime left out are told beside the layers.
            ledger.get("note", 0) - found["left_out_records"],
            found["inferences"],
            self._daemon_cpu,
            self.session,
            self.likely,
        )

    def models(self) -> list[str]:
        """Names of the models that ran, in the order in which they were first seen."""
        return sorted(self._models)

    def layers(self, model: str) -> ModelLayers:
        """A model's layers."""
        return self._models.get(model) or ModelLayers()

    def calls(self) -> tuple[CallLine, ...]:
        """Calls by name and thread, those that took most time together first."""
        lines = []
        for (api, thread), calls in self._calls.items():
            times = np.array(calls.times_us)
            known = (float(times[-1]), float(np.median(times)), float(times.max())) if len(times) else (None,) * 3
            lines.append(CallLine(api_name(api), thread, calls.count, *known))
        return tuple(sorted(lines, key=lambda line: -(line.median_us or 0.0) * line.number))

    def series(self, what: str) -> tuple[SeriesLine, ...]:
        """Metrics or ranges, by name."""
        found = self._series[what].items()
        return tuple(SeriesLine(name, each.unit, tuple(each.values), each.count) for name, each in sorted(found))

    def events(self, number: int) -> tuple[EventLine, ...]:
        """The newest events, newest last."""
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
        self._see(event["end_us"])
        layers.take(event["layers"], event["times"])

    def _take_calls(self, event: Event) -> None:
        records = event["calls"]
        keys = records["api"].astype(np.int64) << 32 | records["tid"].astype(np.int64) & 0xFFFFFFFF
        for key in np.unique(keys).tolist():
            chosen = records[keys == key]
            calls = self._calls.setdefault((key >> 32, key & 0xFFFFFFFF), _Calls())
            calls.count += len(chosen)
            known = chosen[chosen["begin_us"] > 0][-KEPT_VALUES:]
            calls.times_us.extend((known["end_us"].astype(float) - known["begin_us"].astype(float)).tolist())
        self._see(int(records["end_us"].max()))

    def _take_board(self, event: Event) -> None:
        self._daemon_cpu = event["daemon_cpu"]
        for name, (value, unit) in event["metrics"].items():
            self._put("metrics", name, unit, value, 1)
        for span in event["spans"]:
            self._put("ranges", span["name"], "us", span["mean_us"], span["count"])
        for ops in event["ops"]:
            if ops["per_s"] is not None:
                self._put("ranges", f"{ops['source']} ops", "/s", ops["per_s"], ops["count"])
        for mark in event["marks"]:
            self.note("mark", mark.text, mark.time_us)
        self._see(event["time_us"])

    def _put(self, what: str, name: str, unit: str, value: float, count: int) -> None:
        values = self._series[what].get(name)
        if values is None:
            values = self._series[what][name] = _Values(unit)
        values.values.append(value)
        values.count += count

    def _see(self, time_us: int | None) -> None:
        self._newest_us = max(self._newest_us, time_us or 0)
