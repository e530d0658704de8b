"""What is said of an address before gRPC is asked."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from profagentd.errors import DaemonError
from profagentd.follow.server import check_address


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "0.0.0.0:0"])
def test_what_is_free_is_fine(address: str) -> None:
    check_address(address)


def test_what_is_taken_is_told_and_what_is_free_stays_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(DaemonError, match="Address already in use"):
            check_address(address)
    check_address(address)
    check_address(f"unix:{tmp_path / 'free.sock'}")


def test_a_port_of_roots_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(_: socket.socket, where: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", where)

    monkeypatch.setattr(socket.socket, "bind", bind)
    with pytest.raises(DaemonError, match="Permission denied") as caught:
        check_address("127.0.0.1:80")
    assert "below 1024" in caught.value.hint


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"of somebody")
    link.symlink_to(tmp_path / "nowhere")
    for path in (file, link):
        with pytest.raises(DaemonError, match="File exists") as caught:
            check_address(f"unix:{path}")
        assert "no socket stands there" in caught.value.hint
    assert file.read_bytes() == b"of somebody"
