"""What happens on a board while a file is read."""

from __future__ import annotations

from pathlib import Path

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow.log import FileEvent
from tests.property.streamed_board import StreamedBoard

PATH = "data/aicore.0.m.3.0.1.1.0"


def _until_quiet(board: StreamedBoard) -> list[wire.ServerMessage]:
    said: list[wire.ServerMessage] = []
    while more := board.turn():
        said += more
    return said


def test_a_log_that_is_made_anew_while_it_is_found_gone_is_another_log(tmp_path: Path) -> None:
    board = StreamedBoard(tmp_path)
    board.open()
    board.receive(wire.ClientMessage(select=wire.Select(follow=[1])))
    _until_quiet(board)
    file = board.directory / PATH
    file.write_bytes(b"first")
    board.touch(PATH, FileEvent.MADE)
    _until_quiet(board)
    file.unlink()
    board.touch(PATH, FileEvent.DELETED)
    board.turn()  # it is found gone, which is not told yet
    file.write_bytes(b"second")
    board.touch(PATH, FileEvent.MADE)
    said = _until_quiet(board)
    assert [event.WhichOneof("event") for message in said for event in message.batch.events] == ["removed"]
    assert [log.path for message in said for log in message.announced.logs] == [PATH.encode()]
