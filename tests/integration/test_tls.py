"""Mutual TLS between real daemons and real commands, and what is said when they do not trust each other."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from profagent.errors import RefusedError
from profagent.keys.keys import Keys
from profagent.link.addresses import KnownBoard
from profagent.link.credentials import Credentials
from profagent.link.handshake import proven_certificate
from tests.integration.board import content, eventually, running, simulated, tls_arguments
from tests.integration.host import profagent, started

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=3000)
LOCAL = ("127.0.0.1", "::1", "localhost")
# Leads to this machine, and is no loopback address: a board on it is treated as any that is far away.
OTHERS = "0.0.0.0"
FAST = ("--quiet-after", "1")


def serving(folder: Path) -> list[str]:
    """Arguments of a daemon with what `keys issue board` has made."""
    return [*tls_arguments(folder), f"--tls-revoked={folder / 'revoked.txt'}"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA and a board."""
    folder = tmp_path_factory.mktemp("keys") / "original"
    keys = Keys(folder)
    keys.init("lab-3")
    keys.issue_board("euler", LOCAL)
    return folder


@pytest.fixture
def workshop(original: Path, tmp_path: Path) -> Keys:
    """A CA of the test's own."""
    return Keys(Path(shutil.copytree(original, tmp_path / "ca")))


@pytest.fixture
def address(workshop: Keys, root: Path) -> Iterator[str]:
    """A board with TLS."""
    with running("--root", root, *FAST, *serving(workshop.folder / "boards" / "euler")) as board:
        yield board.address


def record(address: str, *arguments: str | Path, **variables: str) -> tuple[str, ...]:
    return ("record", "--board", address, "--until-finished", "--backlog", "--json", *map(str, arguments))


async def proven(address: str, keys: Path, now: datetime = NOW) -> bytes:
    return await proven_certificate(KnownBoard(address, address), Credentials.read(keys), lambda: now)


async def why(address: str, keys: Path, now: datetime = NOW) -> str:
    """Why a board and a host do not trust each other, with what to do."""
    with pytest.raises(RefusedError) as error:
        await proven(address, keys, now)
    return f"{error.value}\n{error.value.hint}"


def issued(workshop: Keys, kind: str, *, now: datetime = NOW, addresses: tuple[str, ...] = LOCAL) -> Path:
    """Another board or host of the CA, as of a moment."""
    then = Keys(workshop.folder, now)
    if kind == "board":
        return then.issue_board("other", addresses).folder
    return then.issue_host("other", "viewer").folder


def replaced(folder: Path, source: Path, *names: str) -> Path:
    for name in names:
        shutil.copy(source / name, folder / name)
    return folder


# What works


def test_a_capture_over_tls_is_as_any_other(workshop: Keys, root: Path, tmp_path: Path) -> None:
    job = simulated(root)
    with running("--root", root, *FAST, *serving(workshop.folder / "boards" / "euler")) as board:
        ended = profagent(*record(board.address, "--keys", workshop.folder, "--workspace", tmp_path / "ws"))
    assert ended.code == 0, ended.err
    assert content(Path(ended.document["mirror"]) / job.name) == content(job)
    assert "viewer" not in ended.err
    assert "insecure" not in ended.err


def test_a_viewer_watches_over_tls(workshop: Keys, root: Path, address: str) -> None:
    viewer = workshop.issue_host("ci", "viewer").folder
    with started("watch", "--from-start", "--json", "--board", address, "--keys", viewer) as host:
        host.err.until("waiting for a program")
        simulated(root, 3)
        host.out.until("inference", 3)
        assert host.interrupt().code == 0


def test_what_a_viewer_has_is_not_deleted_on_the_board_and_what_an_operator_has_is(
    workshop: Keys, root: Path, tmp_path: Path
) -> None:
    viewer, operator = (workshop.issue_host(role, role).folder for role in ("viewer", "operator"))
    job = simulated(root)
    before = content(job)
    retain = (
        "--state",
        tmp_path / "state",
        "--retain",
        "delivered",
        "--retain-for",
        f"record-{socket.gethostname()[:48]}",
    )
    with running("--root", root, *FAST, *retain, *serving(workshop.folder / "boards" / "euler")) as board:
        looked = profagent(*record(board.address, "--keys", viewer, "--workspace", tmp_path / "viewer"))
        assert looked.code == 0, looked.err
        assert "this host is a viewer" in looked.err
        assert content(job) == before
        taken = profagent(*record(board.address, "--keys", operator, "--workspace", tmp_path / "operator"))
        assert taken.code == 0, taken.err
        assert "viewer" not in taken.err
        assert eventually(lambda: not list(job.glob("data/aicore.*"))), sorted(content(job))
    assert content(Path(taken.document["mirror"]) / job.name) == before


# What is not trusted, and what is said


async def test_a_board_that_has_expired(workshop: Keys, root: Path) -> None:
    with running("--root", root, *serving(issued(workshop, "board", now=LONG_AGO))) as board:
        told = await why(board.address, workshop.folder)
    assert "(other) has expired on" in told
    assert f"by this host's clock it is {NOW:%Y-%m-%d %H:%M}" in told
    assert "keys issue board" in told


async def test_a_host_whose_clock_is_too_early(workshop: Keys, root: Path) -> None:
    # Only certificates of others can be of the future: those of profagent are valid since 1970.
    credentials = Credentials.read(workshop.folder)
    with (
        running("--root", root, *serving(issued(workshop, "board", now=LONG_AGO))) as board,
        pytest.raises(RefusedError, match="valid from 1970-01-01"),
    ):
        await proven_certificate(
            KnownBoard(board.address, board.address), credentials, lambda: datetime(1969, 7, 20, tzinfo=UTC)
        )


async def test_a_board_of_another_workshop(workshop: Keys, root: Path, tmp_path: Path) -> None:
    other = Keys(tmp_path / "other")
    other.init("lab-4")
    with running("--root", root, *serving(issued(other, "board"))) as board:
        told = await why(board.address, workshop.folder)
    assert f"was issued by lab-4, not by the CA of {workshop.folder}" in told
    assert "--keys" in told


async def test_a_board_that_is_revoked(workshop: Keys, address: str) -> None:
    await proven(address, workshop.folder)
    workshop.revoke("euler")
    told = await why(address, workshop.folder)
    assert "the certificate of the board" in told
    assert f"is revoked: it is in {workshop.folder / 'revoked.txt'}" in told


async def test_a_host_of_another_workshop(workshop: Keys, address: str, tmp_path: Path) -> None:
    other = Keys(tmp_path / "other")
    other.init("lab-4")
    folder = replaced(issued(other, "host"), workshop.folder, "ca.pem")
    told = await why(address, folder)
    assert "was not issued by the CA of the board's, lab-3" in told


def test_a_command_ends_with_the_explanation_and_exit_code_3(workshop: Keys, root: Path, tmp_path: Path) -> None:
    with running("--root", root, *serving(issued(workshop, "board", now=LONG_AGO))) as board:
        ended = profagent(*record(board.address, "--keys", workshop.folder, "--workspace", tmp_path / "ws"))
    assert ended.code == 3
    assert "has expired on" in ended.err
    assert "Traceback" not in ended.err


def test_a_host_that_is_revoked_while_it_records_is_told_so(workshop: Keys, address: str, tmp_path: Path) -> None:
    host = workshop.issue_host("ci", "operator").folder
    arguments = ("record", "--board", address, "--keys", host, "--workspace", tmp_path / "ws")
    with started(*arguments) as running_host:
        running_host.err.until("no open JOB yet")
        workshop.revoke("ci")
        running_host.err.until("is revoked on this board")
        assert running_host.interrupt().code == 4
    ended = profagent(*arguments)
    assert ended.code == 3
    assert "the certificate of ci" in ended.err
    assert "keys issue host" in ended.err


# Without


def test_an_open_board_is_followed_only_when_told_to_and_warned_of(root: Path, tmp_path: Path) -> None:
    simulated(root)
    with running("--root", root, *FAST, "--insecure", listen="0.0.0.0:0") as board:
        address = f"{OTHERS}:{board.address.rpartition(':')[2]}"
        ended = profagent(*record(address, "--insecure", "--workspace", tmp_path / "ws"))
        refused = profagent(*record(address, "--workspace", tmp_path / "ws"), XDG_CONFIG_HOME=str(tmp_path))
    assert ended.code == 0, ended.err
    assert "--insecure: others can read and change the data" in ended.err
    assert "is open (--insecure)" in ended.err
    assert refused.code == 2
