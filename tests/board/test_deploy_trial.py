"""A deployment that is not confirmed: what was there before is there again, keys and identity too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.board.deployed import MUTE, DeployBoard, another_version, deploy_board
from tests.integration.board import eventually
from tests.integration.host import started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[DeployBoard]:
    with deploy_board(tmp_path_factory.mktemp("board"), cache) as board:
        board.deploy_first()
        yield board


@pytest.fixture
def board(serving: DeployBoard) -> Iterator[DeployBoard]:
    """A board that serves, and does so again, as it did, when the test has ended."""
    version, given = serving.version(), serving.given()
    yield serving
    assert eventually(lambda: not (serving.prefix / "trial.json").exists())
    assert serving.version() == version
    assert serving.given() == given
    again = serving.deploy()
    assert again.code == 0, again.err
    assert "nothing to do" in again.out


@pytest.fixture
def mute(tmp_path: Path) -> dict[str, str]:
    return another_version(tmp_path / "mute", MUTE)


def others(folder: Path) -> tuple[str | Path, ...]:
    """Options that give a board the keys of another CA."""
    return "--upgrade", "--replace", "--keys", folder / "keys"


def test_a_link_that_drops_before_it_answers_has_the_board_lead_back(
    board: DeployBoard, tmp_path: Path, mute: dict[str, str]
) -> None:
    running = board.version()
    with board.cut_off(*others(tmp_path), **mute) as cut:
        assert eventually(lambda: board.version() != running)
        ended = cut()
    assert ended.code == 3, ended.err
    assert f"leads back by itself within 60 s: {running} runs again then" in ended.err


@pytest.mark.long
def test_so_does_a_host_that_dies(board: DeployBoard, tmp_path: Path, mute: dict[str, str]) -> None:
    running = board.version()
    with started(*board.arguments(*others(tmp_path)), **board.variables, **mute) as host:
        assert eventually(lambda: board.version() != running)
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
