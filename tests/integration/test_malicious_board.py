"""A board that means harm, against the real commands: nothing leaves the mirror, memory is bounded, and it is told."""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from profagent_wire.v1 import board_pb2 as wire
from tests.fakes.malicious_board import (
    GOOD,
    JOB,
    RECORDS,
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
    malicious,
    selected,
    started,
    welcome,
    whole,
    with_log,
)
from tests.integration.host import Ended, profagent
from tests.integration.host import started as command
from tests.integration.rows import query

LARGEST = 2**64 - 1
# What moves a cursor, colours, clears, sets titles, or turns text around.
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp"


class Scene:
    """A workspace among files that are none of a board's business."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "around" / "workspace"
        self.workspace.mkdir(parents=True)
        for name in ("secret", "around/secret", "around/evil"):
            (folder / name).write_bytes(b"mine")
        self._before = self._around()

    def _around(self) -> dict[str, bytes | None]:
        return {
            str(path): path.read_bytes() if path.is_file() else None
            for path in self.folder.rglob("*")
            if self.workspace not in path.parents and path != self.workspace
        }

    @property
    def database(self) -> Path:
        return self.workspace / "profagent.db"

    def mirrored(self) -> list[str]:
        """Paths of all that is in the JOB's mirror."""
        root = self.workspace / "mirror" / "evil" / JOB
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    def check(self, ended: Ended) -> None:
        """What holds however it ended."""
        assert self._around() == self._before
        assert {path.name for path in self.workspace.iterdir()} <= {
            "lock", "profagent.db", "profagent.db-wal", "profagent.db-shm", "mirror", "incoming", "superseded"
        }  # fmt: skip
        assert not any(path.is_symlink() for path in self.workspace.rglob("*"))
        assert "Traceback" not in ended.err
        assert not STEERING.search(ended.out + ended.err)

    def check_database(self) -> None:
        """What holds of the database that a `record` leaves, when it made one."""
        if self.database.exists():
            with closing(sqlite3.connect(self.database)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            told = profagent("sessions", "--workspace", self.workspace)
            assert told.code == 0, told.err
            assert not STEERING.search(told.out + told.err)

    def record(self, address: str, *arguments: str, until: str | None = None) -> Ended:
        ended = self._run(
            "record", "--board", address, "--workspace", self.workspace, "--backlog", *arguments, until=until
        )
        self.check_database()
        return ended

    def watch(self, address: str, *arguments: str, until: str | None = None) -> Ended:
        return self._run("watch", "--board", address, "--from-start", *arguments, until=until)

    def _run(self, *arguments: str | Path, until: str | None) -> Ended:
        """Until it ends by itself, or until a line says so."""
        if until is None:
            ended = profagent(*arguments)
        else:
            with command(*arguments) as host:
                host.err.until(until)
                ended = host.interrupt()
        self.check(ended)
        return ended


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def after_log(*messages: Message) -> Script:
    """A script that is honest until the host has said what it holds of one data log."""

    def play(talk: Talk) -> Iterator[Message]:
        yield from selected(talk)
        yield announced(GOOD)
        talk.until("holdings")
        yield from messages
        yield from talk.beats()

    return play


def after_open(*messages: Message) -> Script:
    """A script that plays from its first message."""

    def play(talk: Talk) -> Iterator[Message]:
        talk.until("open")
        yield from messages
        yield from talk.beats()

    return play


def after_select(*messages: Message) -> Script:
    """A script that is honest until a JOB is selected."""

    def play(talk: Talk) -> Iterator[Message]:
        yield from selected(talk)
        yield from messages
        yield from talk.beats()

    return play


# What breaks the contract on the real wire; the other cases are those of a session alone.
BREACHES: dict[str, tuple[Script, str]] = {
    "another major": (after_open(welcome(protocol=wire.ProtocolVersion(major=7))), "protocol 7.0"),
    "a clock beyond time": (after_open(welcome(clocks=wire.Clocks(wall_us=LARGEST))), f"wall_us is {LARGEST}"),
    "a false JOB name": (after_open(welcome(), job("../../evil")), "names a JOB '../../evil'"),
    "a kind of log that is none": (after_select(announced(b"data/a", kind=77)), "kind 77"),
    "a page of 1,001 logs": (after_select(announced(*(b"%d" % n for n in range(1001)))), "1,001 entries"),
    "a size that lies": (after_log(batch(started(), chunk(RECORDS), completed(RECORDS, size=2**40))), "768 came"),
    "a message of 5 MiB": (after_log(batch(started(), chunk(bytes(5 << 20)))), "larger than max"),
}  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES)
def test_what_breaks_the_protocol_ends_the_session_with_what_it_was(breach: str, scene: Scene) -> None:
    script, text = BREACHES[breach]
    with malicious(script) as board:
        for ended in (scene.record(board.address), scene.watch(board.address)):
            assert ended.code == 3
            assert text in ended.err
            assert len(ended.err) < 10_000


BAD_PATHS = [
    b"../../evil", b"..", b".", b"", b"/etc/passwd", b"data/../../../evil", b"data//a", b"data/", b"data/./a",
    b"data/a\0b", b"x" * 256, b"data/" + b"y" * 256, b"a/" * 511 + b"..",
]  # fmt: skip


def bad_paths(talk: Talk) -> Iterator[Message]:
    yield from greeted(talk)
    yield announced(GOOD, *BAD_PATHS, size=2**62)
    talk.until("holdings")
    yield whole()
    yield job(state=wire.JOB_STATE_FINISHED, caught_up=True)
    yield from talk.beats()


def test_a_path_that_leads_elsewhere_is_not_taken_and_all_else_is(scene: Scene) -> None:
    with malicious(bad_paths) as board:
        ended = scene.record(board.address, "--until-finished")
        assert ended.code == 4
        scene.watch(board.address, until="watching")
    assert scene.mirrored() == [GOOD.decode()]
    reasons = query(scene.database, "SELECT reason, count(*) FROM ledger WHERE grade = 'loss' GROUP BY reason")
    assert reasons == [("bad-path", len({*BAD_PATHS}))]


COLLISIONS = {
    "a file in a file's place": ([b"data/a", b"data/a/b"], wire.LOG_KIND_DATA),
    "a directory in a file's place": ([b"data/a/b", b"data/a"], wire.LOG_KIND_DATA),
    "a file where data is": ([b"data", GOOD], wire.LOG_KIND_DATA),
    "a snapshot in a snapshot's place": ([b"data/a", b"data/a/b"], wire.LOG_KIND_SNAPSHOT),
}


@pytest.mark.parametrize("collision", COLLISIONS)
def test_paths_that_cannot_both_be_are_told(collision: str, scene: Scene) -> None:
    paths, kind = COLLISIONS[collision]

    def play(talk: Talk) -> Iterator[Message]:
        yield from with_log(talk, *paths, kind=kind)
        for handle in range(1, len(paths) + 1):
            yield whole(handle=handle)
            talk.until("acknowledge")
        yield from talk.beats()

    with malicious(play) as board:
        ended = scene.record(board.address, "--for", "5")
    assert re.search("Not a directory|Is a directory|File exists", ended.err)


OWN_NAMES = [b"profagent.db", b"lock", b"sqlite/profagent.db", b".generation", b"data/a", b"data/a.1", b"data/a.1.1"]


def test_names_of_our_own_are_as_good_as_any(scene: Scene) -> None:
    def play(talk: Talk) -> Iterator[Message]:
        yield from with_log(talk, *OWN_NAMES)
        for generation in (1, 2, 3):
            yield batch(
                *itertools.chain.from_iterable(
                    (
                        started(handle, generation, reason=wire.START_REASON_RECREATED),
                        chunk(b"%d" % handle, 0, handle, generation),
                        completed(b"%d" % handle, handle, generation),
                    )
                    for handle in range(1, len(OWN_NAMES) + 1)
                )
            )
        yield job(state=wire.JOB_STATE_FINISHED, caught_up=True)
        yield from talk.beats()

    with malicious(play) as board:
        assert scene.record(board.address, "--until-finished").code == 4  # there is no record in it
    root = scene.workspace / "mirror" / "evil" / JOB
    assert {path: (root / os.fsdecode(path)).read_bytes() for path in OWN_NAMES} == {
        path: b"%d" % handle for handle, path in enumerate(OWN_NAMES, 1)
    }


def test_what_a_board_says_moves_no_cursor(scene: Scene) -> None:
    def play(talk: Talk) -> Iterator[Message]:
        talk.until("open")
        texts = {"hostname": ESCAPE, "model": ESCAPE, "daemon_version": ESCAPE, "sdk_version": ESCAPE}
        yield replace_directory(welcome(roots=[ESCAPE] * 1000, **texts))
        yield job()
        yield listed()
        talk.until("select")
        loss = wire.Loss(job=1, reason=ESCAPE, detail=ESCAPE * 1000)
        kept = wire.Loss(id=7, reason=ESCAPE, detail=ESCAPE, job_name=ESCAPE, from_wall_us=2**62, lost_bytes=2**48)
        yield batch(wire.Event(loss=loss), wire.Event(loss=kept))
        path = f"data/aicore.0.{ESCAPE}.3.0.1.1.0".encode()
        yield announced(path, path + b".done")
        talk.until("holdings")
        yield whole()
        yield Message(goodbye=wire.Goodbye(reason=ESCAPE, retry_after_us=2**62))

    with malicious(play) as board:
        recorded = scene.record(board.address, until="is shutting down")
        assert "is shutting down" in recorded.err
        assert recorded.code == 4
        scene.watch(board.address, until="is shutting down")
        scene.watch(board.address, "--records", "--json", until="is shutting down")
    shown = profagent("show", "--workspace", scene.workspace, "1")
    assert not STEERING.search(shown.out + shown.err)


def replace_directory(message: Message) -> Message:
    """The message, from a board whose identity climbs."""
    message.welcome.description.identity = "../../" + ESCAPE
    return message


@pytest.mark.long
def test_a_heartbeat_of_ages_does_not_make_the_host_deaf(scene: Scene) -> None:
    def play(talk: Talk) -> Iterator[Message]:
        talk.until("open")
        yield welcome(heartbeat_us=2**60)
        yield listed()
        for _ in talk.beats():
            pass  # nothing is said

    with malicious(play) as board:
        assert "has gone silent" in scene.record(board.address, "--for", "17").err


@pytest.mark.parametrize("wall_us", [0, 2**62, LARGEST])
def test_a_clock_that_is_none_is_told_or_kept_and_breaks_nothing(wall_us: int, scene: Scene) -> None:
    clocks = wire.Clocks(wall_us=wall_us, monotonic_us=wall_us)
    with malicious(after_log(whole()), clocks=clocks) as board:
        assert scene.record(board.address, "--for", "1").code in (3, 4)  # it never says that all has come
    samples = query(scene.database, "SELECT count(*) FROM clock_sample")
    assert samples == [(0,)] or wall_us < LARGEST
