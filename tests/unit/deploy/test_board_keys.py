"""Which certificate a board gets: the one that it has, one from before, or a new one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from profagent.deploy.board import board_keys
from profagent.errors import UsageError
from profagent.keys.keys import Keys

HOST = "192.0.2.2"
IDENTITY = "0f0e0d0c-0b0a-4000-8000-000102030405"


class Given(NamedTuple):
    """What a board is given."""

    fingerprint: str
    files: Mapping[str, bytes]


def given(
    folder: Path,
    installed: str | None = None,
    host: str = HOST,
    told: list[str] | None = None,
    identity: str = IDENTITY,
) -> Given:
    told = [] if told is None else told
    return Given(*board_keys(folder, "euler", host, identity, installed, told.append))


def test_where_there_is_no_workshop_one_is_made_and_told(tmp_path: Path) -> None:
    told: list[str] = []
    made = given(tmp_path / "keys", told=told)
    assert set(made.files) == {"ca.pem", "revoked.txt", "board.pem", "board.key"}
    assert str(tmp_path / "keys") in told[0]
    assert [(entry.certificate.kind, entry.certificate.name) for entry in Keys(tmp_path / "keys").entries()][1][
        1
    ] == "euler"
    assert made.fingerprint in {entry.certificate.fingerprint for entry in Keys(tmp_path / "keys").entries()}


def test_a_certificate_that_fits_stays_and_its_key_is_not_sent(tmp_path: Path) -> None:
    made = given(tmp_path / "keys")
    again = given(tmp_path / "keys", made.files["board.pem"].decode())
    assert again.fingerprint == made.fingerprint
    assert "board.key" not in again.files


def test_it_is_for_the_board_of_that_identity_and_one_without_any_stays(tmp_path: Path) -> None:
    given(tmp_path / "keys")
    (board,) = (each.certificate for each in Keys(tmp_path / "keys").entries() if each.certificate.kind == "board")
    assert board.identity == IDENTITY
    with pytest.raises(UsageError, match="board euler has a certificate"):
        given(tmp_path / "keys", identity="another")
    Keys(tmp_path / "older").init()
    made = Keys(tmp_path / "older").issue_board("euler", (HOST,))
    assert given(tmp_path / "older").fingerprint == made.certificate.fingerprint


def test_one_of_another_workshop_or_none_at_all_is_replaced(tmp_path: Path) -> None:
    other = given(tmp_path / "other").files["board.pem"].decode()
    for installed in (other, "no certificate"):
        made = given(tmp_path / "keys", installed)
        assert made.files["board.pem"].decode() != installed
        assert "board.key" in made.files


def test_a_revoked_one_is_replaced(tmp_path: Path) -> None:
    made = given(tmp_path / "keys")
    Keys(tmp_path / "keys").revoke("euler")
    again = given(tmp_path / "keys", made.files["board.pem"].decode())
    assert again.fingerprint != made.fingerprint
    assert made.fingerprint.encode() in again.files["revoked.txt"]


def test_for_another_address_somebody_has_to_revoke_it_first(tmp_path: Path) -> None:
    given(tmp_path / "keys")
    with pytest.raises(UsageError, match="board euler has a certificate") as error:
        given(tmp_path / "keys", host="192.0.2.3")
    assert "profagent keys revoke euler" in error.value.hint
