"""The board's side of a deployment, as a process of its own, with services that only take notes."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profagent.boards.daemon_tree import DaemonTree
from profagent.deploy import setup

GOOD = "#!/bin/sh\nexit 0\n"
BAD = "#!/bin/sh\necho 'profagentd.toml: roots: none' >&2\necho '  name one' >&2\nexit 1\n"


class Board:
    """A prefix, and requests about it."""

    def __init__(self, folder: Path) -> None:
        self.prefix = folder / "board"
        self.log = folder / "service.log"
        self.config = self.prefix / "etc/profagentd.toml"

    def request(self, act: str, **more: Any) -> dict[str, Any]:
        commands = ("enable", "restart", "stop", "forget")
        service = {name: f"echo {name} >>{self.log}" for name in commands}
        service["log"] = "echo its last words"
        prefix = str(self.prefix)
        common = {"act": act, "owner": "here", "prefix": prefix, "lock": f"{prefix}.lock", "service": service}
        return {**common, "trial": f"{prefix}/trial.json", **more}

    def installing(self, text: str, start: str = GOOD, **more: Any) -> dict[str, Any]:
        """A request for a version of its own, with these settings."""
        tree = DaemonTree.of("1.0", start, {"a.py": text.encode()})
        part = self.prefix / "versions" / f"{tree.name}.part"
        for path, (data, mode) in tree.files.items():
            (part / path).parent.mkdir(parents=True, exist_ok=True)
            (part / path).write_bytes(data)
            (part / path).chmod(mode)
        files = {str(self.config): (base64.b64encode(text.encode()).decode(), 0o640)}
        wanted = {"part": str(part), "version": tree.name, "files": files, "unwanted": [], "had_service": False}
        places: dict[str, Any] = {"directories": [f"{self.prefix}/versions"], "private": [f"{self.prefix}/state"]}
        places |= {"config": str(self.config), "roots_d": f"{self.prefix}/etc/roots.d"}
        return self.request("install", **wanted, **places, **more)

    def current(self) -> str:
        link = self.prefix / "current"
        return link.readlink().name if link.is_symlink() else ""

    def did(self) -> list[str]:
        """What the service was told since the last time."""
        said = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return said


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


class Running:
    """One that runs."""

    def __init__(self, request: dict[str, Any], silence_s: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", setup.__file__, str(silence_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stdin is not None
        # Whoever attends it may speak before the request.
        self.process.stdin.write("\n" + json.dumps(request) + "\n")

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self, word: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"\n{word}\n")
        return self.answer()


@pytest.fixture
def runs() -> Iterator[list[Running]]:
    found: list[Running] = []
    yield found
    for each in found:
        each.process.kill()
        each.process.wait()
        for pipe in (each.process.stdin, each.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def run(runs: list[Running]) -> Any:
    def begin(request: dict[str, Any], silence_s: float = 60) -> Running:
        runs.append(Running(request, silence_s))
        return runs[-1]

    return begin


def test_a_version_is_kept_when_the_host_says_so(board: Board, run: Any) -> None:
    running = run(board.installing("one"))
    started = running.answer()
    assert started["is"] == "started"
    assert running.tell("keep") == {"is": "kept"}
    assert board.current() == started["version"]
    assert board.config.read_text() == "one"
    assert board.config.stat().st_mode & 0o777 == 0o640
    assert board.did() == ["enable", "restart"]
    assert not (board.prefix / "trial.json").exists()
    assert sorted(path.name for path in (board.prefix / "versions").iterdir()) == [started["version"]]


@pytest.mark.parametrize("end", ["back", "the end of input", "silence", "a kill"])
def test_else_what_was_there_comes_back(board: Board, run: Any, end: str) -> None:
    first = run(board.installing("one"))
    version = first.answer()["version"]
    first.tell("keep")
    board.did()
    running = run(board.installing("two") | {"had_service": True}, 0.5 if end == "silence" else 60)
    assert running.answer()["is"] == "started"
    assert board.config.read_text() == "two"
    if end == "back":
        assert running.tell("back") == {"is": "back", "log": "its last words\n"}
    elif end in {"the end of input", "silence"}:
        if end == "the end of input":
            running.process.stdin.close()
        assert running.answer()["is"] == "back"
    else:
        running.process.kill()
        running.process.wait()
        assert (board.prefix / "trial.json").stat().st_mode & 0o777 == 0o600
        assert run(board.request("back")).answer() == {"is": "back"}
    assert (board.current(), board.config.read_text()) == (version, "one")
    assert board.did() == ["enable", "restart", "stop", "enable", "restart"]
    assert not (board.prefix / "previous").is_symlink()


def test_of_a_first_one_nothing_stays(board: Board, run: Any) -> None:
    running = run(board.installing("one"))
    running.answer()
    assert running.tell("back")["is"] == "back"
    assert (board.current(), board.config.exists()) == ("", False)
    assert board.did()[-2:] == ["stop", "forget"]


def test_a_version_that_refuses_the_settings_is_never_started(board: Board, run: Any) -> None:
    answer = run(board.installing("one", BAD)).answer()
    assert answer["is"] == "failed"
    assert answer["why"].endswith("cannot run here: profagentd.toml: roots: none")
    assert answer["hint"] == "name one"
    assert (board.current(), board.did(), list(board.config.parent.iterdir())) == ("", [], [])


def test_a_service_that_does_not_start_is_taken_back(board: Board, run: Any) -> None:
    request = board.installing("one")
    request["service"]["restart"] = "echo no; exit 1"
    answer = run(request).answer()
    assert (answer["is"], answer["why"]) == ("back", "the service does not start: no")
    assert board.current() == ""


def test_what_was_deployed_is_removed_and_nothing_else(board: Board, run: Any) -> None:
    first = run(board.installing("one"))
    first.answer()
    first.tell("keep")
    (board.prefix / "versions/mine").mkdir()
    empty = [f"{board.prefix}/versions", f"{board.prefix}/etc", str(board.prefix)]
    paths = [str(board.config), f"{board.prefix}/state"]
    assert run(board.request("remove", paths=paths, empty=empty)).answer() == {"is": "removed"}
    assert [path.name for path in board.prefix.rglob("*")] == ["versions", "mine"]
