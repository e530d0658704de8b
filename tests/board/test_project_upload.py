"""A project on its way to a board, through a real OpenSSH server, with GNU's programs or BusyBox's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from profagent.collect.project import Uploaded, upload_project
from profagent.ssh.connection import connect
from tests.board.sshd import Nobody

if TYPE_CHECKING:
    from pathlib import Path

    from tests.board.sshd import Sshd

pytestmark = pytest.mark.parametrize("sshd", [pytest.param("gnu", marks=pytest.mark.long), "busybox"], indirect=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "host" / "app"
    (folder / "src").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    (folder / "src" / "acl.json").write_text("{}")
    (folder / "main of it").write_bytes(os.urandom(600_000))
    (folder / "main of it").chmod(0o755)
    (folder / "-n").write_text("")
    (folder / "lib.so").symlink_to("src/lib.so.1")
    (folder / "src" / "lib.so.1").write_text("library")
    return folder


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "board" / "my app"


async def uploaded(friend: Sshd, project: Path, there: Path, **more: object) -> Uploaded:
    async with connect(friend.target, Nobody()) as remote:
        return await upload_project(remote, project, str(there), **more)  # type: ignore[arg-type]


def shape(folder: Path) -> dict[str, object]:
    """Names with contents, where links lead, and whether files are programs."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not name.startswith((".git", ".profagent")):
            is_file = path.is_file() and not path.is_symlink()
            content = (path.read_bytes(), os.access(path, os.X_OK)) if is_file else None
            found[name] = str(path.readlink()) if path.is_symlink() else content
    return found


async def test_a_project_arrives_and_then_only_what_changed(friend: Sshd, project: Path, there: Path) -> None:
    progress: list[tuple[int, int]] = []
    first = await uploaded(friend, project, there, on_progress=lambda sent, total: progress.append((sent, total)))
    assert shape(there) == shape(project)
    assert not (there / ".git").exists()
    assert len(first.sent) == first.total == 6
    assert progress[-1][0] == progress[-1][1] > 600_000
    assert (await uploaded(friend, project, there)).sent == ()
    (project / "src" / "acl.json").write_text("[]")
    (project / "lib.so").unlink()
    (project / "lib.so").symlink_to("src/none")
    (project / "-n").chmod(0o755)
    second = await uploaded(friend, project, there)
    assert {*second.sent} == {"src/acl.json", "lib.so", "-n"}
    assert shape(there) == shape(project)


async def test_only_what_was_put_there_is_removed(friend: Sshd, project: Path, there: Path) -> None:
    (there / "src").mkdir(parents=True)
    (there / "src" / "theirs").write_text("kept")
    await uploaded(friend, project, there)
    (there / "mine").write_text("kept")
    for name in ("src/acl.json", "src/lib.so.1", "lib.so", "main of it"):
        (project / name).unlink()
    (project / "src").rmdir()
    ended = await uploaded(friend, project, there)
    assert {*ended.removed} == {"src/acl.json", "src/lib.so.1", "lib.so", "main of it", "src"}
    assert shape(there) == {**shape(project), "src": None, "src/theirs": (b"kept", False), "mine": (b"kept", False)}


async def test_a_directory_that_became_a_file(friend: Sshd, project: Path, there: Path) -> None:
    await uploaded(friend, project, there)
    (project / "src" / "acl.json").unlink()
    (project / "src" / "lib.so.1").unlink()
    (project / "src").rmdir()
    (project / "src").write_text("a file")
    await uploaded(friend, project, there)
    assert shape(there) == shape(project)


async def test_what_is_left_out_is_not_sent(friend: Sshd, project: Path, there: Path) -> None:
    (project / "profiling").mkdir()
    (project / "profiling" / "big").write_text("x")
    (project / ("JOB" + "A" * 29)).mkdir()
    os.mkfifo(project / "fifo")
    (project / "ssh.ini").write_text("pwd = secret")
    (project / "src" / "link").symlink_to("../ssh.ini")
    ended = await uploaded(friend, project, there, left_out=[project / "profiling", project / "ssh.ini"])
    assert ended.total == 6
