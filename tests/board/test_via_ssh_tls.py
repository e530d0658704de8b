"""`--via ssh` to a daemon with mutual TLS: the tunnel ends on loopback, and its certificate is for the board."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.keys.keys import Keys
from tests.board.tunnelled import know, record
from tests.integration.board import content, running, simulated
from tests.integration.host import profagent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.board.sshd import Sshd
    from tests.daemon.daemon_process import Daemon

# Nothing is there: this host comes to the board through the tunnel alone.
ADDRESS = "192.0.2.7"


@pytest.fixture
def workshop(home: Path) -> Keys:
    """The host's keys, where they are looked for."""
    keys = Keys(home / ".config" / "profagent" / "keys")
    keys.init("lab-3")
    return keys


@contextmanager
def serving(root: Path, keys: Keys, *addresses: str) -> Iterator[tuple[Daemon, str]]:
    """A daemon whose certificate is for these; and the certificate's fingerprint."""
    made = keys.issue_board("euler", addresses)
    files = ("--tls-cert", "board.pem"), ("--tls-key", "board.key"), ("--tls-ca", "ca.pem")
    tls = (word for option, file in files for word in (option, made.folder / file))
    with running("--root", root, "--quiet-after", "1", *tls) as board:
        yield board, made.certificate.fingerprint


def at(board: Daemon, host: str = ADDRESS) -> str:
    return f"{host}:{board.address.rpartition(':')[2]}"


def test_the_certificate_is_checked_for_the_board(
    home: Path, friend: Sshd, root: Path, workshop: Keys, variables: dict[str, str], tmp_path: Path
) -> None:
    job = simulated(root)
    with serving(root, workshop, ADDRESS) as (board, fingerprint):
        know(home, friend, at(board), fingerprint=fingerprint)
        ended = profagent(*record(tmp_path / "ws"), **variables)
        assert ended.code == 0, ended.err
        assert content(Path(ended.document["mirror"]) / job.name) == content(job)
        know(home, friend, at(board, "192.0.2.8"))
        ended = profagent(*record(tmp_path / "other"), **variables)
        assert ended.code == 3
        assert f"board at euler (over SSH) (euler) is not for 192.0.2.8: it is for {ADDRESS}" in ended.err
        assert "boards.toml" in ended.err
        know(home, friend, at(board), fingerprint="ab" * 32)
        ended = profagent(*record(tmp_path / "other"), **variables)
        assert ended.code == 3
        assert "euler shows another certificate" in ended.err


def test_keys_may_be_named_and_are_missed(
    home: Path, friend: Sshd, root: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    simulated(root)
    keys, others = Keys(tmp_path / "keys"), Keys(tmp_path / "others")
    keys.init("lab-3")
    others.init("lab-4")
    with serving(root, keys, ADDRESS) as (board, _):
        know(home, friend, at(board))
        ended = profagent(*record(tmp_path / "ws"), **variables)
        assert ended.code == 3
        assert "a daemon with TLS" in ended.err
        assert "--keys DIR" in ended.err
        ended = profagent(*record(tmp_path / "ws", "--keys", others.folder), **variables)
        assert ended.code == 3
        assert "not by the CA of" in ended.err
        ended = profagent(*record(tmp_path / "ws", "--keys", keys.folder), **variables)
        assert ended.code == 0, ended.err
