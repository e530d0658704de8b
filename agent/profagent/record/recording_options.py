"""How a recording is kept, what its session is begun with, and what a JOB's program was told to record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profagent.errors import UsageError
from profagent.formats.board_files import parse_acl_json
from profagent.formats.names import display_text
from profagent.formats.sampling import interval_of
from profagent.ingest.changes import ProfilingKnown
from profagent.link.messages import Profiling
from profagent.store.counter_maps import BUILT_IN, CounterMaps
from profagent.store.sessions import MapUsed, SessionStart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.formats.sampling import Keeping
    from profagent.link.messages import Board
    from profagent.record.beginnings import Beginnings


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """What whoever records chose. `now_us` is the host's wall clock; `job` as of SessionStart.

    `told` is what the JOBs' program was told to record, where this host knows that better than the board.
    `beginnings` knows what is from before the capture, and not taken; without it all is.
    `keeping` chooses inferences.
    """

    now_us: Callable[[], int]
    source: str = "record"
    maps: CounterMaps = BUILT_IN
    labels: Mapping[str, str] = field(default_factory=dict)
    always_new: bool = False
    job: str = ""
    told: Profiling | None = None
    keeping: Keeping | None = None
    beginnings: Beginnings | None = None

    def session_start(self, board: Board, identity: str, address: str, counter_map: CounterMap | None) -> SessionStart:
        """What begins a session of this board."""
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
            keeping=None if self.keeping is None else str(self.keeping),
            job=self.job,
        )


def read_acl_json(file: Path) -> Profiling:
    """The interval that a file tells. Raises UsageError, FormatError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror}", hint="name the acl.json that the JOB's program was given"
        ) from error
    return Profiling(str(file), str(parse_acl_json(data, str(file))))


def profiling_known(told: Profiling) -> ProfilingKnown:
    """What it means for the JOB's rows."""
    return ProfilingKnown(interval_of(told.interval), display_text(told.path))
