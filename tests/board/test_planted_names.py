"""A user of the board plants names in a directory of his, to which root's commands write: nothing goes elsewhere."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.aclconfig.edit import AclJsonFile
from profagent.collect import board_run
from profagent.collect.board_run import BoardRun, patient_ssh
from profagent.collect.look import Place
from profagent.collect.project import upload_project
from profagent.errors import ProfagentError, UsageError
from profagent.ssh.connection import connect
from tests.board.sshd import Nobody

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from profagent.ssh.remote import Remote
    from tests.board.sshd import Sshd

pytestmark = pytest.mark.parametrize("sshd", [pytest.param("busybox", marks=pytest.mark.long), "toybox"], indirect=True)

USER = 65534
SECRET = b'{"only": "root"}\n'
# Makes each new file of a directory a link to another one, as fast as it can.
_PLANT = """import os, sys
directory, target, user = sys.argv[1:]
# Not earlier: he may not read this Python.
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
print("up", flush=True)
while True:
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        try:
            if not os.path.islink(path) and os.path.isfile(path) and name != "main":
                os.unlink(path)
                os.symlink(target, path)
        except OSError:
            pass
"""


class Attacked:
    """A directory of the user's, and files of root's that nobody else may read or write."""

    def __init__(self, folder: Path) -> None:
        self.app, self.etc = folder / "app", folder / "etc"
        for each in (self.app, self.etc):
            each.mkdir()
        self.acl = self.app / "acl.json"
        self.acl.write_text("{}")
        self.acl.chmod(0o640)
        self.secret = self.etc / "secret.json"
        self.secret.write_bytes(SECRET)
        self.secret.chmod(0o600)
        for each in (self.app, self.acl):
            os.chown(each, USER, USER)

    def plant(self, name: str, target: Path) -> None:
        path = self.app / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        os.chown(path, USER, USER, follow_symlinks=False)

    def check_secret(self) -> None:
        """Root's file is as it was, and the only one there."""
        found = self.secret.stat()
        assert (self.secret.read_bytes(), stat.S_IMODE(found.st_mode), found.st_uid) == (SECRET, 0o600, 0)
        assert list(self.etc.iterdir()) == [self.secret]


@pytest.fixture
def attacked() -> Iterator[Attacked]:
    """They are where another user can come."""
    assert os.geteuid() == 0, "root's names and another user's: run the tests as root"
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        Path(folder).chmod(0o755)
        yield Attacked(Path(folder))


@pytest.fixture
async def remote(friend: Sshd) -> AsyncIterator[Remote]:
    async with connect(friend.target, Nobody()) as opened:
        yield opened


async def test_a_link_at_the_name_of_the_new_file_is_not_written_through(attacked: Attacked, remote: Remote) -> None:
    attacked.plant("acl.json.part", attacked.secret)
    file = AclJsonFile(str(attacked.acl), "acl.json", remote)
    assert await file.read() == b"{}"
    await file.write(b"new")
    assert attacked.acl.read_bytes() == b"new"
    found = attacked.acl.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o640, USER, USER)
    attacked.check_secret()
    assert {path.name for path in attacked.app.iterdir()} == {"acl.json", "acl.json.part"}


async def test_a_link_leads_on_only_to_what_is_its_owners(attacked: Attacked, remote: Remote) -> None:
    real = attacked.app / "conf.json"
    attacked.acl.rename(real)
    attacked.plant("acl.json", Path("conf.json"))
    attacked.plant("etc", attacked.etc)
    own = AclJsonFile(str(attacked.acl), "acl.json", remote)
    await own.read()
    await own.write(b"new")
    assert attacked.acl.is_symlink()
    assert real.read_bytes() == b"new"
    attacked.plant("acl.json", attacked.secret)
    for path in (attacked.acl, attacked.app / "etc" / "secret.json"):
        file = AclJsonFile(str(path), "acl.json", remote)
        with pytest.raises(UsageError, match=f"a link of user {USER} leads to what is not his"):
            await file.read()
        with pytest.raises(ProfagentError, match=f"a link of user {USER} leads to what is not his"):
            await file.write(b"new")
    with pytest.raises(ProfagentError, match="leads to what is not his"):
        await remote.put(b"new", str(attacked.app / "etc" / "new"))
    await remote.put(b"new", str(attacked.acl), 0o600)
    assert not attacked.acl.is_symlink()
    attacked.plant("acl.json", attacked.etc)
    # Some `mv` replace such a link, and some refuse to.
    with suppress(ProfagentError):
        await remote.put(b"new", str(attacked.acl), 0o600)
    attacked.check_secret()


async def test_an_upload_goes_through_no_link_of_another_user(
    attacked: Attacked, remote: Remote, tmp_path: Path
) -> None:
    (tmp_path / "project" / "lib").mkdir(parents=True)
    (tmp_path / "project" / "lib" / "new").write_text("new")
    attacked.plant("lib", attacked.etc)
    with pytest.raises(ProfagentError, match=f"lib is a link of user {USER}"):
        await upload_project(remote, tmp_path / "project", str(attacked.app))
    attacked.check_secret()


async def test_names_that_change_at_each_moment_lead_nowhere(attacked: Attacked, remote: Remote) -> None:
    """Whether the file is written then is up to who does that."""
    command = [sys.executable, "-I", "-c", _PLANT, str(attacked.app), str(attacked.secret), str(USER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as planting:  # noqa: ASYNC220 - the loop may wait so long
        assert planting.stdout is not None
        assert planting.stdout.readline() == b"up\n"
        tries = 0
        for _ in range(12):
            try:
                await remote.put(b"new", str(attacked.acl), 0o666, owner=f"{USER}:{USER}")
            except ProfagentError:
                tries += 1
        planting.kill()
    # Otherwise nothing was tried.
    assert tries or attacked.acl.is_symlink()
    attacked.check_secret()


async def run(friend: Sshd, place: Place, acl: Path, told: list[str]) -> bytes:
    """Run a program with another acl.json; what it has printed."""
    shown = bytearray()
    async with patient_ssh(friend.target, Nobody(), told.append) as ssh:
        program = BoardRun(ssh, place, lambda piece, _: shown.extend(piece))
        async with program.held():
            await program.start((), {}, str(acl), "changed")
        end = await program.followed()
        await program.leave(end)
    assert (end.status, end.why) == (0, ""), shown
    return bytes(shown)


@pytest.fixture
def place(tmp_path: Path, attacked: Attacked) -> Place:
    """Root's program, with its acl.json in the user's directory."""
    (tmp_path / "main").write_text(f"#!/bin/sh\ncat {attacked.acl}\n")
    (tmp_path / "main").chmod(0o755)
    return Place(str(tmp_path), "main")


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_run_changes_no_file_but_the_acl_json(
    attacked: Attacked, friend: Sshd, place: Place, is_there: bool
) -> None:
    attacked.plant("acl.json.part", attacked.secret)
    if not is_there:
        attacked.acl.unlink()
        attacked.plant("acl.json.none-before-profagent", attacked.etc / "new")
    assert await run(friend, place, attacked.acl, []) == b"changed"
    attacked.check_secret()
    assert attacked.acl.exists() is is_there
    if is_there:
        assert attacked.acl.read_text() == "{}"
        assert attacked.acl.stat().st_uid == USER


async def test_another_user_cannot_keep_root_from_the_board(attacked: Attacked, friend: Sshd, place: Place) -> None:
    locks = [Path(tempfile.gettempdir(), board_run.LOCK), friend.folder / "tmp" / f"{board_run.LOCK}.{USER}"]
    for each in locks:
        each.mkdir(exist_ok=True)
        os.chown(each, USER, USER)
    told: list[str] = []
    name = f"/bin/{board_run.LOCK}"
    command = ["sh", "-c", "read -r word", name]
    with subprocess.Popen(command, user=USER, group=USER, stdin=subprocess.PIPE) as holding:  # noqa: ASYNC220 - as above
        for each in locks:
            (each / "owner").write_text(f"{holding.pid} somebody\n")
        try:
            assert await run(friend, place, attacked.acl, told) == b"changed"
        finally:
            holding.kill()
            for each in locks:
                (each / "owner").unlink()
                each.rmdir()
    (line,) = told
    assert f"a collect of user {USER} runs" in line
    assert str(holding.pid) in line


async def test_another_user_heeds_root(
    attacked: Attacked, friend: Sshd, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_run, "LOCKS", str(attacked.app.parent / "var/run"))
    told: list[str] = []
    async with patient_ssh(friend.target, Nobody(), told.append) as ssh, BoardRun(ssh, place, print).held():
        held = await asyncio.create_subprocess_exec(
            "sh", "-c", board_run.keeper(Place(str(attacked.app), "main")), user=USER, group=USER, stdout=-1, stdin=-3
        )
        said, _ = await held.communicate()
    assert said.startswith(b"held ")
    assert not (attacked.app / ".profagent").exists()
