"""`profagent deploy` to a board without a service manager, over a real OpenSSH server: what it does and leaves."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.link.boards_file import BoardsFile
from profagent.link.credentials import Certificate
from tests.board.bench import make_project
from tests.board.deployed import HOST, MUTE, DeployBoard, another_version, deploy_board, mounted
from tests.board.sshd import busybox, public_key
from tests.board.terminal import at_terminal
from tests.fakes.small_disk import small_disk
from tests.integration.board import eventually, simulated
from tests.integration.host import COMMAND, profagent, started

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(300)
MIB = 1 << 20


@pytest.fixture
def bare(tmp_path: Path, cache: Path) -> Iterator[DeployBoard]:
    """A board to which nothing was deployed."""
    with deploy_board(tmp_path, cache) as board:
        yield board


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[DeployBoard]:
    """A board that most tests share."""
    with deploy_board(tmp_path_factory.mktemp("board"), cache) as board:
        yield board


@pytest.fixture
def board(serving: DeployBoard) -> DeployBoard:
    """The same; it serves."""
    if not serving.prefix.exists():
        (wheelhouse,) = Path(serving.variables["XDG_CACHE_HOME"]).glob("profagent/wheels/*")
        serving.deploy_first("--wheelhouse", wheelhouse)
    return serving


def test_a_board_is_deployed_to_and_known_by_name(board: DeployBoard, tmp_path: Path) -> None:
    assert board.entry.address == f"{HOST}:{board.port}"
    assert board.entry.uuid == (board.prefix / "etc/board-id").read_text().strip()
    assert (board.prefix / "etc/keys/board.key").stat().st_mode & 0o777 == 0o600
    certificate = Certificate.read((board.prefix / "etc/keys/board.pem").read_bytes(), "board.pem")
    assert certificate.since == datetime(1970, 1, 1, tzinfo=UTC)
    assert board.entry.fingerprint == certificate.fingerprint
    job = simulated(board.roots)
    recorded = board.record(tmp_path / "ws")
    assert recorded.code == 0, recorded.err + recorded.out
    assert job.name in recorded.document["jobs"]  # beside the board's metrics
    assert recorded.document["board"] == board.entry.uuid
    shutil.rmtree(job)


@pytest.mark.long
def test_a_program_is_collected_by_the_name_alone(bare: DeployBoard, tmp_path: Path) -> None:
    """Though the prefix is another than the usual one, where the board's identity is."""
    bare.deploy_first()
    assert bare.entry.prefix == str(bare.prefix)
    make_project(tmp_path / "app")
    here = ("--project", tmp_path / "app", "--output", tmp_path / "out", "--workspace", tmp_path / "ws")
    run = ("-m", "main", "--remote-dir", tmp_path / "there", "--", "3", "0", "unload")
    ended = profagent("collect", "--board", "euler", *here, *run, **bare.variables)
    assert ended.code == 0, ended.err


def test_a_second_time_there_is_nothing_to_do(board: DeployBoard) -> None:
    daemon, entry = board.daemon, board.entry
    ended = board.deploy()
    assert ended.code == 0, ended.err
    assert "nothing to do" in ended.out
    assert (board.daemon, board.entry) == (daemon, entry)
    damaged = board.prefix / "current/lib/profagentd/config.py"
    damaged.write_bytes(b"")
    subprocess.run([board.prefix / "profagentd.init", "stop"], check=True, capture_output=True)
    changed = board.deploy("--retain", "delivered")
    assert changed.code == 0, changed.err
    assert f"change   {board.version()} anew: its service does not run" in changed.out
    assert damaged.read_bytes()
    assert board.daemon != daemon
    config = (board.prefix / "etc/profagentd.toml").read_text()
    assert 'retain_for = ["record-' in config
    assert f'roots = ["{board.roots}"]' in config


def test_a_dry_run_writes_nothing_anywhere(bare: DeployBoard) -> None:
    ended = bare.deploy("--dry-run")
    assert ended.code == 0, ended.err
    assert "nothing was written" in ended.out
    assert f"write {bare.prefix}/etc/profagentd.toml" in ended.out
    assert not bare.prefix.exists()
    assert not (bare.home / ".config").exists()


@pytest.fixture
def leading_back(board: DeployBoard) -> Iterator[DeployBoard]:
    """A board that serves, and does so again, as it did, when the test has ended."""
    version, given = board.version(), board.given()
    yield board
    assert eventually(lambda: not (board.prefix / "trial.json").exists())
    assert board.version() == version
    assert board.given() == given
    assert eventually((board.prefix / "run/profagentd.daemon.pid").exists)


@pytest.fixture
def mute(tmp_path: Path) -> dict[str, str]:
    return another_version(tmp_path / "mute", MUTE)


def others(folder: Path) -> tuple[str | Path, ...]:
    """Options that give a board the keys of another CA."""
    return "--upgrade", "--replace", "--keys", folder / "keys"


def test_a_link_that_drops_before_it_answers_has_the_board_lead_back(
    leading_back: DeployBoard, tmp_path: Path, mute: dict[str, str]
) -> None:
    running = leading_back.version()
    with leading_back.cut_off(*others(tmp_path), **mute) as cut:
        assert eventually(lambda: leading_back.version() != running)
        ended = cut()
    assert ended.code == 3, ended.err
    assert f"leads back by itself within 60 s: {running} runs again then" in ended.err


@pytest.mark.long
def test_so_does_a_host_that_dies(leading_back: DeployBoard, tmp_path: Path, mute: dict[str, str]) -> None:
    running = leading_back.version()
    with started(*leading_back.arguments(*others(tmp_path)), **leading_back.variables, **mute) as host:
        assert eventually(lambda: leading_back.version() != running)
        host.process.kill()


@pytest.mark.long
def test_of_a_first_deployment_that_fails_no_keys_stay(tmp_path: Path, cache: Path, mute: dict[str, str]) -> None:
    with deploy_board(tmp_path, cache) as board:
        first = ("--listen", f"0.0.0.0:{board.port}", "--root", board.roots)
        with started(*board.arguments(*first), **board.variables, **mute) as host:
            assert eventually((board.prefix / "current").is_symlink)
            ended = host.interrupt()
        assert ended.code == 130, ended.err
        assert not (board.prefix / "current").is_symlink()
        assert board.given() == {}
        assert not (board.prefix / "profagentd.init").exists()


def test_another_version_takes_its_place_only_when_told_and_leads_back(board: DeployBoard, tmp_path: Path) -> None:
    old, other = board.version(), another_version(tmp_path / "other")
    upgraded = board.deploy("--upgrade", **other)
    assert upgraded.code == 0, upgraded.err
    new = board.version()
    assert new != old
    assert board.version("previous") == old
    assert (board.prefix / "current/lib/profagentd/other.py").exists()
    daemon = board.daemon
    refused = board.deploy()
    assert refused.code == 2
    assert "--upgrade" in refused.err
    assert (board.version(), board.daemon) == (new, daemon)
    assert board.deploy("--rollback").code == 0
    assert (board.version(), board.version("previous")) == (old, new)
    assert board.daemon != daemon


@pytest.mark.long
def test_settings_with_which_it_does_not_answer_are_taken_back(board: DeployBoard) -> None:
    config, running = (board.prefix / "etc/profagentd.toml").read_text(), board.version()
    with socket.socket() as taken:  # nobody listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        ended = board.deploy("--upgrade", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert ended.code == 3
    assert f"{running} runs again" in ended.err
    assert "its log ends with: profagentd: cannot listen on 127.0.0.1" in ended.err
    assert "another program has it" in ended.err
    assert (board.prefix / "etc/profagentd.toml").read_text() == config
    assert board.version() == running
    assert eventually((board.prefix / "run/profagentd.daemon.pid").exists)


def test_ctrl_c_before_it_answers_has_the_version_before_run_again_and_no_other_comes_between(
    board: DeployBoard, tmp_path: Path
) -> None:
    config, running = (board.prefix / "etc/profagentd.toml").read_text(), board.version()
    mute = another_version(tmp_path / "mute", MUTE)
    with started(*board.arguments("--upgrade", "--retain", "delivered"), **board.variables, **mute) as host:
        assert eventually(lambda: board.version() != running)
        other = board.deploy("--upgrade", "--retain", "keep")
        ended = host.interrupt()
    assert other.code == 1
    assert f"is being changed from {socket.gethostname()}" in other.err
    assert ended.code == 130, ended.err
    assert board.version() == running
    assert (board.prefix / "etc/profagentd.toml").read_text() == config
    assert eventually((board.prefix / "run/profagentd.daemon.pid").exists)


@pytest.mark.long
def test_a_link_that_drops_in_mid_upload_leaves_what_runs(board: DeployBoard, tmp_path: Path) -> None:
    daemon, old, other = board.daemon, board.version(), another_version(tmp_path / "later")
    with board.cut_off("--upgrade", **other) as cut:
        assert eventually(lambda: any(board.prefix.glob("versions/*.part/*")))
        ended = cut()
    assert ended.code == 3, ended.err
    assert "is lost" in ended.err
    assert (board.daemon, board.version()) == (daemon, old)
    assert board.deploy("--upgrade", **other).code == 0
    assert sorted(path.name for path in board.prefix.glob("versions/*")) == sorted({old, board.version()})


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path, cache: Path) -> None:
    with small_disk(tmp_path / "small", 3 * MIB) as disk, deploy_board(tmp_path, cache, disk / "p") as board:
        ended = board.deploy()
        assert ended.code == 1
        assert "MiB free" in ended.err
        assert "--prefix" in ended.err
        assert list(disk.iterdir()) == []


def test_a_board_without_python_is_refused(tmp_path: Path, cache: Path) -> None:
    programs = busybox(tmp_path / "bin")
    with deploy_board(tmp_path, cache, programs=programs) as board:
        ended = board.deploy()
        assert ended.code == 1
        assert "has no Python 3.9 or later" in ended.err
        assert not board.prefix.exists()


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("127.0.0.2", marks=pytest.mark.long)])
def test_a_daemon_on_loopback_is_asked_through_the_tunnel(bare: DeployBoard, host: str) -> None:
    ended = bare.deploy("--listen", f"{host}:{bare.port}", "--json")
    assert ended.code == 0, ended.err
    looked = profagent("doctor", "--board", "euler", **bare.variables)
    assert "profagentd answers at" in looked.out
    assert f"an SSH tunnel to {bare.target()} leads there" in looked.err
    assert json.loads(ended.out)["fingerprint"] == ""
    assert not (bare.prefix / "etc/keys/board.pem").exists()
    assert not (bare.home / ".config/profagent/keys").exists()


def own_network(folder: Path, last: str) -> list[str]:
    """Words with which a program sees one interface, whose address ends so."""
    place = folder / last / "net" / "eth0"
    (place / "device").mkdir(parents=True)
    (place / "address").write_text(f"00:11:22:33:44:{last}\n")
    (place / "addr_assign_type").write_text("0\n")
    return mounted(f"mount --bind {folder}/{last}/net /sys/class/net")


@pytest.mark.long
def test_a_board_of_the_same_image_gets_an_identity_name_and_keys_of_its_own(tmp_path: Path, cache: Path) -> None:
    with (
        deploy_board(tmp_path / "01", cache, inside=own_network(tmp_path, "01")) as board,
        deploy_board(tmp_path / "02", cache, inside=own_network(tmp_path, "02")) as copy,
    ):
        board.deploy_first()
        for name in ("board-id", "keys"):
            (copy.prefix / "etc").mkdir(parents=True, exist_ok=True)
            source = board.prefix / "etc" / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy.prefix / "etc" / name)
        given, euler = copy.given(), board.entry
        where = ("--name", "copy", "--listen", f"0.0.0.0:{copy.port}")
        copy.home = board.home
        copy.variables = board.variables
        copy.know(copy.sshd.port)
        with (copy.sshd.folder / "authorized_keys").open("a") as file:
            file.write(f"{public_key(board.sshd.key)}\n")
        refused = copy.deploy(*where)
        assert refused.code == 2
        assert f"replace  the identity {euler.uuid}: it is that of euler, another machine" in refused.out
        assert copy.given() == given
        agreed = copy.deploy(*where, "--replace")
        assert agreed.code == 0, agreed.err
        entries = BoardsFile(board.home / ".config/profagent/boards.toml").entries()
        assert entries["euler"] == euler
        assert entries["copy"].uuid not in ("", euler.uuid)
        assert entries["copy"].fingerprint not in ("", euler.fingerprint)
        assert copy.given()["board-id"].decode().strip() == entries["copy"].uuid
        assert copy.given()["board.key"] != given["board.key"]
        assert "nothing to do" in copy.deploy(*where).out


def test_ways_that_exclude_each_other_are_refused(bare: DeployBoard) -> None:
    assert bare.deploy("--rollback", "--remove").code == 2
    assert bare.deploy("--rollback", "--root", "/x").code == 2
    assert bare.deploy("--rollback").code == 2
    assert bare.deploy("--upgrade").code == 2
    assert bare.deploy("--retain-for", "x").code == 2


def test_another_workshops_keys_are_replaced_only_when_that_is_agreed_to_and_all_but_jobs_is_removed(
    board: DeployBoard, tmp_path: Path
) -> None:
    keys, given = tmp_path / "keys", board.given()
    told = "replace  the keys of another CA: "
    dry = board.deploy("--dry-run", "--keys", keys)
    assert dry.code == 0, dry.err
    assert told in dry.out
    refused = board.deploy("--keys", keys)
    assert refused.code == 2
    assert told in refused.out
    assert "--replace" in refused.err
    assert board.given() == given
    assert not keys.exists()
    with at_terminal(*COMMAND, *map(str, board.arguments("--keys", keys)), **board.variables) as terminal:
        terminal.until("Replace this? (yes/no) ")
        terminal.type("yes")
        assert terminal.ended() == 0, terminal.seen
    assert board.given()["ca.pem"] == (keys / "ca.pem").read_bytes()
    # Nobody else is to find this board with other keys than the host's own.
    daemon = board.daemon
    job = simulated(board.roots)
    ended = board.deploy("--remove")
    assert ended.code == 0, ended.err
    assert not board.prefix.exists()
    assert not Path(f"/proc/{daemon}").exists()
    assert (job / "info.json.0").exists()
    assert "euler" not in (board.home / ".config/profagent/boards.toml").read_text()
    assert "nothing is deployed there" in board.deploy("--remove").out
