"""The fault proxy breaks a link as it says, and in no other way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.proxy import Ending, FaultProxy, Faults, Way

DATA = bytes(range(256)) * 400
TIMEOUT_S = 20.0


class Board:
    """A peer that accepts one connection after the other."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_S)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def accepted(self) -> socket.socket:
        connection, _ = self._listener.accept()
        connection.settimeout(TIMEOUT_S)
        return connection

    def close(self) -> None:
        self._listener.close()


@contextmanager
def link(faults: Faults | None = None, seed: int = 1) -> Iterator[tuple[FaultProxy, socket.socket, socket.socket]]:
    """A proxy, and the two ends of a connection through it."""
    board = Board()
    with FaultProxy(board.address, seed, faults) as proxy, connect(proxy) as host, board.accepted() as far:
        assert proxy.wait_for(lambda: proxy.accepted == 1)
        yield proxy, host, far
    board.close()


def connect(proxy: FaultProxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def received(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (piece := end.recv(count - len(data))):
        data += piece
    return data


def sent(end: socket.socket, data: bytes = DATA) -> threading.Thread:
    """Send on a thread, so that no buffer need hold it."""
    thread = threading.Thread(target=end.sendall, args=(data,))
    thread.start()
    return thread


def is_silent(end: socket.socket) -> bool:
    end.settimeout(0.3)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(TIMEOUT_S)
    return False


def differing(data: bytes) -> list[int]:
    return [at for at, (is_, was) in enumerate(zip(data, DATA, strict=True)) if is_ != was]


def test_without_faults_bytes_and_the_end_pass_both_ways() -> None:
    with link() as (proxy, host, far):
        for one, other in ((host, far), (far, host)):
            sending = sent(one)
            assert received(other, len(DATA)) == DATA
            sending.join()
        assert proxy.wait_for(lambda: set(proxy.carried.values()) == {len(DATA)})
        host.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""
        far.sendall(b"still")
        assert received(host, 5) == b"still"


def test_a_cut_is_an_end_or_a_reset() -> None:
    with link() as (proxy, host, far):
        assert proxy.cut(Ending.FIN) == 1
        assert (host.recv(1), far.recv(1)) == (b"", b"")
    with link() as (proxy, host, far):
        assert proxy.cut(Ending.RST) == 1
        for end in (host, far):
            with pytest.raises(ConnectionResetError):
                end.recv(1)


def test_a_stall_holds_bytes_back_until_it_ends() -> None:
    with link() as (proxy, host, far):
        proxy.stall(frozenset({Way.DOWN}))
        far.sendall(b"down")
        host.sendall(b"up")
        assert received(far, 2) == b"up"
        assert is_silent(host)
        proxy.resume()
        assert received(host, 4) == b"down"
        proxy.stall()
        host.sendall(b"up")
        far.sendall(b"down")
        assert is_silent(far)
        assert is_silent(host)


def test_flips_turn_single_bits_and_no_more_than_they_may() -> None:
    found = []
    for seed in (5, 5, 6):
        with link(Faults(flip_each_bytes=5_000, flips_left=7), seed) as (proxy, host, far):
            sending = sent(far)
            data = received(host, len(DATA))
            sending.join()
            assert (proxy.faults.flips, proxy.faults.flips_left) == (7, 0)
        places = differing(data)
        assert len(places) == 7
        assert all((data[at] ^ DATA[at]).bit_count() == 1 for at in places)
        found.append(places)
    assert found[0] == found[1] != found[2]
