"""A source is data: another kind of collection needs one class, and its logs go the way of a JOB's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.sources import SOURCES, source_of
from profagentd.sources.source import Source
from tests.daemon.daemon_process import make_job
from tests.daemon.own_daemon import own_daemon
from tests.daemon.wire_client import following


class TextLogs(Source):
    """A directory of text logs, all of which grow."""

    name = "text"

    def is_collection(self, name: bytes) -> bool:
        return name.endswith(b".logs")


@pytest.fixture(autouse=True)
def _text_logs() -> Iterator[None]:
    SOURCES.append(TextLogs())
    source_of.cache_clear()
    yield
    SOURCES.pop()
    source_of.cache_clear()


async def test_logs_of_a_new_source_are_followed(tmp_path: Path) -> None:
    job, logs = make_job(tmp_path), tmp_path / "app" / "server.logs"
    logs.mkdir(parents=True)
    (logs / "old.log").write_bytes(b"one\n")
    async with own_daemon(tmp_path) as (address, _), following(address) as client:
        await client.start()
        key = (logs.name, b"old.log")
        await client.until(lambda: key in client.copies and client.copies[key].is_complete)
        with (logs / "old.log").open("ab") as file:
            file.write(b"two\n")
        (logs / "new.log").write_bytes(b"three\n")
        both = {b"old.log": b"one\ntwo\n", b"new.log": b"three\n"}
        await client.until(lambda: client.mirror(logs.name) == both)
        assert {client.copies[logs.name, name].kind for name in both} == {wire.LOG_KIND_DATA}
        assert {name: status.source for name, status in client.jobs.items()} == {job.name: "job", logs.name: "text"}
        (logs / "new.log").unlink()
        await client.until(lambda: client.copies[logs.name, b"new.log"].is_removed)
        assert not client.losses
