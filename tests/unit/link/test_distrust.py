"""Explanations by certificates and times alone; what real daemons and hosts say stands in the integration tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from profagent.errors import RefusedError
from profagent.keys.keys import Keys, Made
from profagent.link import handshake as distrust
from profagent.link.credentials import Credentials, KnownBoard

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
ADDRESS = "192.168.1.20:50151"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    workshop = Keys(tmp_path_factory.mktemp("keys") / "keys", NOW)
    workshop.init("lab", days=30)
    return workshop


@pytest.fixture(scope="module")
def board(keys: Keys) -> Made:
    return keys.issue_board("euler", ("192.168.1.20",), 30)


def board_told(keys: Keys, board: Made, now: datetime, verdict: str = "") -> str:
    return str(
        distrust.board_distrusted(
            KnownBoard(ADDRESS, ADDRESS), board.certificate, Credentials.read(keys.folder), now, verdict
        )
    )


def host_told(folder: Path, now: datetime) -> str:
    return str(distrust.host_distrusted(ADDRESS, Credentials.read(folder), now))


def test_the_last_moment_of_a_certificate_is_still_one_of_it(keys: Keys, board: Made) -> None:
    until = board.certificate.until
    assert "expired" not in board_told(keys, board, until)
    assert "has expired on 2026-12-21 12:30 UTC" in board_told(keys, board, until + timedelta(seconds=1))
    assert "either the board's clock is wrong" in host_told(keys.folder, until)
    assert "has expired on 2026-12-21 12:30 UTC" in host_told(keys.folder, until + timedelta(seconds=1))


def test_a_verdict_that_is_not_known_is_passed_on(keys: Keys, board: Made) -> None:
    assert "is not accepted: odd extension" in board_told(keys, board, NOW, "odd extension")


def test_each_is_a_refusal_with_its_remedy(keys: Keys, board: Made) -> None:
    credentials = Credentials.read(keys.folder)
    for error in (
        distrust.board_distrusted(KnownBoard(ADDRESS, ADDRESS), board.certificate, credentials, NOW, "odd"),
        distrust.board_revoked(ADDRESS, board.certificate, credentials),
        distrust.host_distrusted(ADDRESS, credentials, NOW),
        distrust.no_tls(ADDRESS),
    ):
        assert isinstance(error, RefusedError)
        assert error.exit_code == 3
        assert ADDRESS in str(error)
        assert error.hint
