"""What does not belong into a JOB, over the real wire: it is told, nothing stops, and the mirror stays sane."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.daemon.daemon_process import make_job
from tests.encoders import aicore_record
from tests.integration.board import content, running, write_done
from tests.integration.host import Ended, profagent
from tests.integration.rows import query

GOOD = "aicore.0.good.3.0.1.1.0"
RECORDS = b"".join(aicore_record(number, 700, 0) for number in range(3))


@dataclass(frozen=True)
class Recorded:
    """A JOB on the board and what `record` made of it."""

    job: Path
    ended: Ended

    @property
    def mirror(self) -> dict[bytes, bytes]:
        return content(Path(self.ended.document["mirror"]) / self.job.name)

    @property
    def ledger(self) -> list[tuple[str | None, str, str]]:
        """Log, grade and reason; the JOB has no table of layers, which is not what these tests are about."""
        sql = "SELECT log, grade, reason FROM ledger WHERE reason <> 'no-layer' ORDER BY log, reason"
        return query(Path(self.ended.document["database"]), sql)


class Scene:
    """A JOB with one good log, to which a test adds what it is about."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.job = make_job(self.root)
        self.data = self.job / "data"
        (self.data / GOOD).write_bytes(RECORDS)
        write_done(self.data / GOOD)

    def record(self) -> Recorded:
        """Capture it; whatever is in it, the good log has come."""
        with running("--root", self.root, "--quiet-after", "0.3") as board:
            arguments = ("--board", board.address, "--workspace", self._folder / "workspace", "--backlog")
            ended = profagent("record", *arguments, "--until-finished", "--json")
        assert ended.code in (0, 4), ended.err
        recorded = Recorded(self.job, ended)
        assert recorded.mirror[f"data/{GOOD}".encode()] == RECORDS
        assert ended.document["records"]["aicore"] >= 3
        return recorded


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_is_no_file_is_told_by_its_name_and_not_followed(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"not yours")
    odd = {kind: scene.data / f"aicore.0.{kind}.3.0.1.1.0" for kind in ("linked", "directory", "fifo", "socket")}
    odd["linked"].symlink_to(secret)
    (scene.job / "info.json.1").symlink_to("/etc/passwd")
    odd["directory"].mkdir()
    os.mkfifo(odd["fifo"])
    # The address of a socket must be short.
    monkeypatch.chdir(scene.data)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(odd["socket"].name)
    # Nor is a `data` that leads elsewhere.
    other, outside = make_job(scene.root, 1), tmp_path / "outside"
    (other / "data").rename(outside)
    (outside / GOOD).write_bytes(RECORDS)
    (other / "data").symlink_to(outside)
    recorded = scene.record()
    assert recorded.ended.code == 0
    assert recorded.ledger == [(None, "note", "not-a-file")] * 6
    details = query(Path(recorded.ended.document["database"]), "SELECT detail FROM ledger WHERE reason = 'not-a-file'")
    for name in ("info.json.1", *(path.name for path in odd.values())):
        assert sum(name in detail for (detail,) in details) == 1, name
    assert len(recorded.mirror) == 3
    assert b"not yours" not in recorded.mirror.values()
    assert set(content(Path(recorded.ended.document["mirror"]) / other.name)) == {b"info.json.0"}
