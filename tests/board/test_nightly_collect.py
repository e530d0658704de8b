"""Nights of boards whose programs are run by `collect`, through a real OpenSSH server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.board import eventually
from tests.integration.host import profagent

if TYPE_CHECKING:
    from tests.board.bench import Bench

INFERENCES = 30
SETTINGS = """
workspace = "ws"
attempts = 1
[retention]
keep_last = 1
[[boards]]
name = "euler"
[boards.collect]
main = "main"
project = "app"
interval = 1
arguments = ["{count}", "0", "unload"]
more = ["--remote-dir", "{remote}"]
[[boards]]
name = "ssh://nobody@127.0.0.1:1"
collect = {{ main = "main", project = "app" }}
"""


def test_a_night_of_a_board_that_is_run_by_collect(served: Bench) -> None:
    """One that is well; another is away."""
    file = served.project.parent / "nightly.toml"
    file.write_text(SETTINGS.format(remote=served.remote, count=INFERENCES), "utf-8")
    ended = profagent("nightly", "run", "--config", file, "--json", **served.variables)
    assert ended.code == 3, ended.err
    assert eventually(served.is_tidy)
    assert [board["verdict"] for board in ended.document["boards"]] == ["undecided", "away"]
    (session,) = profagent("sessions", "--json", "--workspace", served.workspace, **served.variables).document
    assert (session["source"], session["jobs"], session["inferences"]) == ("collect", 1, INFERENCES)
    assert session["labels_by_key"]["nightly"] == ended.document["run"]
    assert len(list((served.workspace / "nightly" / "jobs").iterdir())) == 1
