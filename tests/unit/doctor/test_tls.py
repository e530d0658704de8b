"""The check of a certificate's dates, by two clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.doctor.checks import RENEW_BEFORE, certificate_dates
from profagent.doctor.finding import Mark
from profagent.keys.keys import Keys

if TYPE_CHECKING:
    from profagent.link.credentials import Certificate

NOW = datetime.now(UTC)
AGES = timedelta(days=9000)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    keys = Keys(Path(tmp_path_factory.mktemp("keys")) / "keys")
    keys.init("lab")
    return keys.issue_board("euler", ("127.0.0.1",)).certificate


@pytest.mark.parametrize(
    ("host_time", "board_time", "mark"),
    [
        (NOW, None, Mark.GOOD),
        (NOW, NOW, Mark.GOOD),
        (NOW, datetime(1970, 1, 1, 1, tzinfo=UTC), Mark.GOOD),
        (NOW + AGES, NOW, Mark.BAD),
        (NOW, NOW + AGES, Mark.BAD),
        (NOW, datetime(1969, 1, 1, tzinfo=UTC), Mark.BAD),
    ],
)
def test_dates(certificate: Certificate, host_time: datetime, board_time: datetime | None, mark: Mark) -> None:
    (finding,) = certificate_dates("the board's", certificate, host_time, board_time, "renew it")
    assert finding.mark is mark
    assert ("renew it" in finding.remedy) == (mark is Mark.BAD)


def test_one_that_ends_soon(certificate: Certificate) -> None:
    soon = certificate.until - RENEW_BEFORE + timedelta(hours=1)
    (finding,) = certificate_dates("the board's", certificate, soon, None, "renew it")
    assert (finding.mark, finding.remedy) == (Mark.BAD, "renew it")
    assert "13 days are left" in finding.evidence
