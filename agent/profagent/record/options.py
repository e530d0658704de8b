"""Options of captures and of what they store."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profagent.errors import UsageError
from profagent.formats.counter_maps import BUILT_IN, CounterMaps
from profagent.store.sessions import MapUsed, SessionStart, require_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from profagent.formats.countermap import CounterMap
    from profagent.formats.incident_rules import KeepWhen
    from profagent.formats.sampling import Keeping
    from profagent.link.credentials import Access
    from profagent.link.messages import Board, Profiling
    from profagent.record.beginnings import PastFilter, ProgramJobs
    from profagent.store.incidents import Incident
    from profagent.store.workspace import Workspace
    from profagent.tables.slo import Objective


def _by_address() -> Access:
    from profagent.link.credentials import BY_ADDRESS  # noqa: PLC0415 - takes long to load; an import needs none

    return BY_ADDRESS


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of `record`: boards, ends, filters. `inferences`, `until_finished` hold for each board, `for_s` for all.

    The board counts deliveries by `consumer`; the default has the host's name. With `from_now` only data is taken that
    begins after the start, of JOBs and other sources that exist already. `metrics_listen` is the HOST:PORT for
    Prometheus. `objectives` are judged meanwhile. `keeping` is that of RecordingOptions. `made` are the JOBs of one
    program: no other JOB is recorded.
    """

    addresses: tuple[str, ...]
    workspace: Workspace
    for_s: float | None = None
    inferences: int | None = None
    until_finished: bool = False
    backlog: bool = False
    new: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    maps: CounterMaps = BUILT_IN
    keeping: Keeping | None = None
    keep_when: KeepWhen | None = None
    access: Access = field(default_factory=_by_address)
    consumer: str | None = None
    source: str = "record"
    made: ProgramJobs | None = None
    from_now: bool = False
    metrics_listen: str | None = None
    objectives: Sequence[Objective] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for an end that cannot come, and for labels that are none."""
        if self.for_s is not None and not 0 < self.for_s < math.inf:
            raise UsageError(f"for_s is {self.for_s}", hint="a capture lasts for a number of seconds above 0")
        if self.inferences is not None and self.inferences < 1:
            raise UsageError(f"inferences is {self.inferences}", hint="a capture ends after at least 1 inference")
        require_labels(self.labels)


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """Options of one board's recording. `now_us` is the host's wall clock; `job` is that of SessionStart.

    `profiling` is the program's configuration, where this host knows it better than the board. `past_filter` decides
    what is from before the capture and is not taken; without it everything is taken. With `notes_past` the names of
    passed logs are noted all the same, to judge how well a model was sampled. `keeping` chooses inferences. A flight
    recorder keeps all for a while, and then those that `keep_when` chooses; `found` is called with each of its new
    incidents. `compared` is called with the board's clock minus the host's in µs. `hold` is called with the board's
    identity before any of its files is touched. With `reads` this process reads the files itself, those of an inference
    at once: it finds new, complete inferences, and no names are noted before their files come. With `with_columns`
    committed batches carry the records of their inferences.
    """

    now_us: Callable[[], int]
    source: str = "record"
    maps: CounterMaps = BUILT_IN
    labels: Mapping[str, str] = field(default_factory=dict)
    always_new: bool = False
    job: str = ""
    profiling: Profiling | None = None
    keeping: Keeping | None = None
    keep_when: KeepWhen | None = None
    found: Callable[[Incident], None] = lambda _: None
    past_filter: PastFilter | None = None
    notes_past: bool = True
    compared: Callable[[int], None] = lambda _: None
    hold: Callable[[str], None] = lambda _: None
    reads: bool = False
    with_columns: bool = False

    def session_start(self, board: Board, identity: str, address: str, counter_map: CounterMap | None) -> SessionStart:
        """Return the description with which a session of this board begins."""
        return SessionStart(
            identity=identity,
            hostname=board.hostname,
            board_model=board.model,
            source=self.source,
            address=address,
            started_us=self.now_us(),
            simulated=board.simulated,
            daemon_version=board.daemon_version,
            sdk_version=board.sdk_version,
            decoded_with=MapUsed.of(counter_map),
            peak_bytes_per_s=self.maps.peak_bytes_per_s,
            labels=self.labels,
            always_new=self.always_new,
            keeping=None if (chosen := self.keeping or self.keep_when) is None else str(chosen),
            job=self.job,
        )
