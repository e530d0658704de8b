"""The fault proxy breaks a link as it says, and in no other way."""

from __future__ import annotations

import socket
import threading
import time
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


def everything(end: socket.socket) -> bytes:
    data = b""
    while piece := end.recv(1 << 16):
        data += piece
    return data


def sent(end: socket.socket, data: bytes = DATA) -> threading.Thread:
    """Send on a thread, so that no buffer need hold it."""
    thread = threading.Thread(target=end.sendall, args=(data,))
    thread.start()
    return thread


def has_reset(proxy: FaultProxy) -> bool:
    return proxy.wait_for(lambda: proxy.faults.resets == 1)


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


def test_connections_follow_one_another() -> None:
    board = Board()
    with FaultProxy(board.address, 1) as proxy:
        for number in (1, 2):
            with connect(proxy) as host, board.accepted() as far:
                host.sendall(b"x")
                assert far.recv(1) == b"x"
                assert proxy.has_accepted(number)
                proxy.cut(Ending.FIN)
    board.close()


def test_nobody_behind_the_proxy_is_a_reset() -> None:
    board = Board()
    board.close()
    with FaultProxy(board.address, 1) as proxy, pytest.raises(ConnectionResetError), connect(proxy) as host:
        host.recv(1)


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


def test_a_stall_holds_for_later_connections_too() -> None:
    board = Board()
    with FaultProxy(board.address, 1) as proxy:
        proxy.stall()
        with connect(proxy) as host, board.accepted() as far:
            host.sendall(b"x")
            assert is_silent(far)
            proxy.resume()
            assert far.recv(1) == b"x"
    board.close()


def test_an_abandoned_connection_is_silent_for_ever_and_open() -> None:
    board = Board()
    with FaultProxy(board.address, 1) as proxy, connect(proxy) as host, board.accepted() as far:
        assert proxy.wait_for(lambda: proxy.accepted == 1)
        assert proxy.abandon() == 1
        host.sendall(b"x")
        proxy.resume()
        assert is_silent(far)
        assert is_silent(host)
        host.close()
        assert is_silent(far)
        with connect(proxy) as another, board.accepted() as other_far:
            another.sendall(b"y")
            assert other_far.recv(1) == b"y"
    board.close()


def test_a_half_close_ends_one_direction() -> None:
    with link() as (proxy, host, far):
        assert proxy.half_close(Way.DOWN) == 1
        assert host.recv(1) == b""
        host.sendall(b"up")
        assert received(far, 2) == b"up"
        far.sendall(b"down")
        assert host.recv(1) == b""


def test_a_delay_delays_and_does_not_slow() -> None:
    with link(Faults(delay_s=0.4)) as (_, host, far):
        begun, data = time.monotonic(), DATA * 8
        sending = sent(far, data)
        first = host.recv(1)
        assert time.monotonic() - begun >= 0.4
        assert first + received(host, len(data) - 1) == data
        sending.join()
        assert time.monotonic() - begun < 0.4 * len(data) / (16 << 10), "not once for each piece"


def test_a_trickle_holds_its_rate() -> None:
    with link(Faults(bytes_per_s=20_000)) as (_, host, far):
        begun = time.monotonic()
        sending = sent(far, DATA[:16_000])
        assert received(host, 16_000) == DATA[:16_000]
        sending.join()
        assert time.monotonic() - begun >= 0.7


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_reset_comes_at_a_byte_that_the_seed_tells(seed: int) -> None:
    ends = []
    for _ in range(2):
        faults = Faults(reset_within_bytes=50_000)
        with link(faults, seed) as (proxy, host, far):
            sending = sent(far, DATA[:60_000])
            assert has_reset(proxy)
            with pytest.raises(ConnectionResetError):
                everything(host)
            sending.join()
            ends.append(proxy._chance.getstate())
    assert ends[0] == ends[1]


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


def test_it_leaves_no_thread_and_no_port() -> None:
    with link() as (proxy, *_):
        address = proxy.address
        threads = threading.active_count()
    assert threading.active_count() == threads - 1
    host, _, port = address.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), TIMEOUT_S)
