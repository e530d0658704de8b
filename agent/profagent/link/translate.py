"""Between the wire's protobuf messages and plain values; protobuf objects stop here.

Texts of a board are shown to people: they are cut to a length, and nothing in them can steer a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from profagent.errors import ProtocolError
from profagent.formats.names import display_text
from profagent.link import messages as m
from profagent_wire.v1 import board_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

LONGEST_TEXT = 1000
LONGEST_LIST = 64
LARGEST_ENTRIES = 1000
# A database's integer has 63 bits, and the difference of two clocks must be one.
LARGEST_TIME_US = 2**62

_STATES = {
    pb.JOB_STATE_OPEN: "open",
    pb.JOB_STATE_FINISHED: "finished",
    pb.JOB_STATE_QUIET: "quiet",
    pb.JOB_STATE_REMOVED: "removed",
}
_REASONS = {
    pb.START_REASON_NEW: "new",
    pb.START_REASON_SAME: "same",
    pb.START_REASON_DIFFERENT: "different",
    pb.START_REASON_RECREATED: "recreated",
    pb.START_REASON_REWRITTEN: "rewritten",
}
_POLICIES = {
    pb.RETENTION_POLICY_KEEP: "keep",
    pb.RETENTION_POLICY_DELIVERED: "delivered",
    pb.RETENTION_POLICY_MIN_FREE: "min-free",
}
_ROLES = {pb.ROLE_VIEWER: "viewer", pb.ROLE_OPERATOR: "operator"}


def to_wire(message: m.ClientMessage) -> pb.ClientMessage:
    """A client message for the stream."""
    match message:
        case m.Open():
            version = pb.ProtocolVersion(major=m.PROTOCOL[0], minor=m.PROTOCOL[1])
            opening = pb.Open(protocol=version, consumer=message.consumer, client=message.client)
            return pb.ClientMessage(open=opening)
        case m.Select():
            return pb.ClientMessage(select=pb.Select(follow=message.follow, unfollow=message.unfollow))
        case m.Holdings():
            return pb.ClientMessage(holdings=pb.Holdings(logs=[_holding(log) for log in message.logs]))
        case m.Acknowledge():
            return pb.ClientMessage(acknowledge=pb.Acknowledge(logs=[_acknowledgement(log) for log in message.logs]))
        case m.ClientHeartbeat():
            return pb.ClientMessage(heartbeat=pb.Heartbeat())


def from_wire(message: pb.ServerMessage) -> m.ServerMessage | None:
    """A server message as a value; None for one that a newer minor version added. Raises ProtocolError."""
    kind = message.WhichOneof("message")
    return None if kind is None else _READERS[kind](getattr(message, kind))


def board_from_wire(description: pb.Description) -> m.Board:
    """A board's description."""
    return m.Board(
        identity=_text(description.identity),
        hostname=_text(description.hostname),
        boot_id=_text(description.boot_id),
        model=_text(description.model),
        daemon_version=_text(description.daemon_version),
        protocol=(description.protocol.major, description.protocol.minor),
        simulated=description.simulated,
        sdk_version=_text(description.sdk_version),
        roots=_texts(description.roots),
        quiet_after_us=description.quiet_after_us,
        clocks=clocks_from_wire(description.clocks),
        retention=_retention(description.retention) if description.HasField("retention") else None,
        insecure=description.insecure,
    )


def measure_from_wire(said: pb.JobMeasure) -> m.JobMeasure:
    """How much a JOB holds."""
    return m.JobMeasure(said.logs, said.bytes, said.inferences, said.is_all)


def clocks_from_wire(clocks: pb.Clocks) -> m.Clocks:
    """A pair of clocks. Raises ProtocolError for times that no clock shows."""
    latest = max(clocks.wall_us, clocks.monotonic_us)
    if latest > LARGEST_TIME_US:
        raise ProtocolError(
            f"the board broke the protocol: a clock shows {latest} microseconds", hint="upgrade profagentd on the board"
        )
    return m.Clocks(clocks.wall_us, clocks.monotonic_us)


def job_from_wire(job: pb.JobStatus) -> m.JobStatus:
    """A JOB's status."""
    state = _STATES.get(job.state, "unknown")
    profiling = _profiling(job.profiling) if job.HasField("profiling") else None
    return m.JobStatus(job.handle, job.name, _text(job.directory), state, job.caught_up, profiling)


def _text(said: str) -> str:
    return display_text(said[:LONGEST_TEXT])


def _texts(said: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(_text, said[:LONGEST_LIST]))


def _retention(retention: pb.Retention) -> m.Retention:
    return m.Retention(
        _POLICIES.get(retention.policy, "unknown"),
        _texts(retention.retain_for),
        retention.min_free_bytes,
        retention.may_delete_undelivered,
    )


def _profiling(found: pb.Profiling) -> m.Profiling:
    return m.Profiling(*map(_text, (found.path, found.interval, found.aicpu, found.acl_api, found.aic_metrics)))


def _holding(log: m.Holding) -> pb.Holding:
    return pb.Holding(
        handle=log.handle,
        skip=log.skip,
        generation=log.generation,
        offset=log.offset,
        prefix_digest=log.prefix_digest,
    )


def _acknowledgement(log: m.Acknowledgement) -> pb.Acknowledgement:
    return pb.Acknowledgement(handle=log.handle, generation=log.generation, offset=log.offset, complete=log.complete)


def _announced(log: pb.AnnouncedLog) -> m.AnnouncedLog:
    if log.kind not in (pb.LOG_KIND_DATA, pb.LOG_KIND_SNAPSHOT):
        raise ProtocolError(
            f"the board broke the protocol: log kind {log.kind} is not known", hint="upgrade profagent on the host"
        )
    return m.AnnouncedLog(log.handle, log.job, log.path, log.kind == pb.LOG_KIND_SNAPSHOT, log.size, log.unasked)


def _event(event: pb.Event) -> m.LogEvent | None:
    match event.WhichOneof("event"):
        case "started":
            e = event.started
            reason = _REASONS.get(e.reason, "unknown")
            return m.Started(e.handle, e.generation, e.offset, reason)
        case "chunk":
            c = event.chunk
            return m.Chunk(c.handle, c.generation, c.offset, c.data)
        case "completed":
            d = event.completed
            return m.Completed(d.handle, d.generation, d.size, d.digest)
        case "removed":
            r = event.removed
            return m.Removed(r.handle, r.generation, r.sent, r.size)
        case "loss":
            return _loss(event.loss)
    return None


def _loss(loss: pb.Loss) -> m.Loss:
    return m.Loss(
        handle=loss.handle,
        job=loss.job,
        reason=_text(loss.reason),
        detail=_text(loss.detail),
        lost_bytes=loss.lost_bytes,
        id=loss.id,
        job_name=loss.job_name,
        from_wall_us=loss.from_wall_us,
        to_wall_us=loss.to_wall_us,
        lost_logs=loss.lost_logs,
    )


def _heartbeat(beat: pb.Heartbeat) -> m.Heartbeat:
    free_bytes = tuple(beat.free_bytes[:LONGEST_LIST])
    return m.Heartbeat(clocks_from_wire(beat.clocks), beat.cpu_us, beat.rss_bytes, free_bytes, beat.lag_bytes)


def _welcome(welcome: pb.Welcome) -> m.Welcome:
    role = _ROLES.get(welcome.role, "unknown")
    return m.Welcome(board_from_wire(welcome.description), welcome.heartbeat_us, role)


def _entries(said: Sequence[T]) -> Sequence[T]:
    """What a message lists, counted before it is made anything of. Raises ProtocolError for too many."""
    if len(said) > LARGEST_ENTRIES:
        raise ProtocolError(
            f"the board broke the protocol: it sent a message of {len(said):,} entries, more than {LARGEST_ENTRIES:,}",
            hint="upgrade profagent on both ends",
        )
    return said


def _announced_page(page: pb.Announced) -> m.Announced:
    return m.Announced(tuple(_announced(log) for log in _entries(page.logs)))


def _batch(batch: pb.Batch) -> m.Batch:
    events = (_event(event) for event in _entries(batch.events))
    return m.Batch(tuple(event for event in events if event is not None))


_READERS: dict[str, Callable[[Any], m.ServerMessage]] = {
    "welcome": _welcome,
    "job_status": job_from_wire,
    "jobs_listed": lambda _: m.JobsListed(),
    "announced": _announced_page,
    "batch": _batch,
    "released": lambda released: m.Released(tuple(_entries(released.handles))),
    "heartbeat": _heartbeat,
    "goodbye": lambda goodbye: m.Goodbye(_text(goodbye.reason), goodbye.retry_after_us),
}
