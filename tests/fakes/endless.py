"""Scripts of a malicious board that never come to an end, each of another kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from profagent.limits import MOST_LAYERS
from profagent_wire.v1 import board_pb2 as wire
from tests.encoders import aicore_record, api_record, done_text, layer_item
from tests.fakes.malicious_board import (
    GOOD,
    Message,
    Script,
    Talk,
    announced,
    batch,
    chunk,
    completed,
    greeted,
    job,
    listed,
    names,
    started,
    welcome,
)

LARGEST = 2**48
# Numbers that no stream has used yet: what a host holds already would not come again.
_FRESH = itertools.count(1)
CHUNK_BYTES = 256 << 10
MODELS_AT_A_TIME = 50


def endless_log(talk: Talk) -> Iterator[Message]:
    """A data log and a snapshot that never end."""
    yield from greeted(talk)
    yield announced(GOOD, size=2**62)
    yield announced(b"data/m.0.layer.info", b"data/n.0.layer.info", first=2, kind=wire.LOG_KIND_SNAPSHOT, size=2**62)
    talk.until("holdings")
    yield batch(started(1), started(2), started(3))
    for offset in itertools.count(0, CHUNK_BYTES):
        for handle in (1, 2, 3):
            yield batch(chunk(bytes(CHUNK_BYTES), offset, handle))


def endless_jobs(talk: Talk) -> Iterator[Message]:
    """JOBs without end, of which nothing is asked."""
    talk.until("open")
    yield welcome()
    for handle, name in enumerate(names(), 1):
        yield job(name, handle, state=wire.JOB_STATE_QUIET)


def endless_losses(talk: Talk) -> Iterator[Message]:
    """Losses without end, of the JOB, of the board and kept, each another one."""
    yield from greeted(talk)
    for first in itertools.count(1, 300):
        yield batch(
            *itertools.chain.from_iterable(
                (
                    wire.Event(loss=wire.Loss(job=1, reason=f"r{number}", detail=f"{number}" * 50, lost_bytes=LARGEST)),
                    wire.Event(loss=wire.Loss(reason="unreadable", detail=f"{number}", lost_bytes=2**48)),
                    wire.Event(loss=wire.Loss(id=number, reason="disk-full", detail=f"{number}", lost_logs=LARGEST)),
                )
                for number in range(first, first + 300)
            )
        )


def endless_empty_losses(talk: Talk) -> Iterator[Message]:
    """Messages that are full of losses which say nothing: a million of them are smaller than a message may be."""
    yield from greeted(talk)
    one = wire.Batch(events=[wire.Event(loss=wire.Loss())]).SerializeToString()
    full = Message(batch=wire.Batch.FromString(one * 1_000_000))
    while True:
        yield full


def endless_tables(talk: Talk) -> Iterator[Message]:
    """Models without end, each with a table of as many layers as there may be."""
    yield from greeted(talk)
    layer = layer_item(1, b"", b"", prof_layer_id=1) + layer_item(1, b"", b"", prof_layer_id=2)
    table = layer * (MOST_LAYERS // 2)
    for handle in itertools.count(1):
        path = b"data/m%d.0.layer.info" % handle
        yield announced(path, first=handle, kind=wire.LOG_KIND_SNAPSHOT, size=len(table))
        talk.until("holdings")
        yield batch(started(handle))
        for offset in range(0, len(table), CHUNK_BYTES):
            yield batch(chunk(table[offset : offset + CHUNK_BYTES], offset, handle))
        yield batch(completed(table, handle))


def endless_bad_paths(talk: Talk) -> Iterator[Message]:
    """Paths without end that lead elsewhere."""
    yield from greeted(talk)
    for first in itertools.count(1, 100):
        yield announced(*(b"../%d" % number for number in range(first, first + 100)), first=first)
        talk.until("holdings")
        yield Message(released=wire.Released(handles=range(first, first + 100)))


def _table(layers: int) -> bytes:
    return b"".join(layer_item(1, b"layer%d\0" % number, prof_layer_id=number + 1) for number in range(layers))


def _kind(path: bytes) -> wire.LogKind.ValueType:
    is_data = path.startswith(b"data/a") and not path.endswith(b".done")
    return wire.LOG_KIND_DATA if is_data else wire.LOG_KIND_SNAPSHOT


def _told(talk: Talk, handles: Iterator[int], files: dict[bytes, bytes], job_handle: int = 1) -> Iterator[Message]:
    """Files of a JOB, from their announcement to their release."""
    logs = [
        wire.AnnouncedLog(
            handle=next(handles),
            job=job_handle,
            path=path,
            kind=_kind(path),
            size=len(data),
        )
        for path, data in files.items()
    ]
    yield Message(announced=wire.Announced(logs=logs))
    talk.until("holdings")
    yield batch(
        *itertools.chain.from_iterable(
            (started(log.handle), chunk(data, handle=log.handle), completed(data, log.handle))
            for log, data in zip(logs, files.values(), strict=True)
        )
    )
    yield Message(released=wire.Released(handles=[log.handle for log in logs]))


def endless_models(talk: Talk) -> Iterator[Message]:
    """Inferences without end, each of a model of its own, with its calls."""
    yield from greeted(talk)
    handles, table, end = itertools.count(1), _table(20), done_text(file_len=256, start_time=5, end_time=6)
    record, call = aicore_record(0, 700, 1), api_record(1, 5, 6)
    while True:
        files: dict[bytes, bytes] = {}
        for number in itertools.islice(_FRESH, MODELS_AT_A_TIME):
            files[b"data/m%d.3.layer.info" % number] = table
            files[b"data/aicore.0.m%d.3.0.1.1.0" % number] = record
            files[b"data/aicore.0.m%d.3.0.1.1.0.done" % number] = end + b"cache_hit:1\ncache_mis:1\n"
            files[b"data/acl_api.0.m%d.3" % number] = call
        yield from _told(talk, handles, files)


def endless_followed(talk: Talk) -> Iterator[Message]:
    """Open JOBs without end, each with a large table, a record and a call."""
    talk.until("open")
    yield welcome()
    yield listed()
    handles, table = itertools.count(1), _table(MOST_LAYERS // 10)
    fresh = itertools.islice(names(), next(_FRESH), None)
    for number, name in enumerate(fresh, 1):
        yield job(name, number)
        next(_FRESH)
        talk.until("select")
        yield from _told(
            talk,
            handles,
            {
                b"info.json.0": b'{"DeviceInfo": [{"aic_frequency": "700"}]}',
                b"data/m.3.layer.info": table,
                b"data/aicore.0.m.3.0.1.1.0": aicore_record(0, 700, 1),
                b"data/acl_api.0.m.3": api_record(1, 5, 6),
            },
            number,
        )


def endless_generations(talk: Talk) -> Iterator[Message]:
    """A log and a table that are made anew without end."""
    yield from greeted(talk)
    yield announced(GOOD)
    yield announced(b"data/good.3.layer.info", first=2, kind=wire.LOG_KIND_SNAPSHOT)
    talk.until("holdings")
    for generation in _FRESH:
        table, reason = _table(generation % 100), wire.START_REASON_RECREATED
        yield batch(
            started(1, generation, reason=reason),
            chunk(aicore_record(0, 700, 1), 0, 1, generation),
            started(2, generation, reason=reason),
            chunk(table or b"x", 0, 2, generation),
            completed(table or b"x", 2, generation),
        )


ENDLESS: dict[str, Script] = {
    "log": endless_log,
    "jobs": endless_jobs,
    "losses": endless_losses,
    "empty losses": endless_empty_losses,
    "tables": endless_tables,
    "bad paths": endless_bad_paths,
    "models": endless_models,
    "followed": endless_followed,
    "generations": endless_generations,
}
