"""Explanations by certificates and times alone; what real daemons and hosts say stands in the integration tests."""

from __future__ import annotations

from datetime import UTC, datetime

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
