"""What goes wrong with a `collect` has a line of its own, and leaves nothing on the board."""

from __future__ import annotations

import json
import os
import random
import signal
from typing import TYPE_CHECKING

import pytest

from profagent.collect.board_run import LOCK
from profagent.limits import HOST_SILENCE_S
from tests.fakes.small_disk import small_disk
from tests.integration.board import eventually
from tests.integration.host import hurry, started

if TYPE_CHECKING:
    from pathlib import Path

    from tests.board.bench import Bench


def script(bench: Bench, text: str) -> None:
    (bench.project / "main").write_text(text)


def test_a_program_that_is_not_there(bench: Bench) -> None:
    ended = bench.collect("-m", "none")
    assert ended.code == 2
    assert f"there is no program {bench.remote}/none" in ended.err
    assert bench.collect("-m", "../main").code == 2
    assert eventually(bench.is_tidy)


def test_a_program_that_is_not_executable(bench: Bench) -> None:
    (bench.project / "main").chmod(0o644)
    ended = bench.collect()
    assert ended.code == 1
    assert "is not executable" in ended.err
    assert "chmod +x" in ended.err
    assert eventually(lambda: not (bench.friend.folder / "tmp" / LOCK).exists())


def test_a_program_that_fills_the_boards_disk(bench: Bench, tmp_path: Path) -> None:
    """How it ended is known all the same, and its acl.json is put back."""
    script(bench, "#!/bin/sh\nhead -c 9000000 /dev/zero >fill\nprintf x >one; exit 3\n")
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        bench.remote = disk / "app"
        ended = bench.collect("--switch", "off")
        assert ended.code == 3, ended.err
        assert "the board's disk is full" in ended.err
        assert eventually(lambda: json.loads((bench.remote / "acl.json").read_text()) == {"other": "stays"})


def test_a_program_that_reads_another_acl_json(served: Bench) -> None:
    script(served, '#!/bin/sh\nmkdir "JOB$(printf A%.0s $(seq 29))"\n')
    ended = served.collect()
    assert ended.code == 4
    assert "a JOB was made elsewhere" in ended.err
    assert "\n  → name the acl.json" in ended.err
    assert "--acl-json" in ended.err


def test_a_program_that_records_nothing(served: Bench) -> None:
    script(served, "#!/bin/sh\nexit 0\n")
    ended = served.collect("--json")
    assert ended.code == 4
    assert "did not come as far as svp_acl_init" in ended.document["causes"][0]["text"]
    assert ended.document["exit_code"] == 4
    assert "nothing recorded: no JOB came; waited for a program that records" in ended.document["session"]["incomplete"]


def test_a_daemon_that_is_killed_while_the_program_runs_makes_it_incomplete(
    served: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch, "profagent.record.beginnings", "AWAY_S", 0.5)
    moment = random.randrange(2, 8)
    with started(
        *served.arguments("--interval", "1", "--json", "--", "20", "0.1", "unload"), **served.variables
    ) as host:
        host.err.until(f"inference {moment}")
        assert served.daemon is not None
        served.daemon.kill()
        ended = host.ended()
    summary = ended.document["session"]
    assert (ended.code, ended.document["status"], summary["complete"]) == (4, 0, False), ended.err
    assert any("the link is down" in why for why in summary["incomplete"])
    (job,) = served.board_jobs
    assert len(list((job / "data").glob("aicore*.done"))) == 20


def test_a_link_that_drops_before_the_program_runs_leaves_nothing(bench: Bench) -> None:
    (bench.project / "large").write_bytes(os.urandom(30_000_000))
    with started(*bench.arguments(), **bench.variables) as host:
        assert eventually((bench.remote / ".profagent" / "run" / "keeper").exists)
        for session in bench.friend.sessions():
            os.kill(session, signal.SIGKILL)
        ended = host.ended()
    assert ended.code == 3, ended.err
    # It is told, and has not only the silence to go by.
    assert eventually(lambda: not (bench.remote / ".profagent" / "run").exists(), HOST_SILENCE_S / 2)
    assert not (bench.remote / "seen.json").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--board", "x", "--config", "y"), "--board or --config"),
        (("--env", "1=2"), "is not a variable"),
        (("--label", "x"), "is not a label"),
        (("--config", "none.ini"), "cannot read none.ini"),
        (("--acl_api", "maybe"), "maybe"),
    ],
)
def test_what_cannot_be_right(bench: Bench, arguments: tuple[str, ...], told: str) -> None:
    ended = bench.collect(*arguments)
    assert ended.code == 2
    assert told in ended.err
    assert not bench.remote.exists()


def test_an_output_that_cannot_be_is_told_before_anything_is_done(bench: Bench) -> None:
    bench.output = bench.project / "main" / "x"
    ended = bench.collect()
    assert ended.code == 1
    assert f"cannot write {bench.output}" in ended.err
    assert not bench.remote.exists()
