"""The wire's messages from the daemon's values; nothing else knows how those of a stream look."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow.log import Chunk, Completed, Event, Loss, Removed, Started
from profagentd.loop import US_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from profagentd.access import Role
    from profagentd.follow.client import Usage
    from profagentd.follow.log import Log
    from profagentd.follow.registry import Job
    from profagentd.loop import Moment
    from profagentd.retention.losses import KeptLoss, Space
    from profagentd.retention.policy import Policy
    from profagentd.sources.acl_json import Profiling
    from profagentd.sources.measure import Measure

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 0

_BATCH_EVENTS = 1000


def protocol() -> wire.ProtocolVersion:
    """The version that this daemon speaks."""
    return wire.ProtocolVersion(major=PROTOCOL_MAJOR, minor=PROTOCOL_MINOR)


def clocks(now: Moment) -> wire.Clocks:
    """Both clocks."""
    return wire.Clocks(wall_us=now.wall_us, monotonic_us=int(now.monotonic * US_PER_S))


def welcome(description: wire.Description, role: Role, heartbeat_us: int) -> wire.Welcome:
    """The answer to a client's opening."""
    return wire.Welcome(description=description, role=wire.Role.ValueType(role.value), heartbeat_us=heartbeat_us)


def job_status(job: Job, *, handle: int = 0, caught_up: bool = False) -> wire.JobStatus:
    """A JOB and its state; a handle belongs to a stream."""
    return wire.JobStatus(
        handle=handle,
        name=job.name,
        directory=text(job.place.directory),
        state=wire.JobState.ValueType(job.state.value),
        caught_up=caught_up,
        changed_wall_us=job.changed_wall_us,
        profiling=_profiling(job.profiling) if job.profiling else None,
    )


def _profiling(found: Profiling) -> wire.Profiling:
    config = found.config
    return wire.Profiling(
        path=text(found.path),
        interval=config.interval,
        aicpu=config.aicpu,
        acl_api=config.acl_api,
        aic_metrics=config.aic_metrics,
    )


def announced(logs: Iterable[Log]) -> wire.ServerMessage:
    """Logs that the client is asked about."""
    message = wire.ServerMessage()
    for log in logs:
        said = message.announced.logs.add()
        said.handle, said.job, said.path, said.size = log.handle, log.job, log.path, log.size
        said.kind, said.unasked = wire.LogKind.ValueType(log.kind), log.unasked
    return message


def heartbeat(used: Usage, now: Moment, lag_bytes: int) -> wire.Heartbeat:
    """Proof of life, and what it costs."""
    return wire.Heartbeat(
        clocks=clocks(now),
        cpu_us=used.cpu_us,
        rss_bytes=used.rss_bytes,
        free_bytes=used.free_bytes,
        lag_bytes=lag_bytes,
    )


def batches(events: Iterable[Event], largest_bytes: int) -> Iterator[wire.ServerMessage]:
    """The events in order, in messages with so many bytes of logs at most, or one chunk."""
    message, size, count = wire.ServerMessage(), 0, 0
    add = message.batch.events.add
    for event in events:
        weight = len(event.data) if isinstance(event, Chunk) else 0
        if count and (size + weight > largest_bytes or count >= _BATCH_EVENTS):
            yield message
            message, size, count = wire.ServerMessage(), 0, 0
            add = message.batch.events.add
        # Filled in where it stands: one that is made apart and put in is copied, which costs thrice as much.
        _PUT[type(event)](event, add())
        size += weight
        count += 1
    if count:
        yield message


def kept_losses(losses: Iterable[KeptLoss], job_handle: Callable[[str], int]) -> Iterator[wire.Batch]:
    """Losses that are kept, in messages of the wire's size; `job_handle` gives the stream's handle of a JOB's name."""
    events = [wire.Event(loss=_kept_loss(loss, job_handle(loss.job))) for loss in losses]
    for start in range(0, len(events), _BATCH_EVENTS):
        yield wire.Batch(events=events[start : start + _BATCH_EVENTS])


def job_measure(measure: Measure) -> wire.JobMeasure:
    """How much a JOB holds."""
    return wire.JobMeasure(logs=measure.logs, bytes=measure.bytes, inferences=measure.inferences, is_all=measure.is_all)


def retention(policy: Policy, spaces: Iterable[Space]) -> wire.Retention:
    """What is deleted; of several file systems the largest free space that is wanted."""
    return wire.Retention(
        policy=wire.RetentionPolicy.ValueType(policy.retain.value),
        retain_for=policy.retain_for,
        min_free_bytes=max((policy.wanted_bytes(space.total_bytes) for space in spaces), default=policy.min_free_bytes),
        may_delete_undelivered=policy.delete_undelivered,
    )


def _put_chunk(event: Chunk, event_said: wire.Event) -> None:
    said = event_said.chunk
    said.handle, said.generation, said.offset, said.data = event


def _put_started(event: Started, event_said: wire.Event) -> None:
    said = event_said.started
    said.handle, said.generation, said.offset, reason = event
    said.reason = wire.StartReason.ValueType(reason)


def _put_completed(event: Completed, event_said: wire.Event) -> None:
    said = event_said.completed
    said.handle, said.generation, said.size, said.digest = event


def _put_removed(event: Removed, event_said: wire.Event) -> None:
    said = event_said.removed
    said.handle, said.generation, said.sent, said.size = event


def _put_loss(event: Loss, event_said: wire.Event) -> None:
    event_said.loss.CopyFrom(_loss(event))


_PUT: dict[type[Event], Callable[[Any, wire.Event], None]] = {
    Chunk: _put_chunk,
    Started: _put_started,
    Completed: _put_completed,
    Removed: _put_removed,
    Loss: _put_loss,
}


def _loss(loss: Loss) -> wire.Loss:
    return wire.Loss(
        handle=loss.handle,
        job=loss.job,
        reason=loss.reason.value,
        detail=text(loss.detail.encode("utf-8", "surrogateescape")),
        lost_bytes=loss.lost_bytes,
    )


def _kept_loss(loss: KeptLoss, job: int) -> wire.Loss:
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
    """A path for people, also where its bytes are no text."""
    return os.fsdecode(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
