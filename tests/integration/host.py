"""The host's side of an integration test: real `profagent` processes, and what they say."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from unittest.mock import patch

from profagent.cli.main import run
from tests.daemon.daemon_process import environment
from tests.documents import checked
from tests.integration.board import running

if TYPE_CHECKING:
    import pytest

COMMAND = [sys.executable, "-c", "from profagent.cli.main import main; main()"]
ENVIRONMENT = environment("protos", "daemon", "agent")
TIMEOUT_S = 90.0

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # In the background of a shell nothing hears Ctrl-C, nor would what is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


def profagent(*arguments: str | Path, **variables: str) -> Ended:
    """Run a command to its end, in this process; `started` is for one that is to be killed or interrupted."""
    out, err = io.BytesIO(), io.BytesIO()
    with (
        patch.dict(os.environ, variables),
        redirect_stdout(io.TextIOWrapper(out, "utf-8", write_through=True)),
        redirect_stderr(io.TextIOWrapper(err, "utf-8", write_through=True)),
    ):
        code = run([*map(str, arguments)])
        return Ended(code, out.getvalue().decode(), err.getvalue().decode())


def processed(*arguments: str | Path, **variables: str) -> Ended:
    """Run a command to its end, in a process of its own: one that reads its variables when it begins."""
    ended = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env={**ENVIRONMENT, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def hurry(monkeypatch: pytest.MonkeyPatch, module: str, name: str, value: object) -> None:
    """A setting of time that a test makes shorter: here, and in processes that are started."""
    monkeypatch.setattr(f"{module}.{name}", value)
    monkeypatch.setattr(
        f"{__name__}.COMMAND", [*COMMAND[:-1], f"import {module}; {module}.{name} = {value!r}; {COMMAND[-1]}"]
    )


def recorded(root: Path, workspace: Path, *more: str) -> dict[str, Any]:
    """Record all that a board with these JOBs has; the summary."""
    arguments: tuple[str | Path, ...] = ("--workspace", workspace, "--backlog", "--until-finished", "--json", *more)
    with running("--root", root, "--quiet-after", "0.3") as board:
        ended = profagent("record", "--board", board.address, *arguments)
    assert ended.code == 0, ended.err
    document: dict[str, Any] = ended.document
    return document


class Lines:
    """The lines of a pipe, as they come."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe
        self._lines: list[str] = []
        self._is_over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[str]:
        with self._changed:
            return iter(self._lines.copy())

    def until(self, wanted: str | Callable[[str], bool], count: int = 1) -> list[str]:
        """Wait for lines that hold a text, or meet a condition."""
        meets = wanted if callable(wanted) else lambda line: wanted in line
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or len(self._found(meets)) >= count, TIMEOUT_S)
            found = self._found(meets)
            assert len(found) >= count, f"{len(found)} of {count} lines with {wanted!r} in {self._lines}"
            return found

    def rest(self) -> list[str]:
        """All lines, once the writer is gone."""
        self._thread.join(TIMEOUT_S)
        return list(self)

    def _found(self, meets: Callable[[str], bool]) -> list[str]:
        return [line for line in self._lines if meets(line)]

    def _read(self) -> None:
        for line in self._pipe:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._pipe.close()


class Host:
    """A running command; `out` and `err` are its lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.out = Lines(process.stdout)
        self.err = Lines(process.stderr)

    def interrupt(self) -> Ended:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> Ended:
        """Wait for its end."""
        code = self.process.wait(TIMEOUT_S)
        return Ended(code, "\n".join(self.out.rest()), "\n".join(self.err.rest()))

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What `watch --json` has told of one kind."""
        return [checked("watch", event) for event in map(json.loads, self.out) if event["event"] == kind]


@contextmanager
def started(*arguments: str | Path, **variables: str) -> Iterator[Host]:
    """A command that runs; it is killed when it still does at the end."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env={**ENVIRONMENT, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    host = Host(process)
    try:
        yield host
    finally:
        process.kill()
        process.wait()
        host.out.rest()
        host.err.rest()


def is_event(kind: str) -> Callable[[str], bool]:
    """Whether a line of `watch --json` is of one kind."""
    return lambda line: json.loads(line)["event"] == kind
