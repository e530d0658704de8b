"""Which board it is that was logged in to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from profagent.boards.layout import Layout
from profagent.deploy.board import BoardSettings, RequestedSettings, board_keys, board_settings, recognised
from profagent.errors import ProfagentError, UsageError
from profagent.keys.keys import Keys
from profagent.link.boards_file import BoardEntry
from profagentd.config import examine

USUAL = Layout()
ELSEWHERE = Layout("/data/p")


def made(old: str = "", layout: Layout = USUAL, init: str = "systemd", **asked: Any) -> BoardSettings:
    return board_settings(old, RequestedSettings(**asked), layout, init, "u-1", "record-lab")


@pytest.mark.parametrize("layout", [USUAL, ELSEWHERE], ids=["usual", "elsewhere"])
@pytest.mark.parametrize("init", ["systemd", "initd"])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"listen": "127.0.0.1:1"},
        {"roots": ("/a", "/b c"), "retain": "delivered"},
        {"retain": "min_free", "min_free": "10%", "retain_for": ("x",)},
    ],
    ids=str,
)
def test_the_daemon_takes_them(layout: Layout, init: str, asked: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "profagentd.toml"
    file.write_text(made(layout=layout, init=init, **asked).text)
    examined = examine(file, {})
    assert examined.mistakes == []
    assert examined.config.has_tls == (asked.get("listen") is None)
    assert examined.config.identity == ("" if layout is USUAL else "u-1")
    assert examined.config.state == ("/data/p/state" if layout is ELSEWHERE and init == "initd" else "")


def test_what_stands_there_stays_unless_it_was_asked_for() -> None:
    old = made('# of a person\nquiet_after_s = 9 # long\nroots = [ "/a" ]\nretain = "keep"\n')
    assert made(old.text).text == old.text
    for part in ("# of a person\n", "quiet_after_s = 9 # long\n", 'roots = [ "/a" ]\n', 'listen = "0.0.0.0:50151"\n'):
        assert part in old.text
    assert made(old.text, roots=("/b",)).roots == ("/b",)


def test_this_hosts_record_counts_as_delivery_unless_others_are_named() -> None:
    assert 'retain_for = ["record-lab"]' in made(retain="delivered").text
    assert 'retain_for = ["ci"]' in made(retain="delivered", retain_for=("ci",)).text
    kept = made(made(retain="min_free", min_free="1GB").text, retain="keep")
    assert not kept.deletes
    assert "retain" not in kept.text
    assert "min_free" not in kept.text


def test_certificates_are_for_listeners_that_others_reach() -> None:
    assert 'tls_key = "/etc/profagent/keys/board.key"' in made().text
    assert "tls_" not in made(made().text, listen="unix:/run/s").text


@pytest.mark.parametrize(
    ("listen", "address", "own"),
    [
        ("0.0.0.0:1", "euler:1", "127.0.0.1:1"),
        ("[::]:1", "euler:1", "127.0.0.1:1"),
        ("192.0.2.9:1", "192.0.2.9:1", "192.0.2.9:1"),
        ("127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"),
        ("127.0.0.2:1", "127.0.0.2:1", "127.0.0.2:1"),
        ("[::1]:1", "[::1]:1", "[::1]:1"),
        ("unix:/run/s", "unix:/run/s", "unix:/run/s"),
    ],
)
def test_hosts_call_it_by_what_ssh_reached_unless_it_listens_elsewhere(listen: str, address: str, own: str) -> None:
    settings = made(listen=listen)
    assert settings.address("euler") == address
    assert settings.own_address == own
    assert made().address("fe80::1") == "[fe80::1]:50151"


@pytest.mark.parametrize(
    "asked",
    [
        {"listen": "50151"},
        {"listen": "0.0.0.0:0"},
        {"retain": "min_free"},
        {"min_free": "1GB"},
        {"retain_for": ("x",)},
        {"retain": "keep", "retain_for": ("x",)},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        made(**asked)


@pytest.mark.parametrize("old", ["listen =", "listen = 5", "listen = ['127.0.0.1:1']"])
def test_settings_that_are_broken_are_nobodys_to_overwrite(old: str) -> None:
    with pytest.raises(ProfagentError, match=r"/etc/profagent/profagentd\.toml on the board"):
        made(old)


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
    for host, identity in ((HOST, "another"), ("192.0.2.3", IDENTITY)):
        with pytest.raises(UsageError, match="board euler has a certificate") as error:
            given(tmp_path / "keys", host=host, identity=identity)
        assert "profagent keys revoke euler" in error.value.hint
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


EULER = BoardEntry("euler", "192.0.2.2:50151", "u-1", "", "root@euler", "mac:1 machine-id:1")
ORANGE = BoardEntry("orange", "192.0.2.3:50151", "", "", "root@orange")
KNOWN = (ORANGE, EULER)


def is_new(identity: str) -> bool:
    return str(UUID(identity)) == identity


def test_a_board_is_known_by_its_identity_wherever_it_is() -> None:
    for marks in (("mac:1",), ()):
        found = recognised(KNOWN, "u-1", "root@elsewhere", marks)
        assert (found.identity, found.entry, found.copied_from) == ("u-1", EULER, None)


def test_another_machine_with_its_identity_gets_one_of_its_own() -> None:
    found = recognised(KNOWN, "u-1", "root@euler", ("mac:2", "machine-id:1"))
    assert is_new(found.identity)
    assert (found.entry, found.copied_from) == (None, EULER)


def test_a_board_that_was_flashed_anew_gets_its_identity_again() -> None:
    found = recognised(KNOWN, "", "root@euler", ("mac:1", "machine-id:2"))
    assert (found.identity, found.entry) == ("u-1", EULER)


def test_another_machine_in_its_place_does_not() -> None:
    found = recognised(KNOWN, "", "root@euler", ("mac:2", "machine-id:2"))
    assert is_new(found.identity)
    assert (found.entry, found.copied_from) == (None, None)


def test_others_are_new() -> None:
    assert recognised(KNOWN, "u-9", "root@euler", ("mac:1",)).identity == "u-9"
    assert recognised(KNOWN, "u-9", "root@euler", ("mac:1",)).entry is None
    assert is_new(recognised(KNOWN, "", "root@elsewhere", ("mac:1",)).identity)
    found = recognised(KNOWN, "", "root@orange", ("mac:1",))
    assert is_new(found.identity)
    assert found.entry == ORANGE
