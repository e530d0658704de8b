"""What a night runs for a board, and what it reads from what that printed."""

from __future__ import annotations

from pathlib import Path

from profagent.nightly.night import Board, Collect, Record
from profagent.nightly.run import Captured, capture_call, captured

FOLDER, WORKSPACE = Path("/nightly"), Path("/ws")
COMMON = ["--board", "lab1", "--workspace", "/ws", "--json", "--label", "place=lab", "--label", "nightly=now"]


def test_record() -> None:
    board = Board("lab1", record=Record("10m", until_finished=True, more=["--backlog"]), labels={"place": "lab"})
    ends = ["--for", "10m", "--until-finished", "--backlog"]
    assert capture_call(board, FOLDER, WORKSPACE, "now") == ["record", "--new", *COMMON, *ends]
    named = ["--counter-map", "/nightly/maps/b2.toml"]
    assert capture_call(board, FOLDER, WORKSPACE, "now", "maps/b2.toml") == ["record", "--new", *COMMON, *named, *ends]


def test_collect() -> None:
    program = Collect("out/main", "project", "src/acl.json", 1, ["a b", "-x"], ["--all"])
    board = Board("lab1", collect=program, labels={"place": "lab"})
    assert capture_call(board, FOLDER, WORKSPACE, "now") == [
        *["collect", "-m", "out/main", *COMMON, "--output", "/ws/nightly/jobs", "--project", "/nightly/project"],
        *["--acl-json", "src/acl.json", "--interval", "1", "--all", "--", "a b", "-x"],
    ]


def test_what_came_of_it() -> None:
    assert captured(0, {"session": 3}, "") == Captured(3)
    assert captured(3, None, "cannot reach it") == Captured(None, "cannot reach it", is_away=True)
    assert captured(4, {"session": 3}, "") == Captured(3, "data is missing", is_incomplete=True)
    assert captured(1, None, "the disk is full") == Captured(None, "the disk is full")
    assert captured(1, None, "") == Captured(None, "the capture ended with exit code 1 and no session")


def test_what_came_of_a_program() -> None:
    assert captured(0, {"session": {"session": 3}, "causes": []}, "") == Captured(3)
    crashed = {"session": {"session": 3}, "causes": [{"text": "it was ended by SIGSEGV"}, {"text": "its tail is lost"}]}
    assert captured(139, crashed, "") == Captured(3, "it was ended by SIGSEGV; its tail is lost")
    assert captured(7, {"session": {"session": 3}, "causes": []}, "") == Captured(
        3, "the program ended with exit code 7"
    )
    assert captured(1, {"session": None, "causes": []}, "nothing came") == Captured(None, "nothing came")
    own = {"session": {"session": 3}, "causes": [], "status": 4}
    assert captured(4, own, "") == Captured(3, "the program ended with exit code 4")
    assert not captured(3, {"session": None, "causes": [], "status": 3}, "").is_away
    restarted = {"session": {"session": 3}, "causes": [{"text": "nobody knows"}], "status": None}
    assert captured(1, restarted, "") == Captured(3, "nobody knows", is_lost=True)
    lost = {"session": {"session": 3}, "causes": [], "status": 0}
    assert captured(4, lost, "") == Captured(3, "data is missing", is_incomplete=True)
