"""Mutual TLS of a real daemon: who gets in, as what, and for how long."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio
import pytest

from profagent_wire.health.v1 import health_pb2
from profagent_wire.health.v1.health_pb2_grpc import HealthStub
from profagent_wire.v1 import board_pb2 as wire
from profagentd.access import Revocations, tls_faults
from profagentd.config import TLS_FILES, DaemonConfig
from profagentd.errors import DaemonError
from tests.daemon.certificates import OPERATOR, PAST, Authority, Pair
from tests.daemon.daemon_process import Daemon, command, environment, running
from tests.daemon.wire_client import PATIENCE_S, connect, following, open_message

if TYPE_CHECKING:
    from profagent_wire.health.v1.health_pb2_grpc import HealthAsyncStub


METHODS = (
    *wire.DESCRIPTOR.services_by_name["Board"].methods,
    *health_pb2.DESCRIPTOR.services_by_name["Health"].methods,
)
STREAMED = {"Follow": "stream_stream", "Watch": "unary_stream"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("keys") / "authority")


@pytest.fixture(scope="module")
def board(authority: Authority) -> Pair:
    return authority.board()


@pytest.fixture(scope="module")
def operator(authority: Authority) -> Pair:
    return authority.issue("operator", OPERATOR)


@pytest.fixture(scope="module")
def served(board: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path]]:
    """A daemon, and its list of what is revoked."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "root").mkdir()
    rewrite(folder / "revoked.txt")
    arguments: tuple[str | Path, ...] = (
        "--root",
        folder / "root",
        *board.arguments,
        "--tls-revoked",
        folder / "revoked.txt",
    )
    with (folder / "log").open("w") as log, running(*arguments, log=log) as started:
        yield started, folder / "revoked.txt"


@pytest.fixture
def revoked(served: tuple[Daemon, Path]) -> Iterator[Path]:
    """A list on which nobody is."""
    yield served[1]
    rewrite(served[1])


@pytest.fixture
def daemon(served: tuple[Daemon, Path]) -> Daemon:
    return served[0]


def rewrite(path: Path, text: str = "# nobody\n") -> None:
    path.write_text(text)


async def welcome_of(address: str, credentials: grpc.ChannelCredentials | None) -> wire.Welcome:
    async with following(address, credentials) as client:
        await client.say(open_message())
        await client.until(lambda: client.welcome is not None)
        assert client.welcome is not None
        return client.welcome


async def refusal_of(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.AioRpcError:
    async with connect(address, credentials) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.Describe(wire.DescribeRequest(), timeout=PATIENCE_S)
    return error.value


def s_client(address: str, *arguments: object) -> str:
    """What openssl's own client says of a connection that it ends."""
    line = ["openssl", "s_client", "-connect", address, "-alpn", "h2", *map(str, arguments)]
    ended = subprocess.run(line, input=b"Q\n", capture_output=True, timeout=PATIENCE_S, check=False)
    return (ended.stdout + ended.stderr).decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("alternatives", "role"),
    [
        ((OPERATOR,), wire.ROLE_OPERATOR),
        (("URI:profagent:role:viewer",), wire.ROLE_VIEWER),
        ((), wire.ROLE_VIEWER),
        (("DNS:profagent:role:operator",), wire.ROLE_VIEWER),
        (("URI:profagent:role:operators",), wire.ROLE_VIEWER),
        (("URI:PROFAGENT:ROLE:OPERATOR",), wire.ROLE_VIEWER),
        (("URI:profagent:role:viewer", OPERATOR), wire.ROLE_OPERATOR),
    ],
    ids=["operator", "viewer", "no role", "operator as a host name", "another role", "upper case", "both"],
)
async def test_the_role_is_the_certificates(
    served: tuple[Daemon, Path], authority: Authority, alternatives: tuple[str, ...], role: int
) -> None:
    shown = authority.issue("host", *alternatives)
    welcome = await welcome_of(served[0].address, shown.client)
    assert welcome.role == role
    assert not welcome.description.insecure
    assert f": host ({shown.fingerprint[:16]}…), " in served[1].with_name("log").read_text("utf-8")


async def test_a_name_makes_no_line_of_its_own_in_the_log(served: tuple[Daemon, Path], authority: Authority) -> None:
    shown = authority.issue("host\nforged")
    await welcome_of(served[0].address, shown.client)
    assert f": host\ufffdforged ({shown.fingerprint[:16]}…), " in served[1].with_name("log").read_text("utf-8")


def test_tls_1_3_is_spoken(daemon: Daemon, operator: Pair) -> None:
    told = s_client(daemon.address, "-tls1_3", "-cert", operator.cert, "-key", operator.key, "-CAfile", operator.ca)
    assert "New, TLSv1.3, Cipher is TLS_" in told
    assert "Verification: OK" in told


# Level 0 lets openssl offer what it thinks too old itself.
@pytest.mark.parametrize(
    "offer",
    [
        ("-tls1_2", "-cipher", "ALL:@SECLEVEL=0"),
        ("-tls1_2", "-cipher", "PSK:@SECLEVEL=0", "-psk", "00"),
        ("-tls1_1", "-cipher", "ALL:@SECLEVEL=0"),
        ("-tls1", "-cipher", "ALL:@SECLEVEL=0"),
    ],
    ids=" ".join,
)
def test_older_versions_are_refused(daemon: Daemon, operator: Pair, offer: tuple[str, ...]) -> None:
    told = s_client(daemon.address, *offer, "-cert", operator.cert, "-key", operator.key)
    assert "CONNECTED" in told
    assert "Cipher is (NONE)" in told


async def test_a_client_without_a_certificate_is_not_heard(daemon: Daemon, operator: Pair) -> None:
    nobody = grpc.ssl_channel_credentials(operator.ca.read_bytes())
    assert (await refusal_of(daemon.address, nobody)).code() is grpc.StatusCode.UNAVAILABLE
    assert (await refusal_of(daemon.address, None)).code() is grpc.StatusCode.UNAVAILABLE


async def test_a_certificate_that_has_expired_is_not_heard(daemon: Daemon, authority: Authority) -> None:
    expired = authority.issue("expired", OPERATOR, until=PAST).client
    assert (await refusal_of(daemon.address, expired)).code() is grpc.StatusCode.UNAVAILABLE


async def test_a_certificate_of_another_authority_is_not_heard(daemon: Daemon, operator: Pair, tmp_path: Path) -> None:
    # Of the same name: it is the key that counts.
    stranger = Authority(tmp_path / "other").issue("stranger", OPERATOR)
    credentials = Pair(stranger.cert, stranger.key, operator.ca).client
    assert (await refusal_of(daemon.address, credentials)).code() is grpc.StatusCode.UNAVAILABLE


async def test_a_health_probe_needs_a_certificate_of_any_role(daemon: Daemon, authority: Authority) -> None:
    viewer = authority.issue("probe").client
    async with grpc.aio.secure_channel(daemon.address, viewer) as channel:
        reply = await cast("HealthAsyncStub", HealthStub(channel)).Check(
            health_pb2.HealthCheckRequest(), timeout=PATIENCE_S
        )
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_no_call_serves_a_revoked_certificate(daemon: Daemon, operator: Pair, revoked: Path, method: Any) -> None:
    rewrite(revoked, f"{operator.fingerprint}  # operator\n")
    async with grpc.aio.secure_channel(daemon.address, operator.client) as channel:
        make = getattr(channel, STREAMED.get(method.name, "unary_unary"))
        request = () if method.name == "Follow" else (b"",)
        call = make(f"/{method.containing_service.full_name}/{method.name}")(*request, timeout=PATIENCE_S)
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        assert operator.fingerprint in await call.details()


async def test_a_stream_ends_when_its_certificate_is_revoked_and_comes_back_when_it_is_no_longer(
    daemon: Daemon, operator: Pair, revoked: Path
) -> None:
    async with following(daemon.address, operator.client) as client:
        await client.start()
        await client.until(lambda: client.is_listed)
        rewrite(revoked, operator.fingerprint.upper())
        assert await client.until_ended() is grpc.StatusCode.UNAUTHENTICATED
        assert "is revoked on this board" in await client.call.details()
    rewrite(revoked)
    assert (await welcome_of(daemon.address, operator.client)).role == wire.ROLE_OPERATOR


async def test_an_open_listener_warns_at_its_start_and_of_each_client(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "root").mkdir()
    with (
        log.open("w") as file,
        running("--root", tmp_path / "root", "--insecure", listen="0.0.0.0:0", log=file) as daemon,
    ):
        assert re.search(r"WARNING .* is open: no TLS", log.read_text())
        for host in ("127.0.0.1", "127.0.0.2"):
            welcome = await welcome_of(f"{host}:{daemon.address.rpartition(':')[2]}", None)
            assert welcome.description.insecure
            assert welcome.role == wire.ROLE_OPERATOR
    assert len(re.findall(r"WARNING .* is served without TLS", log.read_text())) == 2


def refused(tmp_path: Path, *arguments: object) -> str:
    line = command("--root", str(tmp_path), *map(str, arguments))
    ended = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 2, ended.stderr
    assert re.fullmatch(r"profagentd: .+\n  .+\n", ended.stderr)
    return ended.stderr


def faults(cert: object, key: object, ca: object) -> list[str]:
    config = DaemonConfig(tls_cert=str(cert), tls_key=str(key), tls_ca=str(ca))
    return [str(fault) for fault in tls_faults(config, dict.fromkeys(TLS_FILES, "file"))]


def test_each_file_that_is_not_what_it_should_be_is_named_by_its_setting(
    board: Pair, operator: Pair, tmp_path: Path
) -> None:
    empty, none, locked = tmp_path / "empty", tmp_path / "none", tmp_path / "locked.key"
    empty.touch(0o600)
    line = ["openssl", "pkcs8", "-topk8", "-in", str(board.key), "-out", str(locked), "-passout", "pass:secret"]
    subprocess.run(line, check=True, timeout=PATIENCE_S)
    locked.chmod(0o600)
    cert, key, ca = board.cert, board.key, board.ca
    assert faults(cert, key, ca) == []
    assert faults(cert, operator.key, ca) == [f"file: tls_key: {operator.key} is not the key of {cert}"]
    assert faults(cert, locked, ca) == [f"file: tls_key: {locked} is encrypted"]
    assert "tls_key: " in faults(cert, empty, ca)[0]
    assert "holds no key" in faults(cert, empty, ca)[0]
    assert [fault.partition(" holds no certificate")[0] for fault in faults(empty, key, empty)] == [
        f"file: tls_cert: {empty}",
        f"file: tls_ca: {empty}",
    ]
    expected = [f"file: {each}: cannot read {none}: No such file or directory" for each in TLS_FILES]
    assert sorted(faults(none, none, none)) == sorted(expected)


def test_a_key_that_others_may_read_is_refused(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("careless")
    pair.key.chmod(0o640)
    told = refused(tmp_path, *pair.arguments)
    assert "others than its owner may use this key" in told
    assert "chmod 600 " in told


# The revocation list: what it says, and what becomes of one that is changed, damaged or gone

ONE, OTHER = "1" * 64, "ab" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "revoked.txt"


def test_a_line_is_a_fingerprint_and_a_remark(path: Path) -> None:
    path.write_text(f"# revoked\n\n{ONE}  # board, 2026-11-21\n{':'.join(['AB'] * 32)}\n")
    revocations = Revocations(str(path))
    assert revocations.has(ONE)
    assert revocations.has(OTHER)
    assert not revocations.has("2" * 64)
    assert not revocations.has("")


def test_a_list_that_is_gone_revokes_what_it_did(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text(ONE)
    revocations = Revocations(str(path))
    path.unlink()
    with caplog.at_level(logging.ERROR):
        assert all(revocations.has(ONE) for _ in range(5))
    assert len(caplog.records) == 1
    assert "the earlier list of revocations stays in force" in caplog.text
    path.write_text(OTHER)
    assert revocations.has(OTHER)
    assert not revocations.has(ONE)


def test_a_wrong_line_frees_nobody_and_hides_nobody(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text(ONE)
    revocations = Revocations(str(path))
    path.write_text(f"{ONE[:-1]}\n{OTHER}\n")
    assert revocations.has(OTHER)
    assert revocations.has(ONE)
    assert "is not a SHA-256 fingerprint" in caplog.text


@pytest.mark.parametrize("content", [None, b"", b"\n", b"no fingerprint", b"\xff\xfe", b"1" * 63])
def test_a_daemon_does_not_start_with_a_list_that_says_nothing(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DaemonError, match=r"revoked\.txt") as error:
        Revocations(str(path))
    assert "tls_revoked" in error.value.hint
