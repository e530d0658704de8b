"""The vendor's ini file is taken as it is."""

from __future__ import annotations

import pytest

from profagent.collect.cli import read_ini
from profagent.errors import UsageError
from profagent.ssh.connection import Target

INI = "[ssh_config]\nip = 192.0.2.2\nusername = root\npwd = pass%w=rd; #1\nport = 2222\n"


@pytest.mark.parametrize("text", [INI, "\ufeff" + INI, INI.replace("\n", "\r\n"), INI.replace(" = ", "=", 2)])
def test_a_file_tells_who_logs_in_where(text: str) -> None:
    login = read_ini(text, "ssh.ini")
    assert Target.parse(login.target) == Target("192.0.2.2", "root", 2222)
    assert login.password == "pass%w=rd; #1"
    assert "pass" not in repr(login)


def test_port_and_password_may_be_missing() -> None:
    login = read_ini("[ssh_config]\nip=fe80::1\nusername=root\n", "ssh.ini")
    assert Target.parse(login.target) == Target("fe80::1", "root", 22)
    assert login.password == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no section"),
        ("[other]\nip=1\n", "no section"),
        ("[ssh_config]\nusername=root\n", "no ip"),
        ("[ssh_config]\nip=1\n", "no username"),
        ("secret without a key", "no ini file"),
    ],
)
def test_what_is_missing_is_told_without_the_files_words(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        read_ini(text, "ssh.ini")
    assert "secret" not in str(refused.value)
