"""Translation between the wire's protobuf messages and plain values; protobuf objects stop here.

Texts of a board are shown to people: they are bounded, and control characters in them are made harmless.
"""

from __future__ import annotations

from functools import cache, lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import asdict, replace

from profagent.errors import ProtocolError
from profagent.formats.names import display_text
from profagent.limits import (
    LARGEST_AMOUNT,
    LARGEST_ENTRIES,
    LARGEST_EXAMINED_BYTES,
    LARGEST_INTEGER,
    LARGEST_TIME_US,
    LONGEST_LIST,
    LONGEST_TEXT,
)
from profagent.link import messages as m
from profagent.link.logs import refuse
from profagent_wire.v1 import board_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _words(enum: Any, between: str = "-") -> dict[int, str]:
    prefix = enum.Name(0).removesuffix("UNSPECIFIED")
    return {value: name.removeprefix(prefix).lower().replace("_", between) for name, value in enum.items() if value}


_OUTPUTS = _words(pb.OutputState, " ")


class NpuFacts(Struct, frozen=True):
    """Signs of NPU software stacks on a board: the expected one, and others."""

    has_device: bool = False
    has_other_device: bool = False
    has_other_libraries: bool = False
    modules: tuple[str, ...] = ()


class NpuProcess(Struct, frozen=True):
    """Process that has the NPU open; `umask` in octal, empty if not known."""

    pid: int
    name: str
    uid: int = 0
    umask: str = ""


class ProcessFacts(Struct, frozen=True):
    """Processes that have the NPU open; `count` may be larger than the number of those listed."""

    with_npu: tuple[NpuProcess, ...] = ()
    count: int = 0
    are_all_seen: bool = True


class UmapNode(Struct, frozen=True):
    """Node of /proc/umap; `error` is the reason if it cannot be read, `text` has only the NPU's lines."""

    name: str
    error: str = ""
    text: str = ""


class JobFacts(Struct, frozen=True):
    """JOB directory: its permission bits, and the error if it cannot be listed."""

    directory: str
    mode: int = 0o755
    uid: int = 0
    error: str = ""


class RootFacts(Struct, frozen=True):
    """Root directory of JOBs. If `error` says why it cannot be listed, the rest is not known. Sizes are bytes."""

    path: str
    error: str = ""
    file_system: str = ""
    total_bytes: int = 0
    free_bytes: int = 0
    has_inodes: bool = True
    jobs: int = 0
    open_jobs: int = 0
    newest: tuple[JobFacts, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    """Directories below it that cannot be listed, each with its error."""


class AclFile(Struct, frozen=True):
    """File that is or may be an acl.json; `output` is directory, missing, not a directory, or empty if not known."""

    path: str
    data: bytes
    size: int
    output: str = ""


class Mount(Struct, frozen=True):
    """Mounted network file system."""

    point: str
    file_system: str
    source: str


class InotifyFacts(Struct, frozen=True):
    """Limits of the kernel, 0 if not known; `watches` is the daemon's number."""

    max_user_watches: int
    max_user_instances: int
    max_queued_events: int
    watches: int


class DaemonFacts(Struct, frozen=True):
    """User of the daemon and its effective capabilities, one bit each."""

    uid: int
    capabilities: int


class Examination(Struct, frozen=True):
    """Examination of a board by its daemon; None for unknown facts, with the reason in `unknown`, by source."""

    unknown: tuple[tuple[str, str], ...] = ()
    npu: NpuFacts | None = None
    processes: ProcessFacts | None = None
    umap: tuple[UmapNode, ...] = ()
    roots: tuple[RootFacts, ...] = ()
    acl_json: tuple[AclFile, ...] = ()
    remote_mounts: tuple[Mount, ...] = ()
    inotify: InotifyFacts | None = None
    daemon: DaemonFacts | None = None
    tls_cert: bytes = b""
    tls_ca: bytes = b""

    def why_unknown(self, source: str) -> str:
        """Return why the facts of a source are not known; empty if they are."""
        return dict(self.unknown).get(source, "")


def examination_from_wire(said: pb.Examination) -> Examination:
    """Return a board's examination; long lists and files are cut. Raises ProtocolError."""
    nodes = (
        UmapNode(_text(each.name), _text(each.error), each.text[:LARGEST_EXAMINED_BYTES])
        for each in said.umap[:LONGEST_LIST]
    )
    files = (
        AclFile(
            _text(each.path), each.data[:LARGEST_EXAMINED_BYTES], _number(each, "size"), _OUTPUTS.get(each.output, "")
        )
        for each in said.acl_json[:LONGEST_LIST]
    )
    examination: Examination = _facts(Examination, said, omitting=("umap", "acl_json"))
    return replace(examination, umap=tuple(nodes), acl_json=tuple(files))


_hints = lru_cache(get_type_hints)


def _facts(kind: Any, said: Any, omitting: tuple[str, ...] = ()) -> Any:
    return kind(**{name: _value(hint, said, name) for name, hint in _hints(kind).items() if name not in omitting})


def _value(hint: Any, said: Any, name: str) -> Any:
    if hint is int:
        return _number(said, name)
    value = getattr(said, name)
    if get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis:
        return tuple(_element(get_args(hint)[0], each) for each in value[:LONGEST_LIST])
    if get_origin(hint) is UnionType:
        return _facts(get_args(hint)[0], value) if said.HasField(name) else None
    return _element(hint, value)


def _element(hint: Any, value: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _facts(hint, value)
    if get_origin(hint) is tuple:
        return tuple(_element(None, getattr(value, field.name)) for field in value.DESCRIPTOR.fields)
    if hint is bytes:
        return value[:LARGEST_EXAMINED_BYTES]
    return _text(value) if isinstance(value, str) else value


# No disk holds as many bytes, logs or inferences as LARGEST_AMOUNT: a larger number in these fields is a breach.
_AMOUNTS = frozenset(
    ("offset", "size", "sent", "bytes", "lag_bytes", "lost_bytes", "generation", "inferences", "lost_logs")
)


# Random numbers, which are compared and never counted with.
_NAMES = frozenset(("id",))


@cache
def _largest(name: str) -> int:
    if name.endswith("_us"):
        return LARGEST_TIME_US
    if name in _NAMES:
        return 2**64 - 1
    return LARGEST_AMOUNT if name in _AMOUNTS else LARGEST_INTEGER


def _number(said: Any, name: str) -> int:
    """Return a number of a message. Raises ProtocolError if it exceeds the bound of its field."""
    value: int = getattr(said, name)
    if value > _largest(name):
        refuse(f"{type(said).__name__}.{name} is {value}, more than {_largest(name)}")
    return value


T = TypeVar("T")


_STATES, _REASONS, _POLICIES, _ROLES = map(_words, (pb.JobState, pb.StartReason, pb.RetentionPolicy, pb.Role))


def to_wire(message: m.ClientMessage) -> pb.ClientMessage:
    """Return a client message in the wire's form."""
    match message:
        case m.Open():
            version = pb.ProtocolVersion(major=m.PROTOCOL[0], minor=m.PROTOCOL[1])
            opening = pb.Open(protocol=version, consumer=message.consumer, client=message.client)
            return pb.ClientMessage(open=opening)
        case m.Select():
            return pb.ClientMessage(select=pb.Select(follow=message.follow, unfollow=message.unfollow))
        case m.Holdings():
            return pb.ClientMessage(holdings=pb.Holdings(logs=[pb.Holding(**asdict(log)) for log in message.logs]))
        case m.Acknowledge():
            return pb.ClientMessage(
                acknowledge=pb.Acknowledge(logs=[pb.Acknowledgement(**asdict(log)) for log in message.logs])
            )
        case m.ClientHeartbeat():
            return pb.ClientMessage(heartbeat=pb.Heartbeat())
        case m.Sync():
            return pb.ClientMessage(sync=pb.Sync(number=message.number))


def from_wire(message: pb.ServerMessage) -> m.ServerMessage | None:
    """Return a server message as a value; None for a kind that a newer minor version added. Raises ProtocolError."""
    kind = message.WhichOneof("message")
    return None if kind is None else _READERS[kind](getattr(message, kind))


def board_from_wire(description: pb.Description) -> m.Board:
    """Return a board's description. Raises ProtocolError."""
    retention = _retention(description.retention) if description.HasField("retention") else None
    board: m.Board = _facts(m.Board, description)
    return replace(board, clocks=clocks_from_wire(description.clocks), retention=retention)


def measure_from_wire(said: pb.JobMeasure) -> m.JobMeasure:
    """Return the size of a JOB. Raises ProtocolError."""
    measure: m.JobMeasure = _facts(m.JobMeasure, said)
    return measure


def clocks_from_wire(said: pb.Clocks) -> m.Clocks:
    """Return a pair of clocks. Raises ProtocolError for impossible times."""
    clocks: m.Clocks = _facts(m.Clocks, said)
    return clocks


def job_from_wire(job: pb.JobStatus) -> m.JobStatus:
    """Return a JOB's status."""
    state = _STATES.get(job.state, "unknown")
    profiling = _facts(m.Profiling, job.profiling) if job.HasField("profiling") else None
    source = _text(job.source) or m.JOB_SOURCE
    return m.JobStatus(job.handle, job.name, _text(job.directory), state, job.caught_up, profiling, source)


def _text(said: str) -> str:
    return display_text(said[:LONGEST_TEXT])


def _retention(said: pb.Retention) -> m.Retention:
    retention: m.Retention = _facts(m.Retention, said)
    return replace(retention, policy=_POLICIES.get(said.policy, "unknown"))


def _announced(log: pb.AnnouncedLog) -> m.AnnouncedLog:
    if log.kind not in (pb.LOG_KIND_DATA, pb.LOG_KIND_SNAPSHOT):
        raise ProtocolError(
            f"the board broke the protocol: log kind {log.kind} is not known", hint="upgrade profagent on the host"
        )
    return m.AnnouncedLog(log.handle, log.job, log.path, log.kind == pb.LOG_KIND_SNAPSHOT)


def _event(event: pb.Event) -> m.LogEvent | None:
    match event.WhichOneof("event"):
        case "started":
            e = event.started
            reason = _REASONS.get(e.reason, "unknown")
            return m.Started(e.handle, _number(e, "generation"), _number(e, "offset"), reason, e.data, e.digest)
        case "chunk":
            c = event.chunk
            return m.Chunk(c.handle, _number(c, "generation"), _number(c, "offset"), c.data)
        case "completed":
            d = event.completed
            return m.Completed(d.handle, _number(d, "generation"), _number(d, "size"), d.digest)
        case "removed":
            removed: m.Removed = _facts(m.Removed, event.removed)
            return removed
        case "loss":
            loss: m.Loss = _facts(m.Loss, event.loss)
            return loss
    return None


def _welcome(welcome: pb.Welcome) -> m.Welcome:
    role = _ROLES.get(welcome.role, "unknown")
    return m.Welcome(board_from_wire(welcome.description), _number(welcome, "heartbeat_us"), role)


def _entries(said: Sequence[T]) -> Sequence[T]:
    """Return the entries of a message, counted before any is translated. Raises ProtocolError for too many."""
    if len(said) > LARGEST_ENTRIES:
        refuse(f"it sent a message of {len(said):,} entries, more than {LARGEST_ENTRIES:,}")
    return said


def _announced_logs(logs: Sequence[pb.AnnouncedLog]) -> tuple[m.AnnouncedLog, ...]:
    return tuple(_announced(log) for log in _entries(logs))


def _batch(batch: pb.Batch) -> m.Batch:
    # Events of kinds that a newer minor version added are dropped, as `from_wire` does with messages.
    events = map(_event, _entries(batch.events))
    return m.Batch(tuple(event for event in events if event is not None), _announced_logs(batch.made))


_READERS: dict[str, Callable[[Any], m.ServerMessage]] = {
    "welcome": _welcome,
    "job_status": job_from_wire,
    "jobs_listed": lambda _: m.JobsListed(),
    "announced": lambda page: m.Announced(_announced_logs(page.logs)),
    "batch": _batch,
    "released": lambda released: m.Released(tuple(_entries(released.handles))),
    "heartbeat": lambda beat: m.Heartbeat(_number(beat, "lag_bytes")),
    "synced": lambda synced: m.Synced(synced.number),
    "goodbye": lambda goodbye: m.Goodbye(_text(goodbye.reason), _number(goodbye, "retry_after_us")),
}
