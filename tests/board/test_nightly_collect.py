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
attempts = {attempts}
wait = "1s"
fail_if = ["total.median>+100%"]
[retention]
keep_last = 1
[[boards]]
name = "euler"
collect = {{ main = "{main}", project = "app", interval = 1, arguments = ["{count}", "0", "{then}"], more = {more} }}
[[boards]]
name = "ssh://nobody@127.0.0.1:1"
collect = {{ main = "main", project = "app" }}
"""
RESTARTED = """#!/bin/sh
[ -e been-there ] && exec ./main "$@"
: >been-there
kill -KILL "$(cut -d ' ' -f 1 .profagent/run/keeper)" $$
"""


def test_nights_of_a_board_that_is_run_by_collect(served: Bench) -> None:
    """One that is well; another is away."""
    file = served.project.parent / "nightly.toml"
    more = f'["--remote-dir", "{served.remote}"]'
    documents = []
    for then in ("unload", "unload"):
        text = SETTINGS.format(attempts=1, main="main", count=INFERENCES, then=then, more=more)
        file.write_text(text, "utf-8")
        ended = profagent("nightly", "run", "--config", file, "--json", **served.variables)
        assert ended.code == 3, ended.err
        documents.append(ended.document)
        assert eventually(served.is_tidy)
    assert [[board["verdict"] for board in document["boards"]] for document in documents] == [
        ["undecided", "away"],
        ["good", "away"],
    ]
    sessions = profagent("sessions", "--json", "--workspace", served.workspace, **served.variables).document
    assert [(each["source"], each["jobs"], each["inferences"]) for each in sessions] == [("collect", 1, INFERENCES)] * 2
    assert [each["labels_by_key"]["nightly"] for each in sessions] == [document["run"] for document in documents]
    # The good night is what the next is compared with.
    assert [each["cleared_us"] is None for each in sessions] == [False, True]
    # What retention let go of takes no room in any form.
    assert len(list((served.workspace / "nightly" / "jobs").iterdir())) == 1
