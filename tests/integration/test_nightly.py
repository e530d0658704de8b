"""Two nights on three boards: one fine, one away, one slower in the second night. The verdict names that one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.integration.board import eventually, running, simulated
from tests.integration.host import COMMAND, ENVIRONMENT, Ended, Host, profagent, started

AWAY = "127.0.0.1:1"
INFERENCES = 30
SLOWER = 1.06
# The simulated board draws few different inferences: with most seeds their median is off by up to 2 %.
SEED = 200
NETWORK = """
name = "net"
batch_num = 1
[[segments]]
unit = "aicore"
runs = [
    {{ time_us = 1500.0, layers = ["conv1:Convolution"] }},
    {{ time_us = {slow}, layers = ["conv2:Convolution"] }},
    {{ time_us = 900.0, layers = ["conv3:Convolution"] }},
]
"""
SETTINGS = """
workspace = "ws"
attempts = 2
wait = "0.1s"
time_limit = "2m"
fail_if = ["latency.median>+3%", "layer.median>+5%"]
{more}
"""
BOARD = """
[[boards]]
name = "{name}"
labels = {{ place = "lab" }}
record = {{ until_finished = true, more = ["--backlog"] }}
"""


@contextmanager
def boards(folder: Path, *names: str) -> Iterator[dict[str, str]]:
    """The addresses of daemons that serve a root each."""
    with ExitStack() as stack:
        found = {}
        for name in names:
            (folder / name).mkdir()
            state = ("--state", folder / f"{name}-state")
            daemon = running("--root", folder / name, "--quiet-after", "0.3", "--identity", f"board-{name}", *state)
            found[name] = stack.enter_context(daemon).address
        yield found


def run_programs(folder: Path, night: int, slow: str) -> None:
    """Every board runs its program once more; what it ran before is gone."""
    for number, name in enumerate(("fine", "slow")):
        for old in (folder / name).iterdir():
            shutil.rmtree(old)
        time_us = 2500.0 * (SLOWER if name == slow and night else 1.0)
        network = folder / f"{name}.toml"
        network.write_text(NETWORK.format(slow=time_us), "utf-8")
        simulated(folder / name, INFERENCES, model=str(network), seed=SEED + 10 * night + number)


def settings(folder: Path, names: list[str], more: str = "") -> Path:
    file = folder / "nightly.toml"
    file.write_text(SETTINGS.format(more=more) + "".join(BOARD.format(name=name) for name in names), "utf-8")
    return file


def night(file: Path, *more: str | Path) -> Ended:
    return profagent("nightly", "run", "--config", file, *more)


@dataclass(frozen=True)
class Nights:
    """Two nights; in the second, the slow board is beside the baseline that its first night was made."""

    slow: str
    workspace: Path
    first: dict[str, Any]
    second: dict[str, Any]
    as_markdown: str
    junit: Path


def two_nights(folder: Path) -> Nights:
    """What was told is what was printed."""
    workspace, told, junit = folder / "ws", folder / "told.json", folder / "night.xml"
    command = [sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())", str(told)]
    tell = f"[tell]\ncommand = {json.dumps(command)}\n[retention]\nkeep_last = 1\n"
    with boards(folder, "fine", "slow") as addresses:
        file = settings(folder, [addresses["fine"], AWAY, addresses["slow"]], tell)
        run_programs(folder, 0, "slow")
        ended = night(file, "--json")
        assert ended.code == 3, ended.err
        first = ended.document
        assert json.loads(told.read_text("utf-8")) == first
        measure = first["boards"][2]["session"]
        assert profagent("baseline", "set", "release", str(measure), "--workspace", workspace).code == 0
        more = 'baseline = "release"\nlake = "lake"\nexports = ["summary", "perfetto"]\n'
        file.write_text(more + file.read_text("utf-8"), "utf-8")
        run_programs(folder, 1, "slow")
        ended = night(file, "--markdown", "--junit", junit)
    assert ended.code == 1, ended.err
    second = json.loads(told.read_text("utf-8"))
    return Nights(addresses["slow"], workspace, first, second, ended.out, junit)


def test_a_night_is_judged_told_and_exported(tmp_path: Path) -> None:
    nights = two_nights(tmp_path)
    check_verdicts(nights)
    check_forms(nights)
    check_exports(nights)


def check_verdicts(nights: Nights) -> None:
    """They name the board and the layer, and nothing else."""
    assert [board["verdict"] for board in nights.first["boards"]] == ["undecided", "away", "undecided"]
    assert nights.first["boards"][1]["attempts"] == 2
    fine, away, slow = nights.second["boards"]
    assert [board["verdict"] for board in (fine, away, slow)] == ["good", "away", "slower"]
    (beside,) = slow["compared"]
    assert (beside["against"], beside["session"]) == ("baseline release", nights.first["boards"][2]["session"])
    assert {one["what"] for one in beside["slower"]} <= {"layer conv2", "latency net"}
    (layer,) = [one for one in beside["slower"] if one["what"] == "layer conv2"]
    assert layer["percent"] == pytest.approx(100 * (SLOWER - 1), abs=1.5)
    slower, not_there = nights.second["headlines"]
    assert re.fullmatch(
        rf"SLOWER: {nights.slow} \[simulated\]: (latency net \+3\.\d %, )?layer conv2 \+6\.\d %", slower
    )
    assert not_there == f"AWAY: {AWAY}"


def check_forms(nights: Nights) -> None:
    """Markdown, JUnit XML, and a page that leads to the reports of its sessions."""
    good, _, measure = (board["session"] for board in nights.first["boards"])
    assert nights.as_markdown.startswith("**SLOWER")
    assert f"as the last good night (session {good})" in nights.as_markdown
    assert f"beside baseline release (session {measure}): layer conv2 +" in nights.as_markdown
    suite = ET.parse(nights.junit).getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    pages = sorted((nights.workspace / "nightly").glob("*-session-*.html"))
    assert [page.stem.rpartition("-")[2] for page in pages] == ["1", "2", "3", "4"]
    newest = max((nights.workspace / "nightly").glob("*Z.html"))
    assert f'href="{pages[-1].name}"' in newest.read_text("utf-8")
    assert f"session {measure}" in pages[-1].read_text("utf-8")


def check_exports(nights: Nights) -> None:
    """It exports, labels, brings what no night has brought into the lake, and lets go."""
    lake = nights.workspace.parent / "lake"
    first, *others = nights.second["remarks"]
    assert (first, len(others)) == (f"push: 4 of 4 sessions came into {lake}, the others were there", 1)
    rows = profagent("fleet", "sql", "SELECT count(*) AS found FROM sessions", "--lake", lake, "--json").document
    assert rows == [{"found": 4}]
    exports = nights.workspace / "exports" / f"session-{nights.second['boards'][0]['session']}"
    assert (exports / "trace" / "trace.pftrace").stat().st_size
    assert [*exports.glob("summary/*/op_summary*")]
    sessions = json.loads(profagent("sessions", "--workspace", nights.workspace, "--json").out)
    assert {session["labels_by_key"]["place"] for session in sessions} == {"lab"}
    assert len({session["labels_by_key"]["nightly"] for session in sessions}) == 2
    cleared = [(session["session"], session["lake"]) for session in sessions if session["cleared_us"] is not None]
    assert cleared == [(nights.first["boards"][0]["session"], str(lake))], "a measure stays"
    assert profagent("show", str(cleared[0][0]), "--workspace", nights.workspace).code == 0


def test_a_second_night_at_a_time_is_refused_and_a_time_limit_holds(tmp_path: Path) -> None:
    with boards(tmp_path, "fine") as addresses:
        file = settings(tmp_path, [addresses["fine"]])
        endless = file.read_text("utf-8").replace("until_finished = true, more", 'for = "1h", more')
        file.write_text(endless.replace('time_limit = "2m"', 'time_limit = "4s"'), "utf-8")
        simulated(tmp_path / "fine", 3)
        with started("nightly", "run", "--config", file, "--json") as host:
            assert eventually((tmp_path / "ws" / "nightly" / "lock").exists)
            second = night(file)
            first = host.ended()
    assert second.code == 1
    assert "another `profagent nightly run`" in second.err
    (board,) = first.document["boards"]
    assert (board["verdict"], first.code) == ("failed", 1)
    assert "its time, 4s, was over" in board["problems"][0]
    assert board["session"] is not None, "what came in time is kept"


def test_ctrl_c_at_a_terminal_ends_the_board_in_good_order(tmp_path: Path) -> None:
    """A terminal interrupts everything that runs in it."""
    with boards(tmp_path, "fine") as addresses:
        file = settings(tmp_path, [addresses["fine"]])
        simulated(tmp_path / "fine", 3)
        file.write_text(file.read_text("utf-8").replace("until_finished = true", 'for = "1h"'), "utf-8")
        command = [*COMMAND, "nightly", "run", "--config", str(file), "--json"]
        process = subprocess.Popen(
            command, env=ENVIRONMENT, text=True, process_group=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        host = Host(process)
        host.err.until("recording")
        os.killpg(process.pid, signal.SIGINT)
        ended = host.ended()
    (board,) = ended.document["boards"]
    # What was recorded until then may be all that there was.
    assert board["verdict"] in {"failed", "incomplete"}
    assert board["session"] == 1
    assert board["problems"][0] == "the night was stopped while this board was captured"


def test_the_webhook_is_told(tmp_path: Path) -> None:
    posted: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if len(posted) == 1 else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        sendmail = tmp_path / "sendmail"
        sendmail.write_text(f'#!/bin/sh\ncat >> "{tmp_path}/mail-$1"\nexit $(test -e "{tmp_path}/broken" && echo 75)\n')
        sendmail.chmod(0o755)
        tell = f'[tell]\nwebhook = "http://127.0.0.1:{server.server_port}/night"\nmail = ["a@lab"]\n'
        tell += f'sendmail = ["{sendmail}", "-t"]\n'
        file = settings(tmp_path, ["127.0.0.1:1"], tell)
        file.write_text(file.read_text("utf-8").replace("attempts = 2", "attempts = 1"), "utf-8")
        one = night(file, "--json")
        (tmp_path / "broken").touch()
        time.sleep(1)  # a night is named by its second
        other = night(file, "--json")
        server.shutdown()
        serving.join()
    assert one.code == other.code == 3
    assert [json.loads(body) for body in posted] == [one.document, other.document]
    assert "the webhook was not told" not in one.err
    assert "the webhook was not told: HTTP Error 500" in other.err
    mails = (tmp_path / "mail--t").read_text("utf-8")
    assert mails.count("Subject: profagent: AWAY: 127.0.0.1:1\n") == 2
    assert "sendmail was told, and ended with exit code 75" in other.err
    pages = sorted((tmp_path / "ws" / "nightly").glob("*.html"))
    assert f'<a href="{pages[0].name}">' in pages[1].read_text("utf-8")
    assert [page.with_suffix(".xml").exists() for page in pages] == [True, True]
