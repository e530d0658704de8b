"""Prometheus metrics of a running capture, served as a page on an address of this host.

The server has a thread of its own, which ends with the capture and only reads.
"""

from __future__ import annotations

import ipaddress
import math
import socket
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cachetools import LRUCache
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from profagent import ledger
from profagent.errors import UsageError
from profagent.formats.figure_states import FigureState
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    LinkLedger,
    PlainLogs,
    RecordedLoss,
    SegmentRecords,
    SourceRows,
    files_of,
)
from profagent.ingest.live_latency import LatencyWindow
from profagent.ingest.source import RowReader
from profagent.limits import EXPOSED_MODELS
from profagent.link.addresses import host_of
from profagent.link.coverage import Standing
from profagent.link.session import State
from profagent.store.live_events import LiveComposer
from profagent.units import US_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from profagent.errors import ProfagentError
    from profagent.ingest.changes import Change
    from profagent.ledger import Entry
    from profagent.link.coverage import Coverage
    from profagent.link.messages import Board, JobStatus
    from profagent.link.session import LinkSession
    from profagent.record.capture import Capture, Observer
    from profagent.record.slo import LiveObjectives
    from profagent.store.events import Event
    from profagent.store.writer import Applied

# From 0.5 ms to about ten seconds, each a sixth above the one before: this bounds the error of a quantile.
BUCKETS_S = tuple(round(0.0005 * 10 ** (step / 15), 6) for step in range(65))


class Exposition:
    """Metrics of all boards of a capture; the label `board` has the name that the user gave."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.info = self._gauge("board_info", "1; who the board is.", "hostname", "identity", "model", "simulated")
        self.capturing = self._gauge("capturing", "1 while the board is captured.")
        self.link_up = self._gauge("link_up", "1 while the board's stream is open.")
        self.link_state = self._gauge("link_state", "1 for the state that the link is in.", "state")
        self.coverage_s = self._gauge(
            "coverage_seconds",
            "For how long the board was followed so: connecting, covered, behind, silent, away or paused.",
            "standing",
        )
        self.links_lost = self._counter("links_lost_total", "Streams that were open and were lost.")
        self.lag_bytes = self._gauge("lag_bytes", "Bytes that the board has and has not sent.")
        self.arrival_s = self._gauge("arrival_delay_seconds", "From an inference's end to its arrival; the last one's.")
        self.collections = self._gauge(
            "collections", "Followed JOBs and spools, by source and state.", "source", "state"
        )
        self.records = self._counter("records_total", "Records that came, by kind.", "kind")
        self.losses = self._gauge("losses", "Losses in the ledger, by reason.", "reason")
        self.metric = self._gauge("metric", "The last value of a system metric of the board.", "name", "unit")
        self.latency_s = Histogram(
            "profagent_latency_seconds",
            "What the program waited for inferences: the call that ran each, or where calls are not recorded from its"
            " first begin to its last end.",
            ("board", "model", "latency_from"),
            registry=self.registry,
            buckets=BUCKETS_S,
        )
        self.per_s = self._gauge("inferences_per_second", "Inferences in a second, not sampled ones too.", "model")
        self.gap_s = self._gauge("gap_seconds", "Median from an inference's end to the next one's begin.", "model")
        self.layers_s = self._gauge("layers_seconds", "Sum of the recorded layers of the last inference.", "model")
        self.layers_recorded = self._gauge("layers_recorded", "How many layers of the last inference came.", "model")
        self.slo_exceeded = self._gauge(
            "slo_exceeded", "1 while the alarm of an objective of --slo is on.", "slo", "name"
        )
        self.slo_value = self._gauge("slo_value", "Figure of an objective, in s or 1/s.", "slo", "name")
        self.slo_missed = self._gauge("slo_missed_ratio", "Share of values that miss an objective.", "slo", "name")
        self.slo_alarms = self._gauge("slo_alarms", "Alarms of an objective that began.", "slo", "name")
        self.layers_known = self._gauge("layers_known", "How many layers the model has.", "model")

    def measuring(self, observer: Observer, board: str) -> MeasuringObserver:
        """Return an observer that feeds these metrics from one board's capture, and passes on to `observer`."""
        return MeasuringObserver(observer, self, board)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"profagent_{name}", about, ("board", *labels), registry=self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"profagent_{name}", about, ("board", *labels), registry=self.registry)


@contextmanager
def exposed(address: str) -> Iterator[tuple[Exposition, str]]:
    """Serve metrics until the context is left; yield them and the page's URL.

    Raises UsageError if the address cannot be listened on.
    """
    host, separator, port = address.rpartition(":")
    host = host.strip("[]")
    if not separator or not host or not port.isdecimal():
        raise UsageError(f"{address!r} is not an address to listen on", hint="write HOST:PORT, like 127.0.0.1:9464")
    found = Exposition()
    try:
        server, thread = start_http_server(int(port), host, found.registry)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"cannot listen on {address}: {error}", hint="name another port or host") from error
    page = server.get_app()
    assert page is not None, "it was made with one"
    server.set_app(_for_own_names(page, host))
    try:
        shown = f"[{host}]" if ":" in host else host
        yield found, f"http://{shown}:{server.server_port}/metrics"
    finally:
        # The thread is joined, so that no request reads metrics of a capture that is over.
        server.shutdown()
        server.server_close()
        thread.join()


def _for_own_names(app: WSGIApplication, listened: str) -> WSGIApplication:
    """Return an app that answers only requests for an IP address or for a name of this host.

    Otherwise a foreign web page whose name resolves to this address could read the metrics through the user's browser.
    """
    own = {name.lower() for name in ("localhost", listened, socket.gethostname(), socket.getfqdn())}

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        called = environ.get("HTTP_HOST", "")
        if not called or _is_ip(name := host_of(called if ":" in called else f"{called}:")) or name.lower() in own:
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"This host is not called so: use its own name, or its IP address.\n"]

    return answer


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _lasted_s(coverage: Coverage, standing: Standing) -> float:
    return coverage.lasted_us(standing, time.time_ns() // 1000) / US_PER_S


def _is_in(session: LinkSession, *states: State) -> float:
    return float(session.state in states)


class MeasuringObserver:
    """Observer that sets metrics from what arrives and passes each call on to another observer."""

    def __init__(self, observer: Observer, exposition: Exposition, board: str) -> None:
        self._observer, self._to, self._board = observer, exposition, board
        # The board's clock minus the host's in µs, as of the last welcome; and whether a stream is open.
        self._ahead_us, self._has_link = 0, False
        # Composes events of inferences from batches; it holds those that are not final yet.
        self._events = LiveComposer(with_layers=True)
        self._rows = RowReader()
        # By model, the latest inferences, from which the pace is computed.
        self._windows: LRUCache[str, LatencyWindow] = LRUCache(EXPOSED_MODELS)
        self._paced: set[str] = set()  # models whose pace is to be computed again
        # By the log, number or reason that they are about, the losses that are counted in the gauge now.
        self._losses: dict[object, list[tuple[str, int]]] = {}
        # By reason, the number of losses that the link itself reported.
        self._link_losses: dict[str, int] = {}
        # Pairs of source and state that have a gauge; a pair without collections is set to 0.
        self._collections: set[tuple[str, str]] = set()
        self._judged: set[tuple[str, str]] = set()  # objectives and names that have metrics
        exposition.capturing.labels(board).set(1)
        exposition.link_up.labels(board).set(0)
        exposition.links_lost.labels(board)

    def follow(self, capture: Capture) -> None:
        """Read the metrics of the link from this capture, each time that the page is asked for."""
        session = capture.session
        # The server's thread calls these functions: they only read plain attributes of the session.
        self._to.lag_bytes.labels(self._board).set_function(lambda: session.lag_bytes)
        is_up = partial(_is_in, session, State.FOLLOWING, State.LAGGING)
        self._to.link_up.labels(self._board).set_function(is_up)
        for standing in Standing:
            lasted_s = partial(_lasted_s, capture.coverage, standing)
            self._to.coverage_s.labels(self._board, standing.value).set_function(lasted_s)
        for state in State:
            self._to.link_state.labels(self._board, state.value).set_function(partial(_is_in, session, state))

    def ended(self) -> None:
        """Note that the capture is over."""
        self._to.capturing.labels(self._board).set(0)

    def judged(self, live: LiveObjectives) -> None:
        """Set the metrics of objectives; a figure without any value is NaN."""
        for key in self._judged - set(live.figures):
            self._to.slo_value.labels(self._board, *key).set(math.nan)
            self._to.slo_missed.labels(self._board, *key).set(math.nan)
        self._judged |= set(live.figures)
        for key in self._judged:
            self._to.slo_exceeded.labels(self._board, *key).set(live.is_on(key))
            self._to.slo_alarms.labels(self._board, *key).set(live.counts.get(key, 0))
        for key, found in live.figures.items():
            per_unit = 1 if found.objective.is_rate else US_PER_S
            value = math.nan if found.value is None else found.value / per_unit
            self._to.slo_value.labels(self._board, *key).set(value)
            self._to.slo_missed.labels(self._board, *key).set(math.nan if found.share is None else found.share)

    def linked(self, board: Board, role: str) -> None:
        """Set the metrics of the board and of its clock."""
        self._ahead_us = board.clocks.wall_us - time.time_ns() // 1000
        simulated = str(board.simulated).lower()
        self._to.info.labels(self._board, board.hostname, board.identity, board.model, simulated).set(1)
        self._has_link = True
        self._observer.linked(board, role)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Count the lost link, if its stream was open."""
        self._to.links_lost.labels(self._board).inc(self._has_link)
        self._has_link = False
        self._observer.unlinked(error, wait_s)

    def remark(self, text: str) -> None:
        """Pass the text on."""
        self._observer.remark(text)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """Count collections by source and state."""
        counts: dict[tuple[str, str], int] = {}
        for job in jobs:
            counts[job.source, job.state] = counts.get((job.source, job.state), 0) + 1
        for place in (*self._collections, *counts):
            self._to.collections.labels(self._board, *place).set(counts.get(place, 0))
        self._collections = {*self._collections, *counts}
        self._observer.jobs_changed(jobs)

    def changed(self, applied: Sequence[Applied]) -> None:
        """Count the records, losses and latencies of applied batches."""
        for each in applied:
            for change in each.batch.changes:
                self._count(each.batch.job, change)
            for event in self._events.batch_events(each, time.monotonic()):
                if event["event"] == "inference" and event["figures"] == FigureState.FINAL:
                    self._time(event)
                elif event["event"] == "latency":
                    self._wait_is_over(event)
        self._tell_pace()
        self._observer.changed(applied)

    def _count(self, job: str, change: Change) -> None:
        records = self._to.records
        match change:
            case PlainLogs():
                self._count_plain(job, change)
            case SegmentRecords():
                records.labels(self._board, change.name.kind.value).inc(len(change.unit))
            case ApiRecords():
                records.labels(self._board, change.name.kind.value).inc(len(change.number))
            case SourceRows():
                self._take_rows(job, change)
            case ContentLedger():
                self._lose((job, change.path), change.entries)
            case RecordedLoss():
                self._lose(change.number, [change.entry])
            case LinkLedger() if change.entry.grade == ledger.LOSS:
                reason = change.entry.reason
                self._link_losses[reason] = self._link_losses.get(reason, 0) + change.entry.count
                self._lose(("link", reason), [change.entry], self._link_losses[reason])

    def _count_plain(self, job: str, change: PlainLogs) -> None:
        for kind, unit in change.units.items():
            self._to.records.labels(self._board, kind.value).inc(len(unit))
            for log, entries in change.entries[kind].items():
                data, _ = files_of(change.groups[change.places[kind][log]], kind)
                self._lose((job, data.path), entries)

    def _take_rows(self, job: str, change: SourceRows) -> None:
        seen = self._rows.read(job, change)
        if seen is None:
            return
        self._to.records.labels(self._board, change.table).inc(len(change.rows))
        last = {(each.name, each.unit): each for each in seen.samples}
        sums: dict[tuple[str, str], float] = {}
        for each in last.values():
            named = each.series, each.unit
            sums[named] = sums.get(named, 0.0) + each.value
        for named, value in sums.items():
            self._to.metric.labels(self._board, *named).set(value)

    def _time(self, inference: Event) -> None:
        where = self._board, inference["model"]
        self._to.layers_s.labels(*where).set(inference["layers_us"] / US_PER_S)
        self._to.layers_recorded.labels(*where).set(inference["recorded"])
        if inference["of_layers"] is not None:
            self._to.layers_known.labels(*where).set(inference["of_layers"])
        self._windows.setdefault(inference["model"], LatencyWindow()).take(inference["times"])
        if not inference["times"].is_awaited:
            self._wait_is_over(inference)
        if inference["end_us"] is not None:
            board_now_us = time.time_ns() // 1000 + self._ahead_us
            self._to.arrival_s.labels(self._board).set((board_now_us - inference["end_us"]) / US_PER_S)

    def _wait_is_over(self, event: Event) -> None:
        """Observe a latency once, when none of its calls is outstanding."""
        where = self._board, event["model"]
        if event["latency_us"] is not None:
            self._to.latency_s.labels(*where, event["latency_from"]).observe(event["latency_us"] / US_PER_S)
        if (window := self._windows.get(event["model"])) is not None:
            window.renew(event["times"])
            self._paced.add(event["model"])

    def _tell_pace(self) -> None:
        paced, self._paced = self._paced, set()
        for model in paced & set(self._windows):
            pace = self._windows[model].pace
            if pace.per_second is not None and pace.gap_us is not None:
                self._to.per_s.labels(self._board, model).set(pace.per_second)
                self._to.gap_s.labels(self._board, model).set(pace.gap_us / US_PER_S)

    def _lose(self, place: object, entries: Iterable[Entry], count: int | None = None) -> None:
        found = [(each.reason, count or each.count) for each in entries if each.grade == ledger.LOSS]
        before = self._losses.pop(place, [])
        if found:
            self._losses[place] = found
        for reason, number in before:
            self._to.losses.labels(self._board, reason).dec(number)
        for reason, number in found:
            self._to.losses.labels(self._board, reason).inc(number)
