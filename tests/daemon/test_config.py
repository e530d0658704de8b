"""Settings from a file, from files that name roots, and from arguments; and what is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.config import DaemonConfig, do_overlap, examine
from profagentd.main import make_parser
from tests.daemon.daemon_process import AICORE_DONE, Daemon, make_job, running
from tests.daemon.waiting import until
from tests.daemon.wire_client import PATIENCE_S, following

TLS = {"tls_cert": "c.pem", "tls_key": "c.key", "tls_ca": "ca.pem"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "daemon.toml"
    path.write_text(text, encoding="utf-8")
    return path


def configured(path: Path | None, settings: dict[str, object]) -> DaemonConfig:
    examined = examine(path, settings)
    assert examined.mistakes == []
    return examined.config


def mistakes(path: Path | None, settings: dict[str, object], *, needs_root: bool = False) -> list[str]:
    return [str(each) for each in examine(path, settings, needs_root=needs_root).mistakes]


def test_every_setting_is_a_key_and_an_argument(tmp_path: Path) -> None:
    keys = {*DaemonConfig.__dataclass_fields__}
    text = "\n".join(f"{key} = {{}}" for key in keys)  # a table, which no setting is
    refused = mistakes(written(tmp_path, text), {})
    assert not [each for each in refused if "unknown key" in each]
    assert len(refused) == len(keys)
    assert keys <= {*vars(make_parser().parse_args([]))}


def test_every_key_can_stand_in_the_file_and_arguments_win(tmp_path: Path) -> None:
    text = "roots = ['/a', '/b']\nlisten = '[::1]:0'\nquiet_after_s = 5\ndepth = 2\nscan = true\nlog_level = 'debug'\n"
    path = written(tmp_path, text)
    assert configured(path, {}) == DaemonConfig(("/a", "/b"), "[::1]:0", 5, 2, True, "debug")
    assert configured(path, {"depth": 3, "roots": None}).depth == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("roots", "/a"),
        ("roots", [1]),
        ("listen", 50151),
        ("listen", "50151"),
        ("listen", "127.0.0.1:99999"),
        ("listen", "::1:50151"),
        ("listen", f"unix:/{'d' * 107}"),
        ("retain", "all"),
        ("retain_for", [f"c{number}" for number in range(17)]),
        ("min_free", "0MB"),
        ("min_free", "100%"),
        ("state", "lib"),
        ("quiet_after_s", 0),
        ("quiet_after_s", float("nan")),
        ("depth", 0),
        ("depth", 17),
        ("log_level", "loud"),
        ("identity", "no spaces"),
        ("tls_cert", 1),
        ("insecure", "yes"),
    ],
)
def test_a_value_that_makes_no_sense_names_its_key(key: str, value: object) -> None:
    (mistake,) = examine(None, {key: value}).mistakes
    assert str(mistake).startswith(f"the arguments: {key} = ")
    assert mistake.hint.startswith(f"{key} is ")


def test_an_unknown_key_is_named_with_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, "root = '/a'\ndepth = 99\n")
    assert mistakes(path, {}) == [f"{path}: unknown key 'root'", f"{path}: depth = 99"]


@pytest.mark.parametrize("text", [b"roots = ", b"\xff", b"x = " + b"[" * 100_000, None])
def test_what_is_not_toml_or_cannot_be_read_names_its_file(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "daemon.toml"
    if text is not None:
        path.write_bytes(text)
    (mistake,) = mistakes(path, {})
    assert mistake.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"retain": "delivered"}, "retain_for"),
        ({"retain": "min_free", "min_free": "1GB"}, "retain_for"),
        ({"retain": "min_free", "retain_for": ["a"]}, "min_free"),
        ({"retain_for": ["a"]}, "retain = delivered"),
        ({"min_free": "1GB"}, "retain = min_free"),
        ({"retain": "delivered", "retain_for": ["a"], "delete_undelivered": True}, "retain = min_free"),
        ({"tls_cert": "c.pem"}, "tls_key"),
        ({"tls_revoked": "revoked.txt"}, "tls_cert"),
        ({**TLS, "insecure": True}, "give only one of them"),
        ({**TLS, "listen": "unix:/run/d.sock"}, "its file's mode"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, object], word: str) -> None:
    assert any(word in each.hint for each in examine(None, settings).mistakes)


@pytest.mark.parametrize("listen", ["0.0.0.0:50151", "192.168.1.20:50151", "[::]:50151", "board:50151", "[fe80::1]:1"])
def test_any_other_address_needs_tls_or_is_open(listen: str) -> None:
    (mistake,) = examine(None, {"listen": listen}).mistakes
    assert "needs TLS" in str(mistake)
    assert "ssh -L" in mistake.hint
    assert configured(None, {"listen": listen, "insecure": True}).is_open
    assert not configured(None, {"listen": listen, **TLS, "tls_revoked": "revoked.txt"}).is_open


def test_each_line_of_each_conf_file_is_a_root_after_the_named_ones(tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_text("  /b  \n\n# a remark\n/c # not a remark\n/a\n")
    (tmp_path / "a.conf").write_text("/d\n/b\n")
    (tmp_path / "c.txt").write_text("/e\n")
    config = configured(None, {"roots": ["/a"], "roots_d": str(tmp_path)})
    assert config.roots == ("/a", "/d", "/b", "/c # not a remark")
    assert configured(None, {"roots_d": str(tmp_path / "none")}).roots == ()


def test_roots_that_will_not_do_are_named_with_their_file(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("/a/b\nrelative\n")
    file = f"{tmp_path}/a.conf"
    found = mistakes(None, {"roots": ["/a", "c", "c", "/a/"], "roots_d": str(tmp_path)})
    assert found == [
        f"{file}: roots: 'relative' is no absolute path",
        "the arguments: roots: c is named twice",
        "the arguments: roots: /a/ is the same directory as /a",
        f"{file}: roots: /a/b lies in /a",
        f"{file}: roots: /a/b lies in /a/",
    ]
    (tmp_path / "a.conf").write_bytes(b"\xff")
    (mistake,) = mistakes(None, {"roots_d": str(tmp_path)})
    assert mistake.startswith("the arguments: roots_d: ")


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [(b"/a", b"/a", True), (b"/a/b", b"/a", True), (b"/", b"/a", True), (b"/a", b"/ab", False)],
)
def test_paths_lie_together_when_one_holds_the_other(one: bytes, other: bytes, together: bool) -> None:
    assert do_overlap(one, other) is do_overlap(other, one) is together


# Settings that change while the daemon serves, with a real one


class Reloaded:
    """A daemon with a file of settings, and its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "daemon.toml"
        self.log = folder / "log"
        self.daemon: Daemon | None = None
        for name in ("roots.d", "a", "b"):
            (folder / name).mkdir()

    def write(self, more: str = "", roots: str = "a") -> None:
        """Other settings."""
        self.config.write_text(f"roots = ['{self.folder / roots}']\nroots_d = '{self.folder}/roots.d'\n{more}")

    def name_root(self, *names: str) -> None:
        """A file of roots."""
        (self.folder / "roots.d/app.conf").write_text("".join(f"{self.folder / name}\n" for name in names))

    def reload(self, words: str = "reloaded the settings") -> str:
        """Have them read; the log since then, once it has these words."""
        assert self.daemon is not None
        begun = len(self.log.read_text())
        self.daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.log.read_text()[begun:]:
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        return self.log.read_text()[begun:]


@pytest.fixture
def reloaded(tmp_path: Path) -> Reloaded:
    board = Reloaded(tmp_path)
    board.write()
    return board


@contextmanager
def served(board: Reloaded) -> Iterator[Daemon]:
    with board.log.open("w") as log, running("--config", board.config, log=log) as daemon:
        board.daemon = daemon
        yield daemon


async def test_a_root_that_comes_is_followed_by_those_who_are_there(reloaded: Reloaded) -> None:
    job = make_job(reloaded.folder / "b")
    with served(reloaded) as daemon:
        async with following(daemon.address) as client:
            await client.start()
            await client.until(lambda: client.is_listed)
            reloaded.name_root("b")
            assert f"added the root {reloaded.folder}/b" in reloaded.reload()
            await client.until(lambda: job.name in client.jobs)
            later = make_job(reloaded.folder / "b", 1)
            await client.until(lambda: later.name in client.jobs)


def test_mistakes_change_nothing_and_are_named(reloaded: Reloaded) -> None:
    with served(reloaded) as daemon:
        reloaded.write("depth = 99\nlog_level = 'error'\nscan = 1\n")
        said = reloaded.reload("the new settings have an error: the earlier ones stay in force")
        assert f"{reloaded.config}: depth = 99; depth is" in said
        assert f"{reloaded.config}: scan = 1; scan is" in said
        assert daemon.process.poll() is None


def test_what_takes_a_restart_is_named_each_time(reloaded: Reloaded) -> None:
    with served(reloaded):
        reloaded.write("depth = 2\nidentity = 'other'\n", roots="b")
        for _ in range(2):
            said = reloaded.reload()
            assert "a new value of depth needs a restart" in said
            assert "a new value of identity needs a restart" in said
            assert f"{reloaded.folder}/a remains a root: its removal needs a restart of profagentd" in said
            assert "another listen" not in said


async def test_another_retention_is_told_anew_by_clients_that_come_back(reloaded: Reloaded) -> None:
    with served(reloaded) as daemon:
        async with following(daemon.address) as client:
            await client.start()
            await client.until(lambda: client.is_listed)
            reloaded.write("retain = 'delivered'\nretain_for = ['test']\n")
            reloaded.reload()
            await client.until_ended()
            assert client.goodbye is not None
            assert client.goodbye.reason == "another retention holds from now on"
        job = make_job(reloaded.folder / "a")
        data = job / "data/aicore.0.m.3.0.1.1.1"
        data.write_bytes(bytes(256))
        data.with_name(f"{data.name}.done").write_bytes(AICORE_DONE % 256)
        async with following(daemon.address) as client:
            await client.start()
            await client.until(lambda: client.welcome is not None)
            assert client.welcome is not None
            assert client.welcome.description.retention.policy == wire.RETENTION_POLICY_DELIVERED
            hearing = asyncio.ensure_future(client.until_ended())
            await until(lambda: not data.exists())
            hearing.cancel()


def test_without_anything_to_read_the_signal_ends_it(tmp_path: Path) -> None:
    # Whoever ignores it, as under nohup, hands that down.
    was = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with running("--root", tmp_path) as daemon:
            os.kill(daemon.process.pid, signal.SIGHUP)
            assert daemon.process.wait(PATIENCE_S) == -signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, was)
