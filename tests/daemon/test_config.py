"""Settings from a file and from arguments, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.config import DaemonConfig, configure, examine, need_root
from profagentd.errors import DaemonError
from profagentd.retention.policy import Policy, Retain
from profagentd.roots import real_roots


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "daemon.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(settings: dict[str, object]) -> DaemonError:
    with pytest.raises(DaemonError) as error:
        configure(None, settings)
    return error.value


def test_without_anything_the_defaults_hold() -> None:
    assert configure(None, {"listen": None}) == DaemonConfig((), "127.0.0.1:50151", 60.0, 4, False, "info")


def test_every_key_can_stand_in_the_file(tmp_path: Path) -> None:
    text = "roots = ['/a', '/b']\nlisten = '[::1]:0'\nquiet_after_s = 5\ndepth = 2\nscan = true\nlog_level = 'debug'\n"
    assert configure(written(tmp_path, text), {}) == DaemonConfig(("/a", "/b"), "[::1]:0", 5, 2, True, "debug")


def test_retention_can_stand_in_the_file(tmp_path: Path) -> None:
    text = "retain = 'min_free'\nretain_for = ['record-host']\nmin_free = '10%'\ndelete_undelivered = true\n"
    config = configure(written(tmp_path, text + "state = '/var/lib/x'\n"), {})
    assert (config.state, config.retain_for) == ("/var/lib/x", ("record-host",))
    assert config.policy == Policy(Retain.MIN_FREE, ("record-host",), 0, 0.1, True)


@pytest.mark.parametrize(
    ("text", "size"), [("200MB", 200_000_000), ("1.5GB", 1_500_000_000), ("64kB", 64_000), ("7B", 7), ("1TB", 10**12)]
)
def test_sizes_are_decimal(text: str, size: int) -> None:
    policy = configure(None, {"retain": "min_free", "min_free": text, "retain_for": ["a"]}).policy
    assert (policy.min_free_bytes, policy.min_free_share) == (size, 0.0)


def test_nothing_is_deleted_unless_it_is_asked_for() -> None:
    assert configure(None, {}).policy == Policy()


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"retain": "delivered"}, "retain_for"),
        ({"retain": "min_free", "min_free": "1GB"}, "retain_for"),
        ({"retain": "min_free", "retain_for": ["a"]}, "min_free"),
        ({"retain_for": ["a"]}, "retain = delivered"),
        ({"min_free": "1GB"}, "retain = min_free"),
        ({"retain": "delivered", "retain_for": ["a"], "delete_undelivered": True}, "retain = min_free"),
        ({"retain": "delivered", "retain_for": ["a"], "min_free": "1GB"}, "retain = min_free"),
    ],
)
def test_retention_that_contradicts_itself_is_refused(settings: dict[str, object], hint: str) -> None:
    assert hint in refused(settings).hint


def test_a_socket_has_the_longest_path_that_the_kernel_takes() -> None:
    longest = f"unix:/{'d' * 106}"
    assert configure(None, {"listen": longest}).listen == longest


def test_a_wrong_value_hides_nothing_that_does_not_depend_on_it() -> None:
    found = examine(None, {"retain": "delivered", "min_free": "much"}).mistakes
    assert ["min_free = 'much'" in each.text for each in found] == [True, False]
    assert "without retain_for" in found[1].text
    assert len(examine(None, {"retain": "min_free", "min_free": "much", "retain_for": ["a b"]}).mistakes) == 2


def test_arguments_win_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "roots = ['/a']\ndepth = 2\n")
    assert configure(path, {"depth": 3, "roots": None}) == DaemonConfig(("/a",), depth=3)


def test_an_unknown_key_is_named_with_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, "root = '/a'\n")
    with pytest.raises(DaemonError) as error:
        configure(path, {})
    assert str(path) in str(error.value)
    assert "'root'" in str(error.value)
    assert "roots" in error.value.hint


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("roots", "/a"),
        ("roots", [1]),
        ("roots", [""]),
        ("listen", 50151),
        ("listen", "50151"),
        ("listen", "127.0.0.1:99999"),
        ("listen", "::1:50151"),
        ("listen", f"unix:/{'d' * 107}"),
        ("retain", "all"),
        ("retain_for", "a"),
        ("retain_for", ["a", "a"]),
        ("retain_for", ["a b"]),
        ("retain_for", [["a"]]),
        ("retain_for", [f"c{number}" for number in range(17)]),
        ("min_free", 200),
        ("min_free", "200"),
        ("min_free", "0MB"),
        ("min_free", "100%"),
        ("min_free", "1e3MB"),
        ("delete_undelivered", 1),
        ("state", "lib"),
        ("state", "/lib\0"),
        ("roots", ["/a", "/b\0"]),
        ("quiet_after_s", 0),
        ("quiet_after_s", True),
        ("quiet_after_s", float("inf")),
        ("quiet_after_s", float("nan")),
        ("quiet_after_s", "60"),
        ("depth", 0),
        ("depth", 17),
        ("depth", 1.5),
        ("depth", True),
        ("scan", 1),
        ("log_level", "loud"),
        ("identity", "no spaces"),
        ("identity", ""),
        ("identity", "x" * 65),
        ("tls_cert", 1),
        ("tls_revoked", ["a"]),
        ("insecure", "yes"),
    ],
)
def test_a_value_that_makes_no_sense_names_its_key(key: str, value: object) -> None:
    error = refused({key: value})
    assert key in str(error)
    assert key in error.hint


@pytest.mark.parametrize("text", ["roots = ", "\xff"])
def test_what_is_not_toml_names_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "daemon.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DaemonError, match=r"daemon\.toml"):
        configure(path, {})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match=r"missing\.toml: No such file"):
        configure(tmp_path / "missing.toml", {})


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:1", "127.9.9.9:0", "[::1]:5", "localhost:5", "unix:/run/profagentd.sock"]
)
def test_loopback_addresses_are_fine(listen: str) -> None:
    assert configure(None, {"listen": listen}).listen == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:50151", "192.168.1.20:50151", "[::]:50151", "board:50151", "[fe80::1]:1"])
def test_any_other_address_needs_tls(listen: str) -> None:
    error = refused({"listen": listen})
    assert "TLS" in str(error)
    assert "ssh -L" in error.hint


TLS = {"tls_cert": "c.pem", "tls_key": "c.key", "tls_ca": "ca.pem"}


def test_with_tls_any_address_is_fine() -> None:
    config = configure(None, {"listen": "0.0.0.0:1", **TLS, "tls_revoked": "revoked.txt"})
    assert (config.has_tls, config.is_open) == (True, False)


def test_tls_may_stand_in_the_file_and_the_address_in_the_arguments(tmp_path: Path) -> None:
    path = written(tmp_path, "".join(f"{key} = '{value}'\n" for key, value in TLS.items()))
    assert configure(path, {"listen": "0.0.0.0:1"}).has_tls


@pytest.mark.parametrize(
    ("listen", "is_open"), [("0.0.0.0:1", True), ("board:1", True), ("127.0.0.1:1", False), ("unix:/s", False)]
)
def test_insecure_opens_what_others_can_reach(listen: str, is_open: bool) -> None:
    assert configure(None, {"listen": listen, "insecure": True}).is_open is is_open


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"tls_cert": "c.pem"}, "without tls_key and tls_ca"),
        ({**TLS, "tls_ca": ""}, "without tls_ca"),
        ({"tls_revoked": "revoked.txt"}, "without tls_cert"),
        ({**TLS, "insecure": True}, "exclude each other"),
        ({**TLS, "listen": "unix:/run/d.sock"}, "Unix socket"),
    ],
)
def test_half_of_tls_is_none(settings: dict[str, object], word: str) -> None:
    assert word in str(refused(settings))


def test_roots_become_real_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    assert real_roots(("link", "later")) == [os.fsencode(tmp_path / "real"), os.fsencode(tmp_path / "later")]


@pytest.mark.parametrize("roots", [("a", "a"), ("a", "a/b"), ("a/b/c", "a"), ("/", "a")])
def test_a_root_in_another_is_refused(roots: tuple[str, ...]) -> None:
    with pytest.raises(DaemonError, match=r"lies in|named twice"):
        real_roots(roots)


def test_roots_with_similar_names_are_fine() -> None:
    assert len(real_roots(("/a/b", "/a/bc"))) == 2


def test_a_daemon_has_a_root() -> None:
    with pytest.raises(DaemonError, match="no root"):
        need_root(DaemonConfig())
