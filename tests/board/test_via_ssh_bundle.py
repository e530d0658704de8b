"""`--via ssh` to boards whose own Python will not do: what is told, and a temporary daemon with a bundle's."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.board.sshd import Sshd, busybox, running_sshd
from tests.board.tunnelled import ENDED_S, assert_gone, begun, commands, folders, know, record
from tests.integration.board import eventually
from tests.integration.host import profagent, started

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@contextmanager
def bare_board(home: Path, folder: Path, programs: Path, address: str, inside: Sequence[str] = ()) -> Iterator[Sshd]:
    """A board that has these programs alone, called euler."""
    settings = f'ForceCommand exec /usr/bin/env "PATH={programs}" /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    with running_sshd(folder / "bare", settings=settings, inside=inside) as sshd:
        (home / ".ssh" / "known_hosts").write_text(sshd.known, "ascii")
        (home / ".ssh" / "id_ed25519").unlink()
        (home / ".ssh" / "id_ed25519").symlink_to(sshd.key)
        know(home, sshd, address)
        yield sshd


@pytest.fixture
def bare(home: Path, variables: dict[str, str], tmp_path: Path, unused_tcp_port: int) -> Iterator[Sshd]:
    """One without Python."""
    with bare_board(home, tmp_path, busybox(tmp_path / "bin"), f"127.0.0.1:{unused_tcp_port}") as sshd:
        yield sshd


def test_a_board_without_python_is_told(bare: Sshd, root: Path, variables: dict[str, str], tmp_path: Path) -> None:
    ended = profagent(*record(tmp_path / "ws", "--root", root), **variables)
    assert ended.code == 1
    assert "has no Python 3.9 or later" in ended.err
    assert f"profagent bundle --arch {os.uname().machine} --libraries DIR -o FILE.tar.gz`" in ended.err
    assert "then `--bundle FILE.tar.gz`" in ended.err


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_bundle_runs_with_its_own_python_and_leaves_nothing_when_the_link_drops(
    bare: Sshd, bundle: Path, root: Path, variables: dict[str, str]
) -> None:
    watch = ("watch", "--board", "euler", "--via", "ssh", "--root", root, "--bundle", bundle)
    with started(*watch, **variables) as host:
        folder = begun(host, root)
        loader = os.fsencode(folder / "tree/python/lib/ld-linux-")
        assert any(command.startswith(loader) for command in commands())
        for session in bare.sessions():
            os.kill(session, signal.SIGKILL)
        assert_gone(folder, root)
        host.interrupt()
    assert eventually(lambda: not folders(root), ENDED_S)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_bundle_without_roots_is_refused(bundle: Path, variables: dict[str, str]) -> None:
    ended = profagent("watch", "--board", "euler", "--via", "ssh", "--bundle", bundle, **variables)
    assert ended.code == 2
    assert "--bundle goes with --root" in ended.err
