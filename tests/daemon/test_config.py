"""Settings from a file, from files that name roots, and from arguments; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagentd.config import DaemonConfig, examine, lie_together
from profagentd.main import make_parser

TLS = {"tls_cert": "c.pem", "tls_key": "c.key", "tls_ca": "ca.pem"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "daemon.toml"
    path.write_text(text, encoding="utf-8")
    return path


def configured(path: Path | None, settings: dict[str, object]) -> DaemonConfig:
    examined = examine(path, settings)
    assert examined.mistakes == []
    return examined.config


def mistakes(path: Path | None, settings: dict[str, object], *, needs_root: bool = False) -> list[str]:
    return [str(each) for each in examine(path, settings, needs_root=needs_root).mistakes]


def test_every_setting_is_a_key_and_an_argument(tmp_path: Path) -> None:
    keys = {*DaemonConfig.__dataclass_fields__}
    text = "\n".join(f"{key} = {{}}" for key in keys)  # a table, which no setting is
    refused = mistakes(written(tmp_path, text), {})
    assert not [each for each in refused if "unknown key" in each]
    assert len(refused) == len(keys)
    assert keys <= {*vars(make_parser().parse_args([]))}


def test_every_key_can_stand_in_the_file_and_arguments_win(tmp_path: Path) -> None:
    text = "roots = ['/a', '/b']\nlisten = '[::1]:0'\nquiet_after_s = 5\ndepth = 2\nscan = true\nlog_level = 'debug'\n"
    path = written(tmp_path, text)
    assert configured(path, {}) == DaemonConfig(("/a", "/b"), "[::1]:0", 5, 2, True, "debug")
    assert configured(path, {"depth": 3, "roots": None}).depth == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("roots", "/a"),
        ("roots", [1]),
        ("listen", 50151),
        ("listen", "50151"),
        ("listen", "127.0.0.1:99999"),
        ("listen", "::1:50151"),
        ("listen", f"unix:/{'d' * 107}"),
        ("retain", "all"),
        ("retain_for", [f"c{number}" for number in range(17)]),
        ("min_free", "0MB"),
        ("min_free", "100%"),
        ("state", "lib"),
        ("quiet_after_s", 0),
        ("quiet_after_s", float("nan")),
        ("depth", 0),
        ("depth", 17),
        ("log_level", "loud"),
        ("identity", "no spaces"),
        ("tls_cert", 1),
        ("insecure", "yes"),
    ],
)
def test_a_value_that_makes_no_sense_names_its_key(key: str, value: object) -> None:
    (mistake,) = examine(None, {key: value}).mistakes
    assert str(mistake).startswith(f"the arguments: {key} = ")
    assert mistake.hint.startswith(f"{key} is ")


def test_an_unknown_key_is_named_with_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, "root = '/a'\ndepth = 99\n")
    assert mistakes(path, {}) == [f"{path}: unknown key 'root'", f"{path}: depth = 99"]


@pytest.mark.parametrize("text", [b"roots = ", b"\xff", b"x = " + b"[" * 100_000, None])
def test_what_is_not_toml_or_cannot_be_read_names_its_file(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "daemon.toml"
    if text is not None:
        path.write_bytes(text)
    (mistake,) = mistakes(path, {})
    assert mistake.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"retain": "delivered"}, "retain_for"),
        ({"retain": "min_free", "min_free": "1GB"}, "retain_for"),
        ({"retain": "min_free", "retain_for": ["a"]}, "min_free"),
        ({"retain_for": ["a"]}, "retain = delivered"),
        ({"min_free": "1GB"}, "retain = min_free"),
        ({"retain": "delivered", "retain_for": ["a"], "delete_undelivered": True}, "retain = min_free"),
        ({"tls_cert": "c.pem"}, "tls_key"),
        ({"tls_revoked": "revoked.txt"}, "tls_cert"),
        ({**TLS, "insecure": True}, "leave one of them out"),
        ({**TLS, "listen": "unix:/run/d.sock"}, "its file's mode"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, object], word: str) -> None:
    assert any(word in each.hint for each in examine(None, settings).mistakes)


@pytest.mark.parametrize("listen", ["0.0.0.0:50151", "192.168.1.20:50151", "[::]:50151", "board:50151", "[fe80::1]:1"])
def test_any_other_address_needs_tls_or_is_open(listen: str) -> None:
    (mistake,) = examine(None, {"listen": listen}).mistakes
    assert "needs TLS" in str(mistake)
    assert "ssh -L" in mistake.hint
    assert configured(None, {"listen": listen, "insecure": True}).is_open
    assert not configured(None, {"listen": listen, **TLS, "tls_revoked": "revoked.txt"}).is_open


def test_each_line_of_each_conf_file_is_a_root_after_the_named_ones(tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_text("  /b  \n\n# a remark\n/c # not a remark\n/a\n")
    (tmp_path / "a.conf").write_text("/d\n/b\n")
    (tmp_path / "c.txt").write_text("/e\n")
    config = configured(None, {"roots": ["/a"], "roots_d": str(tmp_path)})
    assert config.roots == ("/a", "/d", "/b", "/c # not a remark")
    assert configured(None, {"roots_d": str(tmp_path / "none")}).roots == ()


def test_roots_that_will_not_do_are_named_with_their_file(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("/a/b\nrelative\n")
    file = f"{tmp_path}/a.conf"
    found = mistakes(None, {"roots": ["/a", "c", "c", "/a/"], "roots_d": str(tmp_path)})
    assert found == [
        f"{file}: roots: 'relative' is no absolute path",
        "the arguments: roots: c is named twice",
        "the arguments: roots: /a/ is the same directory as /a",
        f"{file}: roots: /a/b lies in /a",
        f"{file}: roots: /a/b lies in /a/",
    ]
    (tmp_path / "a.conf").write_bytes(b"\xff")
    (mistake,) = mistakes(None, {"roots_d": str(tmp_path)})
    assert mistake.startswith("the arguments: roots_d: ")


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [(b"/a", b"/a", True), (b"/a/b", b"/a", True), (b"/", b"/a", True), (b"/a", b"/ab", False)],
)
def test_paths_lie_together_when_one_holds_the_other(one: bytes, other: bytes, together: bool) -> None:
    assert lie_together(one, other) is lie_together(other, one) is together
