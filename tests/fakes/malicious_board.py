"""A board that means harm: a real gRPC server whose every Follow stream plays a script that a test writes."""

from __future__ import annotations

import hashlib
import itertools
import string
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import BoardServicer, add_BoardServicer_to_server

JOB = "JOB" + "A" * 29
GOOD = b"data/aicore.0.good.3.0.1.1.0"
RECORDS = bytes(768)
BEAT_S = 0.5
THREADS = 8
MESSAGE_BYTES = 64 << 20

Message = wire.ServerMessage
Script = Callable[["Talk"], Iterable[Message]]


class Talk:
    """One stream, as a script sees it."""

    def __init__(self, incoming: Iterator[wire.ClientMessage], over: threading.Event) -> None:
        self._incoming = incoming
        self._over = over

    def until(self, kind: str) -> Any:
        """The next message of a kind; a script ends where there is none."""
        for message in self._incoming:
            if message.WhichOneof("message") == kind:
                return getattr(message, kind)
        raise StopTalking

    def beats(self) -> Iterator[Message]:
        """Signs of life for as long as the host listens."""
        while not self._over.wait(BEAT_S):
            yield Message(heartbeat=wire.Heartbeat())


class StopTalking(Exception):  # noqa: N818 - no fault
    """The host has ended the stream."""


class _Servicer(BoardServicer):
    def __init__(self, script: Script, clocks: wire.Clocks) -> None:
        self._script = script
        self._clocks = clocks
        self.streams = 0

    def Follow(self, request_iterator: Iterator[wire.ClientMessage], context: grpc.ServicerContext) -> Any:
        self.streams += 1
        over = threading.Event()
        context.add_callback(over.set)
        try:
            yield from self._script(Talk(request_iterator, over))
        except (StopTalking, grpc.RpcError):
            return

    def Describe(self, request: wire.DescribeRequest, context: grpc.ServicerContext) -> wire.Description:
        return description()

    def Examine(self, request: wire.ExamineRequest, context: grpc.ServicerContext) -> wire.Examination:
        return wire.Examination()

    def MeasureJob(self, request: wire.MeasureJobRequest, context: grpc.ServicerContext) -> wire.JobMeasure:
        return wire.JobMeasure()

    def SyncClock(self, request: wire.SyncClockRequest, context: grpc.ServicerContext) -> wire.SyncClockReply:
        return wire.SyncClockReply(received=self._clocks, sent=self._clocks)


class MaliciousBoard:
    """A running one."""

    def __init__(self, address: str, servicer: _Servicer) -> None:
        self.address = address
        self._servicer = servicer

    @property
    def streams(self) -> int:
        """How many streams were opened."""
        return self._servicer.streams


@contextmanager
def malicious(script: Script, *, clocks: wire.Clocks | None = None) -> Iterator[MaliciousBoard]:
    """A board that plays the script on each stream; `clocks` are what it shows when clocks are compared."""
    servicer = _Servicer(script, clocks or wire.Clocks(wall_us=1_700_000_000_000_000))
    options = [("grpc.max_send_message_length", MESSAGE_BYTES), ("grpc.so_reuseport", 0)]
    with ThreadPoolExecutor(THREADS) as pool:
        server = grpc.server(pool, options=options)
        add_BoardServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield MaliciousBoard(f"127.0.0.1:{port}", servicer)
        finally:
            server.stop(grace=None).wait()


# What an honest board says


def description(**fields: Any) -> wire.Description:
    """A board's own words, which a test makes worse."""
    values: dict[str, Any] = {
        "identity": "evil",
        "hostname": "board",
        "protocol": wire.ProtocolVersion(major=1),
        "clocks": wire.Clocks(wall_us=1_700_000_000_000_000, monotonic_us=1),
    }
    return wire.Description(**{**values, **fields})


def welcome(role: Any = 0, heartbeat_us: Any = 1_000_000, **fields: Any) -> Message:
    """The first message."""
    return Message(welcome=wire.Welcome(description=description(**fields), heartbeat_us=heartbeat_us, role=role))


def job(name: str = JOB, handle: int = 1, state: Any = wire.JOB_STATE_OPEN, **fields: Any) -> Message:
    """A JOB."""
    return Message(job_status=wire.JobStatus(handle=handle, name=name, directory="/b", state=state, **fields))


def listed() -> Message:
    """All JOBs were told."""
    return Message(jobs_listed=wire.JobsListed())


def announced(*paths: bytes, first: int = 1, kind: Any = wire.LOG_KIND_DATA, size: int = 0) -> Message:
    """Logs of JOB 1, with handles that count up."""
    logs = [
        wire.AnnouncedLog(handle=handle, job=1, path=path, kind=kind, size=size)
        for handle, path in enumerate(paths, first)
    ]
    return Message(announced=wire.Announced(logs=logs))


def batch(*events: wire.Event, made: Message | None = None) -> Message:
    """Events in order, behind logs that were `made`, as `announced` has them."""
    return Message(batch=wire.Batch(events=events, made=made.announced.logs if made else ()))


def started(
    handle: int = 1, generation: int = 1, offset: int = 0, reason: Any = wire.START_REASON_NEW, **first: bytes
) -> wire.Event:
    """A log begins; with its first `data`, and with a `digest`, if these are there."""
    said = wire.Started(handle=handle, generation=generation, offset=offset, reason=reason)
    for name, value in first.items():
        setattr(said, name, value)
    return wire.Event(started=said)


def chunk(data: bytes, offset: int = 0, handle: int = 1, generation: int = 1) -> wire.Event:
    """Bytes, with the check value that is theirs."""
    return wire.Event(chunk=wire.Chunk(handle=handle, generation=generation, offset=offset, data=data))


def completed(data: bytes, handle: int = 1, generation: int = 1, *, size: int | None = None) -> wire.Event:
    """A log is complete."""
    digest = hashlib.blake2b(data, digest_size=16).digest()
    said = len(data) if size is None else size
    return wire.Event(completed=wire.Completed(handle=handle, generation=generation, size=said, digest=digest))


def greeted(talk: Talk, *jobs: Message) -> Iterator[Message]:
    """An honest beginning, until the host has selected a JOB."""
    yield from selected(talk, *jobs)
    yield listed()


def selected(talk: Talk, *jobs: Message) -> Iterator[Message]:
    """The same, without a word that these are all JOBs: what goes wrong before that is the end of a capture."""
    talk.until("open")
    yield welcome()
    yield from jobs or (job(),)
    talk.until("select")


def with_log(talk: Talk, *paths: bytes, kind: Any = wire.LOG_KIND_DATA) -> Iterator[Message]:
    """An honest beginning, until the host has said what it holds of these logs."""
    yield from greeted(talk)
    yield announced(*(paths or (GOOD,)), kind=kind)
    talk.until("holdings")


def whole(data: bytes = RECORDS, handle: int = 1) -> Message:
    """An honest log from its beginning to its end."""
    return batch(started(handle), chunk(data, handle=handle), completed(data, handle))


def names() -> Iterator[str]:
    """JOB names without end."""
    for letters in itertools.product(string.ascii_uppercase, repeat=6):
        yield "JOB" + "".join(letters) + "Z" * 23
