"""What the installer of a bundle is told, and what it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.deploy.bundle import by_hand
from profagent.deploy.bundle.by_hand import main
from profagent.deploy.daemon_tree import DaemonTree
from profagent.deploy.layout import Layout
from profagent.deploy.units import service

TREE = DaemonTree.of("1.2", "start", {"a/b.py": b"1"})


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of(str(tmp_path / "p"))


def install_service(layout: Layout) -> None:
    for path, (text, _) in service("none", layout, (), deletes=False).files.items():
        Path(path).parent.mkdir(parents=True)
        Path(path).write_text(text)


def test_a_version_is_called_as_a_deployment_calls_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, (data, _) in TREE.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    assert main(["/p", "name", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{TREE.name}\n"
    (tmp_path / "lib/a/b.py").write_bytes(b"2")
    assert main(["/p", "name", str(tmp_path)]) == 1
    assert "lib/a/b.py is damaged" in capsys.readouterr().err
    (tmp_path / "lib/a/b.py").unlink()
    assert main(["/p", "name", str(tmp_path)]) == 1
    assert "lib/a/b.py" in capsys.readouterr().err


def test_a_service_stays_with_its_init_system(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    install_service(layout)
    assert main([layout.prefix, "init", "auto"]) == main([layout.prefix, "init", "none"]) == 0
    assert capsys.readouterr().out == "echo none\n" * 2
    assert main([layout.prefix, "init", "initd"]) == 1
    assert "it was installed with --init none" in capsys.readouterr().err


def test_systemd_is_not_waited_for_where_it_does_not_run(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(by_hand, "_SYSTEMD_RUNS", str(tmp_path / "none"))
    assert main([layout.prefix, "init", "systemd"]) == 1
    assert "does not run systemd" in capsys.readouterr().err


def test_everything_is_written_beside_what_it_is_to_replace(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    for name in by_hand.KEYS.values():
        (keys / name).write_text(f"new {name}")
    Path(layout.keys).mkdir(parents=True)
    Path(layout.keys, "board.key").write_text("old")
    monkeypatch.setattr("sys.stdin.read", lambda: "/a b\n/c\n", raising=False)
    assert main([layout.prefix, "staged", "none", str(keys), "0.0.0.0:1"]) == 0
    assert Path(layout.keys, "board.key").read_text() == "old"
    assert Path(layout.keys, "board.key.new").read_text() == "new board.key"
    assert Path(layout.keys, "board.key.new").stat().st_mode & 0o777 == 0o600
    settings = Path(f"{layout.config}.new").read_text()
    assert settings.startswith('listen = "0.0.0.0:1"\nroots = ["/a b", "/c"]\n')
    assert f'tls_key = "{layout.keys}/board.key"\n' in settings
    assert f'tls_key = "{layout.keys}/board.key.new"\n' in Path(f"{layout.config}.new.part").read_text()
    assert len(Path(f"{layout.board_id}.new").read_text().strip()) == 36
    assert not Path(layout.config).exists()
