"""What is done on a board over SSH, and what becomes of it when the board or the link fails."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.errors import ProfagentError, UnreachableError
from profagent.ssh.connection import connect
from tests.board.sshd import Nobody, Sshd, public_key
from tests.fakes.small_disk import small_disk
from tests.faults.proxy import Ending, FaultProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from profagent.ssh.remote import Remote

MIB = 1 << 20


@pytest.fixture
async def remote(friend: Sshd) -> AsyncIterator[Remote]:
    async with connect(friend.target, Nobody()) as opened:
        yield opened


def archive(**files: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o640
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


async def test_a_command_gives_output_errors_and_status(remote: Remote) -> None:
    ran = await remote.run("cat; echo problem >&2; exit 3", b"\x00bytes\xff")
    assert (ran.stdout, ran.stderr, ran.status) == (b"\x00bytes\xff", b"problem\n", 3)
    assert (await remote.run("kill -KILL $$")).status < 0


async def test_a_command_that_must_not_fail_says_why_it_did(remote: Remote) -> None:
    assert (await remote.must("echo 1")).text == "1"
    with pytest.raises(ProfagentError, match=r"`echo first .*` failed: the last line"):
        await remote.must("echo first >&2; echo 'the last line' >&2; exit 1")
    with pytest.raises(ProfagentError, match="exit status 7"):
        await remote.must("exit 7")


async def test_endless_output_ends_in_an_error(remote: Remote) -> None:
    with pytest.raises(ProfagentError, match="sends more than"):
        await remote.run("cat /dev/zero")


async def test_a_tree_is_unpacked_and_its_progress_told(remote: Remote, tmp_path: Path) -> None:
    data = archive(one=b"1" * MIB, two=b"2")
    told: list[int] = []
    target = tmp_path / "a b" / "it's"
    await remote.unpack(io.BytesIO(data), str(target), told.append)
    assert (target / "one").read_bytes() == b"1" * MIB
    assert (target / "two").stat().st_mode & 0o777 == 0o640
    assert told == sorted(told)
    assert told[-1] == len(data)


async def test_a_full_disk_is_told_by_the_board(remote: Remote, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", MIB) as disk:
        with pytest.raises(ProfagentError, match=r"cannot write .*small.*: .*") as error:
            await remote.unpack(io.BytesIO(archive(one=b"1" * 4 * MIB)), str(disk / "tree"))
        assert "free space" in error.value.hint
        with pytest.raises(ProfagentError, match="No space left on device"):
            await remote.put(b"2" * 4 * MIB, str(disk / "file"))
        assert not list(disk.glob("file*"))


async def test_a_file_is_put_whole_with_its_mode(remote: Remote, tmp_path: Path) -> None:
    target = tmp_path / "it's"
    target.write_bytes(b"old")
    await remote.put(b"new", str(target), 0o600)
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o600
    assert not os.path.exists(f"{target}.part")  # noqa: ASYNC240, PTH110 - the loop may wait for so little


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def through(address: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    writer.write(b"hello\n")
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return line


async def test_a_port_of_the_board_is_reached(remote: Remote) -> None:
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await remote.answers(address)
        async with remote.forward(address) as local:
            assert await through(local) == b"hello\n"
            socket = Path(local.removeprefix("unix:"))
            assert socket.parent.stat().st_mode & 0o077 == 0
        assert not socket.parent.exists()


def known(home: Path, friend: Sshd, proxy: FaultProxy) -> str:
    """The server behind a proxy, whose key is known there."""
    port = proxy.address.rpartition(":")[2]
    key = public_key(friend.folder / "host")
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n", "ascii")
    return f"ssh://{friend.user}@127.0.0.1:{port}"


async def test_a_link_that_drops_in_mid_upload_is_told(home: Path, friend: Sshd, tmp_path: Path) -> None:
    with FaultProxy(f"127.0.0.1:{friend.port}", seed=1) as proxy:
        async with connect(known(home, friend, proxy), Nobody()) as remote:

            def cut_later(sent: int) -> None:
                if sent > 2 * MIB:
                    proxy.cut(Ending.RST)

            with pytest.raises(UnreachableError, match=r"connection to 127\.0\.0\.1 is lost"):
                await remote.unpack(io.BytesIO(archive(one=b"1" * 32 * MIB)), str(tmp_path / "tree"), cut_later)
            with pytest.raises(UnreachableError, match="is lost"):
                await remote.run("true")
            with pytest.raises(UnreachableError, match="is lost"):
                await remote.answers("127.0.0.1:1")


async def test_a_link_over_which_nothing_comes_any_more_is_found(home: Path, friend: Sshd) -> None:
    with FaultProxy(f"127.0.0.1:{friend.port}", seed=1) as proxy:
        (home / ".ssh" / "config").write_text("ServerAliveInterval 1\nServerAliveCountMax 2\n", "ascii")
        async with connect(known(home, friend, proxy), Nobody()) as remote:
            proxy.stall()
            with pytest.raises(UnreachableError, match="is lost"):
                await remote.run("true")
