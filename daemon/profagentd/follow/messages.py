"""Translation between the wire's messages and the daemon's values; only this module knows a stream's messages."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from profagent_wire.v1 import board_pb2 as wire
from profagentd.errors import Fault, Refusal
from profagentd.follow.log import DIGEST_BYTES, Chunk, Completed, Event, Loss, Removed, Started
from profagentd.limits import CHUNK_BYTES, LARGEST_HELD, MAX_CLIENT_NAME, PAGE_ENTRIES
from profagentd.loop import US_PER_S
from profagentd.retention.policy import Retain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Sized

    from profagentd.access import Role
    from profagentd.follow.log import Log
    from profagentd.follow.session import Following, FollowSession
    from profagentd.loop import ClockReading
    from profagentd.retention.losses import RecordedLoss
    from profagentd.retention.policy import Policy
    from profagentd.sources.acl_json import Profiling

T = TypeVar("T")

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 0
# Features beyond version 1.0 (board.proto, Description.capabilities).
CAPABILITIES = ("sync",)

# Consumers are named in the settings and in the log, so only harmless characters are allowed.
_CONSUMER = re.compile(r"[A-Za-z0-9._-]{1,64}")


def protocol() -> wire.ProtocolVersion:
    """Return the protocol version of this daemon."""
    return wire.ProtocolVersion(major=PROTOCOL_MAJOR, minor=PROTOCOL_MINOR)


def clocks(now: ClockReading) -> wire.Clocks:
    """Return the message with both clocks."""
    return wire.Clocks(wall_us=now.wall_us, monotonic_us=int(now.monotonic * US_PER_S))


def welcome(description: wire.Description, role: Role, heartbeat_us: int) -> wire.Welcome:
    """Return the answer to a client's Open."""
    return wire.Welcome(description=description, role=wire.Role.ValueType(role.value), heartbeat_us=heartbeat_us)


def job_status(following: Following, *, caught_up: bool = False) -> wire.ServerMessage:
    """Return the message with a JOB's state, under its handle in the stream."""
    job = following.job
    status = wire.JobStatus(
        handle=following.handle,
        name=job.name,
        directory=text(job.place.directory),
        state=wire.JobState.ValueType(job.state.value),
        caught_up=caught_up,
        profiling=_profiling(job.profiling) if job.profiling else None,
        source=job.source.name,
    )
    return wire.ServerMessage(job_status=status)


def _profiling(found: Profiling) -> wire.Profiling:
    config = found.config
    return wire.Profiling(
        path=text(found.path),
        interval=config.interval,
        aicpu=config.aicpu,
        acl_api=config.acl_api,
        aic_metrics=config.aic_metrics,
    )


def announced(logs: Sequence[Log]) -> Iterator[wire.ServerMessage]:
    """Yield messages that announce logs and ask the client what it holds of them."""
    for page in _pages(logs):
        message = wire.ServerMessage()
        _put_logs(page, message.announced.logs)
        yield message


def _pages(entries: Sequence[T]) -> Iterator[Sequence[T]]:
    return (entries[start : start + PAGE_ENTRIES] for start in range(0, len(entries), PAGE_ENTRIES))


def _put_logs(logs: Iterable[Log], announced_logs: Any) -> None:
    for log in logs:
        message = announced_logs.add()
        message.handle, message.job, message.path, message.size = log.handle, log.job, log.path, log.size
        message.kind = wire.LogKind.ValueType(log.kind)


def released(handles: Sequence[int]) -> Iterator[wire.ServerMessage]:
    """Return messages with handles of logs that this stream does not follow any more."""
    return (wire.ServerMessage(released=wire.Released(handles=page)) for page in _pages(handles))


def heartbeat(lag_bytes: int) -> wire.ServerMessage:
    """Return a heartbeat with the number of bytes that are not sent yet."""
    return wire.ServerMessage(heartbeat=wire.Heartbeat(lag_bytes=lag_bytes))


def synced(number: int) -> wire.ServerMessage:
    """Return the answer to a Sync."""
    return wire.ServerMessage(synced=wire.Synced(number=number))


def batches(
    events: Iterable[Event], largest_bytes: int = CHUNK_BYTES, *, made: Sequence[Log] = ()
) -> Iterator[wire.ServerMessage]:
    """Yield new logs, then the events in order, each message with at most `largest_bytes` of logs, or one chunk."""
    message, size, count = wire.ServerMessage(), 0, 0
    for page in _pages(made):
        if count:
            yield message
            message = wire.ServerMessage()
        _put_logs(page, message.batch.made)
        count = 1  # the message is not empty, although it holds no event yet
    add = message.batch.events.add
    # A small log is one entry: the first chunk and the completion that follow a Started are put into it. `rest` holds
    # the types of events that the newest entry still has room for.
    started, handle = wire.Started(), 0
    rest: tuple[type, ...] = ()
    for event in events:
        weight = len(event.data) if isinstance(event, Chunk) else 0
        if count and (size + weight > largest_bytes or count >= PAGE_ENTRIES):
            yield message
            message, size, count, rest = wire.ServerMessage(), 0, 0, ()
            add = message.batch.events.add
        size += weight
        if event.handle == handle and isinstance(event, rest):
            if isinstance(event, Chunk):
                started.data, rest = event.data, (Completed,)
            elif isinstance(event, Completed):
                started.digest, rest = event.digest, ()
            continue
        # The entry is filled in place: one that is built apart is copied into the message, at three times the cost.
        entry = add()
        _PUT[type(event)](event, entry)
        started, handle = entry.started, event.handle
        rest = (Chunk, Completed) if isinstance(event, Started) else ()
        count += 1
    if count:
        yield message


def recorded_losses(losses: Iterable[RecordedLoss], session: FollowSession) -> Iterator[wire.ServerMessage]:
    """Return messages with recorded losses, under the stream's handles of their JOBs."""
    events = [wire.Event(loss=_recorded_loss(loss, session.job_handle(loss.job))) for loss in losses]
    return (wire.ServerMessage(batch=wire.Batch(events=page)) for page in _pages(events))


def retention(policy: Policy) -> wire.Retention | None:
    """Return the message with the retention policy, or None where nothing is deleted."""
    if policy.retain is Retain.KEEP:
        return None
    return wire.Retention(policy=wire.RetentionPolicy.ValueType(policy.retain.value), retain_for=policy.retain_for)


def _put_chunk(event: Chunk, entry: wire.Event) -> None:
    message = entry.chunk
    message.handle, message.generation, message.offset, message.data = event


def _put_started(event: Started, entry: wire.Event) -> None:
    message = entry.started
    message.handle, message.generation, message.offset, reason = event
    message.reason = wire.StartReason.ValueType(reason)


def _put_completed(event: Completed, entry: wire.Event) -> None:
    message = entry.completed
    message.handle, message.generation, message.size, message.digest = event


def _put_removed(event: Removed, entry: wire.Event) -> None:
    message = entry.removed
    message.handle, message.generation, message.sent, message.size = event


def _put_loss(event: Loss, entry: wire.Event) -> None:
    message = entry.loss
    message.handle, message.job, message.reason, message.lost_bytes = (
        event.handle,
        event.job,
        event.reason.value,
        event.lost_bytes,
    )
    message.detail = text(event.detail.encode("utf-8", "surrogateescape"))


_PUT: dict[type[Event], Callable[[Any, wire.Event], None]] = {
    Chunk: _put_chunk,
    Started: _put_started,
    Completed: _put_completed,
    Removed: _put_removed,
    Loss: _put_loss,
}


def _recorded_loss(loss: RecordedLoss, job: int) -> wire.Loss:
    return wire.Loss(
        job=job,
        reason=loss.reason,
        detail=loss.detail,
        lost_bytes=loss.lost_bytes,
        id=loss.id,
        job_name=loss.job,
        from_wall_us=loss.from_wall_us,
        to_wall_us=loss.to_wall_us,
        lost_logs=loss.lost_logs,
    )


def text(path: bytes) -> str:
    """Return a path as text that can be shown, also where its bytes are not UTF-8."""
    return os.fsdecode(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check_open(message: wire.ClientMessage) -> wire.Open:
    """Return the Open of a client's first message. Raises Refusal for anything else, or for bad names and versions."""
    if message.WhichOneof("message") != "open":
        raise Refusal(Fault.INVALID, "the first message of a stream is Open")
    opened = message.open
    if opened.protocol.major != PROTOCOL_MAJOR:
        client_version, own_version = (
            f"{opened.protocol.major}.{opened.protocol.minor}",
            f"{PROTOCOL_MAJOR}.{PROTOCOL_MINOR}",
        )
        raise Refusal(Fault.INCOMPATIBLE, f"the client speaks protocol {client_version}, this daemon {own_version}")
    if not _CONSUMER.fullmatch(opened.consumer):
        raise Refusal(Fault.INVALID, "a consumer's name is 1 to 64 of A-Z a-z 0-9 . _ -")
    if len(opened.client) > MAX_CLIENT_NAME or not opened.client.isprintable():
        raise Refusal(Fault.INVALID, f"a client's name is at most {MAX_CLIENT_NAME} printable characters")
    return opened


def apply(message: wire.ClientMessage, session: FollowSession) -> None:
    """Apply a message after the first to the session. Raises Refusal."""
    kind = message.WhichOneof("message")
    if kind == "open":
        raise Refusal(Fault.INVALID, "Open comes once")
    if kind == "select":
        _limit("Select", message.select.follow, message.select.unfollow)
        session.select(message.select.follow, message.select.unfollow)
    elif kind == "holdings":
        _limit("Holdings", message.holdings.logs)
        for holding in message.holdings.logs:
            _hold(holding, session)
    elif kind == "acknowledge":
        _limit("Acknowledge", message.acknowledge.logs)
        for ack in message.acknowledge.logs:
            session.table.acknowledge(ack.handle, generation=ack.generation, offset=ack.offset, complete=ack.complete)
    elif kind == "sync":
        session.sync(message.sync.number)


def _hold(holding: wire.Holding, session: FollowSession) -> None:
    # A uint64 of the wire may be more than a file's offset can be: `pread` would raise OverflowError.
    if max(holding.generation, holding.offset) > LARGEST_HELD:
        raise Refusal(Fault.INVALID, f"the Holding of log {holding.handle} has a number beyond {LARGEST_HELD}")
    if holding.offset and not holding.skip and len(holding.prefix_digest) != DIGEST_BYTES:
        raise Refusal(Fault.INVALID, f"the digest of log {holding.handle} is not of {DIGEST_BYTES} bytes")
    session.hold(
        holding.handle,
        skip=holding.skip,
        generation=holding.generation,
        offset=holding.offset,
        prefix_digest=holding.prefix_digest,
    )


def _limit(what: str, *entries: Sized) -> None:
    if sum(map(len, entries)) > PAGE_ENTRIES:
        raise Refusal(Fault.EXHAUSTED, f"{what} holds at most {PAGE_ENTRIES} entries")
