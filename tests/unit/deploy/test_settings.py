"""The settings that a board is given: what it has, what was asked for, and that the daemon takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profagent.deploy.board import Asked, BoardSettings, board_settings
from profagent.deploy.units import Layout
from profagent.errors import ProfagentError, UsageError
from profagentd.config import examine

USUAL = Layout.of()
ELSEWHERE = Layout.of("/data/p")


def made(old: str = "", layout: Layout = USUAL, init: str = "systemd", **asked: Any) -> BoardSettings:
    return board_settings(old, Asked(**asked), layout, init, "u-1", "record-lab")


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
        {"roots": ("relative",)},
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
